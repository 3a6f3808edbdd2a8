"""Descriptions of heavy work: a host does it, and the actor gets the result as ``job_done``.

A job of a strategy (decision ``RunJob``) defines its work itself. ``work(learned)`` is called in a
process with torch, data and model (``edgefl.clocks.setup.learning.Learning``). It returns named
flat float32 vectors and numbers. Its result depends only on the job's fields. So a job can be done
in any process, at any time, and again if its worker dies. Fields are numbers, texts, vectors, and
dicts of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from edgefl.errors import UserError
from edgefl.streams import Streams
from edgefl.vectors import aligned, aligned_copy, blocks

# Result of a strategy's job: vectors and numbers, as in an update.
Result = tuple[dict[str, np.ndarray], dict[str, float]]

# Result of Evaluate: train loss (None: not measured), test loss, accuracy; then, if requested,
# further scores, and the accuracy of each label (nan: it has no samples). With ``of_edges``: loss,
# accuracy (nan: without samples) and number of samples of each edge, one edge after the other.
Scores = tuple[float | None, float, float, *tuple[float, ...]]


class Job(Protocol):
    """The argument of RunJob: a frozen dataclass at the top level of a module.

    It is compared by identity (``eq=False``).
    """

    def work(self, learned: Any) -> Result:
        """Do the job with this process's data and model."""
        ...


@dataclass(slots=True, eq=False)
class Train:
    """Advance an edge's local run to ``until_step``."""

    run: Any = field(repr=False)
    until_step: int


@dataclass(slots=True, eq=False)
class Evaluate:
    """Measure loss and accuracy of a snapshot of the global model.

    Bytes and joules: what all edges have used by then. ``joules`` None: they are not modelled.
    ``of_edges``: measure them on each edge's own samples, in place of the test samples.
    """

    version: int
    at_ns: int
    weights: np.ndarray = field(repr=False)
    bytes_up: int
    bytes_down: int
    joules: float | None = None
    of_edges: bool = False

    @property
    def key(self) -> tuple[int, bool]:
        """Which evaluation of a run this is."""
        return self.version, self.of_edges


@dataclass(slots=True, eq=False)
class Predict:
    """Compute the logits of a model on unlabelled samples: {"logits": flat, samples x classes}.

    Of a causal language model: {"top_logits": flat}, see edgefl.models.distil. ``samples``:
    number of samples, evenly spaced; None: all. ``top``: words per position of a text.
    """

    weights: np.ndarray = field(repr=False)
    samples: int | None
    top: int = 64

    def work(self, learned: Any) -> Result:
        from edgefl.models import distil

        inputs, space = learned.some_unlabelled(self.samples), learned.workspace
        if learned.predicts_tokens:
            return {"top_logits": distil.predicted(space, self.weights, inputs, self.top)}, {}
        return {"logits": distil.logits(space, self.weights, inputs, learned.step)}, {}


@dataclass(slots=True, eq=False, kw_only=True)
class Distill:
    """Teach a model the mean logits ``teacher`` (flat, on the same samples as in Predict), or the
    predictions of causal models by device, ``top_teachers``, which the job averages.

    Result: new "weights", and Adam's "first" and "second" moments; as numbers, Adam's steps and
    means over the batches (edgefl.models.distil). If ``first`` and ``second`` are None, Adam starts
    anew.
    """

    weights: np.ndarray = field(repr=False)
    teacher: np.ndarray = field(repr=False)
    first: np.ndarray | None = field(repr=False)
    second: np.ndarray | None = field(repr=False)
    steps: int
    learning_rate: float
    beta1: float
    beta2: float
    epsilon: float
    passes: int
    batch: int
    alpha_min: float
    alpha_max: float
    clip: float
    samples: int | None
    seed: int
    top_teachers: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    def work(self, learned: Any) -> Result:
        from edgefl.models import distil
        from edgefl.models.adam import Adam

        inputs, space = learned.some_unlabelled(self.samples), learned.workspace
        weights = space.placed(aligned_copy(self.weights))
        first, second = (
            space.placed(
                np.zeros(space.layout.parameters, np.float32) if old is None else aligned_copy(old)
            )
            for old in (self.first, self.second)
        )
        adam = Adam(first, second, self.steps, self.beta1, self.beta2, self.epsilon)
        teacher: distil.Teacher
        if self.top_teachers:
            of_devices = [self.top_teachers[edge] for edge in sorted(self.top_teachers)]
            words = learned.task.dataset.vocabulary
            teacher = distil.TextTeachers.of(inputs, of_devices, words)
        else:
            teacher = distil.SampleLogits(space.placed(self.teacher).view(len(inputs), -1))
        numbers = distil.distil(
            *(space, weights, adam, inputs, teacher, self),
            Streams(self.seed).rng("distil batches"),
            learned.step,
        )
        vectors = {"weights": weights, "first": adam.first, "second": adam.second}
        return {name: vector.numpy(force=True) for name, vector in vectors.items()}, numbers | {
            "steps": float(adam.steps)
        }


