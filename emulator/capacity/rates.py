"""Capacities without a recording, and the table of one period of a periodic capacity.

Constant rates, outages, TDMA frames, and the lowest of several capacities or one with a gate. An
outage or a slot table is a gate: 0 while closed, OPEN_BIT_S while open. So a link with gates is the
lowest of its rate and its gates. Compositions can be nested. Links with the same parts should share
one object, because it keeps a table of the common period.

With the table of a period (``Cycle``), a distant moment needs one division, not a loop over
millions of segments. A periodic capacity has a method ``cycle(t_ns) -> Cycle | None`` in addition
to ``segment``; curves and compositions use it.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from copy import copy
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import mul

import numpy as np

from emulator.capacity import Capacity
from emulator.errors import BadValue, check_whole
from emulator.units import FOREVER, seconds_text

OPEN_BIT_S = FOREVER
"""The rate of an open gate: no limit."""
MAX_SEGMENTS = 500_000  # in the common period of a composition; if longer, segments are read
MAX_PERIOD_NS = 2**61  # so that sums of two moments fit 64 bits

Rates = Callable[[list[np.ndarray]], np.ndarray]


class Cycle:
    """Rates that repeat with ``period_ns`` from ``from_ns`` on.

    ``starts_ns`` are relative to ``from_ns``; the first is 0. A cycle is immutable and shared by
    all curves over the same capacity. Work is in bit * ns / s, as in ``emulator.capacity.service``.
    """

    __slots__ = ("from_ns", "period_ns", "starts_ns", "rates_bit_s", "work", "_works")

    def __init__(
        self,
        from_ns: int,
        period_ns: int,
        starts_ns: Sequence[int] | np.ndarray,
        rates_bit_s: Sequence[int] | np.ndarray,
    ) -> None:
        starts, rates = np.asarray(starts_ns, np.int64), np.asarray(rates_bit_s, np.int64)
        changes = np.concatenate(([True], rates[1:] != rates[:-1]))
        starts, rates = starts[changes], rates[changes]
        self.from_ns, self.period_ns = from_ns, period_ns
        # Arrays of 64-bit integers need 16 bytes per segment, and their items are Python integers,
        # which never overflow.
        self.starts_ns, self.rates_bit_s = array("q", starts.tobytes()), array("q", rates.tobytes())
        lengths: list[int] = np.diff(starts, append=period_ns).tolist()
        self._works: list[int] = [0, *accumulate(map(mul, self.rates_bit_s, lengths))]
        self.work = self._works.pop()  # of a whole period

    def state(self) -> tuple[int, int, np.ndarray, np.ndarray]:
        """What a checkpoint keeps: the constructor's arguments."""
        starts, rates = (np.asarray(each, np.int64) for each in (self.starts_ns, self.rates_bit_s))
        return self.from_ns, self.period_ns, starts, rates

    def restore(self, state: tuple[int, int, np.ndarray, np.ndarray]) -> None:
        self.__init__(*state)  # type: ignore[misc]  # as the constructor made it

    def moved(self, from_ns: int) -> Cycle:
        """Return the same cycle from another moment on; it shares the table."""
        moved = copy(self)
        moved.from_ns = from_ns
        return moved

    def mapped(self, rate: Callable[[int], int]) -> Cycle:
        """Return the cycle with every rate replaced by ``rate(rate)``."""
        kinds, which = np.unique(np.asarray(self.rates_bit_s), return_inverse=True)
        replaced = np.array([rate(int(kind)) for kind in kinds], np.int64)
        return Cycle(self.from_ns, self.period_ns, self.starts_ns, replaced[which])

    def segment(self, t_ns: int) -> tuple[int, int]:
        """As ``Capacity.segment``; FOREVER if the rate never changes."""
        if len(self.starts_ns) == 1:
            return self.rates_bit_s[0], FOREVER
        phase_ns = (t_ns - self.from_ns) % self.period_ns
        after = bisect_right(self.starts_ns, phase_ns)
        end_ns = self.starts_ns[after] if after < len(self.starts_ns) else self.period_ns
        return self.rates_bit_s[after - 1], min(t_ns - phase_ns + end_ns, FOREVER)

    def done(self, t_ns: int) -> int:
        """The work done from ``from_ns`` to ``t_ns``."""
        periods, phase_ns = divmod(t_ns - self.from_ns, self.period_ns)
        index = bisect_right(self.starts_ns, phase_ns) - 1
        return (
            periods * self.work
            + self._works[index]
            + self.rates_bit_s[index] * (phase_ns - self.starts_ns[index])
        )

    def when_done(self, work: int) -> int:
        """The smallest moment with ``done`` >= ``work`` > 0; FOREVER if there is none."""
        if self.work == 0:
            return FOREVER
        periods = (work - 1) // self.work
        rest = work - periods * self.work  # above 0, up to a whole period
        # the last segment that starts with less work done, so its rate is not 0
        index = bisect_left(self._works, rest) - 1
        # rounded up
        phase_ns = self.starts_ns[index] - (self._works[index] - rest) // self.rates_bit_s[index]
        return min(self.from_ns + periods * self.period_ns + phase_ns, FOREVER)

    def edges_ns(self, from_ns: int, period_ns: int) -> np.ndarray:
        """Where rates change within ``period_ns``, in ns from ``from_ns``.

        ``period_ns`` is a multiple of the cycle's own period.
        """
        if len(self.starts_ns) == 1:
            return np.zeros(1, np.int64)
        once = (
            np.asarray(self.starts_ns) - (from_ns - self.from_ns) % self.period_ns
        ) % self.period_ns
        begins = np.arange(0, period_ns, self.period_ns, dtype=np.int64)
        edges: np.ndarray = (begins[:, None] + once).ravel()
        return edges

    def rates_at(self, from_ns: int, offsets_ns: np.ndarray) -> np.ndarray:
        """The rates at ``from_ns`` + each of ``offsets_ns``."""
        phases_ns = (offsets_ns + (from_ns - self.from_ns) % self.period_ns) % self.period_ns
        indices = np.searchsorted(np.asarray(self.starts_ns), phases_ns, side="right") - 1
        rates: np.ndarray = np.asarray(self.rates_bit_s)[indices]
        return rates


