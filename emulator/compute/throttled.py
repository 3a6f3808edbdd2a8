"""A device with thermal throttling.

It has full speed until a heat budget is used up, then a lower speed. It recovers while idle.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from emulator.compute.device import Rate, check_rate, check_span
from emulator.errors import BadValue


@dataclass(slots=True)
class Throttled:
    """A device that is slower when hot.

    When cold, it trains at ``samples_per_s`` for ``budget_ns`` of work. Then it is hot and trains
    at ``hot_samples_per_s`` until the work ends. Idle time restores the budget at a constant rate,
    all of it in ``recovery_ns``. Work while hot neither uses nor restores budget. So work takes

        min(full, budget left) + (full - budget left, if positive) x cold rate / hot rate,

    where full = samples / samples_per_s; exact, in whole ns.

    The device remembers its last work, so calls must be in order of time. If the next work starts
    before the last one ends, the last one was cancelled at that moment. Repeating a call gives the
    same result.
    """

    samples_per_s: float
    hot_samples_per_s: float
    budget_ns: int
    recovery_ns: int
    _start_ns: int = field(default=0, init=False)  # start of the last work
    _left_ns: int = field(default=0, init=False)  # budget at its start
    _full_ns: int = field(default=0, init=False)  # its duration at the cold rate

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
        """As ``Device.duration_ns``. ValueError if ``start_ns`` is before that of the last work."""
        self._left_ns = self.budget_left_ns(start_ns)
        self._start_ns = start_ns
        self._full_ns = Rate(self.samples_per_s).duration_ns(samples)
        return self._busy_ns()

    def budget_left_ns(self, now: int) -> int:
        """How many ns of work at full speed are left at ``now``.

        ValueError if ``now`` is before the start of the last work.
        """
        if now < self._start_ns:
            raise ValueError(
                f"a throttled device needs calls in order of time: {now} ns after"
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
