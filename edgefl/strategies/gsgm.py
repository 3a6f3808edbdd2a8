"""GSGM: uses each edge once per round; the round's mean gradient is the momentum (Wang 2019).

Source: Wang et al. 2019, arXiv 1902.07848, as changed by WKAFL (arXiv 2203.01214).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field

from edgefl.strategies.base.events_and_decisions import Assign, Decision, EdgeJoined, UpdateArrived
from edgefl.strategies.base.gradients import GradientRule, Gradients, GradientsOptions, GradientStep
from edgefl.vectors import weighted_sum


class GSGMOptions(GradientsOptions):
    momentum: float = Field(0.1, ge=0, lt=1)  # a_m
    """Share of the last round's mean that is added to each step (a_m)."""
    start_from: Literal["round", "own step"] = "round"
    """The model at which an edge computes its gradient: `"round"`: the model at the start of the
    round; `"own step"`: the model after the last step that used this edge, as in the authors' code.
    """


class GSGM(Gradients):
    """u = a_m Mom + (1/n) sum g_i ;  w <- w - eta u ;  acc += u n/P ;  when all P edges of the
    round have been used: Mom = acc , acc = 0.

    n = K, or the rest of the round; so acc is the round's mean for any P/K. If only P' edges were
    used and the others failed, Mom = acc P/P'. An edge that was used, or failed, is blocked until
    the next round, when all edges get the current model. So the P/K steps of a round share one
    model: together they are one step of P/K times the rate along the mean of P gradients.
    ``start_from = "own step"``: as in WKAFL's code, an edge gets the model after the last step that
    used it; then the gradients of a round belong to P/K models.

    WKAFL's code omits the momentum from w and uses u/P, which is right for K = 1. There, all used
    edges also share the server's tensors, so they see the newest model; this is not done here.
    Staleness is not used.
    """

    Options = GSGMOptions

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.momentum: np.ndarray | None = None  # Mom
        self.gathered: np.ndarray | None = None  # acc
        self.edges = 0  # P, the edges at the start of the round
        self.counted = 0  # edges of the round that are in acc
        self.used: list[str] = []  # edges in the latest step
        # for "own step": edge -> the model after the last step that used it, with its version
        self.left: dict[str, tuple[int, np.ndarray]] = {}
        self.given: dict[str, int] = {}  # edge -> version of the model that it got last

    def joined(self, event: EdgeJoined, now: int) -> list[Decision]:
        self.left.pop(event.edge, None)
        return super().joined(event, now)

    def started_from(self, update: UpdateArrived) -> int:
        return self.given[update.edge]

    def step(self, gradients: Sequence[GradientRule]) -> GradientStep:
        self.used = [gradient.edge for gradient in gradients]
        share = 1 / len(gradients)
        terms = [(gradient.vector, share) for gradient in gradients]
        if self.momentum is not None:
            terms.append((self.momentum, self.options.momentum))
        self._gather(terms, len(gradients) / self.edges)
        self.counted += len(gradients)
        rate = self.options.server_learning_rate
        return GradientStep(
            [share] * len(gradients), [(vector, rate * factor) for vector, factor in terms]
        )

    def hand_out(self) -> list[Decision]:
        if self.options.start_from == "own step":
            self.left |= dict.fromkeys(self.used, (self.version, self.weights))
        self.used = []
        if self.running:
            return []
        if self.gathered is not None:
            self.momentum, self.gathered = self.gathered, None
            if self.counted < self.edges:
                self.momentum = weighted_sum([self.momentum], [self.edges / self.counted])
            self.counted = 0
        self.edges = len(self.idle)
        return super().hand_out()

    def assign(self, edges: list[str]) -> list[Decision]:
        """Assign each edge its model: one Assign per version, the oldest first."""
        now = self.version, self.weights
        models = dict([now, *(self.left.get(edge, now) for edge in edges)])
        self.given |= {edge: self.left.get(edge, now)[0] for edge in edges}
        self.mark_running(edges)
        groups = {
            version: tuple(edge for edge in edges if self.given[edge] == version)
            for version in sorted(models)
        }
        return [
            Assign(group, {"weights": models[version]})
            for version, group in groups.items()
            if group
        ]

    def _gather(self, terms: Sequence[tuple[np.ndarray, float]], share: float) -> None:
        old = [] if self.gathered is None else [(self.gathered, 1.0)]
        new = [*old, *((vector, factor * share) for vector, factor in terms)]
        self.gathered = weighted_sum([vector for vector, _ in new], [factor for _, factor in new])
