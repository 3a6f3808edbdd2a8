"""Plain mean: rounds in which every edge counts the same, whatever its number of samples."""

from edgefl.api import Rounds, weighted_sum


class PlainMean(Rounds):
    """w <- mean of the delivered models."""

    def aggregate(self, updates):
        shares = [1 / len(updates)] * len(updates)
        return weighted_sum([update.weights for update in updates], shares)
