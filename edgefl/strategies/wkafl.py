"""WKAFL: steps with those of K gradients that agree with an estimated global one (Zhou 2022).

The estimate and the learning rate depend on staleness. Source: Zhou et al. 2022, arXiv 2203.01214.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from edgefl.strategies.base.gradients import GradientRule, Gradients, GradientsOptions, GradientStep
from edgefl.strategies.twafl import clip_scale, relative
from edgefl.vectors import Terms, inner, weighted_sum

# If stage_two_loss is not given, it comes from so many steps from this version on. The paper does
# not give its epsilon. One step is not enough: its loss is that of K devices with few labels each.
MEASURED_AT = 50
MEASURED_STEPS = 10


class WKAFLOptions(GradientsOptions):
    momentum: float = Field(0.1, ge=0, lt=1)
    """Share of the last step's estimate that is added to each gradient (alpha)."""
    clip_norm: float = Field(100.0, gt=0)
    """Gradients are clipped to this norm (CB)."""
    similarity_weight: float = Field(10.0, ge=0)
    """Weight of a gradient's cosine with the estimate in the exponent of its share (beta); 0: all
    selected gradients have the same share.
    """
    least_similarity: float = Field(0.3, ge=-1, le=1)
    """Gradients whose cosine with the estimate is smaller are not used (sim_min)."""
    norm_ratio: float = Field(10.0, gt=0)
    """In stage 2, gradients are clipped to this multiple of the estimate's norm (B)."""
    staleness_damping: float = Field(0.1, ge=0)
    """The learning rate is divided by 1 + this value times the least staleness (gamma)."""
    stage_two_loss: float | None = Field(None, gt=0)
    """Stage 2 begins when the mean loss of a step is at most this (epsilon); none: half of the mean
    loss of the ten steps after version 50.
    """
    stage_two_at: int | None = Field(None, ge=0)
    """Stage 2 begins at this version instead, as in the authors' code; none: `stage_two_loss`
    decides.
    """
    momentum_of: Literal["estimate", "selected"] = "estimate"
    """What `momentum` adds to the gradients: the last estimate, or the direction of the last step
    (`"selected"`, as in the authors' code).
    """
    selected_by: Literal["similarity", "similarity and staleness"] = "similarity"
    """What determines a gradient's share. The authors' code for MNIST and CIFAR uses `"similarity
    and staleness"`.
    """


