"""Distillation: train a model with the logits of other models on the same samples.

Source: FedEcho, eqs. 2 to 5.

p = softmax(y) of the teacher, q = softmax(yh) of the student, both (batch, C)
H = mean over the batch of  -sum_c p_c log p_c / log C ;   alpha = H alpha_max + (1 - H) alpha_min
loss = alpha KL(p || q) + (1 - alpha) CE(yh, argmax y) ;   its gradient is clipped to a global norm,
then Adam takes a step
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch.nn import functional

from edgefl.models.adam import Adam
from edgefl.models.workspace import Workspace, wrap
from edgefl.vectors import aligned_copy

if TYPE_CHECKING:
    from edgefl.compiled.step import CompiledStep

BATCH = 500  # batch size of predictions; it does not change the logits


def logits(
    workspace: Workspace,
    weights: np.ndarray,
    inputs: torch.Tensor,
    step: CompiledStep | None = None,
) -> np.ndarray:
    """Return the model's outputs for all inputs in evaluation mode, flat: (n * C,).

    ``step``: computes them in place of torch.
    """
    if step is not None:
        return aligned_copy(step.outputs(weights, inputs.contiguous().numpy()).ravel())
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

    def gradient(
        self,
        step: CompiledStep,
        weights: torch.Tensor,
        gradient: torch.Tensor,
        inputs: torch.Tensor,
        alpha: float,
    ) -> float:
        """Write the gradient of ``loss`` by the compiled step, and return the loss.

        loss = CE(yh, alpha p + (1 - alpha) onehot(argmax y)) + alpha sum_c p_c log p_c
        """
        log_p = functional.log_softmax(self.logits, dim=1)
        p = log_p.exp()
        shares = alpha * p
        shares[torch.arange(len(shares)), self.logits.argmax(dim=1)] += 1 - alpha
        model, slope, samples, targets = (
            each.contiguous().numpy() for each in (weights, gradient, inputs, shares)
        )
        crossed = step.gradient(model, slope, samples, targets, np.arange(len(inputs)))
        return crossed + alpha * float((p * log_p).sum(dim=1).mean())


def distil(
    workspace: Workspace,
    weights: torch.Tensor,
    adam: Adam,
    inputs: torch.Tensor,
    teacher: Teacher,
    recipe: Recipe,
    rng: np.random.Generator,
    step: CompiledStep | None = None,
) -> dict[str, float]:
    """Train ``weights`` (whole layout) in place, and return means over the batches.

    Gradients are clipped to the norm ``recipe.clip``. If its ``alpha_min`` is ``alpha_max``, alpha
    is fixed. ``step``: computes gradients in place of torch; ``teacher`` is ``SampleLogits`` then.

    The student is in evaluation mode: no dropout, and normalisation buffers do not change.
    """
    trainable, noted = weights[: workspace.layout.parameters], []
    with workspace.frozen(weights) if step is None else nullcontext(workspace.model) as model:
        for rows in _batches(len(inputs), recipe, rng):
            taught = teacher.batch(rows)
            uncertain = taught.uncertainty()
            alpha = uncertain * recipe.alpha_max + (1 - uncertain) * recipe.alpha_min
            slope = workspace.gradient
            if step is not None:
                assert isinstance(taught, SampleLogits)
                value = taught.gradient(step, weights, slope, inputs[rows], alpha)
            else:
                slope.zero_()
                wrong = taught.teach(model(inputs[rows]), alpha)
                wrong.backward()
                value = wrong.item()
            norm = clipped(slope, recipe.clip)
            adam.step(trainable, slope, recipe.learning_rate)
            noted.append((alpha, uncertain, value, norm, float(norm > recipe.clip)))
    names = ("alpha", "entropy", "loss", "gradient_norm", "clipped")
    return {name: math.fsum(values) / len(noted) for name, values in zip(names, zip(*noted))}


def _batches(samples: int, recipe: Recipe, rng: np.random.Generator) -> Iterator[torch.Tensor]:
    for _ in range(recipe.passes):
        yield from torch.from_numpy(rng.permutation(samples)).split(recipe.batch)


# ---------------------------------------------------------------------- top logits
# Predictions of a causal language model: the most likely words of each position, and the rest.
#
# 100 texts of 256 tokens with 152,000 words have 15 GB of logits for each device. With the K = 64
# most likely words of a position, their log-probabilities and the log of the remaining mass r they
# have 13 MB. [OURS; FedEcho (arXiv 2511.19966) does not say how it stores them.]
#
# What is not listed counts as follows, with V words and K of them listed:
#
# - mean of teachers, eq. 2: a word that a teacher does not list has log(r / (V - K)) there. The
# mean of log-probabilities has the same softmax as the mean of logits. - entropy: the rest is
# spread evenly over the unlisted words. This is an upper bound. - KL: the rest is one more word.
# This is a lower bound, and leaves the student free to divide its own rest. - CE: exact, as long as
# a teacher lists the most likely word.

PARTS = 1  # the plane of packed texts (n, 2, length) that is 0 at padding


@dataclass(frozen=True, slots=True, eq=False)
class TopLogits:
    """Probabilities of words at P positions, as logarithms.

    ``words`` (P, K); ``log_p`` (P, K), -inf for an entry that does not count; ``rest`` (P,): log of
    the mass of the ``others`` (P,) words that are not listed; -inf if there are none.
    """

    words: torch.Tensor
    log_p: torch.Tensor
    rest: torch.Tensor
    others: torch.Tensor

    @property
    def floor(self) -> torch.Tensor:
        """log-probability of each word that is not listed (P,)."""
        return self.rest - self.others.clamp(min=1).log()

    def entropy(self, vocabulary: int) -> torch.Tensor:
        """Each position's entropy, divided by log V: in [0, 1]."""
        listed = _expected(self.log_p, self.log_p).sum(dim=1)
        return (-(listed + _expected(self.rest, self.floor)) / math.log(vocabulary)).clamp(0, 1)

    def loss(self, student: torch.Tensor, alpha: float) -> torch.Tensor:
        """Mean over positions of alpha KL(teacher || student) + (1 - alpha) CE(student, argmax).

        ``student``: its logits (P, V).
        """
        log_q = functional.log_softmax(student, dim=1)
        listed = log_q.gather(1, self.words)
        divergence = _expected(self.log_p, self.log_p - listed).sum(dim=1)
        rest = torch.logsumexp(log_q.scatter(1, self.words, -math.inf), dim=1)
        divergence = divergence + _expected(self.rest, self.rest - rest)
        best = self.words.gather(1, self.log_p.argmax(dim=1, keepdim=True)).squeeze(1)
        return alpha * divergence.mean() + (1 - alpha) * functional.nll_loss(log_q, best)


