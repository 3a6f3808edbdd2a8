"""Push by TDMA broadcast: TDMA-FL (or IDFL); who is still training merges each round's model, too.

In a broadcast slot every device hears the channel, so these pushes take no slots of their own: the
round's broadcast goes to its receivers as a task, and to the devices in training as a push. A
device receives while it trains, so its radio and its processor must be apart.

The server adds changes of devices, and a merge is no work of the device: it sends w_end minus all
jumps of its merges. Otherwise the work of others, which the pushed model has, would count twice.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from edgefl.strategies.base.events_and_decisions import Decision, Push
from edgefl.strategies.dissemination.pushed import Merges, MergingOptions, tensor
from edgefl.strategies.idfl import Idfl, IdflOptions

JUMPS = "jumps"  # a vector in a run's memory: the sum of its merges' changes, trainable elements


class PushTdmaOptions(IdflOptions, MergingOptions):
    alpha: int | Literal["auto", "adaptive"] = 0
    """Intentional delay in rounds, as in `idfl`. 0: TDMA-FL, all edges are in training."""
    local_steps: Annotated[int, Field(ge=1)] | Literal["epochs"] = "epochs"
    """Local SGD steps of a task (H); `"epochs"`: `training.epochs`. A task of one step has no
    boundary at which it could merge a pushed model.
    """


class OwnSteps(Merges):
    """It sends w_end - sum_j beta_j (w_g,j - w_j): where its own steps alone would have led."""

    def merging(self, run: Any, weights: np.ndarray, merged: np.ndarray) -> None:
        jump = (merged - weights)[: run.parameters]
        if JUMPS in run.memory:
            jump += run.memory[JUMPS].numpy(force=True)
        run.memory[JUMPS] = tensor(jump)

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        vectors, numbers = super().payload(run)
        if JUMPS in run.memory:
            vectors["weights"] = vectors["weights"].copy()
            vectors["weights"][: run.parameters] -= run.memory[JUMPS].numpy(force=True)
        return vectors, numbers


class PushTdma(Idfl):
    """w_{k+1} goes to S_{k-alpha} as in IDFL, and in the same slots to all that are in training."""

    Options = PushTdmaOptions
    rule = OwnSteps

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.pushed = 0  # the newest version that was pushed

    @classmethod
    def warnings(cls, options: Any, epochs: int) -> list[str]:
        if options.local_steps != 1:
            return []
        return ["a task of one step (local_steps) has no boundary at which it could merge a push"]

    def broadcast(self, receivers: list[str], slots: tuple[int, ...]) -> list[Decision]:
        training = sorted(self._computing()) if self.version > self.pushed else []
        decisions = super().broadcast(receivers, slots)
        self.pushed = self.version
        if training:
            decisions.append(Push(tuple(training), {"weights": self.weights}, broadcast=slots))
        return decisions
