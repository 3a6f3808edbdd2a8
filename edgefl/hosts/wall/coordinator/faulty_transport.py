"""A transport whose receiving end damages or repeats what comes up, where the config says so."""

from __future__ import annotations

from copy import copy
from typing import Any

from edgefl.hosts.wall.coordinator.flow import Flow
from edgefl.hosts.wall.coordinator.mailbox import Whole
from edgefl.hosts.wall.coordinator.sessions import Session
from edgefl.hosts.wall.coordinator.transport import Transport
from edgefl.protocol.messages import Piece
from edgefl.protocol.transfers import Incoming


class FaultyTransport(Transport):
    """``corrupt``: edges whose next piece comes damaged, so that the update is sent again;
    ``duplicate``: whose next update comes twice.
    """

    def __init__(self, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        self.corrupt: set[str] = set()
        self.duplicate: set[str] = set()

    def frame(self, session: Session, message: Any, body: Any) -> None:
        if (
            isinstance(message, Piece)
            and body is not None
            and len(body)
            and session.edge in self.corrupt
        ):
            self.corrupt.discard(session.edge)
            body = bytearray(body)
            body[-1] ^= 0xFF
        super().frame(session, message, body)

    def _done(self, flow: Flow) -> None:
        edge = flow.transfer.edge
        again = (
            copy(flow.side) if isinstance(flow.side, Incoming) and edge in self.duplicate else None
        )  # the first one's bytes are let go
        super()._done(flow)
        if again is not None:
            self.duplicate.discard(edge)
            self.tell(Whole(flow.finished_ns() or 0, edge, again))
