"""A strategy of one's own: FedAvg with the plain mean, so that an edge with much data counts no
more than the others.
"""

from edgefl.strategies.fedavg import FedAvg
from edgefl.vectors import weighted_sum


class MyAlgo(FedAvg):
    """w <- mean of the delivered models."""

    def aggregate(self, updates):
        return weighted_sum(
            [update.weights for update in updates], [1 / len(updates)] * len(updates)
        )
