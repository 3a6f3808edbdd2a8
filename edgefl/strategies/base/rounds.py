"""Base of synchronous strategies: select edges, send, wait for all, aggregate."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from edgefl.strategies.base.events_and_decisions import (
    Decision,
    EdgeJoined,
    Publish,
    TaskClosed,
    UpdateArrived,
)
from edgefl.strategies.base.strategy import MOST_FAILED, SelectingOptions, Strategy


class RoundsOptions(SelectingOptions):
    clients_per_round: int = Field(10, ge=1)
    """Number of edges that are selected for a round."""


class Rounds(Strategy):
    """Synchronous rounds.

    A round ends when every selected edge has delivered or its task was closed. If none delivers,
    other edges are selected; after MOST_FAILED such rounds in a row the run ends.
    """

    Options = RoundsOptions
    edges_at_work = ("clients_per_round",)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # rounds begun so far, failed ones too: a failed round must not select the same edges again
        self.draws = 0
        self.failed = 0  # rounds in a row without a delivery
        self.begun = False
        self.delivered: dict[str, UpdateArrived] = {}

    @classmethod
    def concurrency(cls, options: RoundsOptions, edges: int) -> int:
        return min(options.clients_per_round, edges)

    def aggregate(self, updates: list[UpdateArrived]) -> np.ndarray:
        """Return the next global model from this round's updates, which are sorted by edge id."""
        raise TypeError(f"{type(self).__name__} must define aggregate")

    def started(self, now: int) -> list[Decision]:
        self.begun = True
        return self._begin_round()

    def joined(self, event: EdgeJoined, now: int) -> list[Decision]:
        waiting = self.begun and not self.running and not self.delivered
        return self._begin_round() if waiting else []

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        self.delivered[update.edge] = update
        return self._end_round()

    def closed(self, event: TaskClosed, now: int) -> list[Decision]:
        return self._end_round()

    def _begin_round(self) -> list[Decision]:
        edges = self.select(self.options.clients_per_round, self.draws)
        if not edges:
            return []  # the next EdgeJoined begins the round
        self.draws += 1
        return self.assign(edges)

    def _end_round(self) -> list[Decision]:
        if self.running:
            return []
        if not self.delivered:
            self.failed += 1
            if self.failed >= MOST_FAILED:
                return self.hopeless("no round delivers")
            return self._begin_round()
        self.weights = self.aggregate([self.delivered[edge] for edge in sorted(self.delivered)])
        self.delivered = {}
        self.failed = 0
        self.version += 1
        return [Publish(self.weights), *self._begin_round()]
