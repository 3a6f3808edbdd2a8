"""FedEcho: what stragglers know lives on as predictions, which teach the global model by their
certainty (arXiv 2511.19966, algorithm 1, eqs. 2 to 5).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from edgefl.jobs import Distill, Job, Predict, Result
from edgefl.strategies.base.buffered import Buffered, BufferedOptions, Gathered
from edgefl.strategies.base.decisions import Decision, Report, RunJob
from edgefl.strategies.base.events import JobDone, JobFailed, UpdateArrived
from edgefl.vectors import weighted_sum
from emulator.units import NS_PER_S, to_ns


class FedEchoOptions(BufferedOptions):
    buffer_size: int = Field(5, ge=1)  # M
    """Updates for one server step."""
    dispatch_before_step: Literal[True] = True  # devices do not wait for the lessons
    """The edge that fills the buffer is replaced before the step, with the old model."""
    server_learning_rate: float = Field(1.0, gt=0)  # eta
    """Of the server step."""
    alpha_min: float = Field(0.2, ge=0, le=1)
    """Weight of the divergence from the teachers against that of their hard labels: the former if
    they are certain, the latter if not.
    """
    alpha_max: float = Field(0.8, ge=0, le=1)
    """Weight of the divergence from the teachers against that of their hard labels: the former if
    they are certain, the latter if not.
    """
    # fixed, instead of going by the entropy: 0 is CE alone, 1 is KL alone
    alpha: float | None = Field(None, ge=0, le=1)
    """Fixed, instead: 0 is hard labels alone, 1 the divergence alone."""
    distil_learning_rate: float = Field(3e-6, gt=0)  # eta_d, of Adam
    """Learning rate of the server's Adam."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """Of Adam: decay of the first moment."""
    beta2: float = Field(0.999, ge=0, lt=1)
    """Of Adam: decay of the second moment."""
    epsilon: float = Field(1e-8, gt=0)
    """Of Adam."""
    clip_norm: float = Field(5.0, gt=0)  # nu; 1e30: no clipping
    """The gradient's largest norm, before Adam; 1e30: any."""
    # over the unlabelled samples: Q = passes * ceil(|U| / batch)
    distil_passes: int = Field(1, ge=1)
    """How often the unlabelled samples are gone through in a round, and how many at a time."""
    distil_batch_size: int = Field(128, ge=1)
    """How often the unlabelled samples are gone through in a round, and how many at a time."""
    keep_adam: bool = True  # False: each round's Adam begins anew
    """Adam goes on from round to round; false: each begins anew."""
    unlabelled_samples: int | None = Field(None, ge=1)  # so many of them, evenly spaced; None: all
    """So many of `unlabelled.size`, evenly spaced; none: all."""
    predict_s: float = Field(0.25, ge=0)  # emulated cost of a device's logits
    """Emulated seconds of a prediction and of a distillation, on both clocks; `edgefl jobs CONFIG`
    says what this host needs.
    """
    distil_s: float = Field(2.5, ge=0)  # emulated cost of a round's distillation
    """Emulated seconds of a prediction and of a distillation, on both clocks; `edgefl jobs CONFIG`
    says what this host needs.
    """

    @model_validator(mode="after")
    def _in_order(self) -> FedEchoOptions:
        if self.buffer_size > self.concurrency:
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
    """One round's updates: their sum, how many, when they were all there, and the predictions
    that are still awaited.
    """

    gathered: Gathered
    tasks: list[int] = field(default_factory=list)
    full_ns: int = 0
    awaited: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True, eq=False)
class Logits:
    """What a device's last model says of the unlabelled samples, flat (|U| C); ``base_version``:
    where that model started from.
    """

    values: np.ndarray
    base_version: int


