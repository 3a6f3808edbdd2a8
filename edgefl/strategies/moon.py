"""MOON: FedAvg with a contrastive term between local, global and previous features (Li 2021).

It draws the features of the local model towards those of the global model and away from those of
the device's previous model. Source: Li et al. 2021, arXiv 2103.16257.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from edgefl.strategies.base.rounds import RoundsOptions
from edgefl.strategies.base.strategy import LocalRule
from edgefl.strategies.fedavg import FedAvg

LARGE = 40.0  # from here on log(1 + e^x) is x in float32; e^89 is infinite


class MoonOptions(RoundsOptions):
    mu: float = Field(1.0, ge=0)
    """Weight of the contrastive term in the local loss."""
    temperature: float = Field(0.5, gt=0)
    """Temperature T: the cosines of the contrastive term are divided by it."""
    # a plain step is a forward pass and a backward pass of twice its cost
    work: float = Field(5 / 3, ge=1)
    """Emulated compute time of a step, as a multiple of a plain step. The default counts two more
    forward passes.
    """


class Contrast(LocalRule):
    """loss + mu mean_x l_con;  l_con = -log( e^(cos(z, z_glob)/T) / (e^(cos(z, z_glob)/T) +
    e^(cos(z, z_prev)/T)) ).

    z is the input of the model's last linear layer: the paper's projection if the model has such a
    head before that layer, otherwise the penultimate features. z_glob comes from the received
    model, z_prev from the model that this device trained last; both in evaluation mode and without
    gradient. A device's first task has no previous model: l_con = 0, as in the authors' code. Its
    emulated cost is that of the other tasks.
    """

    remembers = ("previous",)
    sees = "features"

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.work = options.work

    def extra_loss(self, run: Any, batch: tuple[Any, Any], output: Any, forward: Any) -> Any | None:
        if "previous" not in run.memory:
            return None
        similar = [
            _cosine(output, forward(weights, batch[0])) / self.options.temperature
            for weights in (run.start, run.memory["previous"])
        ]
        gap = similar[1] - similar[0]
        # -log(e^p / (e^p + e^n)) = log(1 + e^(n - p))
        small = gap.clamp(max=LARGE).exp().log1p()
        return self.options.mu * gap.where(gap > LARGE, small).mean()

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        run.memory["previous"] = run.weights
        return super().payload(run)


class Moon(FedAvg):
    """The server is FedAvg's."""

    Options = MoonOptions
    rule = Contrast


def _cosine(one: Any, other: Any) -> Any:
    """Return the cosine of each row; 0 for a row of zeros, which a ReLU can produce."""
    from torch.nn.functional import (
        cosine_similarity,  # here: strategies are listed and served without torch
    )

    return cosine_similarity(one, other, dim=1)
