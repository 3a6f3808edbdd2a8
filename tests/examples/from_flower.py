"""From Flower: the median in place of the mean (Yin et al. 2018); clients clip their gradients."""

import numpy as np

from edgefl.api import LocalRule, Rounds, RoundsOptions


class Options(RoundsOptions):
    clip_norm: float = 10.0


class Clipped(LocalRule):
    """What the client did after ``loss.backward()``: ``clip_grad_norm_(parameters, clip_norm)``."""

    def adjust(self, run, gradient):
        gradient.mul_(min(1.0, self.options.clip_norm / (float(gradient.norm()) + 1e-6)))


class FedMedian(Rounds):
    """What ``aggregate_train(server_round, replies)`` did with the arrays of the replies."""

    Options = Options
    rule = Clipped

    def aggregate(self, updates):
        return np.median([update.weights for update in updates], axis=0).astype(np.float32)
