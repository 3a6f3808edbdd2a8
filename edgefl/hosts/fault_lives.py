"""The lives of edges under injected faults, for both hosts. No I/O, no clock: a host says which
fault strikes, and carries out what comes of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from enum import Enum

from emulator.faults import Fault


class Effect(Enum):
    """What a fault did to its edge's process."""

    DIED = "died"
    CAME_BACK = "came back"
    FROZE = "froze"
    STAYS_FROZEN = "stays frozen"  # it was frozen already


class FaultLives:
    """Which of ``edges`` are down or frozen, and whose next update is to suffer.

    ``revives``: whether the schedule brings dead edges back. Each death and each return begins a
    new life: what was planned for an earlier one is void.
    """

    def __init__(self, edges: Collection[str], revives: bool) -> None:
        self.edges, self.revives = edges, revives
        self.down: set[str] = set()
        self._lives: defaultdict[str, int] = defaultdict(int)  # deaths and returns so far
        self._frozen_until: dict[str, int] = {}
        self._marked: set[tuple[str, str]] = set()  # (kind of fault, edge)

    def strike(self, fault: Fault, now: int) -> Iterator[Effect]:
        """What this fault does to its edge's process, one after the other: carry each effect out
        before you ask for the next. None if the edge is down, or if the fault strikes a link, a
        device or an update.
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
        """When the edge's freeze ends or has ended; 0: in this life it was not frozen."""
        return self._frozen_until.get(edge, 0)

    def in_this_life(self, edge: str, call: Callable[[str, int], None]) -> Callable[[int], None]:
        """``call(edge, now)`` as an entry of an agenda, void once the edge dies or comes back."""
        life = self._lives[edge]
        return lambda now: call(edge, now) if self._lives[edge] == life else None

    def take(self, kind: str, edge: str) -> bool:
        """Whether the edge's next update is to suffer this fault; asked once, it has."""
        marked = (kind, edge) in self._marked
        self._marked.discard((kind, edge))
        return marked

    @property
    def some_return(self) -> bool:
        """Whether an edge is down that the schedule may bring back."""
        return bool(self.down) and self.revives

    @property
    def deserted(self) -> bool:
        """Whether all edges are down for good."""
        return not self.revives and len(self.down) == len(self.edges)
