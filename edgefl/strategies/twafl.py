"""TWAFL on gradients: K gradients, weighted by batch size and staleness (Chen, Sun, Jin 2020).

Source: Chen, Sun, Jin 2020, arXiv 1903.07424, as changed by WKAFL (arXiv 2203.01214).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from pydantic import Field

from edgefl.strategies.base.gradients import GradientRule, Gradients, GradientsOptions, GradientStep
from edgefl.vectors import inner

HALF_E = math.e / 2


class TWAFLOptions(GradientsOptions):
    normalised: bool = True
    """If true, the weights are normalised to sum 1, as in the authors' code; if false, they are
    those of the paper's formula.
    """
    clip_norm: float | None = Field(None, gt=0)
    """Gradients are clipped to this norm; none: no clipping. Not in the paper: it separates the
    effect of WKAFL's clipping from its other steps.
    """


class TWAFL(Gradients):
    """w <- w - eta sum c_i g_i ,  c_i = (m_i / m) (e/2)^(-tau_i) , tau = gap, m = sum of the batch
    sizes m_i ; normalised: c_i / sum c.

    In the authors' code the weights are normalised and all batches are equal, so tau can begin at 0
    or 1. Without normalisation, a start at 1 is a factor 2/e. If all weights underflow (not
    normalised, gaps of some hundreds), only the freshest gradients are used.
    """

    Options = TWAFLOptions

    def step(self, gradients: Sequence[GradientRule]) -> GradientStep:
        shares = relative(
            [gradient.gap for gradient in gradients], [gradient.batch for gradient in gradients]
        )
        rate, scales = self.options.server_learning_rate, self._scales(gradients)
        weights = shares if self.options.normalised else self._literal(gradients, shares)
        terms = [
            (gradient.vector, rate * weight * scale)
            for gradient, weight, scale in zip(gradients, weights, scales)
        ]
        clipped = float(sum(scale < 1 for scale in scales))
        report = {} if self.options.clip_norm is None else {"clipped": clipped}
        return GradientStep(shares, terms, report)

    def _scales(self, gradients: Sequence[GradientRule]) -> list[float]:
        """Return the factor by which clipping scales each gradient."""
        bound = self.options.clip_norm
        if bound is None:
            return [1.0] * len(gradients)
        terms = [[(gradient.vector, 1.0)] for gradient in gradients]
        return [clip_scale(math.sqrt(inner(each, each, self.parameters)), bound) for each in terms]

    def _literal(
        self, gradients: Sequence[GradientRule], shares: Sequence[float]
    ) -> Sequence[float]:
        """Return the paper's weights, rounded to float32 as the sum will use them.

        If all of them are 0: the normalised shares of the freshest gradients.
        """
        samples = sum(gradient.batch for gradient in gradients)
        weights = [
            float(np.float32(gradient.batch / samples * HALF_E**-gradient.gap))
            for gradient in gradients
        ]
        if any(weights):
            return weights
        least = min(gradient.gap for gradient in gradients)
        fresh = [
            share if gradient.gap == least else 0.0 for gradient, share in zip(gradients, shares)
        ]
        return [share / sum(fresh) for share in fresh]


def clip_scale(size: float, bound: float) -> float:
    """Return the factor that reduces a vector of norm ``size`` to at most the norm ``bound``."""
    return min(1.0, bound / size) if size else 1.0


def relative(gaps: Sequence[int], sizes: Sequence[float]) -> list[float]:
    """Return size_i (e/2)^(-gap_i), normalised to sum 1.

    The least gap is subtracted from all first: it cancels out, and the freshest cannot underflow.
    """
    least = min(gaps)
    raw = [size * HALF_E ** (least - gap) for gap, size in zip(gaps, sizes)]
    return [weight / sum(raw) for weight in raw]
