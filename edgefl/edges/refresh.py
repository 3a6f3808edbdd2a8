"""An edge that trains on while the fresher model that it asked for comes down (``on_request =
"train_on"``, ours): what is left of its run.
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
    """The rest of a run from its request on. Its end does not move, whatever the answer.

    ``kept``: the run as it stood at the request. A fresher model is merged at the first step that
    is done at or after its arrival, if a step is still to come behind that; so one that comes at
    ``until_ns`` or later is too late.
    """

    kept: CourseT
    done_ns: Callable[[int], int]  # when a step is done
    until_ns: int
    end_ns: int

    def step_at(self, arrived_ns: int) -> int:
        """Steps done when what arrives at that moment, before ``until_ns``, is merged."""
        first = self.kept.step
        step = first + bisect_left(range(first, self.kept.steps - 1), arrived_ns, key=self.done_ns)
        self.done_ns(self.kept.steps)  # asked last: a device may remember its last stretch of work
        return step


def concurrent_refresh(
    kept: CourseT, device: Device, work: float, now: int
) -> ConcurrentRefresh[CourseT] | None:
    """From ``now`` on; None for real hardware: when a step will be done is not known beforehand."""

    def done_ns(step: int) -> int:
        duration_ns = device.duration_ns(kept.samples_until(step) * work, now)
        assert duration_ns is not None
        return now + duration_ns

    if device.duration_ns(0, now) is None:
        return None
    last_ns, end_ns = done_ns(kept.steps - 1), done_ns(kept.steps)
    return ConcurrentRefresh(kept, done_ns, min(last_ns + 1, end_ns), end_ns)