def gradient_on(learned: Any, weights: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, float]:
    """The gradient of the loss at a model (trainable elements) on these training samples, and the
    loss.
    """
    made = learned.compiled
    if made is not None:
        slope = aligned(made.step.parameters)
        samples = made.inputs[rows], made.labels[rows], np.arange(len(rows))
        return slope, made.step.gradient(weights, slope, *samples)

    import torch

    from edgefl.models.evaluate import gradient

    index = torch.from_numpy(rows).to(learned.workspace.device)
    inputs, targets = (each.index_select(0, index) for each in learned.train)
    return gradient(learned.workspace, weights, inputs, targets, learned.task.loss)


@dataclass(slots=True, eq=False)
class Gradient:
    """Compute the gradient of the loss at a model on a batch of ``samples`` training samples.

    Result: {"gradient": the trainable elements}, and the loss. ``seed`` draws these samples, the
    same in each of a strategy's jobs; ``seed`` and ``draw`` draw the batch from them. ``labels``:
    number of labels that the samples have, drawn as well; None: all labels.
    """

    weights: np.ndarray = field(repr=False)
    samples: int
    batch: int
    seed: int
    draw: int
    labels: int | None = None

    def work(self, learned: Any) -> Result:
        streams = Streams(self.seed)
        own = self._own(learned.train[1].numpy(force=True), streams)
        batch = streams.rng("server batch", self.draw).permutation(own)[: self.batch]
        slope, loss = gradient_on(learned, self.weights, batch)
        return {"gradient": slope}, {"loss": loss}

    def _own(self, targets: np.ndarray, streams: Streams) -> np.ndarray:
        """The rows of the server's samples."""
        rows = streams.rng("server samples").permutation(len(targets))
        if self.labels is not None:
            chosen = streams.rng("server labels").permutation(np.unique(targets))[: self.labels]
            rows = rows[np.isin(targets[rows], chosen)]
        of = "" if self.labels is None else f" of the labels drawn (server_labels = {self.labels})"
        check_server_samples("server_samples", self.samples, len(rows), of)
        return rows[: self.samples]


@dataclass(slots=True, eq=False)
class Sensitivity:
    """Sketch how sensitive the loss is to each trainable element of a model.

    On ``samples`` training samples that ``seed`` draws, with the gradient g of the loss: s_j =
    abs(g_j w_j - F_j w_j^2 / 2), the change of the loss if w_j became 0, to the second order, with
    the empirical Fisher diagonal F for the Hessian's. ``fisher``: F is the mean of the "samples"'
    squared gradients, or g^2 of the "batch". Result: {"sketch": R s}, with R ``width`` rows of
    normal numbers of variance 1 / width, drawn by ``seed``.
    """

    weights: np.ndarray = field(repr=False)
    samples: int
    width: int
    seed: int
    fisher: str

    def work(self, learned: Any) -> Result:
        streams = Streams(self.seed)
        rows = streams.rng("server samples").permutation(len(learned.train[1]))
        check_server_samples("server_samples", self.samples, len(rows))
        rows = np.sort(rows[: self.samples])
        if self.fisher == "batch":
            mean, _ = gradient_on(learned, self.weights, rows)
            squares = mean * mean
        else:
            mean = np.zeros(learned.workspace.layout.parameters, np.float32)
            squares = np.zeros_like(mean)
            for start in range(len(rows)):
                one, _ = gradient_on(learned, self.weights, rows[start : start + 1])
                mean += one / np.float32(len(rows))
                squares += one * one / np.float32(len(rows))
        weights = self.weights[: mean.size]
        sensitivities = np.abs(mean * weights - 0.5 * squares * weights * weights)
        return {"sketch": self._sketch(sensitivities, streams)}, {}

    def _sketch(self, vector: np.ndarray, streams: Streams) -> np.ndarray:
        """R s, with the rows of R drawn block by block: R has ``width`` models' size."""
        rng, sketch = streams.rng("sketch"), np.zeros(self.width)
        for part in blocks(vector.size):
            rows = rng.standard_normal((self.width, part.stop - part.start), np.float32)
            sketch += np.einsum("ij,j->i", rows, vector[part])
        return (sketch / math.sqrt(self.width)).astype(np.float32)


def check_server_samples(key: str, wanted: int, have: int, of: str = "") -> None:
    """UserError if the server needs more samples than exist."""
    if wanted > have:
        raise UserError(f"{key}: expected at most {have}, the training samples{of}, found {wanted}")


def plain(job: Any) -> list[Any]:
    """Return [module, class, fields]: a job as lists, dicts, strings, numbers and arrays."""
    return [
        type(job).__module__,
        type(job).__qualname__,
        {each.name: getattr(job, each.name) for each in fields(job)},
    ]


def of_plain(row: list[Any]) -> Any:
    """Return the job of a row made by ``plain``."""
    module, name, values = row
    return getattr(import_module(module), name)(**values)


def arrays(job: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays in a job's fields, by name ("weights", "vectors.first")."""
    for name, value in plain(job)[2].items():
        parts = (
            {f"{name}.{key}": part for key, part in value.items()}
            if isinstance(value, dict)
            else {name: value}
        )
        yield from ((key, part) for key, part in parts.items() if isinstance(part, np.ndarray))
