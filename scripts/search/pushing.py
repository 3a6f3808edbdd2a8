"""Strategies that push at random moments, to random edges: a story's ``pushes`` names one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgefl.strategies.base.events_and_decisions import Decision, Push, SetAlarm, Urge
from edgefl.strategies.base.strategy import LocalRule
from edgefl.strategies.fedasync import FedAsync
from emulator.units import to_ns

MEAN_S = 0.5  # between two pushes


class Takes(LocalRule):
    def pushed(
        self, run: Any, model: np.ndarray, version: int, numbers: Mapping[str, float]
    ) -> None:
        own = run.weights.numpy()
        own += np.float32(numbers["share"]) * (model - own)


class TakesAndAsks(Takes):
    """It asks before each second step, too."""

    def checkpoint(self, run: Any) -> range:
        return range(1, run.steps, 2)

    def merge(self, run: Any, fresh: np.ndarray, version: int) -> None:
        run.weights.numpy()[:] = fresh


class TrainsOn(TakesAndAsks):
    on_request = "train_on"


class BeginsAnew(LocalRule):
    on_push = "restart"


class Random(FedAsync):
    """FedAsync that pushes, and urges and cancels now and then."""

    rule = Takes
    only_newer = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.times = 0

    def started(self, now: int) -> list[Decision]:
        return [*super().started(now), self._again(now)]

    def _again(self, now: int) -> SetAlarm:
        self.times += 1
        wait_s = self.streams.rng("pushes", self.times).exponential(MEAN_S)
        return SetAlarm("push", now + 1 + to_ns(wait_s))

    def rang(self, name: str, now: int) -> list[Decision]:
        if name != "push":
            return super().rang(name, now)
        rng = self.streams.rng("pushed", self.times)
        older = [edge for edge in sorted(self.running) if self.running[edge] < self.version]
        edges = [
            edge
            for edge in (older if self.only_newer else sorted(self.running))
            if rng.random() < 0.6
        ]
        if self.only_newer:
            self.mark_running(edges)
        numbers = {"share": float(rng.uniform(0, 1))}
        push = Push(
            tuple(edges), {"weights": self.weights}, numbers, replaces=bool(rng.random() < 0.6)
        )
        urged = [Urge(edge) for edge in edges if rng.random() < 0.1]
        times = int(rng.choice([1, 1, 1, 2, 12])) if edges else 0
        return [*[push] * times, *urged, self._again(now)]


class Asking(Random):
    rule = TakesAndAsks


class TrainingOn(Random):
    rule = TrainsOn


class Anew(Random):
    rule = BeginsAnew
    only_newer = True


PUSHING = {kind.__name__: kind for kind in (Random, Asking, TrainingOn, Anew)}
