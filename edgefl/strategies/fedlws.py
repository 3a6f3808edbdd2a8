"""FedLWS: FedAvg, then each layer shrinks by a factor that falls with the devices' disagreement
in it (Shi et al. 2025, arXiv 2503.15111).
"""

from __future__ import annotations

from itertools import groupby
from typing import Self

import numpy as np
from pydantic import Field, model_validator

from edgefl.strategies.base.events import UpdateArrived
from edgefl.strategies.base.rounds import RoundsOptions
from edgefl.strategies.fedavg import FedAvg
from edgefl.vectors import Layout


class FedLWSOptions(RoundsOptions):
    beta: float = Field(0.03, ge=0)
    """How much disagreement shrinks a layer."""
    tau_min: float = Field(0.01, ge=0)
    """Limits of that."""
    tau_max: float = Field(0.2, ge=0)
    """Limits of that."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.tau_min > self.tau_max:
            raise ValueError(f"tau_min {self.tau_min:g} is above tau_max {self.tau_max:g}")
        return self


def layers(layout: Layout) -> list[slice]:
    """Each module's own parameters (weight and bias) as one stretch of the flat vector, so a
    normalisation has its own; buffers are in none.

    Ours: the authors' code cuts at every name with "bias" in it, which puts a normalisation's
    running statistics into the next layer.
    """
    found = []
    for _, entries in groupby(
        (entry for entry in layout.entries if entry.kind == "parameter"), lambda entry: entry.module
    ):
        of_module = list(entries)
        found.append(slice(of_module[0].offset, of_module[-1].offset + of_module[-1].size))
    return found


def shrinking(
    before: np.ndarray, mean: np.ndarray, ends: list[np.ndarray], options: FedLWSOptions
) -> float:
    """gamma of one layer from the former global model, the weighted mean and every device's model,
    all of that layer.

    gamma = ||w_prev|| / (||w_prev|| + tau ||wbar - w_prev||) ;  tau = clamp(beta (1/K) sum_k ||D_k
    - Dm||, tau_min, tau_max) ; D_k = w_k - w_prev ;  Dm = (1/K) sum_k D_k. A layer of zeros has
    nothing to compare with: gamma = 1, or it would stay zero.
    """
    size = float(np.linalg.norm(before))
    if size == 0.0:
        return 1.0
    # D_k - Dm = w_k - mean of the w_k
    plain_mean = sum(ends[1:], ends[0].copy()) / np.float32(len(ends))
    disagreement = float(np.mean([np.linalg.norm(end - plain_mean) for end in ends]))
    tau = min(max(options.beta * disagreement, options.tau_min), options.tau_max)
    return size / (size + tau * float(np.linalg.norm(mean - before)))


class FedLWS(FedAvg):
    """w_l <- gamma_l wbar_l, where wbar is FedAvg's mean and the disagreement is over plain
    means.
    """

    Options = FedLWSOptions

    def aggregate(self, updates: list[UpdateArrived]) -> np.ndarray:
        mean = super().aggregate(updates)
        for layer in layers(self.layout):
            mean[layer] *= np.float32(
                shrinking(
                    self.weights[layer],
                    mean[layer],
                    [update.weights[layer] for update in updates],
                    self.options,
                )
            )
        return mean
