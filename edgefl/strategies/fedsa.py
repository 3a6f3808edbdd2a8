"""FedSA (reconstructed): two stages; in the second, slow devices train less (Chen 2021).

In the second stage late devices also have a smaller learning rate. Reconstructed: neither the text
of the paper (Chen et al., Future Generation Computer Systems 120, 2021, doi
10.1016/j.future.2021.02.012) nor code was available. Known are the two stages with their own local
epochs and learning rates, and a polynomial staleness weight. The equations here are ours.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from pydantic import Field

from edgefl.strategies.base.asynchronous import Asynchronous, AsynchronousOptions
from edgefl.strategies.base.events_and_decisions import Assign, Decision, UpdateArrived
from edgefl.vectors import mix


class FedSAOptions(AsynchronousOptions):
    alpha: float = Field(0.6, gt=0, le=1)
    """Mixing weight of a fresh update (gap 0)."""
    staleness_exponent: float = Field(0.5, ge=0)
    """Exponent p of the weight alpha (gap + 1)^-p of an update; 0: no damping."""
    window: int = Field(50, ge=1)
    """Number of updates whose mean loss is compared with that of the same number before them."""
    least_gain: float = Field(0.01, ge=0)
    """The second stage begins when the mean loss of a window falls by less than this share of the
    previous one.
    """
    second_stage_at: int | None = Field(None, ge=0)
    """Version at which the second stage begins at the latest, for example half of the run's; none:
    only `least_gain` decides.
    """


class FedSA(Asynchronous):
    """w <- (1 - a_t) w + a_t w_i ;  a_t = alpha (gap + 1)^(-p).

    Stage 1: every device trains as planned (E epochs, learning rate eta). Stage 2: E_i = max(1,
    round(E f_i / mean f)), with f_i the updates that i has delivered, and the learning rate eta /
    sqrt(1 + gap of its last update).
    """

    Options = FedSAOptions
    reconstructed = True
    needs_loss = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.losses: list[float] = []  # of the current window
        self.last_mean = math.inf
        self.second_stage = self.options.second_stage_at == 0
        self.uploads: dict[str, int] = {}  # edge -> f_i
        self.gaps: dict[str, int] = {}  # edge -> gap of its last update

    def assign(self, edges: list[str]) -> list[Decision]:
        if not self.second_stage:
            return super().assign(edges)
        self.mark_running(edges)
        return [Assign((edge,), {"weights": self.weights}, self.scales(edge)) for edge in edges]

    def scales(self, edge: str) -> dict[str, float]:
        """Return the factors of the device's epochs and learning rate in stage 2.

        The edge rounds the epochs, to at least 1.
        """
        mean = sum(self.uploads.values()) / len(self.known)
        frequency = self.uploads.get(edge, 0) / mean if mean else 1.0
        return {
            "epochs_scale": frequency,
            "learning_rate_scale": (1 + self.gaps.get(edge, 0)) ** -0.5,
        }

    def apply(self, update: UpdateArrived, gap: int) -> np.ndarray:
        self.uploads[update.edge] = self.uploads.get(update.edge, 0) + 1
        self.gaps[update.edge] = gap
        self._watch(update.numbers["loss"])  # the edge adds the loss
        return mix(self.weights, update.weights, staleness_weight(self.options, gap))

    def _watch(self, loss: float) -> None:
        """Check whether stage 2 begins. It never ends."""
        self.losses.append(loss)
        if len(self.losses) == self.options.window:
            mean = sum(self.losses) / len(self.losses)
            self.second_stage |= self.last_mean - mean < self.options.least_gain * self.last_mean
            self.last_mean, self.losses = mean, []
        at = self.options.second_stage_at
        self.second_stage |= at is not None and self.version + 1 >= at


def staleness_weight(options: FedSAOptions, gap: int) -> float:
    """Return a_t: a fresh update has gap 0 and weight alpha."""
    return options.alpha * float((gap + 1) ** -options.staleness_exponent)
