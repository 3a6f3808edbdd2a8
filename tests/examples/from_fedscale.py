"""From FedScale: the server optimizer "fed-yogi" (Reddi et al. 2021, arXiv 2003.00295)."""

import numpy as np

from edgefl.api import Rounds, RoundsOptions, weighted_sum


class Options(RoundsOptions):
    yogi_eta: float = 0.01
    yogi_tau: float = 0.001
    yogi_beta: float = 0.9
    yogi_beta2: float = 0.99


class FedYogi(Rounds):
    """What ``update_round_gradient(last_model, current_model, target_model)`` did."""

    Options = Options

    def __init__(self, *args):
        super().__init__(*args)
        self.moment = np.zeros(self.layout.size, np.float32)
        self.variance = np.full(self.layout.size, self.options.yogi_tau**2, np.float32)

    def aggregate(self, updates):
        options = self.options
        samples = sum(update.numbers["samples"] for update in updates)
        shares = [update.numbers["samples"] / samples for update in updates]
        change = weighted_sum([update.weights for update in updates], shares) - self.weights
        square = change**2
        self.moment = options.yogi_beta * self.moment + (1 - options.yogi_beta) * change
        self.variance -= (1 - options.yogi_beta2) * np.sign(self.variance - square) * square
        return self.weights + options.yogi_eta * self.moment / (
            np.sqrt(self.variance) + options.yogi_tau
        )
