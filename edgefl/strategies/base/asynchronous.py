"""Base of asynchronous strategies: when edges get work, and one server step per update."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from edgefl.strategies.base.events_and_decisions import (
    Decision,
    Discard,
    EdgeJoined,
    Event,
    Publish,
    SetAlarm,
    TaskClosed,
    UpdateArrived,
)
from edgefl.strategies.base.strategy import MOST_FAILED, SelectingOptions, Strategy
from emulator.units import NS_PER_S, to_ns


class AsynchronousOptions(SelectingOptions):
    """When edges get work.

    ``dispatch = "replace"``: ``concurrency`` edges are at work; an edge that ends is replaced at
    once. ``dispatch = "periodic"``: every ``period_s``, min(clients_per_trigger, concurrency -
    running) idle edges start.
    """

    dispatch: Literal["periodic", "replace"] = "replace"
    """`"replace"`: keep `concurrency` edges at work and replace an edge as soon as it ends;
    `"periodic"`: start up to `clients_per_trigger` idle edges every `period_s`.
    """
    concurrency: Annotated[int, Field(ge=1)] | Literal["all"] = 10
    """The largest number of edges at work at the same time; `"all"`: no limit."""
    # a period that rounds to 0 ns would trigger forever at one moment
    period_s: float = Field(10.0, ge=1e-9)
    """Emulated time between two triggers; only with `dispatch = "periodic"`."""
    clients_per_trigger: int = Field(10, ge=1)
    """The largest number of edges that a trigger starts; only with `dispatch = "periodic"`."""
    max_staleness: int | None = Field(None, ge=0)
    """An update is discarded if its base model is more than this many versions behind the current
    one; none: no limit.
    """


class Asynchronous(Strategy):
    """An arriving update is discarded as too stale or passed to ``apply``; then idle edges get
    work.
    """

    Options = AsynchronousOptions
    edges_at_work = ("concurrency", "clients_per_trigger")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.triggers = 0
        self.failed = 0  # tasks in a row that were closed without an update
        self.begun = False

    @classmethod
    def concurrency(cls, options: AsynchronousOptions, edges: int) -> int:
        return edges if options.concurrency == "all" else min(options.concurrency, edges)

    @property
    def most_at_work(self) -> int:
        """The option ``concurrency`` as a number; "all": the edges that have ever joined."""
        most: int | Literal["all"] = self.options.concurrency
        return max(1, len(self.known)) if most == "all" else most

    @property
    def bound(self) -> int | None:
        """The largest gap that is accepted; None: no limit."""
        bound: int | None = self.options.max_staleness
        return bound

    def apply(self, update: UpdateArrived, gap: int) -> np.ndarray | None:
        """Return the next global model, or None if this update does not complete one.

        ``gap``: the current version minus the version that the update started from.
        """
        raise TypeError(f"{type(self).__name__} must define apply")

    def reports(self, update: UpdateArrived, gap: int) -> list[Decision]:
        """Return Reports about the update that ``apply`` has just turned into a model."""
        return []

    def started(self, now: int) -> list[Decision]:
        self.begun = True
        return self._trigger(now) if self.options.dispatch == "periodic" else self._refill()

    def joined(self, event: EdgeJoined, now: int) -> list[Decision]:
        return self._refill() if self.begun else []

    def closed(self, event: TaskClosed, now: int) -> list[Decision]:
        return self._undelivered()

    def _undelivered(self) -> list[Decision]:
        """Start another task after one without an update; end the run after too many in a row."""
        self.failed += 1
        at_work = min(self.most_at_work, max(1, len(self.known)))
        if self.failed >= MOST_FAILED * at_work:
            return self.hopeless("no task delivers")
        return self._refill()

    def rang(self, name: str, now: int) -> list[Decision]:
        return self._trigger(now)

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        self.failed = 0
        gap, too_stale = self.version - update.base_version, self.discarded(update)
        if too_stale:
            return [*too_stale, *self._refill()]
        weights = self.apply(update, gap)
        if weights is None:
            return self._refill()
        return [*self.reports(update, gap), self._publish(weights), *self._refill()]

    def discarded(self, update: UpdateArrived) -> list[Decision]:
        """Return a Discard if the update is too stale, else an empty list."""
        bound = self.bound
        if bound is not None and self.version - update.base_version > bound:
            return [Discard(update.task, "too stale")]
        return []

    def _publish(self, weights: np.ndarray) -> Publish:
        self.weights = weights
        self.version += 1
        return Publish(weights)

    def _trigger(self, now: int) -> list[Decision]:
        alarm = SetAlarm("dispatch", now + to_ns(self.options.period_s))
        return [*self._assign(self.options.clients_per_trigger), alarm]

    def _refill(self) -> list[Decision]:
        return self._assign(self.most_at_work) if self.options.dispatch == "replace" else []

    def _assign(self, most: int) -> list[Decision]:
        count = min(most, self.most_at_work - len(self.running))
        edges = self.select(count, self.triggers) if count > 0 else []
        if not edges:
            return []
        self.triggers += 1
        return self.assign(edges)


class Timed(Asynchronous):
    """Measures the mean delay of each edge in emulated time: transfers and training together."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.now = 0  # time of the current event (ns)
        self.given_ns: dict[str, int] = {}  # edge -> time of its latest task
        self.delays: dict[str, tuple[int, int]] = {}  # edge -> updates, sum of their delays (ns)

    def handle(self, event: Event, now: int) -> list[Decision]:
        self.now = now
        return super().handle(event, now)

    def assign(self, edges: list[str]) -> list[Decision]:
        self.given_ns |= dict.fromkeys(edges, self.now)
        return super().assign(edges)

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        count, total_ns = self.delays.get(update.edge, (0, 0))
        self.delays[update.edge] = count + 1, total_ns + now - self.given_ns[update.edge]
        return super().arrived(update, now)

    def mean_delay_s(self, edge: str) -> float | None:
        """Return the mean over the edge's updates so far; None before the first."""
        count, total_ns = self.delays.get(edge, (0, 0))
        return total_ns / count / NS_PER_S if count else None
