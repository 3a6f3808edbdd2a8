"""FedLWS: FedAvg, then each layer shrinks more the more the devices disagree in it (Shi 2025).

Source: Shi et al. 2025, arXiv 2503.15111.
"""

from __future__ import annotations

from itertools import groupby
from typing import Self

import numpy as np
from pydantic import Field, model_validator

from edgefl.strategies.base.events_and_decisions import UpdateArrived
from edgefl.strategies.base.rounds import RoundsOptions
from edgefl.strategies.fedavg import FedAvg
from edgefl.vectors import Layout, aligned, plain_mean


class FedLWSOptions(RoundsOptions):
    beta: float = Field(0.03, ge=0)
    """Factor from the devices' mean disagreement in a layer to tau, which shrinks that layer."""
    tau_min: float = Field(0.01, ge=0)
    """Lower limit of tau: the least that a layer shrinks."""
    tau_max: float = Field(0.2, ge=0)
    """Upper limit of tau: the most that a layer shrinks; at least `tau_min`."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.tau_min > self.tau_max:
            raise ValueError(f"tau_min {self.tau_min:g} is above tau_max {self.tau_max:g}")
        return self


def layers(layout: Layout) -> list[slice]:
    """Return each module's own parameters (weight and bias) as one slice of the flat vector.

    A normalisation has a slice of its own; buffers are in none. This differs from the authors'
    code: it ends a layer at every name that contains "bias", so the running statistics of a
    normalisation belong to the next layer.
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
    """Return gamma of one layer, whose elements all arguments hold.

    gamma = ||w_prev|| / (||w_prev|| + tau ||wbar - w_prev||) ;  tau = clamp(beta (1/K) sum_k ||D_k
    - Dm||, tau_min, tau_max) ; D_k = w_k - w_prev ;  Dm = (1/K) sum_k D_k. w_prev is the former
    global model (``before``), wbar the weighted mean, w_k a device's model. If w_prev is all zero,
    gamma is 1; otherwise the layer would stay zero.
    """
    size = float(np.linalg.norm(before))
    if size == 0.0:
        return 1.0
    # D_k - Dm = w_k - mean of the w_k
    middle, gap = plain_mean(ends), aligned(mean.size)
    lengths = [np.linalg.norm(np.subtract(end, middle, out=gap)) for end in ends]
    disagreement = float(np.mean(lengths))
    tau = min(max(options.beta * disagreement, options.tau_min), options.tau_max)
    return size / (size + tau * float(np.linalg.norm(np.subtract(mean, before, out=gap))))


class FedLWS(FedAvg):
    """w_l <- gamma_l wbar_l, where wbar is FedAvg's mean; the disagreement is not weighted."""

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
