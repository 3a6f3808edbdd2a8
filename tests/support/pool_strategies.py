"""Strategies for the tests of the worker pool only; see own_strategies.py."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np

from edgefl.errors import UserError
from edgefl.strategies.base.events_and_decisions import Decision, FreshRequested, SendFresh
from edgefl.strategies.base.strategy import LocalRule
from edgefl.strategies.fedasync import FedAsync


class Learns(LocalRule):
    """A rule that uses every feature.

    It remembers two vectors (one is small), asks at a point that depends on them, changes them in a
    merge, and sends three vectors.
    """

    remembers = ("past", "small")

    def begin(self, run: Any) -> None:
        self.began = run.weights.numpy().copy()

    def checkpoint(self, run: Any) -> int:
        small = run.memory.get("small")
        return 1 if small is None else 1 + int(small[0]) % (run.steps - 1)

    def merge(self, run: Any, fresh: np.ndarray, version: int) -> None:
        import torch

        loss, gradient = run.probe(run.weights)
        run.memory["past"] = torch.from_numpy(fresh.copy()) * loss
        run.memory["small"] = torch.tensor([float(version), loss])
        own = run.weights[: run.parameters]
        own.add_(gradient, alpha=-0.01)

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        own = run.weights.numpy()
        return {"weights": own, "moved": own - self.began, "twice": own * 2}, {
            "asked": float(self.checkpoint(run))
        }


class Rich(FedAsync):
    rule = Learns

    def fresh_requested(self, event: FreshRequested, now: int) -> list[Decision]:
        return [
            SendFresh(
                event.edge, event.task, self.weights if self.version > event.base_version else None
            )
        ]


class Fails(LocalRule):
    def adjust(self, run: Any, gradient: Any) -> None:
        if run.task.number == 3:
            raise ArithmeticError("no gradient like this")


class Refuses(LocalRule):
    def begin(self, run: Any) -> None:
        raise UserError("this model has no layers to speak of")


class Refusing(FedAsync):
    rule = Refuses


class Kills(LocalRule):
    def adjust(self, run: Any, gradient: Any) -> None:
        if run.task.number == 3:
            os.kill(os.getpid(), signal.SIGKILL)


class Killing(FedAsync):
    rule = Kills
