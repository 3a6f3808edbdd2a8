"""Training that continues while a requested fresher model is downloaded.

This is ``on_request = "train_on"``, our own variant.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

from edgefl.edges.trainer_like import CourseT
from emulator.compute import Device


@dataclass(slots=True, eq=False)
class ConcurrentRefresh(Generic[CourseT]):
    """The rest of a run after its request. The answer does not change when it ends.

    ``kept``: the run at the moment of the request. A fresher model is merged at the first step
    boundary at or after its arrival, if at least one step follows. So a model that arrives at
    ``until_ns`` or later is too late. ``done_ns(step)``: when that step is done.
    """

    kept: CourseT
    done_ns: Callable[[int], int]
    until_ns: int
    end_ns: int

    def step_at(self, arrived_ns: int) -> int:
        """Steps done when a model that arrives at ``arrived_ns`` (< ``until_ns``) is merged."""
        first = self.kept.step
        step = first + bisect_left(range(first, self.kept.steps - 1), arrived_ns, key=self.done_ns)
        # the last call is for the whole run: a device may remember its last stretch of work
        self.done_ns(self.kept.steps)
        return step


def concurrent_refresh(
    kept: CourseT, device: Device, work: float, now: int
) -> ConcurrentRefresh[CourseT] | None:
    """The rest of the run ``kept`` from ``now`` on.

    None for a native device: the times of its steps are not known in advance.
    """

    def done_ns(step: int) -> int:
        duration_ns = device.duration_ns(kept.samples_until(step) * work, now)
        assert duration_ns is not None
        return now + duration_ns

    if device.duration_ns(0, now) is None:
        return None
    last_ns, end_ns = done_ns(kept.steps - 1), done_ns(kept.steps)
    return ConcurrentRefresh(kept, done_ns, min(last_ns + 1, end_ns), end_ns)
