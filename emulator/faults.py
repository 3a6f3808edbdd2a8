"""Faults of a run: at given moments or from a random process, drawn lazily in order of time.

A lasting fault is a window that is known in advance. A cut closes the capacity of a link, a slow
fault lowers the speed of a device, and a freeze does both. So both clocks use the same moments to
the nanosecond, and the end of a window causes no burst of bytes.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from emulator.capacity.rates import OPEN_BIT_S, Cycle, constant
from emulator.compute import Device, Throttled, copied, worked_ns
from emulator.errors import BadValue, check_whole
from emulator.units import FOREVER

CUTS = {"up": ("cut", "cut_up", "freeze"), "down": ("cut", "cut_down", "freeze")}
"""Kinds of faults that close a link, by the link's direction."""
SLOWING = ("slow", "freeze")
LASTING = ("cut", "cut_up", "cut_down", "slow", "freeze")
KINDS = (*LASTING, "kill", "restart", "duplicate", "corrupt")


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one ``kind`` that hits ``target`` at ``at_ns``.

    ``for_ns`` is its length. ``factor`` scales the target's speed during a slow fault; it is above
    0 and at most 1.
    """

    at_ns: int
    target: str
    kind: str
    for_ns: int = 0
    factor: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadValue(f"fault {self.kind!r}: expected one of {', '.join(KINDS)}")
        if self.at_ns < 0 or self.for_ns < 0 or (self.kind in LASTING) != (self.for_ns > 0):
            raise BadValue(
                f"fault {self.kind!r} at {self.at_ns} ns for {self.for_ns} ns: expected a moment of"
                " 0 or more, and a length if it lasts"
            )
        if not 0 < self.factor <= 1:
            raise BadValue(
                f"fault {self.kind!r}: factor {self.factor}: expected a number above 0 and at"
                " most 1"
            )

    @property
    def until_ns(self) -> int:
        return min(self.at_ns + self.for_ns, FOREVER)


def single_fault(
    at_ns: int, target: str, kind: str, for_ns: int = 0, factor: float = 1.0
) -> list[Fault]:
    """Make one fault; a kill with a length is followed by a restart."""
    if kind == "kill" and for_ns:
        return [Fault(at_ns, target, "kill"), Fault(at_ns + for_ns, target, "restart")]
    return [Fault(at_ns, target, kind, for_ns, factor)]


@dataclass(slots=True)
class PoissonFaults:
    """Draws faults of one target, separated by exponential times of mean ``mean_ns``.

    Such a time runs from the end of one fault to the start of the next. With ``random_length``,
    lengths are exponential with mean ``for_ns``. Each drawn time is at least 1 ns. No other code
    may draw from ``rng``. The iterator is plain data, so that a run can be saved and continued.
    """

    rng: np.random.Generator
    target: str
    kind: str
    mean_ns: int
    for_ns: int = 0
    factor: float = 1.0
    random_length: bool = False
    _end_ns: int = 0
    _drawn: list[Fault] = field(default_factory=list)  # not yet returned, the last one first

    def __post_init__(self) -> None:
        check_whole("mean time between faults", self.mean_ns, 1, unit="ns")

    def __iter__(self) -> PoissonFaults:
        return self

    def __next__(self) -> Fault:
        if not self._drawn:
            if self._end_ns >= FOREVER:
                raise StopIteration
            at_ns = self._end_ns + _exponential(self.rng, self.mean_ns)
            length_ns = _exponential(self.rng, self.for_ns) if self.random_length else self.for_ns
            self._end_ns = at_ns + length_ns
            if at_ns >= FOREVER:
                raise StopIteration
            self._drawn = single_fault(at_ns, self.target, self.kind, length_ns, self.factor)[::-1]
        return self._drawn.pop()


poisson_faults = PoissonFaults  # the name in the interface of the library


class InOrder:
    """The faults of several ``sources``, merged by time and drawn only as far as needed.

    Each source is in order of time. Faults at the same ns keep the order of the sources.
    """

    def __init__(self, *sources: Iterable[Fault]) -> None:
        self._sources = [
            deque(source) if isinstance(source, Sequence) else iter(source) for source in sources
        ]
        self._heads: list[tuple[int, int, Fault]] = []  # a heap: moment, source, its next fault
        for index in range(len(self._sources)):
            self._draw(index)

    def __iter__(self) -> InOrder:
        return self

    def __next__(self) -> Fault:
        if not self._heads:
            raise StopIteration
        _, index, fault = heapq.heappop(self._heads)
        self._draw(index)
        return fault

    def _draw(self, index: int) -> None:
        source = self._sources[index]
        if isinstance(source, deque):
            fault = source.popleft() if source else None
        else:
            fault = next(source, None)
        if fault is not None:
            heapq.heappush(self._heads, (fault.at_ns, index, fault))


def _exponential(rng: np.random.Generator, mean_ns: int) -> int:
    return max(1, round(rng.exponential(mean_ns)))


class Schedule:
    """Faults of several sources, as merged by ``InOrder``."""

    def __init__(self, *sources: Iterable[Fault]) -> None:
        self._faults = InOrder(*sources)
        self._next = next(self._faults, None)

    def next_due(self) -> int:
        """The moment of the next fault; FOREVER if there is none."""
        return FOREVER if self._next is None else self._next.at_ns

    def pop_due(self, now: int) -> list[Fault]:
        """Remove and return the faults at or before ``now``, in order of time."""
        due = []
        while self._next is not None and self._next.at_ns <= now:
            due.append(self._next)
            self._next = next(self._faults, None)
        return due


class Timeline:
    """The faults that are active at any moment, from lasting ``faults`` in order of time.

    It keeps all faults that it has drawn.
    """

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.finite = isinstance(faults, Sequence)
        self._faults = faults if isinstance(faults, InOrder) else InOrder(faults)
        self._next = next(self._faults, None)
        self._on: list[tuple[int, int, Fault]] = []  # a heap by end
        self._begun = 0
        self._starts_ns = [0]
        self._levels: list[tuple[Fault, ...]] = [()]

    def at(self, t_ns: int) -> tuple[tuple[Fault, ...], int]:
        """Return (the active faults, the moment until which they do not change)."""
        while self._starts_ns[-1] <= t_ns and self._border_ns() < FOREVER:
            self._advance(self._border_ns())
        index = bisect_right(self._starts_ns, t_ns)
        return self._levels[index - 1], (
            self._starts_ns[index] if index < len(self._starts_ns) else FOREVER
        )

    def last_ns(self) -> int:
        """The moment of the last change. Only for a finite timeline."""
        self.at(FOREVER)
        return self._starts_ns[-1]

    def _border_ns(self) -> int:
        return min(
            self._next.at_ns if self._next else FOREVER, self._on[0][0] if self._on else FOREVER
        )

    def _advance(self, to_ns: int) -> None:
        while self._on and self._on[0][0] <= to_ns:
            heapq.heappop(self._on)
        while self._next is not None and self._next.at_ns <= to_ns:
            heapq.heappush(self._on, (self._next.until_ns, self._begun, self._next))
            self._begun += 1
            self._next = next(self._faults, None)
        level = tuple(fault for _, _, fault in sorted(self._on, key=lambda entry: entry[1]))
        if to_ns == self._starts_ns[-1]:
            self._levels[-1] = level
        else:
            self._starts_ns.append(to_ns)
            self._levels.append(level)


class Outages:
    """A gate for the capacity of a link: closed while any fault of ``timeline`` is active."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline

    def segment(self, t_ns: int) -> tuple[int, int]:
        on, until_ns = self.timeline.at(t_ns)
        return 0 if on else OPEN_BIT_S, until_ns

    def cycle(self, t_ns: int) -> Cycle | None:
        """The constant rate after the last fault; None if the faults are not finitely many."""
        if not self.timeline.finite:
            return None
        last_ns = self.timeline.last_ns()
        return constant(self.segment(last_ns)[0], last_ns)


