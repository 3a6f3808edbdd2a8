"""The outputs of the actors (Coordinator, Edge): actions for their host.

Actors do nothing themselves. Two decisions of a strategy are passed to the host unchanged: Grant,
once the update is ready to be sent, and Finish, after which no output is carried out.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from edgefl.protocol.messages import ToCoordinator, ToEdge
from edgefl.strategies.base.events_and_decisions import Finish, Grant

COORDINATOR = "coordinator"


class Send(Struct, frozen=True):
    """Deliver ``message`` to an edge id or to COORDINATOR.

    Bulk messages cross the emulated link. ``replaces``: see ``Push``.
    """

    to: str
    message: ToEdge | ToCoordinator
    replaces: bool = False


class Broadcast(Struct, frozen=True):
    """Deliver tasks or pushes to several edges with one transfer, in these slots of the channel.

    ``slots`` (): at once, because the edges already have the model.
    """

    sends: tuple[Send, ...]
    slots: tuple[int, ...]


class Run(Struct, frozen=True, eq=False):
    """Do ``job`` (edgefl.jobs) and report ``job_done`` at now + ``duration_ns``.

    ``duration_ns`` None: report it when the job really ends. An evaluation may be reported earlier,
    too: the coordinator holds its scores until they are due.
    """

    job: Any
    duration_ns: int | None


Output = Send | Broadcast | Grant | Run | Finish
