"""Pushed models: what a device does with one, and a server that knows which are training.

A model that a device has merged with weight beta is as old as a mix of both: its origin o moves to
(1 - beta) o + beta v, where v is the pushed version. The server weighs the update by the gap to
that origin. With ``merging = "restart"`` the origin is the version from which the task began anew.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from edgefl.strategies.base.events_and_decisions import (
    Decision,
    Event,
    Grant,
    TaskClosed,
    UpdateArrived,
    UpdateReady,
)
from edgefl.strategies.base.strategy import LocalRule, ProximalRule, StrategyOptions
from edgefl.strategies.dissemination.device import tensor
from edgefl.strategies.dissemination.learned import DeviceControls, weight, within
from edgefl.strategies.fedasync import FedAsync, FedAsyncOptions
from edgefl.vectors import mix

STATE = "pushed"  # a vector in a run's memory: the newest version, the origin, the last beta


class MergingOptions(StrategyOptions):
    """What a device does with a pushed model."""

    merging: Literal["fedasmu", "fixed", "replace", "restart"] = "fedasmu"
    """What a device does with a pushed model: w <- (1 - beta) w + beta w_g with `"fedasmu"`'s
    weight (its eq. 10, whose parameters do not learn here) or a `"fixed"` beta; it goes on from the
    pushed model (`"replace"`: beta = 1), or begins its task anew from it (`"restart"`).
    """
    beta: float = Field(0.5, gt=0, le=1)
    """Weight of a pushed model; only with `merging = "fixed"`."""
    mu_beta: float = Field(30.0, gt=0)
    """Factor mu_beta in the weight of a pushed model: beta = mu_beta phi / (1 + mu_beta phi), phi =
    gamma / sqrt(g) (1 - upsilon / sqrt(staleness)); only with `merging = "fedasmu"`.
    """
    gamma: float = Field(1.0, ge=0)
    """Gamma in the weight of a pushed model; only with `merging = "fedasmu"`."""
    upsilon: float = Field(0.5, ge=0, le=10)
    """Upsilon in the weight of a pushed model; only with `merging = "fedasmu"`."""


def merge_weight(options: MergingOptions, version: int, newest: int) -> float:
    """Return beta of a pushed ``version`` on a device whose newest one is ``newest``.

    FedASMU's eq. 10 counts versions from 1, and staleness from the newest version that the device
    has merged, or started from.
    """
    if options.merging == "fixed":
        return options.beta
    if options.merging == "replace":
        return 1.0
    controls = DeviceControls(options.gamma, options.upsilon)
    return weight(options.mu_beta, controls.phi(version + 1, version - newest + 1))


class Merges(LocalRule):
    """w <- (1 - beta) w + beta w_g at the step after a pushed model's arrival.

    A version that is not newer than what the device has is ignored.
    """

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.on_push = "restart" if options.merging == "restart" else "go_on"

    def pushed(self, run: Any, model: np.ndarray, version: int, numbers: Any) -> None:
        newest, origin, _ = self._state(run)
        if version <= newest:
            return
        beta = merge_weight(self.options, version, int(newest))
        weights = run.weights.numpy(force=True)
        # with beta = 1 the model itself, without rounding
        merged = model if beta == 1.0 else mix(weights, model, beta)
        self.merging(run, model, beta)
        run.weights.copy_(tensor(merged))
        origin += beta * (version - origin)
        run.memory[STATE] = tensor(np.array([version, origin, beta]))

    def merging(self, run: Any, model: np.ndarray, beta: float) -> None:
        """Take note of a merge, before it changes ``run.weights``."""

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        vectors, numbers = super().payload(run)
        if STATE not in run.memory:
            return vectors, numbers
        _, origin, beta = self._state(run)
        return vectors, numbers | {"origin": origin, "beta": beta}

    @staticmethod
    def _state(run: Any) -> tuple[float, float, float]:
        if STATE not in run.memory:
            return run.task.version, run.task.version, 0.0
        newest, origin, beta = run.memory[STATE].tolist()
        return newest, origin, beta


class PullAndMerge(Merges, ProximalRule):
    """FedAsync's local rule, which also merges pushed models."""


class PushingOptions(FedAsyncOptions, MergingOptions):
    pass


class Pushing(FedAsync):
    """FedAsync's server, which knows the devices in training, and pushes to some of them.

    It grants each uplink at once. That costs no emulated time, and tells it when a training ends.
    """

    Options: ClassVar[type[PushingOptions]] = PushingOptions
    rule = PullAndMerge
    schedules_uplink = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # edges in training -> the newest version that was sent to them, in the order of sending
        self.training: dict[str, int] = {}

    def handle(self, event: Event, now: int) -> list[Decision]:
        if isinstance(event, TaskClosed | UpdateReady | UpdateArrived):
            self.training.pop(event.edge, None)
        return super().handle(event, now)

    def ready(self, event: UpdateReady, now: int) -> list[Decision]:
        return [Grant(event.edge, event.task)]

    def mark_running(self, edges: list[str]) -> None:
        super().mark_running(edges)
        self.training |= dict.fromkeys(edges, self.version)

    def push(self, edges: list[str]) -> list[Decision]:
        for edge in sorted(edges):
            del self.training[edge]
            self.training[edge] = self.version
        return super().push(edges)

    def behind(self) -> list[str]:
        """Return the connected edges in training whose model is not the current one; those that got
        it earliest come first.
        """
        return [
            edge
            for edge, version in self.training.items()
            if version < self.version and edge in self.samples
        ]

    def apply(self, update: UpdateArrived, gap: int) -> np.ndarray:
        origin = update.numbers.get("origin", update.base_version)
        left = self.version - within(origin, update.base_version, self.version)
        return mix(self.weights, update.weights, self.alpha(left))
