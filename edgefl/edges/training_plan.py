"""The plan of local training: how many steps a task has, and how each of them moves the model.

This module does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from edgefl.edges.schedule import Schedule
from edgefl.strategies.base.local_rule import LocalRule

# names of an optimizer's state in the edge's memory; no rule uses them
OPTIMIZER_STATE = ("optimizer first", "optimizer second", "optimizer steps")
MOST_EPOCHS = 100_000  # of one task


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


def batches(samples: int, batch_size: int) -> int:
    """Steps of a pass over ``samples``, at least 1."""
    return max(1, -(-samples // batch_size))


def pass_samples(samples: int, batch_size: int, drop_last: bool) -> int:
    """Samples that a pass over ``samples`` uses: with ``drop_last``, those of its whole batches.

    If there is no whole batch, they are all samples, in one batch.
    """
    return samples - samples % batch_size if drop_last and samples > batch_size else samples


def samples_after(steps: int, samples: int, batch_size: int) -> int:
    """Samples processed in ``steps`` steps of passes over ``samples``.

    The last batch of a pass may be smaller.
    """
    passes, rest = divmod(steps, batches(samples, batch_size))
    return passes * samples + min(rest * batch_size, samples)


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """Steps of SGD or AdamW: epochs x ceil(samples / batch_size) of them.

    ``drop_last``: epochs x floor(samples / batch_size), at least one for an epoch.
    With ``batches_per_epoch``: epochs x batches_per_epoch steps, along shuffled passes.
    A rule that only computes one gradient uses a whole batch, see ``Course.whole_batches``.
    ``keeps_state``: the optimizer goes on where it was at the end of the edge's last task.
    ``micro_batch_size``: samples of one forward and backward pass; None: the whole batch.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float = 0.0
    momentum: float = 0.0
    optimizer: Literal["sgd", "adamw"] = "sgd"
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    keeps_state: bool = False
    micro_batch_size: int | None = None
    schedule: Schedule | None = None  # None: the learning rate stays as it is
    batches_per_epoch: int | None = None  # None: an epoch is a pass over the samples
    drop_last: bool = False

    @property
    def is_plain_sgd(self) -> bool:
        """Whether an edge's change of weights is the sum of its gradients times one learning rate
        (with momentum: nearly).
        """
        return self.optimizer == "sgd" and self.schedule is None

    @property
    def remembers(self) -> tuple[str, ...]:
        """Names of the vectors that an edge may keep of the optimizer between tasks."""
        return OPTIMIZER_STATE if self.keeps_state else ()

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
        steps = self.epochs_of(task) * self.steps_per_epoch(samples) if rule.moves else 1
        return min(steps, int(task.numbers.get("most_steps", steps)))

    def steps_per_epoch(self, samples: int) -> int:
        return self.batches_per_epoch or batches(self.pass_samples(samples), self.batch_size)

    def pass_samples(self, samples: int) -> int:
        """Samples that a pass uses on a device with ``samples``."""
        return pass_samples(samples, self.batch_size, self.drop_last)

    def task_samples(self, samples: int) -> int:
        """Samples that a task of the plan's own epochs processes on a device with ``samples``."""
        steps = self.epochs * self.steps_per_epoch(samples)
        return samples_after(steps, self.pass_samples(samples), self.batch_size)
