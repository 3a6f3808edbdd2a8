"""FedAvg: each round averages the selected edges' models, weighted by samples (McMahan 2017).

Source: McMahan et al. 2017, arXiv 1602.05629.
"""

from __future__ import annotations

import numpy as np

from edgefl.strategies.base.events_and_decisions import UpdateArrived
from edgefl.strategies.base.rounds import Rounds
from edgefl.vectors import weighted_sum


class FedAvg(Rounds):
    """w <- sum_{k in S} n_k w_k / sum_{k in S} n_k, over the edges that delivered."""

    def aggregate(self, updates: list[UpdateArrived]) -> np.ndarray:
        samples = [update.numbers["samples"] for update in updates]
        total = sum(samples)
        return weighted_sum([update.weights for update in updates], [n / total for n in samples])
