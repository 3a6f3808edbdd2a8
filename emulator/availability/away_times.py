"""The times in which a target is away, as faults in order of time: it stands still meanwhile.

All iterators are plain data, so that a run can be saved and continued. Each user of the times makes
its own iterator; equal ones give the same times.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from emulator.errors import BadValue
from emulator.faults import Fault
from emulator.units import FOREVER, NS_PER_S

AWAY = "freeze"  # the kind of fault: no byte passes, and computing stands still


@dataclass(frozen=True, slots=True)
class Presence:
    """The intervals (begin_ns, end_ns) of a period in which a target is there; then they repeat.

    Intervals are in order of time, do not overlap, and lie in the period.
    """

    there_ns: tuple[tuple[int, int], ...]
    period_ns: int

    @property
    def share(self) -> float:
        """The share of the time in which the target is there."""
        return sum(end - begin for begin, end in self.there_ns) / self.period_ns

    def scaled(self, factor: float) -> Presence:
        """The same with all times multiplied; an interval that becomes empty is left out."""
        there = tuple(
            (round(begin * factor), round(end * factor))
            for begin, end in self.there_ns
            if round(begin * factor) < round(end * factor)
        )
        return Presence(there, max(1, round(self.period_ns * factor)))

    def later(self, by_ns: int) -> Presence:
        """The same pattern, moved by ``by_ns`` and wrapped."""
        by_ns %= self.period_ns
        moved: list[tuple[int, int]] = []
        for begin, end in self.there_ns:
            begin, end = begin + by_ns, end + by_ns
            if begin >= self.period_ns:
                moved.append((begin - self.period_ns, end - self.period_ns))
            elif end > self.period_ns:
                moved += [(begin, self.period_ns), (0, end - self.period_ns)]
            else:
                moved.append((begin, end))
        return Presence(tuple(sorted(moved)), self.period_ns)


def presence(intervals: Sequence[tuple[float, float]], period_s: float, name: str) -> Presence:
    """Make a Presence of intervals (begin_s, end_s), in any order; BadValue if they overlap.

    Empty intervals are left out, and intervals that touch become one.
    """
    if not 0 < period_s * NS_PER_S < FOREVER:
        raise BadValue(f"{name}: expected a period above 0 s, found {period_s:g} s")
    there: list[tuple[int, int]] = []
    for begin_s, end_s in sorted(intervals):
        if not 0 <= begin_s <= end_s <= period_s:
            raise BadValue(
                f"{name}: interval {begin_s:g} to {end_s:g} s: expected times in order, from 0 to"
                f" {period_s:g} s"
            )
        begin_ns, end_ns = round(begin_s * NS_PER_S), round(end_s * NS_PER_S)
        if begin_ns == end_ns:
            continue
        if there and begin_ns < there[-1][1]:
            raise BadValue(
                f"{name}: interval {begin_s:g} to {end_s:g} s overlaps the one before, which ends"
                f" at {there[-1][1] / NS_PER_S:g} s"
            )
        if there and begin_ns == there[-1][1]:
            there[-1] = there[-1][0], end_ns
        else:
            there.append((begin_ns, end_ns))
    return Presence(tuple(there), round(period_s * NS_PER_S))


def periodic_absences(target: str, pattern: Presence) -> Sequence[Fault] | Iterator[Fault]:
    """The absences of ``pattern``, without end; a list if the target is always or never there."""
    if not pattern.there_ns:
        return [Fault(0, target, AWAY, FOREVER)]
    if pattern.share == 1:
        return []
    return PeriodicAbsences(target, pattern)


@dataclass(slots=True)
class PeriodicAbsences:
    """The iterator of ``periodic_absences``. The first absence is from 0 to the first interval."""

    target: str
    pattern: Presence
    _count: int = 0  # intervals that were passed

    def __iter__(self) -> PeriodicAbsences:
        return self

    def __next__(self) -> Fault:
        while True:
            at_ns, until_ns = self._end(self._count - 1), self._begin(self._count)
            self._count += 1
            if until_ns >= FOREVER:
                raise StopIteration
            if at_ns < until_ns:
                return Fault(at_ns, self.target, AWAY, until_ns - at_ns)

    def _begin(self, count: int) -> int:
        lap, place = divmod(count, len(self.pattern.there_ns))
        return lap * self.pattern.period_ns + self.pattern.there_ns[place][0]

    def _end(self, count: int) -> int:
        if count < 0:
            return 0
        lap, place = divmod(count, len(self.pattern.there_ns))
        return lap * self.pattern.period_ns + self.pattern.there_ns[place][1]


@dataclass(slots=True)
class ExponentialAbsences:
    """Exponential times there (mean ``there_ns``) and away (mean ``away_ns``), in turn.

    The first state is drawn with the share of each in the long run. Each drawn time is at least
    1 ns. No other code may draw from ``rng``.
    """

    target: str
    rng: np.random.Generator
    there_ns: int
    away_ns: int
    _at_ns: int = 0
    _begun: bool = field(default=False)

    def __iter__(self) -> ExponentialAbsences:
        return self

    def __next__(self) -> Fault:
        away_first = False
        if not self._begun:
            self._begun = True
            away_first = self.rng.random() < self.away_ns / (self.there_ns + self.away_ns)
        if not away_first:
            self._at_ns += max(1, round(self.rng.exponential(self.there_ns)))
        length_ns = max(1, round(self.rng.exponential(self.away_ns)))
        at_ns = self._at_ns
        self._at_ns += length_ns
        if self._at_ns >= FOREVER:
            raise StopIteration
        return Fault(at_ns, self.target, AWAY, length_ns)


def share_there(absences: Sequence[Fault] | Iterator[Fault], until_ns: int) -> float:
    """The share of the time up to ``until_ns`` in which a target is there."""
    away_ns = sum(
        min(fault.until_ns, until_ns) - fault.at_ns
        for fault in itertools.takewhile(lambda fault: fault.at_ns < until_ns, absences)
    )
    return 1 - away_ns / until_ns
