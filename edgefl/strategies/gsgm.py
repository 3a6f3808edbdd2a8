"""GSGM: rounds in which each edge is used once, and the round's mean as momentum (Wang et al.
2019, arXiv 1902.07848, as changed by WKAFL).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import Field

from edgefl.strategies.base.decisions import Decision
from edgefl.strategies.base.gradients import GradientRule, Gradients, GradientsOptions, GradientStep
from edgefl.vectors import weighted_sum


class GSGMOptions(GradientsOptions):
    momentum: float = Field(0.1, ge=0, lt=1)  # a_m


class GSGM(Gradients):
    """u = a_m Mom + (1/n) sum g_i ;  w <- w - eta u ;  acc += u n/P ;  when all P edges of the
    round have been used: Mom = acc , acc = 0.

    n = K, or what is left of the round (so acc is the round's mean whatever P/K is). An edge that
    was used, or failed, is blocked until the next round, which begins with the current model for
    all. WKAFL's code leaves the momentum out of w and takes u/P: right for K = 1. Staleness is not
    used.
    """

    Options = GSGMOptions

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.momentum: np.ndarray | None = None  # Mom
        self.gathered: np.ndarray | None = None  # acc
        self.edges = 0  # P, those that began the round

    def step(self, gradients: Sequence[GradientRule]) -> GradientStep:
        share = 1 / len(gradients)
        terms = [(gradient.vector, share) for gradient in gradients]
        if self.momentum is not None:
            terms.append((self.momentum, self.options.momentum))
        self._gather(terms, len(gradients) / self.edges)
        rate = self.options.server_learning_rate
        return GradientStep(
            [share] * len(gradients), [(vector, rate * factor) for vector, factor in terms]
        )

    def hand_out(self) -> list[Decision]:
        if self.running:
            return []
        if self.gathered is not None:
            self.momentum, self.gathered = self.gathered, None
        self.edges = len(self.idle)
        return super().hand_out()

    def _gather(self, terms: Sequence[tuple[np.ndarray, float]], share: float) -> None:
        old = [] if self.gathered is None else [(self.gathered, 1.0)]
        new = [*old, *((vector, factor * share) for vector, factor in terms)]
        self.gathered = weighted_sum([vector for vector, _ in new], [factor for _, factor in new])
