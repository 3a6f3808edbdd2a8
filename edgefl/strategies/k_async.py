"""K-async SGD: the mean of the first K gradients makes a server step (Dutta 2018).

Source: Dutta et al. 2018, arXiv 1803.01113.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgefl.strategies.base.gradients import GradientRule, Gradients, GradientStep


class KAsync(Gradients):
    """w <- w - (eta / K) sum g_i, with K the number of gradients in the buffer."""

    def step(self, gradients: Sequence[GradientRule]) -> GradientStep:
        share = 1 / len(gradients)
        rate = self.options.server_learning_rate
        return GradientStep(
            [share] * len(gradients), [(gradient.vector, rate * share) for gradient in gradients]
        )