@lru_cache(maxsize=256)  # returns the same object again: users compare cycles by identity
def constant(rate_bit_s: int, from_ns: int = 0) -> Cycle:
    """Make the cycle of a rate that never changes from ``from_ns`` on."""
    return Cycle(from_ns, 1, [0], [rate_bit_s])


def combined(cycles: Sequence[Cycle], rates: Rates) -> Cycle | None:
    """Combine ``cycles`` into one with ``rates`` of all their rates.

    None if their common period is too long for a table.
    """
    from_ns = max(cycle.from_ns for cycle in cycles)
    period_ns = math.lcm(*(cycle.period_ns for cycle in cycles if len(cycle.starts_ns) > 1))
    segments = sum(
        period_ns // cycle.period_ns * len(cycle.starts_ns)
        for cycle in cycles
        if len(cycle.starts_ns) > 1
    )
    if period_ns > MAX_PERIOD_NS or segments > MAX_SEGMENTS:
        return None
    edges = np.unique(
        np.concatenate([[0], *(cycle.edges_ns(from_ns, period_ns) for cycle in cycles)]).astype(
            np.int64
        )
    )
    return Cycle(
        from_ns, period_ns, edges, rates([cycle.rates_at(from_ns, edges) for cycle in cycles])
    )


class Constant:
    """A capacity of ``rate_bit_s``, an integer above 0."""

    def __init__(self, rate_bit_s: int) -> None:
        check_whole("rate", rate_bit_s, 1, unit="bit/s")
        self.rate_bit_s = rate_bit_s

    def segment(self, t_ns: int) -> tuple[int, int]:
        return self.rate_bit_s, FOREVER

    def cycle(self, t_ns: int) -> Cycle:
        return constant(self.rate_bit_s)


# durations per draw; constant, so that the sequence depends only on the generator
_DRAWS = 256


