"""The edges of a run under the virtual clock: actors that are made when they are first needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from edgefl.edges.edge import Edge
from edgefl.hosts.setup.learning import Learning
from edgefl.hosts.virtual.pool.deferred_run import Describer


class EdgesByName(Protocol):
    """What the host needs of its edges; a dict is enough."""

    def __getitem__(self, edge: str, /) -> Edge: ...

    def __setitem__(self, edge: str, actor: Edge, /) -> None: ...


class DeferredEdges:
    """The edges of the strategy at ``index``: their training is only described.

    An idle device has no actor. So 100,000 devices cost little if few of them are at work.
    """

    def __init__(self, learned: Learning, index: int) -> None:
        self.made: dict[str, Edge] = {}  # the actors so far
        self._begin(learned, index)

    def _begin(self, learned: Learning, index: int) -> None:
        self.learned, self.index, self._plan = learned, index, learned.plan
        self._make: Callable[[str], Edge] = learned.edge_maker(index, self._describer)

    def __getitem__(self, edge: str, /) -> Edge:
        if edge not in self.made:
            self.made[edge] = self._make(edge)
        return self.made[edge]

    def __setitem__(self, edge: str, actor: Edge, /) -> None:
        self.made[edge] = actor

    def fresh(self, edge: str) -> Edge:
        """An edge that has just started."""
        return self._make(edge)

    def _describer(self, edge: str) -> Describer:
        samples, tokens = self.learned.samples[edge], self.learned.tokens(edge)
        return Describer(self.index, edge, self._plan, samples, tokens)

    def state(self) -> dict[str, Any]:
        """For a checkpoint: the actors so far; the others are made as if they had been there."""
        return {"learned": self.learned, "index": self.index, "made": self.made}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.made = state["made"]
        self._begin(state["learned"], state["index"])
