"""FedSSMU: synchronous FedASMU; models are mixed in as they arrive, and devices merge the result.

Source: arXiv 2507.06031, algorithm 3.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from edgefl.strategies.base.events_and_decisions import (
    Decision,
    Discard,
    FreshRequested,
    Report,
    SendFresh,
    TaskClosed,
    UpdateArrived,
)
from edgefl.strategies.base.rounds import Rounds, RoundsOptions
from edgefl.strategies.dissemination.device import Refresh
from edgefl.strategies.dissemination.learned import arrival, weighing
from edgefl.strategies.dissemination.options import (
    BothOptions,
    BoundOptions,
    refresh_point_warnings,
)
from edgefl.strategies.dissemination.refresh_points import RefreshPoints


class FedSSMUOptions(RoundsOptions, BoundOptions, BothOptions):
    index: Literal["round", "aggregation"] = "round"
    """The number under the square roots of the weights, which the paper does not define: of the
    round, or of all aggregations so far.
    """


class RefreshInRound(Refresh):
    """A fresher model has the number version + k. In eq. 10, g is the round or the number of
    aggregations so far.
    """

    def times(self, run: Any, version: int) -> tuple[int, int]:
        gap = version - run.task.version
        before = (
            run.task.numbers["aggregations"] + gap
            if self.options.index == "aggregation"
            else run.task.version
        )
        return int(before) + 1, gap + 1


class FedSSMU(Rounds):
    """Algorithm 3: the k-th arrival of a round (k from 0) has staleness k + 1 ;  w_{g,k+1} = (1 -
    alpha) w_{g,k} + alpha w_i ;  w_{g+1,0} = w_{g,k} at the end.

    The version rises once per round. Shared controls learn from the previous aggregation, which can
    be the last one of the previous round.
    """

    Options = FedSSMUOptions
    rule = RefreshInRound
    needs_plain_sgd = True  # for the gradients from which weights are learned

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.weighing = weighing(self.options, self.layout)
        self.refresh_points = RefreshPoints(self.options, self.streams)
        self.model = self.weights  # w_{g,k}
        self.k = 0  # aggregations in this round
        self.count = 0  # aggregations of the whole run
        # edges with an open task -> the fresher model that was sent, if subtract_merge needs it
        self.sent: dict[str, tuple[int, np.ndarray]] = {}

    @classmethod
    def warnings(cls, options: Any, epochs: int) -> list[str]:
        return refresh_point_warnings(options, epochs)

    def assign(self, edges: list[str]) -> list[Decision]:
        self.mark_running(edges)
        return self.refresh_points.assign(
            edges,
            self.weights,
            {"aggregations": float(self.count)} if self.options.index == "aggregation" else None,
        )

    def fresh_requested(self, event: FreshRequested, now: int) -> list[Decision]:
        newer = self.model if self.k > 0 else None
        if newer is not None and self.options.subtract_merge:
            self.sent[event.edge] = event.base_version + self.k, newer
        return [SendFresh(event.edge, event.task, newer, event.base_version + self.k)]

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        self.refresh_points.learn(update)
        decision = (
            self._mixed(update)
            if self.k + 1 <= self.options.tau
            else Discard(update.task, "too stale")
        )
        self.sent.pop(update.edge, None)
        return [decision, *self._end_round()]

    def closed(self, event: TaskClosed, now: int) -> list[Decision]:
        self.sent.pop(event.edge, None)
        return super().closed(event, now)

    def aggregate(self, updates: list[UpdateArrived]) -> np.ndarray:
        """Return the model, which already contains all updates."""
        self.k = 0
        return self.model

    def _mixed(self, update: UpdateArrived) -> Report:
        t = self.version + 1 if self.options.index == "round" else self.count + 1
        found = arrival(
            update, self.sent.get(update.edge), self.count - self.k, self.count, t, self.k + 1
        )
        self.model, values = self.weighing.mixed(found, self.model)
        self.weighing.forget(())
        report = Report(values | {"gap": float(self.k)}, update.edge)
        self.k += 1
        self.count += 1
        self.delivered[update.edge] = update
        return report