class Windows:
    """A capacity of ``rate_bit_s``, and 0 in each of ``windows``.

    A window is (begin, end) in ns, without the end. Windows are in order and do not overlap. An
    outage with the end FOREVER never ends.
    """

    def __init__(self, windows: Sequence[tuple[int, int]], rate_bit_s: int = OPEN_BIT_S) -> None:
        for begin_ns, end_ns in windows:
            if not 0 <= begin_ns < end_ns:
                raise BadValue(
                    f"outage from {seconds_text(begin_ns)} s to {seconds_text(end_ns)} s: expected"
                    " 0 or more, and an end after the begin"
                )
        for (_, end_ns), (begin_ns, _) in pairwise(windows):
            if begin_ns < end_ns:
                raise BadValue(
                    f"outage at {seconds_text(begin_ns)} s: begins before the previous outage ends,"
                    f" at {seconds_text(end_ns)} s"
                )
        self.rate_bit_s = rate_bit_s
        joined: list[list[int]] = []
        for begin_ns, end_ns in windows:
            if joined and joined[-1][1] == begin_ns:
                joined[-1][1] = end_ns
            else:
                joined.append([begin_ns, end_ns])
        # closed after an odd number of borders
        self._borders_ns = [border for window in joined for border in window]

    def segment(self, t_ns: int) -> tuple[int, int]:
        passed = bisect_right(self._borders_ns, t_ns)
        until_ns = self._borders_ns[passed] if passed < len(self._borders_ns) else FOREVER
        return 0 if passed % 2 else self.rate_bit_s, min(until_ns, FOREVER)

    def cycle(self, t_ns: int) -> Cycle | None:
        """The constant rate after the last window."""
        last_ns = self._borders_ns[-1] if self._borders_ns else 0
        return (
            constant(self.rate_bit_s, last_ns)
            if last_ns < FOREVER
            else constant(0, self._borders_ns[-2])
        )


