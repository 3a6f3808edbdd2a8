"""Which edge is on the other side of each routing id: greeting, digests, heartbeats, and the end of
sessions that break the protocol.

I/O-free: frames in with ``now`` in wall ns, outcomes out. A session is (random routing id,
incarnation of this run, number chosen by the edge). ::

    edge                         coordinator
      Hello(id, protocol)   ->     unknown id, other protocol: Refuse
                            <-   Setup(config, strategy)
      Join(digests, tasks)  ->     another config, layout or data: Refuse
                            <-   Welcome
      Pong, pieces, ...     <->  Ping, pieces, ...

Setup replaces a session of the same edge that has not joined yet, Welcome one that has.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from edgefl.protocol.codec import decode
from edgefl.protocol.errors import WireError
from edgefl.protocol.messages import (
    PROTOCOL,
    Hello,
    Join,
    Ping,
    Pong,
    Refuse,
    RunFinished,
    Setup,
    Welcome,
)

SILENT = "silent"  # why a session ended: nothing was heard for the liveness time
WHOLE_RUN = "run"  # key of counts that belong to no edge
UNKNOWN_RTT = 1 << 62
# two machines' clocks drift apart by milliseconds an hour: a short round trip is worth little when
# it is old
RECENT_PINGS = 32
MOST_TEXT = 500  # of a reason, which may quote the peer
MOST_FAULTS = 500  # that a run records with their reasons; the others are only counted
REPLACED = "replaced by a new session"


@dataclass(frozen=True, slots=True)
class Expected:
    """What an edge must have to join, and its Setup. ``join_patience_ns``: from Setup to Join it
    loads torch and its data.
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


@dataclass(slots=True, eq=False)
class Session:
    """One edge's connection. ``offset_ns``: its clock minus the coordinator's, from the recent
    ping with the shortest round trip.
    """

    routing: bytes
    edge: str
    number: int
    heard_ns: int
    joined: bool = False
    rtt_ns: int = UNKNOWN_RTT
    offset_ns: int = 0
    pings: deque[tuple[int, int]] = field(
        default_factory=lambda: deque(maxlen=RECENT_PINGS), repr=False
    )

    def measured(self, rtt_ns: int, offset_ns: int) -> None:
        self.pings.append((rtt_ns, offset_ns))
        self.rtt_ns, self.offset_ns = min(self.pings)


# ------------------------------------------------------------------ outcomes
@dataclass(frozen=True, slots=True)
class Reply:
    """Send this frame; ``session`` is the number to put in its header."""

    routing: bytes
    session: int
    message: Any


@dataclass(frozen=True, slots=True)
class Entered:
    """The edge has joined (again)."""

    session: Session
    join: Join


@dataclass(frozen=True, slots=True)
class Passed:
    """A frame of a joined edge that is not about its session."""

    session: Session
    message: Any
    body: Any


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """A joined edge has left: silent, replaced, or dropped for what it sent."""

    edge: str
    reason: str


SessionOutcome = Reply | Entered | Passed | SessionEnded


