"""The interface of an edge's trainer.

It needs no torch, because under the virtual clock edges only describe their training.
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
    """Makes runs of tasks. The host decides who advances them.

    An exception of an algorithm becomes the run's ``failure``. Only ``begin`` may raise, for a task
    whose numbers are invalid.
    """

    def begin(self, task: Assignment, rule: LocalRule, memory: Mapping[str, np.ndarray]) -> CourseT:
        """Make a run at its first step, with its ``checkpoint`` set."""
        ...

    def merge(self, run: CourseT, rule: LocalRule, fresh: np.ndarray, version: int) -> None:
        """Merge a fresher global model at the run's present step."""
        ...

    def merge_at(self, run: CourseT, step: int, fresh: np.ndarray, version: int) -> None:
        """Merge a fresher global model after ``step`` steps."""
        ...

    def kept(self, run: CourseT) -> CourseT:
        """Copy the run in its present state."""
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
        """Train to ``until_step``, or until ``deadline()``. Returns True at ``until_step``."""
        ...
