"""The trainer of an edge whose task is a Flower app: a task is one call of its ClientApp."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from edgefl.edges.training import LocalRun, Trainer, TrainingPlan, training_failure
from edgefl.flower.app_tasks import AppTasks
from edgefl.flower.state_vector import packed, unpacked
from edgefl.hosts.setup.own_randomness import seeded
from edgefl.models.workspace import wrap
from edgefl.protocol.messages import Assignment
from edgefl.strategies.base.strategy import LocalRule
from edgefl.vectors import aligned_copy

STATE = "flower state"  # the client's state in the edge's memory
EXAMPLES = "flower examples"  # as the client counts them, in the run's memory
TOLD = ("epochs", "epochs_scale", "learning_rate", "learning_rate_scale", "most_steps")


@dataclass(frozen=True, slots=True)
class FlowerPlan(TrainingPlan):
    """A task is ``epochs`` passes over the edge's samples, which only take their time."""

    @property
    def remembers(self) -> tuple[str, ...]:
        return (STATE,)

    def steps(self, task: Assignment, rule: LocalRule, samples: int) -> int:
        """The epochs. ValueError for a task that changes how the edge trains."""
        told = next((name for name in TOLD if name in task.numbers), None)
        if told is not None:
            raise ValueError(f"the strategy sets {told}, and a Flower app trains by its own config")
        return self.epochs


class FlowerTrainer(Trainer):
    """Calls the app in the last step of a task; the steps before it only take their time."""

    def __init__(self, *args: Any, tasks: AppTasks, partition: int) -> None:
        """``args``: as for ``Trainer``. ``partition``: the edge's number in the app."""
        super().__init__(*args)
        self.tasks, self.partition = tasks, partition

    def begin(
        self, task: Assignment, rule: LocalRule, memory: Mapping[str, np.ndarray]
    ) -> LocalRun:
        run = super().begin(task, rule, memory)
        if STATE in memory:
            run.memory[STATE] = wrap(aligned_copy(memory[STATE]))
        return run

    def advance(
        self,
        run: LocalRun,
        rule: LocalRule,
        until_step: int | None = None,
        deadline: Callable[[], bool] | None = None,
    ) -> bool:
        """Count steps; at the last one, call the app, which ``deadline`` cannot stop."""
        stop = run.steps if until_step is None else min(until_step, run.steps)
        if run.failure is None and run.step < stop:
            if stop == run.steps:
                self._call(run)
            run.step = stop
        return True

    def _call(self, run: LocalRun) -> None:
        number = run.task.version + 1  # rounds count from 1
        kept = run.memory.get(STATE)
        try:
            state = None if kept is None else unpacked(kept.numpy())
            with seeded(self.streams, "flower", self.edge, run.task.number):
                done = self.tasks.train(self.partition, run.start.numpy(), number, state)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            where = f"the Flower app of edge {self.edge}, round {number}"
            run.failure = training_failure(error, where, self.tasks.app.module)
            return
        run.weights.copy_(torch.from_numpy(done.weights))
        losses = [value for name, value in done.metrics.items() if "loss" in name.lower()]
        run.loss_sum = losses[0] * run.steps if losses else 0.0  # the update has the mean
        run.memory[EXAMPLES] = torch.tensor([float(done.examples)], dtype=torch.float64)
        run.memory[STATE] = wrap(aligned_copy(packed(done.state)))

    def payload(
        self, run: LocalRun, rule: LocalRule
    ) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """The model, and the samples as the client counts them."""
        vectors, numbers = super().payload(run, rule)
        return vectors, numbers | ({"samples": run.memory[EXAMPLES].item()} if numbers else {})

    def remembered(self, run: LocalRun, rule: LocalRule) -> dict[str, np.ndarray]:
        return {STATE: run.memory[STATE].numpy()} if run.failure is None else {}
