"""TWAFL on gradients: K of them weighed by batch size and staleness (Chen, Sun, Jin 2020, arXiv
1903.07424, as WKAFL, arXiv 2203.01214, changes it).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from pydantic import Field

from edgefl.strategies.base.gradients import GradientRule, Gradients, GradientsOptions, GradientStep
from edgefl.vector_terms import inner

HALF_E = math.e / 2


class TWAFLOptions(GradientsOptions):
    normalised: bool = True  # the code's form; False: the paper's
    """Weights sum to 1 (the authors' code); false: the paper's formula."""
    # ours: the largest norm of a gradient, as WKAFL's CB, to tell its clipping from the rest of it
    clip_norm: float | None = Field(None, gt=0)
    """Largest norm of a gradient, as WKAFL's (ours): tells what clipping alone does."""


class TWAFL(Gradients):
    """w <- w - eta sum c_i g_i ,  c_i = (m_i / m) (e/2)^(-tau_i) , tau = gap, m = sum of the batch
    sizes m_i ; normalised: c_i / sum c.

    In the code the weights are normalised and batches equal, so that tau may begin at 0 or 1;
    without that, counting from 1 is a factor 2/e. If all weights underflow (un-normalised, at gaps
    of some hundreds), the freshest gradients alone are used.
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
        told = {} if self.options.clip_norm is None else {"clipped": clipped}
        return GradientStep(shares, terms, told)

    def _scales(self, gradients: Sequence[GradientRule]) -> list[float]:
        """What clipping multiplies each gradient with."""
        bound = self.options.clip_norm
        if bound is None:
            return [1.0] * len(gradients)
        terms = [[(gradient.vector, 1.0)] for gradient in gradients]
        return [clip_scale(math.sqrt(inner(each, each, self.parameters)), bound) for each in terms]

    def _literal(
        self, gradients: Sequence[GradientRule], shares: Sequence[float]
    ) -> Sequence[float]:
        """The paper's weights as the float32 numbers that the sum will see, or the freshest
        gradients' shares if all of those are 0.
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
    """What a vector of the norm ``size`` is multiplied with to have at most the norm ``bound``."""
    return min(1.0, bound / size) if size else 1.0


def relative(gaps: Sequence[int], sizes: Sequence[float]) -> list[float]:
    """size_i (e/2)^(-gap_i), normalised to the sum 1. The least gap is taken off all first: no
    change, and the freshest cannot underflow.
    """
    least = min(gaps)
    raw = [size * HALF_E ** (least - gap) for gap, size in zip(gaps, sizes)]
    return [weight / sum(raw) for weight in raw]
