"""The state of edges under injected faults: alive, down or frozen. Both clocks use it.

This module has no I/O and no clock. The host of the run reports each fault and carries out
its effects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from enum import Enum
from functools import partial

from emulator.faults import Fault


class Effect(Enum):
    """What a fault did to its edge's process."""

    DIED = "died"
    CAME_BACK = "came back"
    FROZE = "froze"
    STAYS_FROZEN = "stays frozen"  # the edge was already frozen


class FaultLives:
    """Which of ``edges`` are down or frozen, and which edges' next update is faulty.

    ``revives``: whether the schedule brings dead edges back. Each death and each return begins a
    new life, and cancels what was planned for the earlier one.
    """

    def __init__(self, edges: Collection[str], revives: bool) -> None:
        self.revives, self._edges = revives, len(edges)
        self.down: set[str] = set()
        self._lives: defaultdict[str, int] = defaultdict(int)  # deaths and returns so far
        self._frozen_until: dict[str, int] = {}
        self._marked: set[tuple[str, str]] = set()  # (kind of fault, edge)

    def strike(self, fault: Fault, now: int) -> Iterator[Effect]:
        """Yield what this fault does to its edge's process, in order.

        Carry out each effect before you ask for the next. There is no effect if the edge is down,
        or if the fault is one of a link, a device or an update.
        """
        edge = fault.target
        match fault.kind:
            case "kill" | "restart":
                if edge not in self.down:
                    self.down.add(edge)
                    self._begin_life(edge)
                    yield Effect.DIED
                if fault.kind == "restart":
                    self.down.discard(edge)
                    self._begin_life(edge)
                    yield Effect.CAME_BACK
            case "freeze" if edge not in self.down:
                known_ns = self.frozen_until(edge)
                self._frozen_until[edge] = max(known_ns, fault.until_ns)
                yield Effect.STAYS_FROZEN if known_ns > now else Effect.FROZE
            case "duplicate" | "corrupt":
                self._marked.add((fault.kind, edge))

    def _begin_life(self, edge: str) -> None:
        self._lives[edge] += 1
        self._frozen_until.pop(edge, None)

    def frozen_until(self, edge: str) -> int:
        """When the edge's latest freeze ends (ns); 0: it was not frozen in this life."""
        return self._frozen_until.get(edge, 0)

    def in_this_life(self, edge: str, call: Callable[[str, int], None]) -> Callable[[int], None]:
        """``call(edge, now)`` for an agenda; it does nothing once the edge dies or comes back."""
        return partial(self._in_life, edge, self._lives[edge], call)

    def _in_life(self, edge: str, life: int, call: Callable[[str, int], None], now: int) -> None:
        if self._lives[edge] == life:
            call(edge, now)

    def take(self, kind: str, edge: str) -> bool:
        """Whether the edge's next update gets this fault. The first call clears the mark."""
        marked = (kind, edge) in self._marked
        self._marked.discard((kind, edge))
        return marked

    @property
    def some_return(self) -> bool:
        """Whether an edge is down that the schedule may bring back."""
        return bool(self.down) and self.revives

    @property
    def deserted(self) -> bool:
        """Whether all edges are down and the schedule brings none back."""
        return not self.revives and len(self.down) == self._edges
