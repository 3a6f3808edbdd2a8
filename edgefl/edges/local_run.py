"""What a device is told about training, and one training task in progress, as plain data (no torch needed to hold it)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Mapping, Protocol

if TYPE_CHECKING:
    import numpy as np
    import torch


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """SGD with drop_last = False: epochs x ceil(samples / batch_size) steps."""

    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float = 0.0
    momentum: float = 0.0


class TaskLike(Protocol):
    """What the trainer reads of a task: ``vectors["weights"]`` to start from; ``numbers`` may override epochs and learning_rate."""

    number: int
    version: int
    vectors: Mapping[str, np.ndarray]
    numbers: Mapping[str, float]


@dataclass(slots=True, eq=False)
class LocalRun:
    """One task on one device; see ``LocalRule`` for what an algorithm may do with it.

    ``start`` may share memory with the received vector: nobody writes to it. ``weights`` is the run's own and always current.
    """

    task: TaskLike
    start: torch.Tensor
    weights: torch.Tensor
    trainable: torch.Tensor  # weights[:parameters], a view
    memory: dict[str, torch.Tensor]  # the vectors that the rule remembers: copies, given back by Trainer.remembered
    local_samples: int
    batch_size: int
    steps: int
    learning_rate: float
    order: torch.Tensor  # sample indices, epoch after epoch
    velocity: torch.Tensor | None
    counters: list[torch.Tensor]
    random_state: torch.Tensor  # of torch's generator, for models that draw (dropout)
    step: int = 0
    loss_sum: float = 0.0
    gradient: torch.Tensor | None = None  # set at the end of a run whose rule does not move
    checkpoint: int | None = None  # the step before which the rule wants a fresher model

    @property
    def parameters(self) -> int:
        """Number of trainable elements at the front of every vector."""
        return len(self.trainable)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.local_samples // self.batch_size)

    @property
    def samples(self) -> int:
        """Samples processed so far."""
        return self.samples_at(self.step)

    def samples_at(self, step: int) -> int:
        """Samples processed when ``step`` steps are done; the last batch of an epoch may be smaller."""
        epochs, batches = divmod(step, self.steps_per_epoch)
        return epochs * self.local_samples + min(batches * self.batch_size, self.local_samples)

    def samples_until(self, step: int) -> int:
        """Samples to be processed from here to ``step``: what the emulated compute time of that stretch depends on."""
        return self.samples_at(step) - self.samples