class FedEcho(Buffered):
    """On an update: buffer += w_i - w_start,i, and a job makes y_i, the logits of w_i on U. At M
    updates, once their logits are there:

    xh = x + eta buffer / M ;  y = mean of the y_i of those devices that have any ;  a job distils y
    into xh (edgefl.models.distil) ;  x <- xh

    A device that is given work meanwhile gets x, the one too that replaces the last of the M (as in
    the listing); updates that arrive meanwhile go into the next buffer. Full buffers wait for their
    turn, each with one model's memory: should M updates come faster than a distillation takes, more
    and more of them do (``buffered_meanwhile``). No staleness weight. Normalisation buffers: the
    mean of the M. A distillation that fails leaves xh as it is, a prediction that fails the
    device's former logits.
    """

    Options = FedEchoOptions
    needs_unlabelled = True
    runs_jobs = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # the last one takes what arrives
        self.fillings: deque[Filling] = deque([Filling(Gathered(self.layout.parameters))])
        # y_i; who is not in here has none, which is not the same as zeros
        self.logits: dict[str, Logits] = {}
        self.moments: dict[str, np.ndarray] = {}  # Adam's
        self.adam_steps = 0
        self.student: np.ndarray | None = None  # xh while it is being taught
        # prediction under way -> whose it is, and from which version
        self.sources: dict[str, tuple[str, int]] = {}
        self.full_ns = 0  # when the buffer was full that xh is made of
        self.taught: tuple[int, ...] = ()  # and the tasks of its updates

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        self.failed = 0
        too_stale = self.discarded(update)
        if too_stale:
            return [*too_stale, *self._refill()]
        return [self._take(update, now), *self._refill()]

    def job_done(self, event: JobDone, now: int) -> list[Decision]:
        if event.name in self.sources:
            edge, version = self._predicted(event.name)
            self.logits[edge] = Logits(event.vectors["logits"], version)
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
        self.moments, self.adam_steps = {}, 0  # nothing that was not finite is to come back
        return self._end_round(self.student, {"distillation_failed": 1.0}, now)

    def rehearsal(self) -> Generator[tuple[str, Job], Result, None]:
        vectors, _ = yield "predict_s", Predict(self.weights, self.options.unlabelled_samples)
        self.logits["rehearsal"] = Logits(vectors["logits"], 0)
        yield "distil_s", self._lesson(self.weights)

    def _take(self, update: UpdateArrived, now: int) -> Decision:
        """Buffer the update, and have its model predict."""
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
            Predict(update.weights, self.options.unlabelled_samples),
            to_ns(self.options.predict_s),
        )

    def _predicted(self, name: str) -> tuple[str, int]:
        for filling in self.fillings:
            filling.awaited.discard(name)
        return self.sources.pop(name)

    def _teach(self, now: int) -> list[Decision]:
        """Step with the first buffer if it is full, its logits are there, and nothing is being
        taught.
        """
        filling = self.fillings[0]
        if self.student is not None or len(self.fillings) == 1 or filling.awaited:
            return []
        self.fillings.popleft()
        self.student = self._stepped(filling.gathered)
        self.full_ns = filling.full_ns
        self.taught = tuple(filling.tasks)
        if not self.logits:
            return self._end_round(self.student, {}, now)
        return [
            RunJob(
                f"distill {self.version}", self._lesson(self.student), to_ns(self.options.distil_s)
            )
        ]

    def _stepped(self, gathered: Gathered) -> np.ndarray:
        """xh = x + eta buffer / M."""
        share, size = 1 / self.options.buffer_size, self.layout.parameters
        assert gathered.sum is not None
        student = weighted_sum(
            (self.weights, gathered.sum), (1.0, self.options.server_learning_rate * share)
        )
        student[size:] = gathered.statistics(self.weights, share)
        return student

    def _lesson(self, student: np.ndarray) -> Distill:
        given, teachers = self.options, [self.logits[edge].values for edge in sorted(self.logits)]
        teacher = weighted_sum(teachers, [1 / len(teachers)] * len(teachers))
        low, high = (
            (given.alpha_min, given.alpha_max)
            if given.alpha is None
            else (given.alpha, given.alpha)
        )
        return Distill(
            weights=student,
            teacher=teacher,
            first=self.moments.get("first"),
            second=self.moments.get("second"),
            steps=self.adam_steps,
            learning_rate=given.distil_learning_rate,
            beta1=given.beta1,
            beta2=given.beta2,
            epsilon=given.epsilon,
            passes=given.distil_passes,
            batch=given.distil_batch_size,
            alpha_min=low,
            alpha_max=high,
            clip=given.clip_norm,
            samples=given.unlabelled_samples,
            seed=int(self.streams.rng("distil", self.version).integers(2**63)),
        )

    def _end_round(
        self, weights: np.ndarray, numbers: dict[str, float], now: int
    ) -> list[Decision]:
        """Publish, say what the round was like, and begin the next one if its updates are all
        there.
        """
        ages = [self.version - each.base_version for each in self.logits.values()]
        report = {
            **{name: value for name, value in numbers.items() if name != "steps"},
            "teachers": float(len(ages)),
            "logits_age": (
                sum(ages) / len(ages) if ages else 0.0
            ),  # in versions, since their model's start
            "server_s": (now - self.full_ns) / NS_PER_S,
            "buffered_meanwhile": float(sum(len(each.tasks) for each in self.fillings)),
            "checkpoints": float(len({*self.running.values(), self.version})),
        }
        self.student = None
        publish = replace(self._publish(weights), made_of=self.taught)
        return [Report(report), publish, *self._teach(now)]
