"""The server side of refresh points: the meta model chooses that of a device without a merge.

A refresh point is the number of finished local epochs, 1 to L - 1 of L, after which a device asks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgefl.strategies.base.decisions import Assign, Decision
from edgefl.strategies.base.events import UpdateArrived
from edgefl.strategies.dissemination.meta_model import MOST_REFRESH_POINTS, MetaModel
from edgefl.streams import Streams

# The device chooses a point uniformly with its ``draw``: the server does not know its epochs.
ANY_REFRESH_POINT = 0


class RefreshPoints:
    """A refresh point per task for devices without a Q-table.

    The meta model learns from the first merge of each device (REINFORCE). Every task also carries a
    number, uniform in [0, 1), drawn by (seed, edge, task of that edge): a device uses it for its
    own choices.
    """

    def __init__(self, options: Any, streams: Streams) -> None:
        self.options, self.streams = options, streams
        # The names of streams keep "slot", the old term: another name would draw other numbers.
        self.model = MetaModel(streams.rng("slot model"), options.meta_hidden)
        self.tasks: dict[str, int] = {}  # edge -> number of its tasks
        self.given: dict[str, int] = {}  # edge -> refresh point of its latest task
        self.merged: set[str] = set()  # edges that have merged: they choose their own points

    def assign(
        self, edges: list[str], weights: np.ndarray, numbers: dict[str, float] | None = None
    ) -> list[Decision]:
        """Return tasks whose ``numbers`` also have the refresh points.

        With a fixed rule tasks need no such numbers: then one Assign is for all edges, which is a
        broadcast if the medium has it.
        """
        more = numbers or {}
        if self.options.selector != "learned":
            return [Assign(tuple(edges), {"weights": weights}, more)]
        return [Assign((edge,), {"weights": weights}, more | self._numbers(edge)) for edge in edges]

    def learn(self, update: UpdateArrived) -> None:
        """Train the meta model if this update has the first merge of its edge."""
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
        # the drawn point is beyond the last one of the device, which it then used
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
