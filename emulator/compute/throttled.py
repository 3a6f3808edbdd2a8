"""A device that grows hot: full speed until a heat budget is used up, then a lower rate; it
recovers while it is idle.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from emulator.compute.device import Rate, check_rate, check_span
from emulator.errors import BadValue


@dataclass(slots=True)
class Throttled:
    """Cold, it trains on ``samples_per_s`` for ``budget_ns`` of work; hot, on
    ``hot_samples_per_s``, for as long as the work lasts.

    Idle, it regains the whole budget within ``recovery_ns``, evenly. Hot work neither uses nor
    regains budget. So a stretch takes min(full, budget left) + the rest of full x cold rate / hot
    rate, where full = samples / samples_per_s: exact, in whole ns.

    It remembers its last stretch of work, so ask in order of time. Work that would go on when the
    next begins was cut off there (a cancelled task); the same question again gets the same answer.
    """

    samples_per_s: float
    hot_samples_per_s: float
    budget_ns: int
    recovery_ns: int
    _start_ns: int = field(default=0, init=False)  # of the last stretch
    _left_ns: int = field(default=0, init=False)  # budget at its start
    _full_ns: int = field(default=0, init=False)  # its time at the cold rate

    def __post_init__(self) -> None:
        check_rate("samples_per_s", self.samples_per_s)
        check_rate("hot_samples_per_s", self.hot_samples_per_s)
        if self.hot_samples_per_s > self.samples_per_s:
            raise BadValue(
                f"hot_samples_per_s {self.hot_samples_per_s}: expected at most samples_per_s,"
                f" {self.samples_per_s}"
            )
        check_span("budget", self.budget_ns, 0)
        check_span("recovery", self.recovery_ns)
        self._left_ns = self.budget_ns

    def duration_ns(self, samples: float, start_ns: int = 0) -> int:
        """ValueError if ``start_ns`` is before that of the last stretch."""
        self._left_ns = self.budget_left_ns(start_ns)
        self._start_ns = start_ns
        self._full_ns = Rate(self.samples_per_s).duration_ns(samples)
        return self._busy_ns()

    def budget_left_ns(self, now: int) -> int:
        """How much work at full speed it could do at ``now``, which is not before the last
        stretch's start.
        """
        if now < self._start_ns:
            raise ValueError(
                f"a throttled device is asked about {now} ns after it was asked about"
                f" {self._start_ns} ns"
            )
        worked_ns = min(now - self._start_ns, self._busy_ns())
        left_ns = max(0, self._left_ns - min(worked_ns, self._full_ns))
        idle_ns = now - self._start_ns - worked_ns
        return min(self.budget_ns, left_ns + idle_ns * self.budget_ns // self.recovery_ns)

    def _busy_ns(self) -> int:
        cold_ns = min(self._full_ns, self._left_ns)
        return cold_ns + round(
            (self._full_ns - cold_ns) * (self.samples_per_s / self.hot_samples_per_s)
        )
