"""FADAS: buffered updates and an adaptive (Adam-like) server step (Wang 2024).

The buffer's mean change is the gradient of the step. Optionally, delayed updates have a smaller
learning rate. Source: Wang et al. 2024, arXiv 2407.18365.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from edgefl.strategies.base.buffered import Adaptive, BufferedOptions
from edgefl.strategies.base.events_and_decisions import Decision, Report, UpdateArrived
from edgefl.vectors import aligned, blocks, moments, scratch


class FADASOptions(BufferedOptions):
    """The defaults are the authors' values."""

    buffer_size: int = Field(5, ge=1)
    """Number of updates for one server step (M)."""
    server_learning_rate: float = Field(1e-4, gt=0)
    """Learning rate of the server step (eta). With `delay_adaptive` the authors use 1e-3."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """Decay of the first moment in the server step."""
    beta2: float = Field(0.99, ge=0, lt=1)
    """Decay of the second moment in the server step."""
    # a smaller one is 0 in float32
    epsilon: float = Field(1e-8, ge=1e-37)
    """Added to the root of the second moment in the server step, to avoid a division by 0."""
    bias_correction: bool = True
    """If true, both moments are corrected for their start at 0, as in Adam and in the authors'
    code; their equations have no correction.
    """
    delay_adaptive: bool = False
    """If true, the learning rate of a step is divided by the largest gap in the buffer, if that is
    above `delay_threshold`.
    """
    delay_threshold: int = Field(1, ge=1)
    """Largest gap, in versions, that leaves the learning rate unchanged (tau_c); only with
    `delay_adaptive`.
    """


class FADAS(Adaptive):
    """D = mean of the M changes ;  m <- b1 m + (1 - b1) D ;  v <- b2 v + (1 - b2) D^2 ;  vh <-
    max(vh, v) ;  w <- w + eta_t m / (sqrt(vh) + eps).

    Bias correction uses m / (1 - b1^t) and sqrt(vh / (1 - b2^t)) instead, t = steps so far.
    Delay-adaptive: eta_t = eta / tau, with tau the largest gap in the buffer, if that is above
    tau_c, else eta. This is the authors' code; a minimum with 1 / tau would almost never apply. A
    change is relative to the model that the device received. Normalisation buffers: the mean of the
    M.
    """

    Options = FADASOptions

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        size = self.layout.parameters
        # m, v, vh
        self.first, self.second, self.largest = (np.zeros(size, np.float32) for _ in range(3))
        self.steps = 0
        self.latest = 0  # largest gap in the buffer
        self.reported: dict[str, float] = {}

    def add(self, update: UpdateArrived, gap: int) -> None:
        self.gathered.add(update, 1.0)
        self.latest = max(self.latest, gap)

    def step(self) -> np.ndarray:
        rate = self.learning_rate(self.latest)
        self.reported = {"eta": rate, "gap": self.latest}
        self.steps += 1
        weights = self._stepped(rate)
        weights[self.layout.parameters :] = self.gathered.statistics(
            self.weights, 1 / self.options.buffer_size
        )
        self.gathered.clear()
        self.latest = 0
        return weights

    def learning_rate(self, latest: int) -> float:
        """Return eta_t."""
        late = self.options.delay_adaptive and latest > self.options.delay_threshold
        rate: float = self.options.server_learning_rate
        return rate / latest if late else rate

    def reports(self, update: UpdateArrived, gap: int) -> list[Decision]:
        return [Report(self.reported)]

    def _stepped(self, rate: float) -> np.ndarray:
        """Return the weights after the adaptive step; elements behind the trainable ones are not
        set.
        """
        b1 = self.options.beta1
        b2 = self.options.beta2
        share = 1 / self.options.buffer_size
        eps = self.options.epsilon
        scale1, scale2 = (
            (1 - b1**self.steps, 1 - b2**self.steps) if self.options.bias_correction else (1.0, 1.0)
        )
        size, out = self.layout.parameters, aligned(self.weights.size)
        mean, product, step = scratch(size, 3)
        for part in blocks(size):
            change = mean[: part.stop - part.start]
            m = self.first[part]
            v = self.second[part]
            vh = self.largest[part]
            scale = product[: part.stop - part.start]
            moved = step[: part.stop - part.start]
            np.multiply(self.gathered.change[part], share, out=change)
            moments(change, m, v, (b1, b2), scale)
            np.maximum(vh, v, out=vh)
            np.divide(vh, scale2, out=scale)
            np.sqrt(scale, out=scale)
            scale += eps
            np.multiply(m, rate / scale1, out=moved)
            moved /= scale
            np.add(self.weights[part], moved, out=out[part])
        return out