class OnOff:
    """A gate that alternates between open and closed, for exponential times; it starts open.

    The mean times are ``mean_on_ns`` and ``mean_off_ns``; each time is at least 1 ns. No other code
    may draw from ``rng``. Times are drawn in order of time, only as far as needed, and kept, so the
    order of calls changes nothing.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        mean_on_ns: int,
        mean_off_ns: int,
        rate_bit_s: int = OPEN_BIT_S,
    ) -> None:
        for name, mean_ns in (("open", mean_on_ns), ("closed", mean_off_ns)):
            if not 1 <= mean_ns < math.inf:
                raise BadValue(f"mean time {name} {mean_ns} ns: expected 1 ns or more")
        self.rate_bit_s = rate_bit_s
        self._rng = rng
        self._means_ns = np.tile([float(mean_on_ns), float(mean_off_ns)], _DRAWS // 2)
        self._borders_ns = [0]

    def segment(self, t_ns: int) -> tuple[int, int]:
        if t_ns >= FOREVER:
            return 0, FOREVER
        while self._borders_ns[-1] <= t_ns:
            self._draw()
        after = bisect_right(self._borders_ns, t_ns)
        return self.rate_bit_s if after % 2 or not after else 0, self._borders_ns[after]

    def _draw(self) -> None:
        at_ns = self._borders_ns[-1]
        for duration_ns in self._rng.exponential(self._means_ns).tolist():
            at_ns = min(at_ns + max(1, round(duration_ns)), FOREVER)
            self._borders_ns.append(at_ns)


class Slotted:
    """A capacity of ``rate_bit_s`` in the slots ``own`` of each frame, and 0 elsewhere.

    | own slot      guard | other slot    guard | own slot      guard | ...   one frame, repeated

    ``own`` holds numbers from 0 to ``slots_per_frame`` - 1. The last ``guard_ns`` of every slot are
    closed, even if the next slot is also an own one. A frame starts at ``offset_ns``; frames repeat
    before and after it.
    """

    def __init__(
        self,
        slot_ns: int,
        slots_per_frame: int,
        own: Collection[int],
        guard_ns: int = 0,
        rate_bit_s: int = OPEN_BIT_S,
        offset_ns: int = 0,
    ) -> None:
        if slot_ns < 1 or slots_per_frame < 1 or slot_ns * slots_per_frame > MAX_PERIOD_NS:
            raise BadValue(
                f"{slots_per_frame} slots of {seconds_text(slot_ns)} s: expected 1 or more, of 1 ns"
                " or more"
            )
        if not 0 <= guard_ns < slot_ns:
            raise BadValue(
                f"guard {seconds_text(guard_ns)} s: expected 0 or more and less than the slot,"
                f" {seconds_text(slot_ns)} s"
            )
        wrong = [slot for slot in own if not 0 <= slot < slots_per_frame]
        if wrong or not own:
            raise BadValue(
                f"own slots {sorted(own)}: expected one or more of 0 to {slots_per_frame - 1}"
            )
        self.slot_ns, self.slots_per_frame = slot_ns, slots_per_frame
        self.guard_ns, self.own = guard_ns, frozenset(own)
        begins = np.array(sorted(self.own), np.int64) * slot_ns
        ends = begins + slot_ns - guard_ns
        starts = np.unique(
            np.concatenate([[0], begins, ends[ends < slot_ns * slots_per_frame]]).astype(np.int64)
        )
        self._cycle = Cycle(
            offset_ns % (slot_ns * slots_per_frame),
            slot_ns * slots_per_frame,
            starts,
            np.where(np.isin(starts, begins), rate_bit_s, 0),
        )

    def segment(self, t_ns: int) -> tuple[int, int]:
        return self._cycle.segment(t_ns)

    def cycle(self, t_ns: int) -> Cycle:
        """One frame."""
        return self._cycle


class Lowest:
    """A capacity that is at every moment the lowest rate of its ``parts``."""

    def __init__(self, *parts: Capacity) -> None:
        if not parts:
            raise BadValue("the lowest of no capacities: expected one or more")
        self.parts = parts
        self._cycle: Cycle | None = None
        self._looked = False

    def state(self) -> tuple[Capacity, ...]:
        """What a checkpoint keeps: not the table, which may be large and is computed again."""
        return self.parts

    def restore(self, state: tuple[Capacity, ...]) -> None:
        self.parts, self._cycle, self._looked = state, None, False

    def segment(self, t_ns: int) -> tuple[int, int]:
        cycle = self.cycle(t_ns)
        if cycle is not None and t_ns >= cycle.from_ns:
            return cycle.segment(t_ns)
        pieces = [part.segment(t_ns) for part in self.parts]
        silent = [until_ns for rate_bit_s, until_ns in pieces if rate_bit_s == 0]
        if silent:
            # FOREVER if one part never serves again
            return 0, max(silent)
        return self._rate([rate_bit_s for rate_bit_s, _ in pieces]), min(
            until_ns for _, until_ns in pieces
        )

    def cycle(self, t_ns: int) -> Cycle | None:
        """The common period of the parts, computed once.

        None if a part has no period or the common one is too long for a table.
        """
        if not self._looked:
            self._looked = True
            cycles = [cycle_of(part, t_ns) for part in self.parts]
            known = [cycle for cycle in cycles if cycle is not None]
            self._cycle = combined(known, self._rates) if len(known) == len(cycles) else None
        return self._cycle

    def _rate(self, rates_bit_s: list[int]) -> int:
        return min(rates_bit_s)

    def _rates(self, rates_bit_s: list[np.ndarray]) -> np.ndarray:
        lowest: np.ndarray = np.minimum.reduce(rates_bit_s)
        return lowest


class Gated(Lowest):
    """``capacity`` while ``gate``, any capacity, has a rate above 0; otherwise 0."""

    def __init__(self, capacity: Capacity, gate: Capacity) -> None:
        super().__init__(capacity, gate)

    def _rate(self, rates_bit_s: list[int]) -> int:
        return rates_bit_s[0]

    def _rates(self, rates_bit_s: list[np.ndarray]) -> np.ndarray:
        return np.where(rates_bit_s[1] > 0, rates_bit_s[0], 0)


def cycle_of(capacity: Capacity, t_ns: int) -> Cycle | None:
    """Return the cycle of ``capacity``, queried at ``t_ns``; None if it has none."""
    cycle = getattr(capacity, "cycle", None)
    return None if cycle is None else cycle(t_ns)
