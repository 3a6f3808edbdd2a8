"""Strategies that only tests need; experiments name them as anybody's own code:
``../support/own_strategies.py:Fresher`` from tests/examples.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from edgefl.strategies.base.decisions import Cancel, Decision, SendFresh, SetAlarm
from edgefl.strategies.base.events import FreshRequested, UpdateArrived
from edgefl.strategies.base.local_rule import LocalRule
from edgefl.strategies.fedasync import FedAsync
from edgefl.strategies.fedavg import FedAvg
from emulator.units import to_ns


class Halfway(LocalRule):
    """Asks for a fresher model in the middle of the run, and takes it over whole."""

    def checkpoint(self, run: Any) -> int:
        return run.steps // 2

    def merge(self, run: Any, fresh: np.ndarray, version: int) -> None:
        run.weights.numpy()[:] = fresh

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        return {"weights": run.weights.numpy()}, {"checkpoint": float(self.checkpoint(run))}


class Fresher(FedAsync):
    """FedAsync that answers such requests."""

    rule = Halfway

    def fresh_requested(self, event: FreshRequested, now: int) -> list[Decision]:
        newer = self.weights if self.version > event.base_version else None
        return [SendFresh(event.edge, event.task, newer)]


class GoesOn(Halfway):
    """Trains on meanwhile; ``merged_at``: the step of the merge, -1 without one."""

    on_request = "train_on"
    merged_at = -1

    def begin(self, run: Any) -> None:
        self.merged_at = -1

    def merge(self, run: Any, fresh: np.ndarray, version: int) -> None:
        super().merge(run, fresh, version)
        self.merged_at = run.step

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        return {"weights": run.weights.numpy()}, {"merged_at": float(self.merged_at)}


class Onwards(Fresher):
    """Its edges do not wait for the answer."""

    rule = GoesOn


class Tardy(Onwards):
    """Answers at the first moment at which that is too late."""

    def fresh_requested(self, event: FreshRequested, now: int) -> list[Decision]:
        self.asked = event
        return [SetAlarm("answer", event.until_ns)]

    def rang(self, name: str, now: int) -> list[Decision]:
        return [SendFresh(self.asked.edge, self.asked.task, self.weights)]


class Hasty(FedAsync):
    """Calls task 0 off at ``period_s`` after the start, and gives the edge another."""

    def started(self, now: int) -> list[Decision]:
        return [*super().started(now), SetAlarm("hurry", to_ns(self.options.period_s))]

    def rang(self, name: str, now: int) -> list[Decision]:
        self.running.clear()
        return [Cancel("a", 0), *self._refill()]


class First(FedAsync):
    """Edge a's first delivery calls off b's first task."""

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        if update.task != 0:
            return super().arrived(update, now)
        del self.running["b"]
        return [Cancel("b", 1), *super().arrived(update, now)]


class SendsControl(LocalRule):
    """Its control variate covers the trainable elements, as SCAFFOLD's does."""

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        control = run.trainable.numpy().copy()
        return {"weights": run.weights.numpy(), "control": control}, {}


class Control(FedAvg):
    """Expects a control variate as long as the whole model: wrong where the model has buffers."""

    rule = SendsControl


class Hangs(LocalRule):
    def begin(self, run: Any) -> None:
        self.task = run.task.number

    def adjust(self, run: Any, gradient: Any) -> None:
        if self.task == 2:
            time.sleep(4.0)


class Hanging(FedAvg):
    """Its third task hangs in training."""

    rule = Hangs


class Broken(FedAvg):
    """Fails when the second model is to be made."""

    def aggregate(self, updates: list[UpdateArrived]) -> np.ndarray:
        if self.version == 1:
            raise ArithmeticError("out of weights")
        return super().aggregate(updates)


class Changed(FedAvg):
    """FedAvg until version 2, then something else: what an edited file does to a replay."""

    def aggregate(self, updates: list[UpdateArrived]) -> np.ndarray:
        weights = super().aggregate(updates)
        return weights if self.version < 2 else weights * np.float32(1.0000001)
