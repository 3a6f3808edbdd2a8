"""FedASMU: learned weights at the server; devices merge a fresher model during training.

Source: arXiv 2507.06031 (journal), 2312.05770 (conference).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from edgefl.strategies.base.asynchronous import Asynchronous
from edgefl.strategies.base.events_and_decisions import (
    Decision,
    FreshRequested,
    Report,
    SendFresh,
    TaskClosed,
    UpdateArrived,
)
from edgefl.strategies.base.strategy import LocalRule
from edgefl.strategies.dissemination.device import LearningRateRule, Refresh
from edgefl.strategies.dissemination.learned import FixedWeight, Weighing, arrival, weighing
from edgefl.strategies.dissemination.options import (
    BothOptions,
    DeviceOptions,
    FixedWeightOptions,
    LearnedWeightOptions,
    TriggerOptions,
    refresh_point_warnings,
)
from edgefl.strategies.dissemination.refresh_points import RefreshPoints


class FedASMUOptions(TriggerOptions, BothOptions):
    pass


class FedASMU(Asynchronous):
    """Algorithm 1: discard an update if its staleness s = gap + 1 > tau. Else learn lambda, sigma,
    iota (eq. 3) ; alpha by eq. 2 ;  w <- (1 - alpha) w + alpha w_i.

    The ablations are a 2 x 2 design: ``learned`` (eq. 2, or a fixed polynomial) and ``asks``
    (whether devices merge).
    """

    Options: ClassVar[type[TriggerOptions]] = FedASMUOptions
    rule: ClassVar[type[LocalRule]] = Refresh
    learned: ClassVar[bool] = True
    needs_plain_sgd: ClassVar[bool] = True  # for the gradients from which weights are learned
    asks: ClassVar[bool] = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.weighing: Weighing = (
            weighing(self.options, self.layout) if self.learned else FixedWeight(self.options)
        )
        self.refresh_points = RefreshPoints(self.options, self.streams) if self.asks else None
        # edges with an open task -> the fresher model that was sent, if subtract_merge needs it
        self.sent: dict[str, tuple[int, np.ndarray]] = {}
        self.values: dict[str, float] = {}  # report of the current update

    @classmethod
    def warnings(cls, options: Any, epochs: int) -> list[str]:
        return refresh_point_warnings(options, epochs) if cls.asks else []

    @property
    def bound(self) -> int:
        options: TriggerOptions = self.options
        most, bound = options.max_staleness, options.tau - 1
        return bound if most is None else min(bound, most)

    def assign(self, edges: list[str]) -> list[Decision]:
        if self.refresh_points is None:
            return super().assign(edges)
        self.mark_running(edges)
        return self.refresh_points.assign(edges, self.weights)

    def fresh_requested(self, event: FreshRequested, now: int) -> list[Decision]:
        newer = self.weights if self.asks and self.version > event.base_version else None
        if newer is not None and self.learned and self.options.subtract_merge:
            self.sent[event.edge] = self.version, newer
        return [SendFresh(event.edge, event.task, newer)]

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        if self.refresh_points is not None:
            self.refresh_points.learn(update)
        decisions = super().arrived(update, now)
        self.sent.pop(update.edge, None)
        self.weighing.forget(self.running.values())
        return decisions

    def closed(self, event: TaskClosed, now: int) -> list[Decision]:
        self.sent.pop(event.edge, None)
        return super().closed(event, now)

    def apply(self, update: UpdateArrived, gap: int) -> np.ndarray:
        found = arrival(
            update,
            self.sent.get(update.edge),
            update.base_version,
            update.base_version,
            self.version + 1,
            gap + 1,
        )
        model, self.values = self.weighing.mixed(found, self.weights)
        return model

    def reports(self, update: UpdateArrived, gap: int) -> list[Decision]:
        return [Report(self.values | {"gap": float(gap)}, update.edge)]


# ---------------------------------------------------------------------- ablations
class FedASMUFAOptions(TriggerOptions, LearnedWeightOptions):
    pass


class FedASMUFA(FedASMU):
    """FedASMU-FA: ablation of FedASMU with learned weights and without merging on devices.

    The weight alpha is that of eq. 2, as in FedASMU; devices do plain SGD.
    """

    Options = FedASMUFAOptions
    rule = LearningRateRule
    asks = False


class FedASMUDAOptions(TriggerOptions, FixedWeightOptions, DeviceOptions):
    pass


class FedASMUDA(FedASMU):
    """FedASMU-DA: ablation of FedASMU with fixed weights at the server; devices still merge.

    The weight is FedAsync's polynomial, alpha (gap + 1)^-a; devices as in FedASMU.
    """

    Options = FedASMUDAOptions
    learned = False
    needs_plain_sgd = False


class FedASMU0Options(TriggerOptions, FixedWeightOptions):
    pass


class FedASMU0(FedASMU):
    """FedASMU-0: ablation of FedASMU with fixed weights and without merging on devices.

    It is FedAsync with FedASMU's trigger and staleness bound: the weight is FedAsync's polynomial,
    alpha (gap + 1)^-a, and devices do plain SGD.
    """

    Options = FedASMU0Options
    rule = LocalRule
    learned = False
    needs_plain_sgd = False
    asks = False