class Sessions:
    """The table of sessions. ``counts``: wire errors, refusals and stale frames, by kind and edge;
    ``faults``: those to be recorded.
    """

    def __init__(self, expected: Expected, incarnation: int) -> None:
        self.expected = expected
        self.incarnation = incarnation
        self.by_routing: dict[bytes, Session] = {}
        self.by_edge: dict[str, Session] = {}  # joined ones only
        self.counts: Counter[tuple[str, str]] = Counter()
        # (kind, edge or WHOLE_RUN, reason), taken by the host
        self.faults: list[tuple[str, str, str]] = []
        self._recorded = 0
        self._pinged_ns = 0

    def receive(
        self, routing: bytes, user: str | None, header: Any, body: Any, now: int
    ) -> list[SessionOutcome]:
        """Handle one frame. A malformed one ends the peer's session."""
        try:
            message, incarnation, number = decode(header)
            if isinstance(message, Hello):
                return self._hello(routing, user, message, number, now)
            session = self.by_routing.get(routing)
            # an edge knows the incarnation from its Setup
            if session is None or number != session.number or incarnation != self.incarnation:
                self._count("stale frame", WHOLE_RUN)
                return [Reply(routing, number, Refuse("this session has ended", final=False))]
            if self.expected.keyed and user != session.edge:
                raise WireError(f"a frame of edge {session.edge} came with the key of {user}")
            return self._frame(session, message, body, now)
        except WireError as error:
            return self.wire_error(routing, error)

    def tick(self, now: int) -> list[SessionOutcome]:
        """Send heartbeats that are due, and end sessions that have been silent for too long."""
        if now - self._pinged_ns < self.expected.heartbeat_ns:
            return []
        self._pinged_ns = now
        outcomes: list[SessionOutcome] = []
        for session in list(self.by_routing.values()):
            patience_ns = (
                self.expected.liveness_ns if session.joined else self.expected.join_patience_ns
            )
            if now - session.heard_ns > patience_ns:
                outcomes += self._drop(session, SILENT)
            elif session.joined:
                outcomes.append(Reply(session.routing, session.number, Ping(now)))
        return outcomes

    def next_tick(self) -> int:
        return self._pinged_ns + self.expected.heartbeat_ns

    def wire_error(self, routing: bytes, error: WireError) -> list[SessionOutcome]:
        """Count the error and end its session."""
        session = self.by_routing.get(routing)
        self._count("wire error", session.edge if session else WHOLE_RUN, str(error))
        if session is None:
            return []  # an unknown peer gets no answer
        return [
            _refuse(session, f"protocol error: {error}", final=False),
            *self._drop(session, f"wire error: {error}"),
        ]

    def finish(self, reason: str, more: bool) -> list[SessionOutcome]:
        """Tell all edges that the run is over."""
        return [
            Reply(session.routing, session.number, RunFinished(reason, more))
            for session in self.by_routing.values()
        ]

    # ------------------------------------------------------------------ one frame
    def _hello(
        self, routing: bytes, user: str | None, hello: Hello, number: int, now: int
    ) -> list[SessionOutcome]:
        known, session = self.by_routing.get(routing), Session(routing, hello.edge, number, now)
        outcomes = [] if known is None else self._drop(known, REPLACED)
        fault = self._fault(user, hello)
        if fault is not None:
            return [*outcomes, self._refused(session, fault, final=True)]
        for other in [
            other
            for other in self.by_routing.values()
            if other.edge == hello.edge and not other.joined
        ]:
            outcomes += self._replace(other)
        if len(self.by_routing) >= self.expected.max_sessions:
            return [*outcomes, self._refused(session, "too many sessions", final=False)]
        self.by_routing[routing] = session
        return [*outcomes, Reply(routing, number, self.expected.setup)]

    def _fault(self, user: str | None, hello: Hello) -> str | None:
        expected = self.expected
        if hello.protocol != PROTOCOL:
            return (
                f"protocol version: the coordinator speaks {PROTOCOL}, this edge {hello.protocol}"
            )
        if hello.package != expected.package:
            return (
                f"edgefl version: the coordinator runs {expected.package}, this edge"
                f" {hello.package}"
            )
        if expected.keyed and user != hello.edge:
            return f"key: it belongs to edge {user!r}, not to {hello.edge!r}"
        if hello.edge not in expected.edges:
            return (
                f"edge id: {hello.edge!r} is none of this experiment's edges (edges.count,"
                " edges.names)"
            )
        return None

    def _frame(self, session: Session, message: Any, body: Any, now: int) -> list[SessionOutcome]:
        session.heard_ns = now
        if isinstance(message, Pong):
            self._measure(session, message, now)
            if body is None or not session.joined:
                return []
        if isinstance(message, Join) == session.joined:  # it comes once, and first
            raise WireError(
                f"{type(message).__name__} {'after' if session.joined else 'before'} Join"
            )
        if isinstance(message, Join):
            return self._join(session, message)
        return [Passed(session, message, body)]

    def _join(self, session: Session, join: Join) -> list[SessionOutcome]:
        expected = self.expected
        theirs = {"config": join.config, "layout": join.layout, "data": join.data}
        ours = {
            "config": expected.config_digest,
            "layout": expected.layout_digest,
            "data": expected.data_digest,
        }
        differ = [name for name in ours if ours[name] != theirs[name]]
        if differ:
            del self.by_routing[session.routing]
            return [
                self._refused(
                    session,
                    f"{' and '.join(differ)} differ{'s' if len(differ) == 1 else ''} from the"
                    " coordinator's",
                    final=True,
                )
            ]
        old = self.by_edge.get(session.edge)
        outcomes = [] if old is None else self._replace(old)
        session.joined = True
        self.by_edge[session.edge] = session
        return [
            *outcomes,
            Reply(session.routing, session.number, Welcome()),
            Entered(session, join),
        ]

    def _measure(self, session: Session, pong: Pong, now: int) -> None:
        if not 0 < pong.sent_ns <= now:
            return  # the edge's own heartbeat
        session.measured(now - pong.sent_ns, pong.clock_ns - (pong.sent_ns + now) // 2)

    def _refused(self, session: Session, fault: str, final: bool) -> Reply:
        # an invented id has no count of its own
        self._count(
            "refused", session.edge if session.edge in self.expected.edges else WHOLE_RUN, fault
        )
        return _refuse(session, fault, final)

    def _count(self, sort: str, who: str, reason: str | None = None) -> None:
        self.counts[sort, who] += 1
        if reason is not None and self._recorded < MOST_FAULTS:
            self._recorded += 1
            self.faults.append((sort, who, reason[:MOST_TEXT]))

    def _replace(self, session: Session) -> list[SessionOutcome]:
        """End an older session of an edge. Another process with the same id must not try again;
        an earlier try of the same process no longer reads this.
        """
        return [
            _refuse(session, f"another process has taken over as edge {session.edge}", final=True),
            *self._drop(session, REPLACED),
        ]

    def _drop(self, session: Session, reason: str) -> list[SessionOutcome]:
        self.by_routing.pop(session.routing, None)
        if self.by_edge.get(session.edge) is not session:
            return []
        del self.by_edge[session.edge]
        return [SessionEnded(session.edge, reason)]


def _refuse(session: Session, reason: str, final: bool) -> Reply:
    return Reply(session.routing, session.number, Refuse(reason[:MOST_TEXT], final))
