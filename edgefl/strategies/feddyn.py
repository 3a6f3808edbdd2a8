"""FedDyn: a linear term per device aligns the local optima with the global one (Acar 2021).

Source: Acar et al. 2021, arXiv 2111.04263.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from edgefl.strategies.base.events_and_decisions import Assign, Decision, UpdateArrived
from edgefl.strategies.base.rounds import Rounds, RoundsOptions
from edgefl.strategies.base.strategy import LocalRule
from edgefl.vectors import weighted_sum


class FedDynOptions(RoundsOptions):
    alpha: float = Field(0.01, gt=0)
    """Weight of the linear and the quadratic term in the local loss of a device with the mean
    number of samples; a device with fewer samples has a larger weight.
    """
    clip_norm: float = Field(10.0, gt=0)
    """Local gradients are clipped to this norm. Without clipping, the method can diverge if few
    devices take part.
    """


class Dynamic(LocalRule):
    """Local loss f_k(w) + alpha_k <w, h_k - w_srv> + (alpha_k / 2) ||w||^2;  after training  h_k <-
    h_k + w_k - w_srv.

    The order is that of the authors' code: the gradient of the first two terms is clipped, then
    alpha_k w is added (there as the optimiser's weight decay). Here f_k includes the weight decay
    of the training plan. Trainable elements only; h_k starts at 0.
    """

    remembers = ("h",)

    def begin(self, run: Any) -> None:
        if "h" not in run.memory:
            run.memory["h"] = run.start[: run.parameters] * 0.0

    def adjust(self, run: Any, gradient: Any) -> None:
        alpha = run.task.numbers["alpha"]
        gradient.add_(run.memory["h"] - run.start[: run.parameters], alpha=alpha)
        norm = float(gradient.norm())
        if norm > self.options.clip_norm:
            gradient.mul_(self.options.clip_norm / norm)
        gradient.add_(run.weights[: run.parameters], alpha=alpha)

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        moved = run.weights[: run.parameters] - run.start[: run.parameters]
        run.memory["h"] = run.memory["h"] + moved
        return super().payload(run)


class FedDyn(Rounds):
    """hbar <- hbar + (1/N) sum_{k in S} (w_k - w_srv), N = all devices ;  w_srv <- mean_{k in S}
    w_k + hbar.

    alpha_k = alpha / p_k with p_k = N n_k / sum n. Both means are unweighted. In hbar w_srv is the
    model that device k received, which differs if the download is lossy. The server acknowledges an
    update that it does not use, too: one that is above updates.norm_bound, or that arrives after
    its task was closed. Then h_k includes it and hbar does not. Running statistics of a
    normalisation have no h: they are the mean over S, so they match mean_{k in S} w_k and not
    w_srv, which also includes hbar. The authors use GroupNorm instead of BatchNorm (here
    ``model.norm = "group"``).
    """

    Options = FedDynOptions
    rule = Dynamic

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.sum_h = np.zeros(self.layout.parameters, np.float32)  # N hbar: N may still grow

    def assign(self, edges: list[str]) -> list[Decision]:
        self.mark_running(edges)
        return [
            Assign((edge,), {"weights": self.weights}, {"alpha": self.alpha(edge)})
            for edge in edges
        ]

    def alpha(self, edge: str) -> float:
        """Return alpha_k = alpha sum n / (N n_k)."""
        alpha: float = self.options.alpha
        return alpha * sum(self.known.values()) / (len(self.known) * self.known[edge])

    def aggregate(self, updates: list[UpdateArrived]) -> np.ndarray:
        size, share = self.layout.parameters, 1 / len(updates)
        mean = weighted_sum([update.weights for update in updates], [share] * len(updates))
        self.sum_h += (mean[:size] - self.weights[:size]) * np.float32(len(updates))
        for update in updates:  # 0 unless the download is lossy
            self.sum_h -= update.base[:size] - self.weights[:size]
        mean[:size] += self.sum_h / np.float32(len(self.known))
        return mean
