"""The time that is left of a sweep. Times are arguments: this file reads no clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean


@dataclass(slots=True)
class TimeLeft:
    """Estimates the wall time left from the runs that have ended.

    ``runs``: how many there are to do; ``at_once``: how many are done at a time.
    """

    runs: int
    at_once: int
    began_s: float
    _took_s: list[float] = field(default_factory=list)
    _ends_s: list[float] = field(default_factory=list)  # when each place became free

    def ended(self, now_s: float) -> None:
        """A run has ended. It began when the first of the free places became free."""
        is_first = len(self._took_s) < self.at_once
        since_s = self.began_s if is_first else self._ends_s.pop(0)
        self._took_s.append(now_s - since_s)
        self._ends_s.append(now_s)

    @property
    def done(self) -> int:
        return len(self._took_s)

    def left_s(self, now_s: float) -> float | None:
        """Return the seconds left, 0.0 at the end; None before the first run has ended.

        Each run is expected to take the mean time of those that have ended.
        """
        if not self._took_s:
            return None
        mean_s = fmean(self._took_s)
        left = self.runs - self.done
        running = min(left, self.at_once)
        begun_s = [*self._ends_s, *[self.began_s] * self.at_once][:running]
        of_running = sum(max(mean_s - (now_s - since_s), 0.0) for since_s in begun_s)
        return (of_running + (left - running) * mean_s) / max(min(self.at_once, left), 1)
