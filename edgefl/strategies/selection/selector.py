"""What a way of selecting edges gets, and what it has observed.

A selection is a file of this folder that binds ``build()`` or ``build(options)``, with an
``Options`` class if it has options. It neither reads a clock nor does I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict
from sortedcontainers.sortedlist import SortedList

from edgefl import catalog
from edgefl.errors import UserError
from edgefl.strategies.base.events_and_decisions import (
    Assign,
    Decision,
    EdgeJoined,
    Event,
    Publish,
    Push,
    SendFresh,
    TaskClosed,
    UpdateArrived,
)

PACKAGE, ATTRIBUTE, WORD = "edgefl.strategies.selection", "build", "selection"
Stream = Callable[[], np.random.Generator]  # makes the random stream of one selection


class Selection(BaseModel):
    """The way in which idle edges are selected; its options are further keys of this table."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)
    name: str
    """Name of the selection: one of `edgefl selections`, or your own, such as
    `"my_selection.py:build"`.
    """

    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class SelectorOptions(BaseModel):
    """Base of the options of a selection: immutable, no unknown keys, no silent conversion."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Selector:
    """Selects idle edges. A subclass defines ``choose``; the attributes say what was observed.

    An attribute has no entry for an edge that it was not observed for. All moments are emulated
    ns. The attributes are part of a checkpoint.
    """

    observes: ClassVar[bool] = True  # False: it needs no attribute but ``options``
    needs_loss: ClassVar[bool] = False  # True: updates without a loss are discarded

    def __init__(self, options: Any = None) -> None:
        self.options = options
        self.now = 0  # moment of the current event
        self.samples: dict[str, int] = {}  # every edge that has ever joined -> size of its data
        self.assigned_ns: dict[str, int] = {}  # edge -> when it got its latest task
        self.arrived_ns: dict[str, int] = {}  # edge -> when its latest update arrived
        # edge -> when the newest model that it had for its latest update was published
        self.model_ns: dict[str, int] = {}
        # edge -> its latest update's time from the assignment to the arrival
        self.took_ns: dict[str, int] = {}
        self.losses: dict[str, float] = {}  # edge -> mean training loss of its latest update
        self.gaps: dict[str, int] = {}  # edge -> staleness of its latest update in versions
        self.updates: dict[str, int] = {}  # edge -> number of its updates
        # edges whose latest task was closed without an update -> how many in a row
        self.failures: dict[str, int] = {}
        self._published_ns = 0  # when the current model was published
        self._sent_ns: dict[str, int] = {}  # edge -> when the last model sent to it was published

    def choose(self, idle: SortedList, count: int, stream: Stream) -> list[str]:
        """Return at most ``count`` different edges of ``idle``, in any order.

        ``idle``: ids, sorted; do not change it. ``count``: at most the number of idle edges; 0 if
        there are none. ``stream()`` makes the random generator of this selection: call it once.
        """
        raise TypeError(f"{type(self).__name__} must define choose")

    def moved(self, edge: str, idle: bool) -> None:
        """Hear, before ``choose``, that an edge has become idle, or that it is idle no more.

        An edge that worked meanwhile may become idle twice.
        """

    def observe(self, event: Event, version: int, now: int) -> None:
        """Note what an event shows. ``version``: that of the model before the event."""
        self.now = now
        match event:
            case EdgeJoined():
                self.samples[event.edge] = event.samples
            case UpdateArrived(edge=edge):
                self.updates[edge] = self.updates.get(edge, 0) + 1
                self.arrived_ns[edge] = now
                self.model_ns[edge] = self._sent_ns.get(edge, 0)
                self.took_ns[edge] = now - self.assigned_ns.get(edge, now)
                self.gaps[edge] = version - event.base_version
                if "loss" in event.numbers:
                    self.losses[edge] = event.numbers["loss"]
                self.failures.pop(edge, None)
            case TaskClosed(edge=edge):
                self.failures[edge] = self.failures.get(edge, 0) + 1

    def decided(self, decisions: Iterable[Decision]) -> None:
        """Note what the strategy has decided at ``now``: tasks, and models that were sent."""
        for decision in decisions:
            match decision:
                case Publish():
                    self._published_ns = self.now
                case Assign(edges=edges):
                    self.assigned_ns |= dict.fromkeys(edges, self.now)
                    self._sent_ns |= dict.fromkeys(edges, self._published_ns)
                case Push(edges=edges, version=None):
                    self._sent_ns |= dict.fromkeys(edges, self._published_ns)
                case SendFresh(edge=edge, weights=np.ndarray(), version=None):
                    self._sent_ns[edge] = self._published_ns


class Ranked(Selector):
    """Selects the edges with the smallest ``key``, ties by id.

    The key of an idle edge must not change. So an edge costs O(log n) when it starts and when it
    ends, and a selection costs nothing else.
    """

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.ranked = SortedList()  # (*key, edge) of the idle edges
        self.keys: dict[str, tuple[float, ...]] = {}  # idle edge -> its key

    def key(self, edge: str) -> tuple[float, ...]:
        """Return the numbers by which an edge is ranked."""
        raise TypeError(f"{type(self).__name__} must define key")

    def moved(self, edge: str, idle: bool) -> None:
        old = self.keys.pop(edge, None)
        if old is not None:
            self.ranked.remove((*old, edge))
        if idle:
            self.keys[edge] = key = self.key(edge)
            self.ranked.add((*key, edge))

    def choose(self, idle: SortedList, count: int, stream: Stream) -> list[str]:
        return [entry[-1] for entry in self.ranked[:count]]


def find(name: str, options: dict[str, Any], base: Path | None = None) -> Selector:
    """Return a new selector. ``base``: the folder of the user's code.

    UserError if there is none of this name, or for options that it does not take.
    """
    made = catalog.made(PACKAGE, name, ATTRIBUTE, options, base, WORD)
    if not isinstance(made, Selector):
        raise UserError(
            f"selection {name!r}: expected an edgefl.api.Selector, found {type(made).__name__}"
        )
    return made
