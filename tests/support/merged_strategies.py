"""Strategies for the tests of merged tasks only: their rules fail, or draw random numbers."""

from __future__ import annotations

from typing import Any

from edgefl.strategies.base.strategy import LocalRule
from edgefl.strategies.fedavg import FedAvg

FAILING = 2  # the number of the task that fails


class FailsInAStep(LocalRule):
    def adjust(self, run: Any, gradient: Any) -> None:
        if run.task.number == FAILING and run.step == 1:
            raise ValueError(f"no second step of task {run.task.number}")


class FailsAtItsBegin(LocalRule):
    def begin(self, run: Any) -> None:
        if run.task.number == FAILING:
            raise ValueError(f"no task {run.task.number}")


class Draws(LocalRule):
    """Adds noise to the gradients."""

    def adjust(self, run: Any, gradient: Any) -> None:
        import torch

        gradient.add_(torch.randn(len(gradient)), alpha=0.01)


class FailingSteps(FedAvg):
    rule = FailsInAStep


class FailingBegins(FedAvg):
    rule = FailsAtItsBegin


class Noisy(FedAvg):
    rule = Draws
