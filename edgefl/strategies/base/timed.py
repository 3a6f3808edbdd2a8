"""Base of asynchronous strategies that measure how long each edge takes from task to update."""

from __future__ import annotations

from typing import Any

from edgefl.strategies.base.asynchronous import Asynchronous
from edgefl.strategies.base.decisions import Decision
from edgefl.strategies.base.events import Event, UpdateArrived
from emulator.units import NS_PER_S


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
