"""Local training in slices: SGD on flat vectors, with an algorithm's edge half (``LocalRule``) called at its hooks."""

from __future__ import annotations

from typing import Callable, Mapping

import numpy as np
import torch

from edgefl.edges.local_run import LocalRun, TaskLike, TrainingPlan
from edgefl.models.workspace import Workspace, wrap
from edgefl.strategies.local_rule import LocalRule
from edgefl.streams import Streams
from edgefl.vectors import aligned_copy


class Trainer:
    """Trains one device's samples: the rows ``members`` of ``inputs`` and ``targets`` (all rows if None).

    Trainers of one process may share ``workspace``, ``inputs`` and ``targets``, and their runs may be advanced in turn, slice by slice.
    """

    def __init__(
        self,
        workspace: Workspace,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        plan: TrainingPlan,
        streams: Streams,
        edge: str,
        members: np.ndarray | None = None,
    ) -> None:
        self.workspace, self.inputs, self.targets, self.loss = workspace, inputs, targets, loss
        self.plan, self.streams, self.edge = plan, streams, edge
        self.members = np.arange(len(inputs)) if members is None else np.asarray(members, dtype=np.int64)
        if not len(self.members):
            raise ValueError(f"edge {edge} has no samples to train on")

    def begin(self, task: TaskLike, rule: LocalRule, memory: Mapping[str, np.ndarray]) -> LocalRun:
        """A run at its first step, with the rule's ``begin`` and ``checkpoint`` called. ValueError if the vector has not the model's length."""
        start = wrap(self._checked(task.vectors["weights"]))
        weights = wrap(aligned_copy(start.numpy()))
        trainable = weights[: self.workspace.layout.parameters]
        steps = self._steps(task, rule)
        run = LocalRun(
            task=task,
            start=start,
            weights=weights,
            trainable=trainable,
            memory={name: wrap(aligned_copy(memory[name])) for name in rule.remembers if name in memory},
            local_samples=len(self.members),
            batch_size=self.plan.batch_size,
            steps=steps,
            learning_rate=float(task.numbers.get("learning_rate", self.plan.learning_rate)),
            order=self._order(task, -(-steps // self._steps_per_epoch)),
            velocity=torch.zeros_like(trainable) if self.plan.momentum else None,
            counters=self.workspace.fresh_counters(),
            random_state=self._random_state(task),
        )
        rule.begin(run)
        run.checkpoint = rule.checkpoint(run)
        return run

    def advance(self, run: LocalRun, rule: LocalRule, until_step: int | None = None, deadline: Callable[[], bool] | None = None) -> bool:
        """Train to ``until_step`` (None: to the end) or until ``deadline()``, asked after each step, is true. True if it got there."""
        stop = run.steps if until_step is None else min(until_step, run.steps)
        if run.step >= stop:
            return True
        self.workspace.point(run.weights, run.counters)
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(run.random_state)
            while run.step < stop:
                self._step(run, rule)
                if deadline is not None and deadline():
                    break
            run.random_state = torch.get_rng_state()
        return run.step >= stop

    def merge(self, run: LocalRun, rule: LocalRule, fresh: np.ndarray, version: int) -> None:
        """Let the rule put a fresher global model into the run, between two slices."""
        rule.merge(run, self._checked(fresh), version)

    def payload(self, run: LocalRun, rule: LocalRule) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """What goes up: copies of the rule's vectors; its numbers with samples (the device's), steps (done) and loss (mean over batches)."""
        vectors, numbers = rule.payload(run)
        counted = {"samples": run.local_samples, "steps": run.step, "loss": run.loss_sum / max(run.step, 1)}
        return {name: _copied(vector) for name, vector in vectors.items()}, {**numbers, **counted}

    def remembered(self, run: LocalRun, rule: LocalRule) -> dict[str, np.ndarray]:
        """Copies of the vectors that the edge keeps for its next task, once this one is acknowledged."""
        return {name: _copied(run.memory[name]) for name in rule.remembers if name in run.memory}

    def forward(self, weights: np.ndarray | torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """Outputs of another flat vector: evaluation mode, no gradient, and the run in progress does not notice."""
        with self.workspace.inference(weights) as model:
            return model(inputs)

    def _step(self, run: LocalRun, rule: LocalRule) -> None:
        gradient = self.workspace.gradient
        batch = self._batch(run)
        output = self.workspace.model(batch[0])
        loss = self.loss(output, batch[1])
        extra = rule.extra_loss(run, batch, output, self.forward)
        gradient.zero_()
        (loss if extra is None else loss + extra).backward()
        if self.plan.weight_decay:
            gradient.add_(run.trainable, alpha=self.plan.weight_decay)
        rule.adjust(run, gradient)
        if rule.moves:
            self._move(run, gradient)
        else:
            run.gradient = gradient.clone()
        run.loss_sum += loss.item()
        run.step += 1

    def _move(self, run: LocalRun, gradient: torch.Tensor) -> None:
        direction = gradient
        if run.velocity is not None:
            direction = run.velocity.mul_(self.plan.momentum).add_(gradient)
        run.trainable.add_(direction, alpha=-run.learning_rate)

    def _batch(self, run: LocalRun) -> tuple[torch.Tensor, torch.Tensor]:
        first = run.samples
        index = run.order[first : run.samples_at(run.step + 1)]
        return self.inputs.index_select(0, index), self.targets.index_select(0, index)

    @property
    def _steps_per_epoch(self) -> int:
        return -(-len(self.members) // self.plan.batch_size)

    def _steps(self, task: TaskLike, rule: LocalRule) -> int:
        if not rule.moves:
            return 1
        epochs = int(task.numbers.get("epochs", self.plan.epochs))
        if epochs < 1:
            raise ValueError(f"task {task.number} asks for {epochs} epochs, expected at least 1")
        return epochs * self._steps_per_epoch

    def _order(self, task: TaskLike, epochs: int) -> torch.Tensor:
        rng = self.streams.rng("batches", self.edge, task.number)
        return torch.from_numpy(np.concatenate([rng.permutation(self.members) for _ in range(epochs)]))

    def _random_state(self, task: TaskLike) -> torch.Tensor:
        seed = int(self.streams.rng("torch", self.edge, task.number).integers(2**63))
        return torch.Generator().manual_seed(seed).get_state()

    def _checked(self, vector: np.ndarray) -> np.ndarray:
        if vector.shape != (self.workspace.layout.size,):
            raise ValueError(f"edge {self.edge}: a vector of shape {vector.shape} for a model of {self.workspace.layout.size} elements")
        return vector


def _copied(vector: np.ndarray | torch.Tensor) -> np.ndarray:
    return aligned_copy(np.asarray(vector, dtype=np.float32))
