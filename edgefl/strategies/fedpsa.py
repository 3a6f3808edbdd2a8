"""FedPSA (reconstructed): updates weighted by what their models are sensitive to (Lu 2026).

The more the sensitivities of its model resemble those of the global model, the larger the weight of
an update. If updates become shorter, their weights differ more. Source: Lu et al. 2026, arXiv
2602.15337. Reconstructed: of the paper only its beginning, public summaries and a re-implementation
(nclabteam/FedProC) were available. They agree on the sensitivity, the sketch, the cosine, the
temperature and the softmax. Not certain: the Fisher diagonal (``fisher``), the calibration batch,
and when M_0 is taken. Ours: the server computes the sketches, on samples of its own, and not the
devices.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

import numpy as np
from pydantic import Field

from edgefl.jobs import Job, Result, Sensitivity
from edgefl.strategies.base.buffered import Buffered, BufferedOptions
from edgefl.strategies.base.events_and_decisions import (
    Decision,
    JobDone,
    JobFailed,
    Publish,
    Report,
    RunJob,
    UpdateArrived,
)
from edgefl.vectors import cosine_of, distance, with_changes
from emulator.units import to_ns

LEAST_MAGNITUDE = float(np.finfo(np.float32).eps)  # of M_0: models that do not move


class FedPSAOptions(BufferedOptions):
    """The defaults are those of the re-implementation, which calls them the paper's."""

    buffer_size: int = Field(5, ge=1)
    """Number of updates for one server step (K)."""
    dispatch_before_step: Literal[True] = True
    """Always true: devices do not wait for the sketches. The edge whose update fills the buffer is
    replaced before the server step, and the next task starts from the old model.
    """
    queue_length: int = Field(50, ge=1)
    """Number of latest updates whose mean squared length is M (L_q). As long as there are fewer,
    all updates have the same weight.
    """
    gamma: float = Field(5.0, ge=0)
    """Factor of M / M_0 in the temperature."""
    delta: float = Field(0.5, gt=0)
    """Least temperature. The larger the temperature, the more equal the weights."""
    sketch_size: int = Field(16, ge=1)
    """Number of elements of a sketch (k)."""
    fisher: Literal["samples", "batch"] = "samples"
    """F, the diagonal of the empirical Fisher matrix: the mean over `"samples"` of their squared
    gradients, or, as in the re-implementation, the square of the `"batch"`'s gradient.
    """
    server_samples: int = Field(32, ge=1)
    """Number of training samples that the server has, its calibration batch."""
    sensitivity_s: float = Field(0.1, ge=0)
    """Emulated time to compute the sketch of a model, on both clocks; `edgefl jobs CONFIG` measures
    what this host needs.
    """


@dataclass(slots=True)
class SketchedUpdate:
    """An update that waits for its step; ``sketched``: its job has ended.

    ``sketch``: None before that, or if the job failed.
    """

    update: UpdateArrived
    sketched: bool = False
    sketch: np.ndarray | None = field(default=None, repr=False)


