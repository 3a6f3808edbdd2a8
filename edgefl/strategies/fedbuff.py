"""FedBuff: the mean of K staleness-damped changes makes one server step (Nguyen et al. 2022, arXiv 2106.06639)."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from edgefl.strategies.buffered import Buffered, BufferedOptions
from edgefl.strategies.events import UpdateArrived
from edgefl.vectors import weighted_sum


class FedBuffOptions(BufferedOptions):
    server_learning_rate: float = Field(1.0, gt=0)  # eta_g
    staleness_exponent: float = Field(0.5, ge=0)  # 0: no damping (as FedEcho and FADAS use it)


class FedBuff(Buffered):
    """buffer += (1 + gap)^(-p) (w_end - w_start) ; at K:  w <- w + eta_g buffer / K (K, not the sum of the weights)."""

    Options = FedBuffOptions

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.sum: np.ndarray | None = None

    def add(self, update: UpdateArrived, gap: int) -> None:
        damped = (1 + gap) ** -self.options.staleness_exponent
        if self.sum is None:
            self.sum = weighted_sum((update.weights, update.base), (damped, -damped))
        else:
            self.sum = weighted_sum((self.sum, update.weights, update.base), (1.0, damped, -damped))

    def step(self) -> np.ndarray:
        weights = weighted_sum((self.weights, self.sum), (1.0, self.options.server_learning_rate / self.options.buffer_size))
        self.sum = None
        return weights
