"""FedEcho: distils cached predictions of all devices into the global model, weighted by entropy.

So updates of stragglers keep their influence. Source: arXiv 2511.19966, algorithm 1, eqs. 2 to 5.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from edgefl.jobs import Distill, Job, Predict, Result
from edgefl.strategies.base.buffered import Buffered, BufferedOptions, Gathered
from edgefl.strategies.base.events_and_decisions import (
    Decision,
    JobDone,
    JobFailed,
    Report,
    RunJob,
    UpdateArrived,
)
from edgefl.vectors import weighted_sum
from emulator.units import NS_PER_S, to_ns


class FedEchoOptions(BufferedOptions):
    buffer_size: int = Field(5, ge=1)
    """Number of updates for one server step (M)."""
    dispatch_before_step: Literal[True] = True
    """Always true: devices do not wait for the distillation. The edge whose update fills the buffer
    is replaced before the server step, and the next task starts from the old model.
    """
    server_learning_rate: float = Field(1.0, gt=0)
    """Learning rate of the server step (eta)."""
    alpha_min: float = Field(0.2, ge=0, le=1)
    """Weight of the KL divergence in the distillation loss if the teachers are certain (entropy 0);
    the rest is the weight of the cross-entropy with their hard labels.
    """
    alpha_max: float = Field(0.8, ge=0, le=1)
    """Weight of the KL divergence in the distillation loss if the teachers are uncertain (largest
    entropy); the rest is the weight of the cross-entropy with their hard labels.
    """
    alpha: float | None = Field(None, ge=0, le=1)
    """Fixed weight of the KL divergence, in place of `alpha_min` and `alpha_max`; 0: cross-entropy
    only; 1: KL only; none: the entropy decides.
    """
    distil_learning_rate: float = Field(3e-6, gt=0)
    """Learning rate of Adam in the distillation (eta_d)."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """Decay of Adam's first moment in the distillation."""
    beta2: float = Field(0.999, ge=0, lt=1)
    """Decay of Adam's second moment in the distillation."""
    # a smaller one is 0 in float32
    epsilon: float = Field(1e-8, ge=1e-37)
    """Added to the root of Adam's second moment in the distillation, to avoid a division by 0."""
    clip_norm: float = Field(5.0, gt=0)
    """Gradients of the distillation are clipped to this norm before Adam (nu); 1e30: no clipping.
    """
    distil_passes: int = Field(1, ge=1)
    """Number of passes over the unlabelled samples in one distillation."""
    distil_batch_size: int = Field(128, ge=1)
    """Number of unlabelled samples for one step of the distillation."""
    keep_adam: bool = True
    """If true, Adam keeps its moments from round to round; if false, each round starts without
    moments.
    """
    unlabelled_samples: int | None = Field(None, ge=1)
    """Number of unlabelled samples to use, evenly spaced, out of `unlabelled.size`; none: all."""
    top_words: int = Field(64, ge=1)
    """Predictions of a causal language model: number of words that are kept for each position, the
    most likely ones. The rest of the probability is kept as one number.
    """
    predict_s: float = Field(0.25, ge=0)
    """Emulated time to predict the unlabelled samples with one device's model, on both clocks;
    `edgefl jobs CONFIG` measures what this host needs.
    """
    distil_s: float = Field(2.5, ge=0)
    """Emulated time of one distillation, on both clocks; `edgefl jobs CONFIG` measures what this
    host needs.
    """

    @model_validator(mode="after")
    def _in_order(self) -> FedEchoOptions:
        if self.concurrency != "all" and self.buffer_size > self.concurrency:
            raise ValueError(
                f"buffer_size: expected at most concurrency ({self.concurrency}), found"
                f" {self.buffer_size}"
            )
        if self.alpha_min > self.alpha_max:
            raise ValueError(
                f"alpha_max: expected at least alpha_min ({self.alpha_min:g}), found"
                f" {self.alpha_max:g}"
            )
        return self


@dataclass(slots=True)
class Filling:
    """One round's updates: their sum, their tasks, when the buffer was full (ns), and the
    predictions that are still missing.
    """

    gathered: Gathered
    tasks: list[int] = field(default_factory=list)
    full_ns: int = 0
    awaited: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True, eq=False)
class Logits:
    """The predictions of a device's last model for the unlabelled samples, flat (|U| C).

    ``top``: of a causal language model, in the form of edgefl.models.distil.

    ``base_version``: the version from which that model started.
    """

    values: np.ndarray
    base_version: int
    top: bool = False