class FedPSA(Buffered):
    """Sensitivity of a model w, with the gradient g of the loss on the calibration batch:  s_j =
    |g_j w_j - F_j w_j^2 / 2| (eq. 9) ;  sketch  S = R s ,  R: k rows of normal numbers with
    variance 1 / k, the same for all models.

    A job makes the sketch of each arriving model w_i, and of each global model w. At K updates,
    once their sketches are there:  c_i = cos(S_i, S) ;  p_i = softmax(c_i / T) ;  w <- w + sum p_i
    D_i (eq. 13).

    T = (M / M_0) gamma + delta ,  M = mean of ||D_i||^2 over the latest L_q updates in steps, M_0 =
    the first M of L_q updates; before that p_i = 1 / K. Staleness in versions has no weight. If a
    sketch fails, c_i = 0. Updates that arrive while a sketch is awaited wait for the next step.
    Trainable elements only; normalisation buffers are averaged with the weights p_i. The server's
    samples are from the training set, and edges may have the same ones. With data.source = "shard"
    or "local" they come from the data of the job's worker.
    """

    Options = FedPSAOptions
    reconstructed = True
    runs_jobs = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.waiting: deque[SketchedUpdate] = deque()
        self.sketch: np.ndarray | None = None  # S; None: it is awaited, or has failed
        self.awaits_sketch = True
        self.magnitudes: deque[float] = deque(maxlen=self.options.queue_length)  # ||D_i||^2
        self.first_mean: float | None = None  # M_0

    @classmethod
    def server_samples(cls, options: FedPSAOptions) -> int:
        return options.server_samples

    def started(self, now: int) -> list[Decision]:
        return [self._sketch_of_model(), *super().started(now)]

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        self.failed = 0
        too_stale = self.discarded(update)
        if too_stale:
            return [*too_stale, *self._refill()]
        self.waiting.append(SketchedUpdate(update))
        return [self._job(f"update {update.task}", update.weights), *self._refill()]

    def job_done(self, event: JobDone, now: int) -> list[Decision]:
        return self._sketched(event.name, event.vectors["sketch"])

    def job_failed(self, event: JobFailed, now: int) -> list[Decision]:
        failed = Report({"sensitivity_failed": 1.0})
        return [failed, *self._sketched(event.name, None)]

    def rehearsal(self) -> Generator[tuple[str, Job], Result, None]:
        yield "sensitivity_s", self._job("rehearsal", self.weights).job

    def _job(self, name: str, weights: np.ndarray) -> RunJob:
        options = self.options
        seed = int(self.streams.rng("sensitivity").integers(2**63))
        job = Sensitivity(
            weights, options.server_samples, options.sketch_size, seed, options.fisher
        )
        return RunJob(name, job, to_ns(options.sensitivity_s))

    def _sketch_of_model(self) -> RunJob:
        self.sketch, self.awaits_sketch = None, True
        return self._job(f"model {self.version}", self.weights)

    def _sketched(self, name: str, sketch: np.ndarray | None) -> list[Decision]:
        """Keep the result of a job, and step if nothing is missing."""
        of, _, number = name.partition(" ")
        if of == "model":
            self.sketch, self.awaits_sketch = sketch, False
        else:
            for each in self.waiting:
                if each.update.task == int(number):
                    each.sketched, each.sketch = True, sketch
        size: int = self.options.buffer_size
        first = list(islice(self.waiting, size))
        if len(first) < size or self.awaits_sketch or not all(each.sketched for each in first):
            return []
        for _ in first:
            self.waiting.popleft()
        return self._step_with(first)

    def _step_with(self, entries: Sequence[SketchedUpdate]) -> list[Decision]:
        size, updates = self.layout.parameters, [each.update for each in entries]
        for update in updates:
            self._note(distance(update.weights[:size], update.base[:size]) ** 2)
        agreements = [cosine_of_sketches(each.sketch, self.sketch) for each in entries]
        temperature = self.temperature()
        shares = softmax(agreements, temperature)
        weights = with_changes(
            self.weights,
            [update.weights for update in updates],
            [update.base for update in updates],
            shares,
            size,
        )
        report = {"agreement": sum(agreements) / len(agreements), "largest_share": max(shares)}
        if temperature is not None:
            report["temperature"] = temperature
        self.weights = weights
        self.version += 1
        publish = Publish(weights, made_of=tuple(update.task for update in updates))
        return [Report(report), publish, self._sketch_of_model()]

    def _note(self, magnitude: float) -> None:
        """Put the squared length of a change into the queue."""
        self.magnitudes.append(magnitude)
        if self.first_mean is None and len(self.magnitudes) == self.options.queue_length:
            self.first_mean = sum(self.magnitudes) / len(self.magnitudes)

    def temperature(self) -> float | None:
        """Return T; None: there were not enough updates yet, and all have the same weight."""
        if self.first_mean is None:
            return None
        mean = sum(self.magnitudes) / len(self.magnitudes)
        gamma: float = self.options.gamma
        delta: float = self.options.delta
        return mean / max(self.first_mean, LEAST_MAGNITUDE) * gamma + delta


def softmax(agreements: Sequence[float], temperature: float | None) -> list[float]:
    """Return p_i, with sum 1; ``temperature`` None: all are equal."""
    if temperature is None:
        return [1 / len(agreements)] * len(agreements)
    most = max(agreements)
    raw = [math.exp((each - most) / temperature) for each in agreements]
    return [each / sum(raw) for each in raw]


def cosine_of_sketches(one: np.ndarray | None, other: np.ndarray | None) -> float:
    """Return the cosine; 0 if either sketch is missing or all zero."""
    if one is None or other is None:
        return 0.0
    a, b = one.astype(np.float64), other.astype(np.float64)
    return cosine_of(float(a @ b), float(a @ a), float(b @ b))
