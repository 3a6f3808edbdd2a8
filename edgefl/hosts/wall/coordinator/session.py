"""One session, what an edge must have to join, and the outcomes of a frame."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from edgefl.hosts.wall.coordinator.hearing import Hearing
from edgefl.protocol.messages import PROTOCOL, Hello, Join, Setup

UNKNOWN_RTT = 1 << 62
# clocks of two machines drift apart by milliseconds per hour, so old pings say little
RECENT_PINGS = 32


class Expected(Struct, frozen=True):
    """What an edge must have to join, and its Setup.

    ``join_patience_ns``: time from Setup to Join, in which the edge loads torch and its data.
    """

    edges: frozenset[str]
    package: str
    config_digest: str
    layout_digest: str
    data_digest: str
    setup: Setup
    keyed: bool
    heartbeat_ns: int
    liveness_ns: int
    max_sessions: int
    join_patience_ns: int = 120_000_000_000
    frozen_digest: str = ""  # of the weights that never travel

    def fault(self, user: str | None, hello: Hello) -> str | None:
        """Why an edge with the key of ``user`` may not begin a session; None: it may."""
        if hello.protocol != PROTOCOL:
            return f"protocol version: the coordinator uses {PROTOCOL}, this edge {hello.protocol}"
        if hello.package != self.package:
            return f"edgefl version: the coordinator runs {self.package}, this edge {hello.package}"
        if self.keyed and user != hello.edge:
            return f"key: it belongs to edge {user!r}, not to {hello.edge!r}"
        if hello.edge not in self.edges:
            return (
                f"edge id: {hello.edge!r} is not one of this experiment's edges (edges.count,"
                " edges.names)"
            )
        return None


@dataclass(slots=True, eq=False)
class Session:
    """One edge's session. ``offset_ns``: the edge's clock minus the coordinator's.

    It comes from the recent ping with the shortest round-trip time, ``rtt_ns``. Pings before
    ``clock_since_ns`` do not count.
    """

    routing: bytes
    edge: str
    number: int
    heard_ns: int
    joined: bool = False
    rtt_ns: int = UNKNOWN_RTT
    offset_ns: int = 0
    clock_since_ns: int = 0
    pings: deque[tuple[int, int]] = field(
        default_factory=lambda: deque(maxlen=RECENT_PINGS), repr=False
    )
    hearing: Hearing = field(default_factory=Hearing, repr=False)

    def host_stood_still(self, length_ns: int, now: int) -> None:
        """The coordinator could receive nothing for so long: this was no silence of the edge."""
        self.heard_ns = min(self.heard_ns + length_ns, now)
        self.hearing.pings.clear()

    def host_slept(self, now: int) -> None:
        """The coordinator's host slept: its clock stood still, the edge's did not.

        Their difference is measured again, and the edge gets its whole patience.
        """
        self.heard_ns = self.clock_since_ns = now
        self.rtt_ns, self.offset_ns = UNKNOWN_RTT, 0
        self.pings.clear()
        self.hearing.pings.clear()

    def measured(self, rtt_ns: int, offset_ns: int) -> None:
        self.pings.append((rtt_ns, offset_ns))
        self.rtt_ns, self.offset_ns = min(self.pings)


# ------------------------------------------------------------------ outcomes
class Reply(Struct, frozen=True):
    """Send this frame. ``session``: the number for its header."""

    routing: bytes
    session: int
    message: Any


class Entered(Struct, frozen=True):
    """The edge has joined (again)."""

    session: Session
    join: Join


class Answered(Struct, frozen=True):
    """The edge has answered the heartbeat of ``sent_ns`` now, ``rtt_ns`` later (host time)."""

    edge: str
    sent_ns: int
    rtt_ns: int


class Passed(Struct, frozen=True):
    """A frame of a joined edge for the transport: it does not concern the session."""

    session: Session
    message: Any
    body: Any


class SessionEnded(Struct, frozen=True):
    """A joined edge has left: silent, replaced, or dropped for what it sent."""

    edge: str
    reason: str


class Cut(Struct, frozen=True):
    """Close this peer's connection: it has no session, or is quarantined."""

    routing: bytes


SessionOutcome = Reply | Entered | Answered | Passed | SessionEnded | Cut
