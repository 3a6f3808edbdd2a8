"""FedAsync: every arriving model is mixed in at once, with less weight the staler it is (Xie et
al. 2019, arXiv 1903.03934).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from edgefl.strategies.base.asynchronous import Asynchronous, AsynchronousOptions
from edgefl.strategies.base.events import UpdateArrived
from edgefl.strategies.fedprox import Pull
from edgefl.vectors import mix


class FedAsyncOptions(AsynchronousOptions):
    alpha: float = Field(0.6, gt=0, le=1)
    """Weight of a fresh update."""
    staleness: Literal["constant", "polynomial", "hinge"] = "polynomial"
    """How the weight falls with the gap in versions; or `"constant"`, `"hinge"`."""
    a: float = Field(0.5, gt=0)  # the paper takes 0.5 (polynomial) and 10 (hinge)
    """Exponent (`polynomial`) or slope (`hinge`, where the paper takes 10)."""
    b: float = Field(4.0, ge=0)  # hinge: no damping up to this gap
    """Gap up to which nothing falls (`hinge`)."""
    halve_alpha_at: int | None = Field(None, ge=1)  # version from which alpha is halved
    """Version from which `alpha` is halved."""
    # rho of the paper: the local loss has + (rho/2) ||z - w_start||^2
    mu: float = Field(0.005, ge=0)
    """Pull towards the received model in local training."""


def damping(options: FedAsyncOptions, gap: int) -> float:
    """s(t - tau) of the paper; a fresh update has gap 0 and s = 1 (as in the authors' code)."""
    if options.staleness == "constant":
        return 1.0
    if options.staleness == "polynomial":
        return float((gap + 1) ** -options.a)
    return 1.0 if gap <= options.b else 1.0 / (options.a * (gap - options.b) + 1.0)


class FedAsync(Asynchronous):
    """alpha_t = alpha s(gap) ;  w <- (1 - alpha_t) w + alpha_t w_k."""

    Options = FedAsyncOptions
    rule = Pull

    def apply(self, update: UpdateArrived, gap: int) -> np.ndarray:
        return mix(self.weights, update.weights, self.alpha(gap))

    def alpha(self, gap: int) -> float:
        """The weight of an update of this gap at the current version."""
        options: FedAsyncOptions = self.options
        late = options.halve_alpha_at is not None and self.version >= options.halve_alpha_at
        return options.alpha * (0.5 if late else 1.0) * damping(options, gap)
