"""FedBuff: the mean of K buffered changes, damped by staleness, is one step (Nguyen 2022).

Source: Nguyen et al. 2022, arXiv 2106.06639.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from edgefl.strategies.base.buffered import Buffered, BufferedOptions
from edgefl.strategies.base.events_and_decisions import UpdateArrived


class FedBuffOptions(BufferedOptions):
    server_learning_rate: float = Field(1.0, gt=0)
    """Learning rate of the server step (eta_g)."""
    staleness_exponent: float = Field(0.5, ge=0)
    """Exponent p of the weight (1 + gap)^-p of an update; 0: no damping, as FedEcho and FADAS use
    it.
    """


class FedBuff(Buffered):
    """buffer += s_i (w_end - w_start),  s_i = (1 + gap)^(-p) ; at K:  w <- w + eta_g buffer / K.

    The divisor is K, not the sum of the weights. Normalisation buffers are averaged with the same
    weights: (1 - sum s_i / K) for the old ones and s_i / K for those of each update.
    """

    Options = FedBuffOptions

    def add(self, update: UpdateArrived, gap: int) -> None:
        self.gathered.add(update, (1 + gap) ** -self.options.staleness_exponent)

    def step(self) -> np.ndarray:
        updates = self.options.buffer_size
        factor = self.options.server_learning_rate / updates
        weights = self.gathered.stepped(self.weights, factor, 1 / updates)
        self.gathered.clear()
        return weights
