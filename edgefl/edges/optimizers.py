"""The optimizers of local training, on flat vectors: SGD and AdamW.

Their state starts anew with each task, or stays on the edge like the vectors that a rule remembers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from edgefl.edges.training_plan import OPTIMIZER_STATE, TrainingPlan
from edgefl.vectors import aligned_copy

if TYPE_CHECKING:
    import torch

    from edgefl.models.adam import Adam

FIRST, SECOND, STEPS = OPTIMIZER_STATE


class Optimizer(Protocol):
    """Moves the trainable elements of a run, step by step."""

    steps: int  # done so far, in earlier tasks too if the state is kept

    def step(self, weights: torch.Tensor, gradient: torch.Tensor, learning_rate: float) -> None:
        """Move ``weights`` in place. ``gradient`` is not changed."""
        ...

    def copied(self) -> Optimizer:
        """Copy the state."""
        ...

    def vectors(self) -> dict[str, torch.Tensor]:
        """The state but for ``steps``, by name."""
        ...


@dataclass(slots=True)
class SGD:
    """w <- w - rate v, with v <- momentum v + g; without momentum (``velocity`` None) v = g."""

    momentum: float
    velocity: torch.Tensor | None
    steps: int = 0

    def step(self, weights: torch.Tensor, gradient: torch.Tensor, learning_rate: float) -> None:
        direction = gradient
        if self.velocity is not None:
            direction = self.velocity.mul_(self.momentum).add_(gradient)
        weights.add_(direction, alpha=-learning_rate)
        self.steps += 1

    def copied(self) -> SGD:
        velocity = None if self.velocity is None else self.velocity.clone()
        return SGD(self.momentum, velocity, self.steps)

    def vectors(self) -> dict[str, torch.Tensor]:
        return {} if self.velocity is None else {FIRST: self.velocity}


@dataclass(slots=True)
class AdamW:
    """Adam with weight decay that is no part of the gradient (``edgefl.models.adam``)."""

    adam: Adam

    @property
    def steps(self) -> int:
        return self.adam.steps

    @steps.setter
    def steps(self, steps: int) -> None:
        self.adam.steps = steps

    def step(self, weights: torch.Tensor, gradient: torch.Tensor, learning_rate: float) -> None:
        self.adam.learning_rate = learning_rate
        self.adam.step(weights, gradient)

    def copied(self) -> AdamW:
        adam = self.adam
        return AdamW(replace(adam, first=adam.first.clone(), second=adam.second.clone()))

    def vectors(self) -> dict[str, torch.Tensor]:
        return {FIRST: self.adam.first, SECOND: self.adam.second}


def optimizer(
    plan: TrainingPlan, tensor: Callable[[], torch.Tensor], memory: Mapping[str, np.ndarray]
) -> Optimizer:
    """The optimizer of a new run. It goes on from the edge's ``memory`` if the plan keeps state.

    ``tensor()``: the trainable elements; SGD without momentum does not ask for them.
    """
    found: Optimizer
    velocity = tensor().new_zeros(len(tensor())) if plan.momentum else None
    if plan.optimizer == "adamw":
        from edgefl.models.adam import Adam

        first, second = (tensor().new_zeros(len(tensor())) for _ in range(2))
        found = AdamW(
            Adam(first, second, 0, 0.0, plan.beta1, plan.beta2, plan.epsilon, plan.weight_decay)
        )
    else:
        found = SGD(plan.momentum, velocity)
    if plan.keeps_state and STEPS in memory:
        for name, vector in found.vectors().items():
            from edgefl.models.workspace import wrap

            vector.copy_(wrap(memory[name]))
        found.steps = int(memory[STEPS][0])
    return found


def kept_state(plan: TrainingPlan, of: Optimizer) -> dict[str, np.ndarray]:
    """Copies of what the edge keeps of an optimizer; empty if it keeps nothing.

    A state that is not finite is not kept: the server refuses its update, so it must not affect
    later tasks either.
    """
    vectors = of.vectors()
    if not plan.keeps_state or not all(bool(each.isfinite().all()) for each in vectors.values()):
        return {}
    # float32 has all whole numbers up to 16 million
    steps = aligned_copy(np.array([of.steps], dtype=np.float32))
    kept = {name: aligned_copy(each.numpy(force=True)) for name, each in vectors.items()}
    return kept | {STEPS: steps}
