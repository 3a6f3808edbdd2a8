"""SASGD: K gradients, each with a learning rate divided by its staleness (Zhang 2016).

Source: Zhang et al. 2016, arXiv 1511.05950, as in WKAFL (arXiv 2203.01214).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from edgefl.strategies.base.gradients import GradientRule, Gradients, GradientsOptions, GradientStep


class SASGDOptions(GradientsOptions):
    staleness_from: Literal[0, 1] = 1
    """Staleness of a fresh gradient. 1: gap + 1, as in WKAFL's code; 0: the gap, as in the original
    paper, where gaps 0 and 1 both have the full learning rate.
    """


class SASGD(Gradients):
    """w <- w - (1/K) sum (eta_0 / tau_i) g_i, with tau = gap + 1 or max(gap, 1).

    The maximum avoids a division by 0 for a fresh gradient.
    """

    Options = SASGDOptions

    def step(self, gradients: Sequence[GradientRule]) -> GradientStep:
        inverse = [1 / max(gradient.gap + self.options.staleness_from, 1) for gradient in gradients]
        rate = self.options.server_learning_rate / len(gradients)
        terms = [(gradient.vector, rate * share) for gradient, share in zip(gradients, inverse)]
        return GradientStep([share / sum(inverse) for share in inverse], terms)
