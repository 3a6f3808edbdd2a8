"""What actors (Coordinator, Edge) give back to their host: things to do. They do nothing
themselves.

Two decisions of a strategy reach the host as they are: Grant, once the update is there to be sent,
and Finish, after which nothing is carried out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from edgefl.protocol.messages import ToCoordinator, ToEdge
from edgefl.strategies.base.decisions import Finish, Grant

COORDINATOR = "coordinator"


@dataclass(frozen=True, slots=True)
class Send:
    """Deliver ``message`` to an edge id or to COORDINATOR; bulk messages travel over the
    emulated link.
    """

    to: str
    message: ToEdge | ToCoordinator


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Deliver tasks to all these edges with one transfer, in these slots of the channel; (): at
    once, they have them already.
    """

    sends: tuple[Send, ...]
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Do ``job`` (edgefl.jobs) and report ``job_done`` at now + ``duration_ns``; None: when it
    really ends.
    """

    job: Any = field(repr=False)
    duration_ns: int | None


Output = Send | Broadcast | Grant | Run | Finish
