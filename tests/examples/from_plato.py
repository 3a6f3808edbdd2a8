"""From Plato: an asynchronous server that mixes each arriving model in, stale ones less."""

from edgefl.api import Asynchronous, AsynchronousOptions, mix


class Options(AsynchronousOptions):
    mixing_hyperparameter: float = 0.6
    staleness_exponent: float = 0.5


class Mixing(Asynchronous):
    """What ``aggregate_weights(updates, baseline_weights, weights_received)`` did, per update."""

    Options = Options

    def apply(self, update, gap):
        options = self.options
        return mix(
            self.weights,
            update.weights,
            options.mixing_hyperparameter * (gap + 1) ** -options.staleness_exponent,
        )