class Slowed:
    """A device that is slower while faults of ``timeline`` are active.

    Its speed is multiplied by the product of their factors, and is 0 during a freeze.
    """

    def __init__(self, device: Device, timeline: Timeline) -> None:
        self.device, self.timeline = device, timeline

    def duration_ns(self, samples: float, start_ns: int = 0) -> int | None:
        """As ``Device.duration_ns``; None for a native device, which is not slowed."""
        length_ns = self.device.duration_ns(samples, start_ns)
        if length_ns is None:
            return None
        took_ns = worked_ns(length_ns, start_ns, self._segment)
        if isinstance(self.device, Throttled):
            self.device.slowed_by(took_ns - length_ns - self._frozen_ns(start_ns, took_ns))
        return took_ns

    def _frozen_ns(self, start_ns: int, length_ns: int) -> int:
        """How long the device stands still in this time."""
        now, end_ns, frozen_ns = start_ns, start_ns + length_ns, 0
        while now < end_ns:
            factor, until_ns = self._segment(now)
            until_ns = min(until_ns, end_ns)
            frozen_ns += 0 if factor else until_ns - now
            now = until_ns
        return frozen_ns

    def copied(self) -> Slowed:
        return Slowed(copied(self.device), self.timeline)

    def _segment(self, t_ns: int) -> tuple[Fraction, int]:
        """(factor, until_ns) of the speed at ``t_ns``."""
        on, until_ns = self.timeline.at(t_ns)
        factors = (Fraction(0 if fault.kind == "freeze" else fault.factor) for fault in on)
        return math.prod(factors, start=Fraction(1)), until_ns