class WKAFL(Gradients):
    """For each step j, as in algorithm 2, with gbar_0 = 0 and tau = gap:

    1. g~_i = g_i + alpha gbar_(j-1)                               eq. 4
    2. mean loss <= eps: stage 2 from now on                        (the listing prints their sum)
    3. gb_i = g~_i, clipped to the norm CB
    4. gbar_j = sum a_i gb_i / sum a_i ,  a_i = (e/2)^(-tau_i)      eq. 5
    5. p_i ~ exp(beta cos(gb_i, gbar_j)), 0 where cos < sim_min     eq. 6 to 8
    6. stage 2: gb_i is clipped to the norm B ||gbar_j||            (after 5: scaling does not
      change a cosine)
    7. G = sum p_i gb_i ; gbar_j if no gradient is similar          (0/0 in the paper)
    8. w <- w - eta_0 / (1 + gamma min tau_i) G                     eq. 9 and 10

    A fresh gradient has tau = 0, as in the paper's text; in its code it has 1. No gradient is
    copied: norms and cosines come from inner products, and G is one weighted sum. The flags below
    are for the ablations.
    """

    Options = WKAFLOptions
    accumulates: ClassVar[bool] = True  # step 1
    heeds_staleness: ClassVar[bool] = True  # steps 4 and 8
    selects: ClassVar[bool] = True  # steps 5 to 7

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.past: np.ndarray | None = None  # gbar_(j-1)
        self.stage = 1
        self.stage_two_loss = self.options.stage_two_loss
        self.measured: list[float] = []  # losses from which stage_two_loss is computed

    def step(self, gradients: Sequence[GradientRule]) -> GradientStep:
        self._enter_stage(sum(gradient.loss for gradient in gradients) / len(gradients))
        carried = (
            [(self.past, self.options.momentum)]
            if self.past is not None and self.accumulates
            else []
        )
        added = [[(gradient.vector, 1.0), *carried] for gradient in gradients]  # g~_i
        sizes = [self._norm(terms) for terms in added]
        scales = [clip_scale(size, self.options.clip_norm) for size in sizes]  # gb_i = scale g~_i
        gaps = [gradient.gap if self.heeds_staleness else 0 for gradient in gradients]
        fresh = relative(gaps, [1.0] * len(gaps))
        estimate = summed(_together(added, fresh, scales))
        shares, direction = fresh, [(estimate, 1.0)]
        selected = self._similar(added, sizes, estimate, fresh) if self.selects else None
        if selected is not None:
            shares = selected
            direction = _together(added, selected, self._bounded(sizes, scales, estimate))
        self.past = summed(direction) if self.options.momentum_of == "selected" else estimate
        rate = self.options.server_learning_rate / (1 + self.options.staleness_damping * min(gaps))
        clipped = float(sum(scale < 1 for scale in scales))
        report = {"stage": float(self.stage), "learning_rate": rate, "clipped": clipped}
        if self.selects:  # else tables would show a 0
            report["selected"] = float(sum(share > 0 for share in selected or ()))
        return GradientStep(
            shares, [(vector, rate * factor) for vector, factor in direction], report
        )

    def _enter_stage(self, loss: float) -> None:
        """Enter stage 2 if the mean loss is small enough, or at a version. It never ends."""
        at = self.options.stage_two_at
        if self.stage_two_loss is None and self.version >= MEASURED_AT:
            self.measured.append(loss)
            if len(self.measured) == MEASURED_STEPS:
                self.stage_two_loss = fmean(self.measured) / 2
        below = self.stage_two_loss is not None and loss <= self.stage_two_loss
        if below if at is None else self.version >= at:
            self.stage = 2

    def _similar(
        self,
        added: Sequence[Terms],
        sizes: Sequence[float],
        estimate: np.ndarray,
        fresh: Sequence[float],
    ) -> list[float] | None:
        """Return p_i, or None if no gradient is similar enough.

        The largest similarity is subtracted before exp: it cancels out and prevents overflow.
        """
        norm = self._norm([(estimate, 1.0)])
        cosines = [self._cosine(terms, size, estimate, norm) for terms, size in zip(added, sizes)]
        most, beta = max(cosines), self.options.similarity_weight
        if most < self.options.least_similarity or not norm:
            return None
        raw = [
            math.exp(beta * (cosine - most)) if cosine >= self.options.least_similarity else 0.0
            for cosine in cosines
        ]
        if self.options.selected_by == "similarity and staleness":
            raw = [weight * share for weight, share in zip(raw, fresh)]
        return [weight / total for weight in raw] if (total := sum(raw)) else None

    def _cosine(self, terms: Terms, size: float, estimate: np.ndarray, norm: float) -> float:
        """Return the cosine; -1 for a vector of zeros, or if its square overflows float32.

        Clipping has scaled such a long vector to zero.
        """
        found = (
            inner(terms, [(estimate, 1.0)], self.parameters) / (size * norm)
            if size * norm
            else -1.0
        )
        return found if math.isfinite(found) else -1.0

    def _bounded(
        self, sizes: Sequence[float], scales: Sequence[float], estimate: np.ndarray
    ) -> list[float]:
        """Return the scales of gb_i; in stage 2 no norm is above B ||gbar||."""
        if self.stage == 1:
            return list(scales)
        bound = self.options.norm_ratio * self._norm([(estimate, 1.0)])
        return [min(scale, clip_scale(size, bound)) for size, scale in zip(sizes, scales)]

    def _norm(self, terms: Terms) -> float:
        return math.sqrt(inner(terms, terms, self.parameters))


# ---------------------------------------------------------------------- ablations of section 6.2
class WKAFLNoNonIID(WKAFL):
    """WKAFL (No Non-IIDness): ablation that adds no former estimate to gradients (alpha = 0)."""

    accumulates = False


class WKAFLNoSelection(WKAFL):
    """WKAFL (No Grad-Sel): ablation whose step is the estimated global gradient itself."""

    selects = False


class WKAFLNoStaleness(WKAFL):
    """WKAFL (No Staleness): ablation that ignores staleness; the learning rate is eta_0."""

    heeds_staleness = False


def _together(
    added: Sequence[Terms], shares: Sequence[float], scales: Sequence[float]
) -> list[tuple[np.ndarray, float]]:
    """Return sum share_i scale_i g~_i as terms: one per gradient, and the common term once."""
    factors = [share * scale for share, scale in zip(shares, scales)]
    own = [(terms[0][0], factor) for terms, factor in zip(added, factors) if factor]
    own = own or [(added[0][0][0], 0.0)]  # none is left if the norms of all overflow
    return [*own, *((vector, factor * sum(factors)) for vector, factor in added[0][1:])]


def summed(terms: Terms) -> np.ndarray:
    return weighted_sum([vector for vector, _ in terms], [factor for _, factor in terms])
