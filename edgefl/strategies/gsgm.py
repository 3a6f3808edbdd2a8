"""GSGM: rounds in which each edge is used once, and the round's mean as momentum (Wang et al.
2019, arXiv 1902.07848, as changed by WKAFL).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field

from edgefl.strategies.base.decisions import Assign, Decision
from edgefl.strategies.base.events import EdgeJoined, UpdateArrived
from edgefl.strategies.base.gradients import GradientRule, Gradients, GradientsOptions, GradientStep
from edgefl.vectors import weighted_sum


class GSGMOptions(GradientsOptions):
    momentum: float = Field(0.1, ge=0, lt=1)  # a_m
    """What the last round's mean adds to each step."""
    # where an edge takes its gradient of a round: at the model that begins the round, or at the one
    # that its own last step left (the authors' code)
    start_from: Literal["round", "own step"] = "round"
    """All edges of a round start from the model that began it; or `"own step"`: each from the one
    that its own last step left (the authors' code).
    """


class GSGM(Gradients):
    """u = a_m Mom + (1/n) sum g_i ;  w <- w - eta u ;  acc += u n/P ;  when all P edges of the
    round have been used: Mom = acc , acc = 0.

    n = K, or what is left of the round (so acc is the round's mean whatever P/K is). An edge that
    was used, or failed, is blocked until the next round, which begins with the current model for
    all. So the P/K steps of a round share one model: together they are one step of P/K times the
    rate along the mean of P gradients. ``start_from = "own step"``: as in WKAFL's code an edge is
    given the model that its own last step left; then a round's gradients are of P/K models.

    WKAFL's code leaves the momentum out of w and takes u/P: right for K = 1. It also lets all used
    edges share the server's tensors, so that they see the newest model: not done here. Staleness is
    not used.
    """

    Options = GSGMOptions

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.momentum: np.ndarray | None = None  # Mom
        self.gathered: np.ndarray | None = None  # acc
        self.edges = 0  # P, those that began the round
        self.used: list[str] = []  # by the step just made
        # of "own step": edge -> the model that its own last step left, with its version
        self.left: dict[str, tuple[int, np.ndarray]] = {}
        self.given: dict[str, int] = {}  # edge -> version of the model that it was given last

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
        self.edges = len(self.idle)
        return super().hand_out()

    def assign(self, edges: list[str]) -> list[Decision]:
        """Each edge its model: an Assign for each version, the oldest first."""
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
