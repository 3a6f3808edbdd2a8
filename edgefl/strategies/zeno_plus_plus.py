"""Zeno++: the server accepts a gradient if it should reduce the server's own loss (Xie 2020).

A gradient is scaled to the norm of the server's own gradient first. Source: Xie et al. 2020, arXiv
1903.07020.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import numpy as np
from pydantic import Field

from edgefl.jobs import Gradient, Job, Result
from edgefl.strategies.base.events_and_decisions import (
    Decision,
    Discard,
    EdgeJoined,
    Finish,
    JobDone,
    JobFailed,
    Publish,
    Report,
    RunJob,
    UpdateArrived,
)
from edgefl.strategies.base.gradients import Gradients
from edgefl.strategies.base.strategy import StrategyOptions
from edgefl.vectors import inner
from emulator.units import to_ns

JOB = "server gradient"


class ZenoPlusPlusOptions(StrategyOptions):
    server_learning_rate: float = Field(0.05, gt=0)
    """Learning rate of the step with an accepted gradient (eta), which is first scaled to the norm
    of the server's own gradient.
    """
    gamma: float | None = Field(None, gt=0)
    """Factor gamma in the score gamma <v, g> - rho g^2 + gamma epsilon; none:
    `server_learning_rate`, as in the authors' code. WKAFL's code uses 1.
    """
    rho: float = Field(0.001, ge=0)
    """Penalty on long gradients in the score gamma <v, g> - rho g^2 + gamma epsilon; a gradient is
    accepted if its score is at least 0.
    """
    epsilon: float = 0.0
    """Tolerance in the score gamma <v, g> - rho g^2 + gamma epsilon; a negative value accepts fewer
    gradients.
    """
    refresh_every: int = Field(10, ge=1)
    """Number of accepted gradients after which the server computes its own gradient again (k)."""
    server_samples: int = Field(100, ge=1)
    """Number of training samples that the server has."""
    server_labels: int | None = Field(None, ge=1)
    """Number of different labels among the server's samples (L_num = 1 or 10 in WKAFL's appendix);
    none: no limit.
    """
    server_batch_size: int = Field(50, ge=1)
    """Number of samples for one gradient of the server."""
    gradient_s: float = Field(0.1, ge=0)
    """Emulated time that the server needs to compute its own gradient."""


class ZenoPlusPlus(Gradients):
    """v: the server's gradient on a batch of its own samples. A job refreshes it after every k
    steps; until the job ends, the old v is used. If it takes more than k steps, the next job starts
    at the first step after it.

    gh = g ||v|| / ||g|| ; accepted if  gamma <v, gh> - rho ||gh||^2 + gamma eps >= 0 ; then w <- w
    - eta gh (K = 1), else it is discarded.

    After scaling ||gh|| = ||v||; in the rho term, the authors' code uses ||g||^2 before scaling.
    Edges start when the first v is ready. The server's samples are from the training set, and edges
    may have the same ones. With data.source = "shard" or "local" they come from the data of the
    job's worker.
    """

    Options = ZenoPlusPlusOptions
    runs_jobs = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.own: np.ndarray | None = None  # v
        self.own_norm = 0.0
        # the version at which v was computed, and the version of the latest request
        self.own_version = self.asked_version = 0
        self.awaited = False  # whether a job is running
        self.draws = 0

    @classmethod
    def gathers(cls, options: Any) -> int:
        return 1

    def started(self, now: int) -> list[Decision]:
        self.begun = True
        return [self._refresh()]

    def joined(self, event: EdgeJoined, now: int) -> list[Decision]:
        return [] if self.own is None else super().joined(event, now)

    def job_done(self, event: JobDone, now: int) -> list[Decision]:
        self.awaited = False
        self.own = event.vectors["gradient"]
        self.own_version = self.asked_version
        self.own_norm = math.sqrt(inner([(self.own, 1.0)], [(self.own, 1.0)], self.parameters))
        return self.hand_out()

    def job_failed(self, event: JobFailed, now: int) -> list[Decision]:
        self.awaited = False
        return [Finish("no server gradient")] if self.own is None else []

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        self.failed = 0
        gradient, options = [(update.vectors["gradient"], 1.0)], self.options
        assert self.own is not None
        size = math.sqrt(inner(gradient, gradient, self.parameters))
        scale = self.own_norm / size if size else 0.0
        # a gradient whose norm overflows has no direction either, so that no score is NaN
        size = size if scale else 0.0
        rate = options.server_learning_rate * self.decayed
        gamma = rate if options.gamma is None else options.gamma
        agreement = scale * inner(gradient, [(self.own, 1.0)], self.parameters) if scale else 0.0
        score = gamma * agreement - options.rho * (scale * size) ** 2 + gamma * options.epsilon
        report = Report(
            {
                "score": score,
                "gap": float(self.version - update.base_version),
                "server_gradient_age": float(self.version - self.own_version),
            }
        )
        if score < 0 or not scale:
            return [
                report,
                Discard(update.task, "score below zero" if scale else "no direction"),
                *self.hand_out(),
            ]
        if faded := self.faded():
            return [report, *faded]
        return [
            report,
            self._accepted(update, rate * scale),
            *self._refresh_if_due(),
            *self.hand_out(),
        ]

    @classmethod
    def server_samples(cls, options: ZenoPlusPlusOptions) -> int:
        return options.server_samples

    def rehearsal(self) -> Generator[tuple[str, Job], Result, None]:
        yield "gradient_s", self._refresh().job

    def _accepted(self, update: UpdateArrived, factor: float) -> Publish:
        self.weights = self.stepped(
            [(update.vectors["gradient"], factor)],
            [update.vectors.get("buffers")],
            [1.0],
        )
        self.version += 1
        return Publish(self.weights)

    def _refresh_if_due(self) -> list[Decision]:
        if self.version - self.asked_version >= self.options.refresh_every and not self.awaited:
            return [self._refresh()]
        return []

    def _refresh(self) -> RunJob:
        options, self.awaited, self.asked_version = self.options, True, self.version
        self.draws += 1
        seed = int(self.streams.rng("server gradient").integers(2**63))
        job = Gradient(
            self.weights,
            options.server_samples,
            options.server_batch_size,
            seed,
            self.draws,
            options.server_labels,
        )
        return RunJob(JOB, job, to_ns(options.gradient_s))
