"""What an edge wants of its trainer. No torch here: the virtual clock's edges only describe their
training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

import numpy as np

from edgefl.edges.local_run import Course
from edgefl.protocol.messages import Assignment
from edgefl.strategies.base.local_rule import LocalRule

CourseT = TypeVar("CourseT", bound=Course)


class TrainerLike(Protocol[CourseT]):
    """Makes runs of tasks. Who advances them to where the edge wants them is the host's matter.

    What an algorithm raises is the run's ``failure``; only ``begin`` may raise, for a task whose
    numbers make no run.
    """

    def begin(self, task: Assignment, rule: LocalRule, memory: Mapping[str, np.ndarray]) -> CourseT:
        """A run at its first step; its ``checkpoint`` is known."""
        ...

    def merge(self, run: CourseT, rule: LocalRule, fresh: np.ndarray, version: int) -> None:
        """Merge a fresher global model at the step where the run stands."""
        ...

    def merge_at(self, run: CourseT, step: int, fresh: np.ndarray, version: int) -> None:
        """Merge it when ``step`` steps are done."""
        ...

    def kept(self, run: CourseT) -> CourseT:
        """The run as it stands now, to go on from later."""
        ...

    def payload(
        self, run: CourseT, rule: LocalRule
    ) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """The vectors and numbers of the update."""
        ...

    def remembered(self, run: CourseT, rule: LocalRule) -> dict[str, np.ndarray]:
        """The vectors that the edge keeps for its next task."""
        ...


class SlicedTrainer(TrainerLike[CourseT], Protocol[CourseT]):
    """Trains in the edge's own process, slice by slice."""

    def advance(
        self,
        run: CourseT,
        rule: LocalRule,
        until_step: int | None = None,
        deadline: Callable[[], bool] | None = None,
    ) -> bool:
        """Train to ``until_step`` or until ``deadline()`` is true. True if it got there."""
        ...
