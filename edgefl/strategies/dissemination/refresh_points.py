"""The server's part in when devices ask: the refresh point of a device that has never merged comes
from the meta model. A refresh point is the number of finished local epochs, 1 to L - 1 of L, after
which a device asks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgefl.strategies.base.decisions import Assign, Decision
from edgefl.strategies.base.events import UpdateArrived
from edgefl.strategies.dissemination.meta_model import MOST_REFRESH_POINTS, MetaModel
from edgefl.streams import Streams

# "any refresh point alike, by your draw": the server does not know how many epochs a device trains
ANY_REFRESH_POINT = 0


class RefreshPoints:
    """One refresh point a task for devices without a table of their own; each first merge teaches
    the meta model (REINFORCE).

    Every task also carries a number drawn uniformly from [0, 1) by (seed, edge, task of that edge):
    a device's own choices come from it.
    """

    def __init__(self, options: Any, streams: Streams) -> None:
        self.options, self.streams = options, streams
        # The names of streams keep "slot", the old term: another name would draw other numbers.
        self.model = MetaModel(streams.rng("slot model"), options.meta_hidden)
        self.tasks: dict[str, int] = {}  # tasks given to each edge
        self.given: dict[str, int] = {}  # the refresh point of its current task or its last one
        self.merged: set[str] = set()  # edges that decide for themselves

    def assign(
        self, edges: list[str], weights: np.ndarray, numbers: dict[str, float] | None = None
    ) -> list[Decision]:
        """Tasks with what they say about refresh points, added to ``numbers``; one Assign for all
        (a broadcast, if the medium has it) if that is nothing.
        """
        more = numbers or {}
        if self.options.selector != "learned":
            return [Assign(tuple(edges), {"weights": weights}, more)]
        return [Assign((edge,), {"weights": weights}, more | self._numbers(edge)) for edge in edges]

    def learn(self, update: UpdateArrived) -> None:
        """An update told how its task went: the first merge of an edge is the meta model's
        lesson.
        """
        said, edge = update.numbers, update.edge
        if edge in self.merged or edge not in self.given or not said.get("merged"):
            return
        self.merged.add(edge)
        asked_at, given = int(said.get("refresh_point", 0)), self.given[edge]
        if (
            not 1 <= asked_at <= MOST_REFRESH_POINTS
            or "reward" not in said
            or "baseline" not in said
        ):
            return
        # no "ask" at any point that there was: the last one was taken
        asked_at_end = given > asked_at
        decisions = [0] * (asked_at - 1) + [0 if asked_at_end else 1]
        self.model.learn(decisions, said["reward"] - said["baseline"], self.options.meta_rate)

    def _numbers(self, edge: str) -> dict[str, float]:
        count = self.tasks[edge] = self.tasks.get(edge, 0) + 1
        rng = self.streams.rng("slot", edge, count)
        draw = float(rng.random())
        if edge not in self.merged:
            self.given[edge] = (
                ANY_REFRESH_POINT if rng.random() < self.options.epsilon else self.model.draw(rng)
            )
        return {"refresh_point": float(self.given[edge]), "draw": draw}
