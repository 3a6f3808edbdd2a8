"""Which edges are away now by ``edges.availability``, and what they say when they are back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from edgefl.coordinator.tasks import Alarms
from edgefl.protocol.messages import ToCoordinator
from emulator.faults import Fault

LEAVES, RETURNS = "leaves ", "returns "  # with the edge's id: names of alarms


@dataclass(slots=True)
class Absences:
    """``times``: each edge's absences in order of time. Sets alarms for their beginnings and ends.

    ``connected``: edges with a connection, and their samples, if there are absences. An edge can be
    connected and away: its host has a connection all the time, the device that it stands for has
    none. ``held``: what came from an edge that is away; it counts when the edge is back.
    """

    times: Mapping[str, Iterator[Fault]]
    alarms: Alarms
    away: set[str] = field(default_factory=set)
    connected: dict[str, int] = field(default_factory=dict)
    held: dict[str, list[ToCoordinator]] = field(default_factory=dict)
    _next: dict[str, Fault] = field(default_factory=dict)

    def start(self) -> None:
        """Plan the first absence of each edge. An edge that is away at 0 does not join then."""
        for edge in self.times:
            self._plan(edge)
            if edge in self._next and self._next[edge].at_ns == 0:
                self.leaves(edge)

    def connects(self, edge: str, samples: int) -> bool:
        """The edge has a connection. Returns whether it is away all the same."""
        if self.times:
            self.connected[edge] = samples
        return edge in self.away

    def leaves(self, edge: str) -> None:
        """The edge is away from now on, until the end of the absence that was planned."""
        self.away.add(edge)
        self.alarms.drop(f"{LEAVES}{edge}")
        self.alarms.set(f"{RETURNS}{edge}", self._next[edge].until_ns)

    def returns(self, edge: str) -> list[ToCoordinator]:
        """The edge is there again. Returns what it has said meanwhile."""
        self.away.discard(edge)
        self._plan(edge)
        return self.held.pop(edge, [])

    def hold(self, edge: str, message: ToCoordinator) -> bool:
        """Whether the message has to wait, because its edge is away."""
        if edge not in self.away:
            return False
        # after a broken session the edge says it again
        waiting = [each for each in self.held.get(edge, []) if type(each) is not type(message)]
        self.held[edge] = [*waiting, message]
        return True

    def _plan(self, edge: str) -> None:
        absence = next(self.times[edge], None)
        if absence is None:
            self._next.pop(edge, None)
        else:
            self._next[edge] = absence
            self.alarms.set(f"{LEAVES}{edge}", absence.at_ns)
