"""What the two threads of the coordinator say to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgefl.jobs import Scores
from edgefl.protocol.messages import ToCoordinator, ToEdge
from edgefl.protocol.transfers import Incoming, Outgoing
from edgefl.strategies.base.decisions import Grant
from edgefl.strategies.base.events import EdgeLost
from emulator.links.network import Completion


# ------------------------------------------------------------------ pacing -> logic
@dataclass(frozen=True, slots=True)
class Begin:
    """All who will come have joined: id -> samples. Emulated time 0 is now."""

    edges: dict[str, int]


@dataclass(frozen=True, slots=True)
class Heard:
    """A message for the coordinator, at emulated ``now``."""

    now: int
    edge: str
    message: ToCoordinator | EdgeLost


@dataclass(frozen=True, slots=True)
class Whole:
    """An update's bytes are all there; putting them together and checking them is the logic
    thread's work.
    """

    now: int
    edge: str
    incoming: Incoming


@dataclass(frozen=True, slots=True)
class Carried:
    """A transfer is done: a row of the link log."""

    completion: Completion
    finished_ns: int


@dataclass(frozen=True, slots=True)
class Rang:
    """The coordinator's own next moment has come."""

    now: int


@dataclass(frozen=True, slots=True)
class Endless:
    """The connection with this descriptor was closed: its message had no end."""

    fd: int


@dataclass(frozen=True, slots=True)
class Noticed:
    """A fact for the record."""

    now: int
    fact: str
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Evaluated:
    """An evaluation's result came back."""

    version: int
    result: Scores


@dataclass(frozen=True, slots=True)
class EvaluatorGone:
    """Its process has ended: no result will come any more."""


@dataclass(frozen=True, slots=True, eq=False)
class Worked:
    """A job of the strategy came back at emulated ``now``: its result, or in words why there is
    none; ``error``: it raised.
    """

    now: int
    order: Any
    result: Any = None
    real_s: float = 0.0
    deaths: int = 0  # of workers
    error: str | None = None
    users: bool = False  # the error is the user's


@dataclass(frozen=True, slots=True)
class Interrupt:
    """End the run in order."""

    reason: str


# ------------------------------------------------------------------ logic -> pacing
@dataclass(frozen=True, slots=True)
class Carry:
    """Start a downlink transfer at emulated ``now``."""

    now: int
    edge: str
    outgoing: Outgoing


@dataclass(frozen=True, slots=True)
class CarryAll:
    """Start one broadcast to several edges in these slots; (): they count as having it already."""

    now: int
    outgoings: list[tuple[str, Outgoing]]
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Granted:
    """The offered update may use its uplink from ``now`` on, or in the granted slots."""

    now: int
    grant: Grant


@dataclass(frozen=True, slots=True)
class Note:
    """A small message to an edge's actor."""

    now: int
    edge: str
    note: ToEdge


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Ring the coordinator at this emulated moment."""

    at_ns: int


@dataclass(frozen=True, slots=True)
class Reject:
    """What the edge sent is broken (a digest differs): end its session."""

    edge: str
    reason: str
