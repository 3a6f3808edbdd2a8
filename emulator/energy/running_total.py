"""A sum of powers over time, in whole femtojoules: exact, whatever the order of its parts."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from emulator.units import FOREVER


@dataclass(slots=True)
class RunningTotal:
    """``fj`` is the energy up to ``at_ns``; from there on ``power_uw`` flows.

    Powers may change in the past, for example because a transfer is known only when it has ended.
    ``changes``: in the future, as (moment, microwatts); ``rising_uw`` is the sum of the positive
    ones.
    """

    fj: int = 0
    at_ns: int = 0
    power_uw: int = 0
    rising_uw: int = 0
    changes: list[tuple[int, int]] = field(default_factory=list)

    def change(self, power_uw: int, from_ns: int) -> None:
        """``power_uw`` more flows from ``from_ns`` on; less if it is negative."""
        if from_ns <= self.at_ns:
            self.fj += power_uw * (self.at_ns - from_ns)
            self.power_uw += power_uw
        else:
            heapq.heappush(self.changes, (from_ns, power_uw))
            self.rising_uw += max(power_uw, 0)

    def add(self, fj: int) -> None:
        """Add energy that has been used up by now."""
        self.fj += fj

    def at(self, now: int) -> int:
        """The energy up to ``now``, in femtojoules. ``now`` must not decrease."""
        while self.changes and self.changes[0][0] <= now:
            from_ns, power_uw = heapq.heappop(self.changes)
            self._advance(from_ns)
            self.power_uw += power_uw
            self.rising_uw -= max(power_uw, 0)
        self._advance(now)
        return self.fj

    def reaches(self, fj: int) -> int:
        """A moment by which the energy cannot be more than ``fj``; FOREVER if it stays below.

        It is the moment at which it is ``fj``, unless the power changes before that.
        """
        if self.fj >= fj:
            return self.at_ns
        most_uw = self.power_uw + self.rising_uw
        if most_uw <= 0:
            return FOREVER
        return min(FOREVER, self.at_ns - (self.fj - fj) // most_uw)

    def _advance(self, to_ns: int) -> None:
        if to_ns > self.at_ns:
            self.fj += self.power_uw * (to_ns - self.at_ns)
            self.at_ns = to_ns
