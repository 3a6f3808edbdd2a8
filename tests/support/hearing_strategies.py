"""A user's strategy that hears of evaluations: its models and tasks depend on the scores."""

from __future__ import annotations

from typing import Any

from edgefl.strategies.base.events_and_decisions import Decision, Evaluated, Report, SetAlarm
from edgefl.strategies.fedasync import FedAsync
from edgefl.vectors import mix
from emulator.units import to_ns


class Adjusting(FedAsync):
    """A short time after the loss has fallen, the current model moves towards the best one."""

    hears_evaluations = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.lowest = float("inf")
        self.best = self.weights

    def evaluated(self, event: Evaluated, now: int) -> list[Decision]:
        loss = event.scores["test_loss"]
        report = Report({"loss": loss, "behind": float(self.version - event.version)})
        if not loss < self.lowest:
            return [report]
        self.lowest = loss
        return [report, SetAlarm("merge", now + to_ns(0.05))]

    def rang(self, name: str, now: int) -> list[Decision]:
        if name != "merge":
            return super().rang(name, now)
        merged = mix(self.weights, self.best, 0.5 / (1 + self.lowest))
        self.best = self.weights
        return [self._publish(merged)]