class FedEcho(Buffered):
    """On an update: buffer += w_i - w_start,i, and a job makes y_i, the logits of w_i on U. At M
    updates, once their logits are there:

    xh = x + eta buffer / M ;  y = mean of the y_i of those devices that have any ;  a job distils y
    into xh (edgefl.models.distil) ;  x <- xh

    Until the distillation ends, devices that get work start from x; so does the one that replaces
    the last of the M (as in the listing). Updates that arrive during it go into the next buffer.
    Full buffers wait in a queue, each with the memory of one model. If M updates come faster than a
    distillation takes, the queue grows (``buffered_meanwhile``). There is no staleness weight.
    Normalisation buffers: the mean of the M. If a distillation fails, x <- xh without it. If a
    prediction fails, the device keeps its former logits.
    """

    Options = FedEchoOptions
    needs_unlabelled = True
    runs_jobs = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # arriving updates go into the last one
        self.fillings: deque[Filling] = deque([Filling(Gathered(self.layout.parameters))])
        # y_i; a device that is not in here has no logits, which is not the same as zeros
        self.logits: dict[str, Logits] = {}
        self.moments: dict[str, np.ndarray] = {}  # of Adam
        self.adam_steps = 0
        self.student: np.ndarray | None = None  # xh during its distillation
        # running prediction -> its device, and the version that its model started from
        self.sources: dict[str, tuple[str, int]] = {}
        self.full_ns = 0  # when the buffer of xh was full
        self.taught: tuple[int, ...] = ()  # the tasks of the updates in xh

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        self.failed = 0
        too_stale = self.discarded(update)
        if too_stale:
            return [*too_stale, *self._refill()]
        return [self._take(update, now), *self._refill()]

    def job_done(self, event: JobDone, now: int) -> list[Decision]:
        if event.name in self.sources:
            edge, version = self._predicted(event.name)
            self.logits[edge] = _logits(event.vectors, version)
            return self._teach(now)
        if self.options.keep_adam:
            self.moments = {name: event.vectors[name] for name in ("first", "second")}
            self.adam_steps = int(event.numbers["steps"])
        return self._end_round(
            event.vectors["weights"],
            {name: event.numbers[name] for name in sorted(event.numbers)},
            now,
        )

    def job_failed(self, event: JobFailed, now: int) -> list[Decision]:
        if event.name in self.sources:
            edge, _ = self._predicted(event.name)
            return [Report({"prediction_failed": 1.0}, edge), *self._teach(now)]
        assert self.student is not None
        self.moments, self.adam_steps = {}, 0  # no value that was not finite may remain
        return self._end_round(self.student, {"distillation_failed": 1.0}, now)

    def rehearsal(self) -> Generator[tuple[str, Job], Result, None]:
        vectors, _ = yield "predict_s", self._prediction(self.weights)
        self.logits["rehearsal"] = _logits(vectors, 0)
        yield "distil_s", self._lesson(self.weights)

    def _take(self, update: UpdateArrived, now: int) -> Decision:
        """Buffer the update, and start the job for its model's predictions."""
        filling, name = self.fillings[-1], f"predict {update.task}"
        filling.gathered.add(update, 1.0)
        filling.tasks.append(update.task)
        filling.awaited.add(name)
        self.sources[name] = update.edge, update.base_version
        if len(filling.tasks) == self.options.buffer_size:
            filling.full_ns = now
            self.fillings.append(Filling(Gathered(self.layout.parameters)))
        return RunJob(
            name,
            self._prediction(update.weights),
            to_ns(self.options.predict_s),
        )

    def _prediction(self, weights: np.ndarray) -> Predict:
        return Predict(weights, self.options.unlabelled_samples, self.options.top_words)

    def _predicted(self, name: str) -> tuple[str, int]:
        for filling in self.fillings:
            filling.awaited.discard(name)
        return self.sources.pop(name)

    def _teach(self, now: int) -> list[Decision]:
        """Step with the first buffer if it is full, its logits are complete, and no distillation
        is running.
        """
        filling = self.fillings[0]
        if self.student is not None or len(self.fillings) == 1 or filling.awaited:
            return []
        self.fillings.popleft()
        share = 1 / self.options.buffer_size
        factor = self.options.server_learning_rate * share
        # xh = x + eta buffer / M
        self.student = filling.gathered.stepped(self.weights, factor, share)
        self.full_ns = filling.full_ns
        self.taught = tuple(filling.tasks)
        if not self.logits:
            return self._end_round(self.student, {}, now)
        return [
            RunJob(
                f"distill {self.version}", self._lesson(self.student), to_ns(self.options.distil_s)
            )
        ]

    def _lesson(self, student: np.ndarray) -> Distill:
        options = self.options
        latest = [self.logits[edge] for edge in sorted(self.logits)]
        dense = [each.values for each in latest if not each.top]
        teacher = (
            weighted_sum(dense, [1 / len(dense)] * len(dense)) if dense else np.zeros(0, np.float32)
        )
        low, high = (
            (options.alpha_min, options.alpha_max)
            if options.alpha is None
            else (options.alpha, options.alpha)
        )
        return Distill(
            weights=student,
            teacher=teacher,
            first=self.moments.get("first"),
            second=self.moments.get("second"),
            steps=self.adam_steps,
            learning_rate=options.distil_learning_rate,
            beta1=options.beta1,
            beta2=options.beta2,
            epsilon=options.epsilon,
            passes=options.distil_passes,
            batch=options.distil_batch_size,
            alpha_min=low,
            alpha_max=high,
            clip=options.clip_norm,
            samples=options.unlabelled_samples,
            seed=int(self.streams.rng("distil", self.version).integers(2**63)),
            top_teachers={edge: each.values for edge, each in self.logits.items() if each.top},
        )

    def _end_round(
        self, weights: np.ndarray, numbers: dict[str, float], now: int
    ) -> list[Decision]:
        """Report on the round, publish its model, and start the next round if its updates are
        complete.
        """
        ages = [self.version - each.base_version for each in self.logits.values()]
        report = {
            **{name: value for name, value in numbers.items() if name != "steps"},
            "teachers": float(len(ages)),
            "logits_age": (
                sum(ages) / len(ages) if ages else 0.0
            ),  # mean age in versions, from the version that the model started from
            "server_s": (now - self.full_ns) / NS_PER_S,
            "buffered_meanwhile": float(sum(len(each.tasks) for each in self.fillings)),
            "checkpoints": float(len({*self.running.values(), self.version})),
        }
        self.student = None
        publish = replace(self._publish(weights), made_of=self.taught)
        return [Report(report), publish, *self._teach(now)]


def _logits(vectors: Mapping[str, np.ndarray], base_version: int) -> Logits:
    """The result of a prediction, in either form."""
    if "top_logits" in vectors:
        return Logits(vectors["top_logits"], base_version, top=True)
    return Logits(vectors["logits"], base_version)
