"""Deferred runs: training tasks that are not trained yet.

The virtual host's edges hold these instead of models. The outcome of a task is a pure function of
(strategy, edge, task, the edge's memory, the fresher models merged during training). So a task can
be trained at any real time between its emulated start and end, in any worker, and again if a
worker is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgefl.edges.failure import TrainingFailure
from edgefl.edges.local_run import Course, Merge, set_checkpoint
from edgefl.edges.training_plan import TrainingPlan
from edgefl.protocol.messages import Assignment
from edgefl.strategies.base.local_rule import LocalRule
from edgefl.vectors import aligned_copy


@dataclass(slots=True, eq=False)
class RunOutcome:
    """What a run sends (vectors, numbers) and what the edge remembers, or why the run failed."""

    vectors: dict[str, np.ndarray] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    remembered: dict[str, np.ndarray] = field(default_factory=dict)
    failure: TrainingFailure | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class DeferredRun(Course):
    """A run without its weights.

    ``step``: the steps done in emulated time. ``outcome`` is set once the run has ended, or before
    that if it was trained together with others.
    """

    index: int  # of the strategy
    edge: str
    kept: Mapping[str, np.ndarray]  # the edge's memory when the run began
    # copies of ``kept`` that the rule reads while it computes its checkpoint
    memory: dict[str, Any] = field(default_factory=dict)
    merges: list[Merge] = field(default_factory=list)
    outcome: RunOutcome | None = None

    def end(self, outcome: RunOutcome) -> None:
        """Set the outcome: the run is trained, or it has failed."""
        self.outcome = outcome
        self.failure = self.failure or outcome.failure


class Describer:
    """A trainer that only makes deferred runs: it copies no model and draws no batches."""

    def __init__(
        self,
        index: int,
        edge: str,
        plan: TrainingPlan,
        samples: int,
        tokens: Callable[[Course], Sequence[int]] | None = None,
    ) -> None:
        """``tokens(run)``: the tokens of a run by step, if the device's speed is in tokens."""
        self.index, self.edge, self.plan, self.samples = index, edge, plan, samples
        self.tokens = tokens

    def begin(
        self, task: Assignment, rule: LocalRule, memory: Mapping[str, np.ndarray]
    ) -> DeferredRun:
        """Make a deferred run.

        Of the rule's hooks, only ``checkpoint`` is called. It gets copies, because the real run
        will call it, too.
        """
        names = (*rule.remembers, *self.plan.remembers)
        kept = {name: memory[name] for name in names if name in memory}
        steps = self.plan.steps(task, rule, self.samples)
        run = DeferredRun(
            task=task,
            local_samples=self.samples,
            batch_size=self.plan.batch_size,
            batches_per_epoch=self.plan.batches_per_epoch,
            drop_last=self.plan.drop_last,
            steps=steps,
            whole_batches=not rule.moves,
            index=self.index,
            edge=self.edge,
            kept=kept,
        )
        if self.tokens is not None:
            run.tokens = self.tokens(run)
        if type(rule).checkpoint is not LocalRule.checkpoint:
            if kept:
                from edgefl.models.workspace import wrap  # a rule that remembers reads tensors

                run.memory = {name: wrap(aligned_copy(vector)) for name, vector in kept.items()}
            set_checkpoint(run, rule)
            run.memory = {}
        return run

    def merge(self, run: DeferredRun, rule: LocalRule, fresh: np.ndarray, version: int) -> None:
        self.merge_at(run, run.step, fresh, version)

    def kept(self, run: DeferredRun) -> DeferredRun:
        """Return the run unchanged: nothing beyond its step has been trained."""
        return run

    def merge_at(self, run: DeferredRun, step: int, fresh: np.ndarray, version: int) -> None:
        run.merges.append(Merge(step, fresh, version))

    def payload(
        self, run: DeferredRun, rule: LocalRule
    ) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        assert run.outcome is not None
        return run.outcome.vectors, run.outcome.numbers

    def remembered(self, run: DeferredRun, rule: LocalRule) -> dict[str, np.ndarray]:
        assert run.outcome is not None
        return run.outcome.remembered
