"""The plan of training and one training task in progress, as plain data.

This module does not import torch at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from edgefl.edges.failure import BEFORE, TrainingFailure, training_failure
from edgefl.strategies.base.local_rule import LocalRule
from edgefl.vectors import Layout

if TYPE_CHECKING:
    import torch


MOST_EPOCHS = 100_000  # of one task


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """SGD with drop_last = False: epochs x ceil(samples / batch_size) steps.

    A rule that only computes one gradient uses a whole batch, see ``Course.whole_batches``.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float = 0.0
    momentum: float = 0.0

    def epochs_of(self, task: TaskLike) -> int:
        """Epochs of ``task``: its own number or the plan's, times its scale, rounded, at least 1.

        ValueError if the number is below 1 before scaling, or above MOST_EPOCHS after it.
        """
        epochs = int(task.numbers.get("epochs", self.epochs))
        if epochs < 1:
            raise ValueError(f"task {task.number} asks for {epochs} epochs, expected at least 1")
        scaled = max(1, round(epochs * task.numbers.get("epochs_scale", 1.0)))
        if scaled > MOST_EPOCHS:  # the order of samples needs memory for all epochs
            raise ValueError(
                f"task {task.number} asks for {scaled:.3g} epochs, expected at most {MOST_EPOCHS}"
            )
        return scaled

    def learning_rate_of(self, task: TaskLike) -> float:
        """Learning rate of ``task``: its own or the plan's, times its scale."""
        return float(task.numbers.get("learning_rate", self.learning_rate)) * task.numbers.get(
            "learning_rate_scale", 1.0
        )

    def steps(self, task: TaskLike, rule: LocalRule, samples: int) -> int:
        """Steps of ``task`` on a device with ``samples`` samples, at most its ``most_steps``."""
        steps = self.epochs_of(task) * -(-samples // self.batch_size) if rule.moves else 1
        return min(steps, int(task.numbers.get("most_steps", steps)))


class TaskLike(Protocol):
    """What the trainer reads of a task.

    Training starts from ``vectors["weights"]``. ``numbers`` may override or scale epochs and
    learning_rate.
    """

    @property
    def number(self) -> int: ...

    @property
    def version(self) -> int: ...

    @property
    def vectors(self) -> Mapping[str, np.ndarray]: ...

    @property
    def numbers(self) -> Mapping[str, float]: ...


@dataclass(slots=True, eq=False, kw_only=True)
class Course:
    """The progress of one task on one device, in steps and in samples.

    A run that has failed does not continue and has no outcome.
    """

    task: TaskLike
    local_samples: int
    batch_size: int
    steps: int
    # every batch has batch_size samples; a device with fewer samples repeats them
    whole_batches: bool = False
    step: int = 0
    checkpoint: int | None = None  # the step before which the rule wants a fresher model
    failure: TrainingFailure | None = None

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.local_samples // self.batch_size)

    @property
    def samples(self) -> int:
        """Samples processed so far."""
        return self.samples_at(self.step)

    def samples_at(self, step: int) -> int:
        """Samples processed after ``step`` steps. The last batch of an epoch may be smaller."""
        if self.whole_batches:
            return step * self.batch_size
        epochs, batches = divmod(step, self.steps_per_epoch)
        return epochs * self.local_samples + min(batches * self.batch_size, self.local_samples)

    def samples_until(self, step: int) -> int:
        """Samples to process from here to ``step``; the emulated computing time depends on it."""
        return self.samples_at(step) - self.samples


@dataclass(frozen=True, slots=True, eq=False)
class Merge:
    """A fresher model that is merged into a run after ``step`` steps."""

    step: int
    weights: np.ndarray
    version: int


@dataclass(slots=True, eq=False, kw_only=True)
class LocalRun(Course):
    """One task on one device, with its weights. ``LocalRule`` says what an algorithm may change.

    ``start`` may share memory with the received vector and is never written to. ``weights`` is the
    run's own vector and always current.
    """

    layout: Layout
    start: torch.Tensor
    weights: torch.Tensor
    trainable: torch.Tensor  # weights[:parameters], a view
    # copies of the vectors that the rule remembers; Trainer.remembered returns them
    memory: dict[str, torch.Tensor]
    learning_rate: float
    order: torch.Tensor  # sample indices, epoch after epoch
    velocity: torch.Tensor | None
    counters: list[torch.Tensor]
    random_state: torch.Tensor  # of torch's generator, for models that draw (dropout)
    loss_sum: float = 0.0
    coming: Merge | None = None  # ``Trainer.advance`` will merge it
    gradient: torch.Tensor | None = None  # set at the end of a run whose rule does not move
    # set while a fresher model is merged, see ``LocalRule.merge``
    probe: Callable[[torch.Tensor], tuple[float, torch.Tensor]] | None = None

    @property
    def parameters(self) -> int:
        """Number of trainable elements at the front of every vector."""
        return len(self.trainable)


def set_checkpoint(run: Course, rule: LocalRule) -> None:
    """Ask the rule before which step it wants a fresher model, and store the answer."""
    try:
        run.checkpoint = rule.checkpoint(run)
    except Exception as error:
        run.failure = run.failure or training_failure(error, BEFORE, type(rule).__module__)
