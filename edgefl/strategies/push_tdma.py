"""Push by TDMA broadcast: TDMA-FL (or IDFL); devices in training merge each round's model, too.

In a broadcast slot every device hears the channel, so these pushes take no slots of their own: the
round's broadcast goes to its receivers as a task, and to the devices in training as a push. A
device receives while it trains, so its radio and its processor must be apart.

The server adds changes of devices, and what a merge brings is others' work, which must not count
twice. So a device merges the pushed model into its base, too: b <- (1 - beta) b + beta w_g, and its
change is w_end - b. A merge keeps 1 - beta of the change so far.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from edgefl.strategies.base.events_and_decisions import Decision, Push
from edgefl.strategies.dissemination.device import tensor
from edgefl.strategies.dissemination.pushed import Merges, MergingOptions
from edgefl.strategies.idfl import Idfl, IdflOptions
from edgefl.vectors import mix

BASE = "base"  # a vector in a run's memory: b, trainable elements


class PushTdmaOptions(IdflOptions, MergingOptions):
    alpha: int | Literal["auto", "adaptive"] = 0
    """Intentional delay in rounds, as in `idfl`. 0: TDMA-FL, all edges are in training."""
    local_steps: Annotated[int, Field(ge=1, le=100_000)] | Literal["epochs"] = "epochs"
    """Local SGD steps of a task (H); `"epochs"`: `training.epochs`. A task of one step has no
    boundary at which it could merge a pushed model.
    """


class OwnWork(Merges):
    """It sends w_start + (w_end - b)."""

    def merging(self, run: Any, model: np.ndarray, beta: float) -> None:
        base = self._base(run)
        run.memory[BASE] = tensor(mix(base, model[: run.parameters], beta))

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        vectors, numbers = super().payload(run)
        if BASE in run.memory:
            moved = self._base(run) - run.start[: run.parameters].numpy(force=True)
            vectors["weights"] = vectors["weights"].copy()
            vectors["weights"][: run.parameters] -= moved
        return vectors, numbers

    @staticmethod
    def _base(run: Any) -> np.ndarray:
        found = run.memory[BASE] if BASE in run.memory else run.start[: run.parameters]
        base: np.ndarray = found.numpy(force=True)
        return base


class PushTdma(Idfl):
    """w_{k+1} goes to S_{k-alpha} as in IDFL, and in the same slots to all that are in training."""

    Options = PushTdmaOptions
    rule = OwnWork

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.pushed = 0  # the newest version that was pushed

    @classmethod
    def warnings(cls, options: Any, epochs: int) -> list[str]:
        found = []
        if options.local_steps == 1:
            found.append(
                "a task of one step (local_steps) has no boundary at which it could merge a push"
            )
        if options.per_round is None:
            found.append(
                "all edges send in each round, so none trains during its broadcast: nothing is"
                " pushed (per_round)"
            )
        return found

    def broadcast(self, receivers: list[str], slots: tuple[int, ...]) -> list[Decision]:
        training = sorted(self._computing()) if self.version > self.pushed else []
        decisions = super().broadcast(receivers, slots)
        self.pushed = self.version
        if training:
            decisions.append(Push(tuple(training), {"weights": self.weights}, broadcast=slots))
        return decisions
