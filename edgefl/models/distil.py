"""Distillation: train a model with the logits of other models on the same samples.

Source: FedEcho, eqs. 2 to 5.

p = softmax(y) of the teacher, q = softmax(yh) of the student, both (batch, C)
H = mean over the batch of  -sum_c p_c log p_c / log C ;   alpha = H alpha_max + (1 - H) alpha_min
loss = alpha KL(p || q) + (1 - alpha) CE(yh, argmax y) ;   its gradient is clipped to a global norm,
then Adam takes a step
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch.nn import functional

from edgefl.models.adam import Adam
from edgefl.models.workspace import Workspace
from edgefl.vectors import aligned_copy

BATCH = 500  # batch size of predictions; it does not change the logits


def logits(workspace: Workspace, weights: np.ndarray, inputs: torch.Tensor) -> np.ndarray:
    """Return the model's outputs for all inputs in evaluation mode, flat: (n * C,)."""
    with workspace.inference(weights) as model:
        parts = [
            model(inputs[start : start + BATCH]).flatten(1)
            for start in range(0, len(inputs), BATCH)
        ]
    return aligned_copy(torch.cat(parts).numpy(force=True))


def entropy(teacher: torch.Tensor) -> torch.Tensor:
    """Return each sample's entropy of softmax(teacher), divided by log C: in [0, 1]."""
    log_p = functional.log_softmax(teacher, dim=1)
    # rounding can give values slightly above 1
    return (-(log_p.exp() * log_p).sum(dim=1) / math.log(teacher.shape[1])).clamp(0.0, 1.0)


def loss(student: torch.Tensor, teacher: torch.Tensor, alpha: float) -> torch.Tensor:
    """Return the batch mean of alpha KL(softmax(teacher) || softmax(student)) + (1 - alpha)
    CE(student, argmax teacher).
    """
    log_p, log_q = functional.log_softmax(teacher, dim=1), functional.log_softmax(student, dim=1)
    divergence = (log_p.exp() * (log_p - log_q)).sum(dim=1).mean()
    return alpha * divergence + (1 - alpha) * functional.nll_loss(log_q, teacher.argmax(dim=1))


def clipped(gradient: torch.Tensor, norm: float) -> float:
    """Clip ``gradient`` in place to ``norm``, and return its norm before."""
    before = float(gradient.norm())
    if before > norm:
        gradient.mul_(norm / before)
    return before


class Batch(Protocol):
    """The teacher of a batch of samples, in the form of ``SampleLogits`` or ``TopLogits``."""

    def uncertainty(self) -> float:
        """H, the mean entropy of its predictions."""
        ...

    def teach(self, outputs: torch.Tensor, alpha: float) -> torch.Tensor:
        """The loss of the student's ``outputs`` for the batch."""
        ...


class Recipe(Protocol):
    """Of a distillation: step, passes, batch size, range of alpha, norm of the clip."""

    learning_rate: float
    passes: int
    batch: int
    alpha_min: float
    alpha_max: float
    clip: float


class Teacher(Protocol):
    """What teaches: predictions for all samples."""

    def batch(self, rows: torch.Tensor) -> Batch:
        """The teacher of some samples."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class SampleLogits:
    """A teacher with one row of logits for each sample: (n, C)."""

    logits: torch.Tensor

    def batch(self, rows: torch.Tensor) -> SampleLogits:
        return SampleLogits(self.logits[rows])

    def uncertainty(self) -> float:
        return float(entropy(self.logits).mean())

    def teach(self, outputs: torch.Tensor, alpha: float) -> torch.Tensor:
        return loss(outputs.flatten(1), self.logits, alpha)


def distil(
    workspace: Workspace,
    weights: torch.Tensor,
    adam: Adam,
    inputs: torch.Tensor,
    teacher: Teacher,
    recipe: Recipe,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Train ``weights`` (whole layout) in place, and return means over the batches.

    Gradients are clipped to the norm ``recipe.clip``. If its ``alpha_min`` is ``alpha_max``, alpha
    is fixed.

    The student is in evaluation mode: no dropout, and normalisation buffers do not change.
    """
    trainable, noted = weights[: workspace.layout.parameters], []
    with workspace.frozen(weights) as model:
        for rows in _batches(len(inputs), recipe, rng):
            taught = teacher.batch(rows)
            uncertain = taught.uncertainty()
            alpha = uncertain * recipe.alpha_max + (1 - uncertain) * recipe.alpha_min
            workspace.gradient.zero_()
            value = taught.teach(model(inputs[rows]), alpha)
            value.backward()
            norm = clipped(workspace.gradient, recipe.clip)
            adam.step(trainable, workspace.gradient, recipe.learning_rate)
            noted.append((alpha, uncertain, value.item(), norm, float(norm > recipe.clip)))
    names = ("alpha", "entropy", "loss", "gradient_norm", "clipped")
    return {name: math.fsum(values) / len(noted) for name, values in zip(names, zip(*noted))}


def _batches(samples: int, recipe: Recipe, rng: np.random.Generator) -> Iterator[torch.Tensor]:
    for _ in range(recipe.passes):
        yield from torch.from_numpy(rng.permutation(samples)).split(recipe.batch)
