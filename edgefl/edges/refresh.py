"""Training that continues while a requested fresher model is downloaded.

This is ``on_request = "train_on"``, our own variant.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Generic

from edgefl.edges.trainer_like import CourseT
from emulator.compute import Device


@dataclass(slots=True, eq=False)
class ConcurrentRefresh(Generic[CourseT]):
    """The rest of a run after its request at ``asked_ns``. The answer does not change its end.

    ``kept``: the run at the moment of the request. A fresher model is merged at the first step
    boundary at or after its arrival, if at least one step follows. So a model that arrives at
    ``until_ns`` or later is too late. ``work``: as in ``LocalRule``; ``after``: the work after the
    last step.
    """

    kept: CourseT
    device: Device
    work: float
    asked_ns: int
    after: float = 0.0
    until_ns: int = 0
    end_ns: int = 0

    def done_ns(self, step: int) -> int:
        """When that step is done."""
        work = self.kept.work_until(step) * self.work
        if step == self.kept.steps:
            work += self.after
        duration_ns = self.device.duration_ns(work, self.asked_ns)
        assert duration_ns is not None
        return self.asked_ns + duration_ns

    def step_at(self, arrived_ns: int) -> int:
        """Steps done when a model that arrives at ``arrived_ns`` (< ``until_ns``) is merged."""
        first = self.kept.step
        step = first + bisect_left(range(first, self.kept.steps - 1), arrived_ns, key=self.done_ns)
        # the last call is for the whole run: a device may remember its last stretch of work
        self.done_ns(self.kept.steps)
        return step


def concurrent_refresh(
    kept: CourseT, device: Device, work: float, now: int, after: float = 0.0
) -> ConcurrentRefresh[CourseT] | None:
    """The rest of the run ``kept`` from ``now`` on.

    None for a native device: the times of its steps are not known in advance.
    """
    if device.duration_ns(0, now) is None:
        return None
    rest = ConcurrentRefresh(kept, device, work, now, after)
    last_ns, rest.end_ns = rest.done_ns(kept.steps - 1), rest.done_ns(kept.steps)
    rest.until_ns = min(last_ns + 1, rest.end_ns)
    return rest