def _expected(log_p: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """p times ``values``; 0 where p is 0, also in the gradient."""
    there = log_p > -math.inf
    return torch.where(there, log_p.exp() * torch.where(there, values, 0.0), 0.0)


def top_of(logits: torch.Tensor, count: int) -> TopLogits:
    """The ``count`` most likely words of each position of ``logits`` (P, V)."""
    log_p = functional.log_softmax(logits, dim=1)
    listed, words = log_p.topk(min(count, logits.shape[1]), dim=1)
    rest = torch.logsumexp(log_p.scatter(1, words, -math.inf), dim=1)
    others = torch.full_like(rest, logits.shape[1] - words.shape[1])
    return TopLogits(words, listed, rest, others)


def mean_of(teachers: Sequence[TopLogits], vocabulary: int) -> TopLogits:
    """The teacher of eq. 2: the mean of log-probabilities over teachers, normalised again.

    It lists each word that any teacher lists.
    """
    share = 1 / len(teachers)
    floors = [each.floor.clamp(min=-1e4) for each in teachers]  # -inf: a teacher lists all words
    above = [(each.log_p - floor[:, None]) * share for each, floor in zip(teachers, floors)]
    words, order = torch.cat([each.words for each in teachers], dim=1).sort(dim=1, stable=True)
    found = torch.cat(above, dim=1).gather(1, order)
    first = torch.ones_like(words, dtype=torch.bool)
    first[:, 1:] = words[:, 1:] != words[:, :-1]
    place = first.cumsum(dim=1) - 1  # of the word among the different ones
    sums = torch.zeros_like(found).scatter_add(1, place, found)
    kept = torch.zeros_like(words).scatter(1, place, words)
    count = first.sum(dim=1)
    floor = torch.stack(floors).mean(dim=0)
    used = torch.arange(words.shape[1], device=words.device) < count[:, None]
    scores = torch.where(used, sums + floor[:, None], -math.inf)
    others = (vocabulary - count).to(floor.dtype)
    rest = torch.where(others > 0, floor + others.clamp(min=1).log(), -math.inf)
    whole = torch.logaddexp(torch.logsumexp(scores, dim=1), rest)
    # unused places name a listed word, so that no other word counts as listed
    kept = torch.where(used, kept, kept[:, :1])
    return TopLogits(kept, scores - whole[:, None], rest - whole, others)


# ------------------------------------------------------------------ texts
def positions(inputs: torch.Tensor, length: int) -> torch.Tensor:
    """Which of the first ``length`` positions of texts (n, 2, L) are not padding: (n, length)."""
    return inputs[:, PARTS, :length] != 0


def predicted(
    workspace: Workspace, weights: np.ndarray, inputs: torch.Tensor, top: int
) -> np.ndarray:
    """Return the predictions of a causal model for all positions of texts, flat.

    These are the words, then the log-probabilities (both positions x top), then the rest.
    """
    found = []
    with workspace.inference(weights) as model:
        for part in torch.split(inputs, 1):  # text by text, so that no padding is computed
            outputs = model(part)
            found.append(top_of(outputs[positions(part, outputs.shape[1])], top))
    columns = (
        torch.cat([each.words for each in found]).to(torch.float32),  # exact up to 16 million
        torch.cat([each.log_p for each in found]),
        torch.cat([each.rest for each in found]),
    )
    return aligned_copy(torch.cat([column.flatten() for column in columns]).numpy(force=True))


@dataclass(frozen=True, slots=True, eq=False)
class TextBatch:
    """The mean teacher of some texts, at the positions that are not padding."""

    mean: TopLogits
    texts: torch.Tensor
    vocabulary: int

    def uncertainty(self) -> float:
        return float(self.mean.entropy(self.vocabulary).mean())

    def teach(self, outputs: torch.Tensor, alpha: float) -> torch.Tensor:
        return self.mean.loss(outputs[positions(self.texts, outputs.shape[1])], alpha)


@dataclass(frozen=True, slots=True, eq=False)
class TextTeachers:
    """The predictions of several devices for the same texts (n, 2, L), made by ``predicted``."""

    inputs: torch.Tensor
    teachers: tuple[TopLogits, ...]
    vocabulary: int

    @classmethod
    def of(cls, inputs: torch.Tensor, flats: Sequence[np.ndarray], vocabulary: int) -> TextTeachers:
        """ValueError if a vector does not belong to these texts."""
        count = int(positions(inputs, inputs.shape[2]).sum())
        teachers = tuple(_unpacked(flat, count, vocabulary, inputs.device) for flat in flats)
        return cls(inputs, teachers, vocabulary)

    def batch(self, rows: torch.Tensor) -> TextBatch:
        """The mean teacher of some texts, in their order."""
        ends = positions(self.inputs, self.inputs.shape[2]).sum(dim=1).cumsum(0).tolist()
        starts = [0, *ends]
        index = torch.cat([torch.arange(starts[row], ends[row]) for row in rows.tolist()])
        picked = [
            TopLogits(each.words[index], each.log_p[index], each.rest[index], each.others[index])
            for each in self.teachers
        ]
        return TextBatch(mean_of(picked, self.vocabulary), self.inputs[rows], self.vocabulary)


def _unpacked(flat: np.ndarray, count: int, vocabulary: int, device: torch.device) -> TopLogits:
    vector = wrap(flat).to(device)
    width = (len(vector) // max(count, 1) - 1) // 2
    if count * (2 * width + 1) != len(vector) or width < 1:
        raise ValueError(f"predictions of {len(vector)} numbers for {count} positions")
    words = vector[: count * width].view(count, width).to(torch.int64)
    log_p = vector[count * width : 2 * count * width].view(count, width)
    rest = vector[2 * count * width :]
    return TopLogits(words, log_p, rest, torch.full_like(rest, vocabulary - width))
