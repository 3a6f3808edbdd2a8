"""Headers that go to the same peer in one turn travel in one message."""

from __future__ import annotations

from typing import Any, Protocol

from edgefl.hosts.wall.coordinator.sessions import Sessions
from edgefl.protocol.codec import MOST_BUNDLED, MOST_BUNDLED_BYTES, bundle, encode


class SendsTo(Protocol):
    """The coordinator's socket."""

    def send(self, routing: bytes, header: bytes, body: Any = None) -> bool:
        """Send a message to a peer. False if it was not sent."""


class Bundles:
    """Sends messages of sessions through ``router``, to each peer in their order."""

    def __init__(self, router: SendsTo, sessions: Sessions) -> None:
        self.router, self.sessions = router, sessions
        self._held: dict[bytes, list[bytes]] = {}  # by routing id

    def send(
        self, routing: bytes, session: int, message: Any, body: Any = None, waits: bool = False
    ) -> None:
        """Send a message of the session with this number.

        One that ``waits`` goes with the next one to this peer, or at ``flush``.
        """
        header = encode(message, self.sessions.incarnation, session)
        held = self._held.pop(routing, None) if self._held else None
        if held is not None and len(header) > MOST_BUNDLED_BYTES:
            self.router.send(routing, bundle(held))
        elif held is not None:
            held.append(header)
            if waits and len(held) < MOST_BUNDLED:
                self._held[routing] = held
                return
            header = bundle(held)
        elif waits and len(header) <= MOST_BUNDLED_BYTES:
            self._held[routing] = [header]
            return
        self.router.send(routing, header, body)

    def flush(self) -> None:
        """Send all that waits."""
        if self._held:
            held, self._held = self._held, {}
            for routing, headers in held.items():
                self.router.send(routing, bundle(headers))
