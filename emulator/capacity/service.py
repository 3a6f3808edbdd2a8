"""The service curve of any capacity: bytes served by a moment, and its inverse, in exact integers.

Work is counted in bit * ns / s. In this unit, rate times time needs no division; one byte is 8e9
units.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from emulator.capacity import Capacity
from emulator.capacity.rates import Cycle
from emulator.errors import BadValue
from emulator.units import FOREVER, NS_PER_S, seconds_text

WORK_PER_BYTE = 8 * NS_PER_S
# in a row without service: probably a composition that never serves and cannot detect it
MAX_IDLE_SEGMENTS = 1_000_000


class Curve:
    """The service curve from ``start_ns`` on.

    Segments are read once and kept, so a query costs O(log segments). From the moment at which the
    capacity is periodic (its ``cycle``, if it has one), no segment is read: whole periods are a
    closed form.
    """

    __slots__ = (
        "_capacity",
        "_starts_ns",
        "_works",
        "_rates_bit_s",
        "_until_ns",
        "_cycle",
        "_tail_ns",
    )

    def __init__(self, capacity: Capacity, start_ns: int) -> None:
        self._capacity = capacity
        self._starts_ns = [start_ns]  # the first segment has length 0
        self._works = [0]  # done by the start of each segment
        self._rates_bit_s = [0]
        self._until_ns = start_ns
        cycle = getattr(capacity, "cycle", None)
        self._cycle: Cycle | None = None if cycle is None else cycle(start_ns)
        self._tail_ns = (
            FOREVER if self._cycle is None else min(FOREVER, max(start_ns, self._cycle.from_ns))
        )

    def served(self, t_ns: int) -> int:
        """Whole bytes served from the start up to ``t_ns``; 0 before the start."""
        if t_ns <= self._starts_ns[0]:
            return 0
        while self._until_ns < min(t_ns, self._tail_ns):
            self._extend(self._work_known())
        if self._cycle is not None and t_ns > self._tail_ns:
            return (
                self._work_known() + self._cycle.done(t_ns) - self._cycle.done(self._tail_ns)
            ) // WORK_PER_BYTE
        return bytes_by(t_ns, self._starts_ns, self._works, self._rates_bit_s)

    def when(self, size_bytes: int) -> int:
        """The smallest moment (ns) by which ``size_bytes`` are served.

        The start for 0 bytes; FOREVER if they are never served.
        """
        if size_bytes <= 0:
            return self._starts_ns[0]
        need = size_bytes * WORK_PER_BYTE
        idle = 0
        while (known := self._work_known()) < need:
            if self._until_ns >= self._tail_ns:
                return (
                    FOREVER
                    if self._cycle is None
                    else self._cycle.when_done(need - known + self._cycle.done(self._tail_ns))
                )
            self._extend(known)
            idle = 0 if self._rates_bit_s[-1] else idle + 1
            if idle > MAX_IDLE_SEGMENTS:
                silent = (
                    f"from {seconds_text(self._starts_ns[-1])} s to"
                    f" {seconds_text(self._until_ns)} s"
                )
                raise BadValue(
                    f"a capacity serves nothing {silent}: are its parts ever open together?"
                )
        return moment_of(need, self._starts_ns, self._works, self._rates_bit_s)

    def _work_known(self) -> int:
        return self._works[-1] + self._rates_bit_s[-1] * (self._until_ns - self._starts_ns[-1])

    def _extend(self, work: int) -> None:
        start_ns = self._until_ns
        rate_bit_s, until_ns = self._capacity.segment(start_ns)
        if until_ns <= start_ns < FOREVER:
            raise ValueError(
                f"{self._capacity!r}: the segment at {start_ns} ns ends at {until_ns} ns"
            )
        if rate_bit_s != self._rates_bit_s[-1]:
            self._starts_ns.append(start_ns)
            self._works.append(work)
            self._rates_bit_s.append(rate_bit_s)
        self._until_ns = max(start_ns, min(until_ns, self._tail_ns))


def bytes_by(t_ns: int, starts_ns: list[int], works: list[int], rates_bit_s: list[int]) -> int:
    """Whole bytes served by ``t_ns``, which is not before the first segment.

    ``works``: the work done by the start of each segment.
    """
    index = bisect_right(starts_ns, t_ns) - 1
    return (works[index] + rates_bit_s[index] * (t_ns - starts_ns[index])) // WORK_PER_BYTE


def moment_of(work: int, starts_ns: list[int], works: list[int], rates_bit_s: list[int]) -> int:
    """The smallest moment by which ``work``, above 0, is done; FOREVER if never."""
    # the last segment that starts with less work done; only the very last can have rate 0 here
    index = bisect_left(works, work) - 1
    if not rates_bit_s[index]:
        return FOREVER
    return starts_ns[index] - (works[index] - work) // rates_bit_s[index]  # rounded up


class Steady:
    """The ``Curve`` of a constant rate, the most frequent case; it stores no segments."""

    __slots__ = ("rate_bit_s", "start_ns")

    def __init__(self, rate_bit_s: int, start_ns: int) -> None:
        self.rate_bit_s, self.start_ns = rate_bit_s, start_ns

    def served(self, t_ns: int) -> int:
        return max(0, self.rate_bit_s * (t_ns - self.start_ns) // WORK_PER_BYTE)

    def when(self, size_bytes: int) -> int:
        # rounded up
        return min(FOREVER, self.start_ns - -max(0, size_bytes) * WORK_PER_BYTE // self.rate_bit_s)


def curve_of(capacity: Capacity, start_ns: int) -> Curve | Steady:
    """Return the service curve from ``start_ns`` on; ``Steady`` if the rate no longer changes."""
    rate_bit_s, until_ns = capacity.segment(start_ns)
    return (
        Steady(rate_bit_s, start_ns)
        if rate_bit_s and until_ns >= FOREVER
        else Curve(capacity, start_ns)
    )


class AtOnce:
    """The service curve of a link without a rate limit: all bytes at ``start_ns``."""

    __slots__ = ("_start_ns",)

    def __init__(self, start_ns: int) -> None:
        self._start_ns = start_ns

    def served(self, t_ns: int) -> int:
        return FOREVER if t_ns >= self._start_ns else 0

    def when(self, size_bytes: int) -> int:
        return self._start_ns


def bytes_served(capacity: Capacity, start: int, end: int) -> int:
    """Whole bytes that ``capacity`` serves from ``start`` to ``end`` (ns), rounded down."""
    return Curve(capacity, start).served(end)


def served_at(capacity: Capacity, start: int, size_bytes: int) -> int:
    """The smallest t (ns) with bytes_served(capacity, start, t) >= ``size_bytes``.

    ``start`` for size 0; FOREVER if there is no such t.
    """
    return Curve(capacity, start).when(size_bytes)
