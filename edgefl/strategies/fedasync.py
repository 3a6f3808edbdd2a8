"""FedAsync: each arriving model is mixed in at once, stale ones with less weight (Xie 2019).

Source: Xie et al. 2019, arXiv 1903.03934.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from edgefl.strategies.base.asynchronous import Asynchronous, AsynchronousOptions
from edgefl.strategies.base.events_and_decisions import UpdateArrived
from edgefl.strategies.base.strategy import ProximalRule
from edgefl.vectors import mix


class FedAsyncOptions(AsynchronousOptions):
    alpha: float = Field(0.6, gt=0, le=1)
    """Mixing weight of a fresh update (gap 0)."""
    staleness: Literal["constant", "polynomial", "hinge"] = "polynomial"
    """How the weight falls with the gap in versions: not at all, as (gap + 1)^-a, or, from gap `b`
    on, as 1 / (a (gap - b) + 1).
    """
    a: float = Field(0.5, gt=0)
    """Exponent of `"polynomial"`, or slope of `"hinge"` (the paper uses 0.5 and 10)."""
    b: float = Field(4.0, ge=0)
    """Largest gap with full weight; only with `staleness = "hinge"`."""
    halve_alpha_at: int | None = Field(None, ge=1)
    """Version from which `alpha` is halved; none: never."""
    mu: float = Field(0.005, ge=0)
    """Weight of the proximal term in the local loss: (mu / 2) ||w - w_start||^2 (rho of the paper);
    0: plain SGD.
    """


def damping(options: FedAsyncOptions, gap: float) -> float:
    """Return s(t - tau) of the paper: 1 for a fresh update (gap 0), as in the authors' code."""
    if options.staleness == "constant":
        return 1.0
    if options.staleness == "polynomial":
        return float((gap + 1) ** -options.a)
    return 1.0 if gap <= options.b else 1.0 / (options.a * (gap - options.b) + 1.0)


class FedAsync(Asynchronous):
    """alpha_t = alpha s(gap) ;  w <- (1 - alpha_t) w + alpha_t w_k."""

    Options = FedAsyncOptions
    rule = ProximalRule

    def apply(self, update: UpdateArrived, gap: int) -> np.ndarray:
        return mix(self.weights, update.weights, self.alpha(gap))

    def alpha(self, gap: float) -> float:
        """Return the weight of an update with this gap at the current version."""
        options: FedAsyncOptions = self.options
        late = options.halve_alpha_at is not None and self.version >= options.halve_alpha_at
        return options.alpha * (0.5 if late else 1.0) * damping(options, gap)
