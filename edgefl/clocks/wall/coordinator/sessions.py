"""Sessions: which edge has which routing id. Greeting, digests, heartbeats, protocol errors.

This module has no I/O: it gets frames with ``now`` (wall ns) and returns outcomes. A session is
(random routing id, incarnation of this run, number chosen by the edge). ::

    edge                         coordinator
      Hello(id, protocol)   ->     unknown id, other protocol: Refuse
                            <-   Setup(config, strategy)
      Join(digests, tasks)  ->     another config, layout, data or frozen part: Refuse
                            <-   Welcome
      Pong, pieces, ...     <->  Ping, pieces, ...

Setup ends an earlier session of the same edge that has not joined; Welcome ends one that has.

Limits on what a peer may send are per connection, edge and second, or per task of an edge, and no
honest peer reaches them. A peer that exceeds one (LimitExceeded) is quarantined: its connection is
muted (no message is read or answered) and closed soon after. If the peer has proved to be an edge,
that edge may not come back in this run.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from edgefl.errors import printable
from edgefl.protocol.codec import decode, head, is_bundle, says, unbundled
from edgefl.protocol.messages import (
    PROTOCOL,
    Hello,
    Join,
    LimitExceeded,
    Ping,
    Pong,
    Refuse,
    RunFinished,
    Setup,
    Welcome,
    WireError,
)
from emulator.units import NS_PER_S

# ------------------------------------------------------------------ limits
# 10,000 pieces of 64 KiB are 5 Gbit/s: far more than one edge can send
MOST_FRAMES = 10_000  # of one connection per second
MOST_HELLOS = 20  # of one connection per second
# Messages of one edge per second that change nothing, such as the arrival of an unknown model. An
# honest edge sends a few when a transfer has ended that it does not know of yet. The largest one
# takes 0.6 ms. A lower number names the edge.
MOST_USELESS, NAMED_USELESS = 100, 20
MOST_RECORDS = 5  # of one fact about an edge, per second; the others are only counted
MOST_STRAYS = 20  # malformed frames of one connection without a session, per second
# an honest edge waits 0.05 to 2 s between two sessions
MOST_JOINS, JOINS_NS = 50, 5 * NS_PER_S  # of one edge
# an edge that is started with another edge's key is refused finally, and ends
MOST_CLAIMS = 10  # Hellos of one key as another edge, within JOINS_NS
CUT_AFTER_NS = NS_PER_S  # time for the refusal to arrive
FORGET_AFTER_NS = 10 * NS_PER_S  # by then all that the connection had sent was read
# The edge's latest tasks, about which it may still send messages. It keeps at most 8 updates that
# are not acknowledged.
REMEMBERED = 32
# For one task in one session. An honest edge offers an update once, offers it again when it is
# urged, asks once, fails once, and reports the begin and the time of each part of its training
# once.
MOST_OF_TASK = {"offers": 4, "notes": 3, "reports": 4, "begins": 4}
MOST_REPORTS = 10  # about a host at one time
MOST_AHEAD_S = 366 * 24 * 3600  # emulated seconds: no training takes longer


class PerSecond:
    """Counts by key, reset each second."""

    def __init__(self) -> None:
        self._counts: Counter[Hashable] = Counter()
        self._began_ns = 0

    def count(self, key: Hashable, now: int) -> int:
        """Count ``key``, and return how often it was counted in this second."""
        if not 0 <= now - self._began_ns < NS_PER_S:
            self._counts.clear()
            self._began_ns = now
        self._counts[key] += 1
        return self._counts[key]


class Quarantine:
    """Excluded peers. ``edges``: edge id -> the reason. ``muted``: routing ids of connections."""

    def __init__(self) -> None:
        self.edges: dict[str, str] = {}
        self.muted: dict[bytes, int] = {}  # -> when it was muted
        self._cut: dict[bytes, int] = {}  # connections without a session -> when to cut them
        self._seen = PerSecond()
        self._moments: dict[tuple[str, str], deque[int]] = {}  # by edge and what it does too often

    # ------------------------------------------------------------------ bounds
    def count(self, who: Hashable, what: str, now: int, most: int) -> int:
        """Count ``what``, and return how many came in this second. LimitExceeded above ``most``."""
        number = self._seen.count((who, what), now)
        if number > most:
            raise LimitExceeded(f"more than {most} {what} in a second")
        return number

    def too_often(self, edge: str, what: str, now: int, most: int) -> str | None:
        """Count ``what`` of an edge within JOINS_NS.

        Returns a reason for quarantine above ``most``, or None.
        """
        moments = self._moments.setdefault((edge, what), deque(maxlen=most))
        if len(moments) == most and now - moments[0] < JOINS_NS:
            return f"more than {most} {what} in {JOINS_NS // NS_PER_S} s"
        moments.append(now)
        return None

    # ------------------------------------------------------------------ connections
    def mute(self, routing: bytes, now: int, at_once: bool = False) -> None:
        """Stop reading this connection, and close it soon.

        ``at_once``: no reply has to reach it, so the next heartbeat closes it.
        """
        self.muted[routing] = now
        self.leave(routing, now)
        if at_once:
            self._cut[routing] = now

    def leave(self, routing: bytes, now: int) -> None:
        """Close the connection soon, unless it begins another session."""
        self._cut.setdefault(routing, now + CUT_AFTER_NS)

    def stay(self, routing: bytes) -> None:
        """The connection has a session: do not close it."""
        self._cut.pop(routing, None)

    def connections(self) -> set[bytes]:
        """Routing ids of connections that are muted or will be closed."""
        return {*self.muted, *self._cut}

    def cuts(self, now: int) -> list[bytes]:
        """Return the connections to close now."""
        due = [routing for routing, at_ns in self._cut.items() if at_ns <= now]
        for routing in due:
            del self._cut[routing]
        for routing, at_ns in list(self.muted.items()):
            if now - at_ns > FORGET_AFTER_NS:
                del self.muted[routing]
        return due


class Allowances:
    """Counts messages by edge and task.

    A new session resets them: the edge then repeats open messages.
    """

    def __init__(self) -> None:
        self._counts: defaultdict[str, OrderedDict[int, Counter[str]]] = defaultdict(OrderedDict)

    def given(self, edge: str, task: int) -> None:
        """The edge gets this task."""
        counts = self._counts[edge]
        counts[task] = Counter()
        if len(counts) > REMEMBERED:
            counts.popitem(last=False)

    def goes_on(self, edge: str, task: int) -> None:
        """A request was answered, or a push has arrived: the edge may say everything again, and
        once more if that was on its way.
        """
        if (counts := self._counts[edge].get(task)) is not None:
            counts.subtract(dict.fromkeys(MOST_OF_TASK, 2))

    def knows(self, edge: str, tasks: Iterable[int]) -> None:
        """An edge of a resumed run has these tasks: they were given before."""
        for task in tasks:
            if task not in self._counts[edge]:
                self.given(edge, task)

    def new_session(self, edge: str) -> None:
        for counts in self._counts[edge].values():
            counts.clear()

    def count(self, edge: str, task: int, what: str) -> None:
        """Count a message. ``what``: a key of MOST_OF_TASK.

        WireError if this is not the edge's task, LimitExceeded if there are too many.
        """
        counts, most = self._counts[edge].get(task), MOST_OF_TASK[what]
        if counts is None:
            raise WireError(f"task {task} is none of those that the edge was given")
        counts[what] += 1
        if counts[what] > most:
            raise LimitExceeded(f"more than {most} {what} of task {task} in one session")


class ReportAllowance:
    """How often an edge may report about its host.

    ``period_ns``: between two reports of an honest edge, in wall time; 0: none is expected.
    ``patience_ns``: the longest time for which a connection may hold reports back.
    """

    def __init__(self, period_ns: int, patience_ns: int) -> None:
        self.period_ns = period_ns
        self.most = MOST_REPORTS + patience_ns // max(period_ns, 1)
        self._left: dict[str, tuple[float, int]] = {}  # edge -> reports left, at this moment
        self._told: set[str] = set()  # edges whose session has told its facts

    def new_session(self, edge: str) -> None:
        self._told.discard(edge)

    def facts(self, edge: str) -> None:
        """Count the facts about a host. WireError if unasked, LimitExceeded if repeated."""
        self._check_asked()
        if edge in self._told:
            raise LimitExceeded("facts about the host twice in one session")
        self._told.add(edge)

    def report(self, edge: str, now: int) -> None:
        """Count a report at ``now`` (wall ns). Errors as in ``facts``.

        Twice as many as expected are permitted.
        """
        self._check_asked()
        left, since_ns = self._left.get(edge, (self.most, now))
        left = min(self.most, left + 2 * (now - since_ns) / self.period_ns)
        if left < 1:
            raise LimitExceeded("reports about the host too often")
        self._left[edge] = (left - 1, now)

    def _check_asked(self) -> None:
        if not self.period_ns:
            raise WireError("a report about the host, which was not asked for")


def moment(at_ns: int, now: int) -> int:
    """Return ``at_ns``, which an edge has sent (emulated ns).

    WireError if it is so far in the future that the run would wait for ever.
    """
    if at_ns - now > MOST_AHEAD_S * NS_PER_S:
        ahead_s = (at_ns - now) / NS_PER_S
        raise WireError(f"a moment {ahead_s:.3g} s ahead, at most {MOST_AHEAD_S} s")
    return at_ns


# ------------------------------------------------------------------ sessions
# of a real path: the edge reads a ping only after everything that was sent before it
SLOWEST_BIT_S = 256_000
UNKNOWN_RTT = 1 << 62
# clocks of two machines drift apart by milliseconds per hour, so old pings say little
RECENT_PINGS = 32
SILENT = "silent"  # why a session ended: no frame arrived within the liveness timeout
USELESS = "useless message"
# Sessions that get their heartbeat at the same time. All 10,000 would keep the pacing thread from
# its pieces for half a second.
AT_ONCE, MOST_PARTS = 50, 100
RARE_PINGS = 4  # in the liveness timeout, to a session with a queue in the kernel
WHOLE_RUN = "run"  # key of counts that belong to no edge
MOST_ENDED = 1_000  # sessions of which a late Hello is recognised
MOST_TEXT = 500  # of a reason, which may quote the peer
MOST_FAULTS = 500  # recorded with their reasons in a run; the others are only counted
REPLACED = "replaced by a new session"
NOT_READ = "it does not read what is sent to it"
NO_ANSWER = "it answers no ping"
FROZEN_PART = "frozen part of the model"
OTHER_MODEL = ": expected the same files in model.path on both machines"


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
    ``clock_since_ns`` do not count, nor those that stood in a queue that the kernel paces: it is
    empty at ``queued_until_ns``. ``unanswered``: pings, as (wall ns when sent, bytes before).
    ``pinged_ns``: when the last one was sent.

    ``segment``: bytes of the segments that the kernels of both ends pace; 0: one of them cannot.
    """

    routing: bytes
    edge: str
    number: int
    heard_ns: int
    joined: bool = False
    rtt_ns: int = UNKNOWN_RTT
    offset_ns: int = 0
    clock_since_ns: int = 0
    segment: int = 0
    queued_until_ns: int = 0
    pinged_ns: int = 0
    round_trips: deque[tuple[int, int]] = field(
        default_factory=lambda: deque(maxlen=RECENT_PINGS), repr=False
    )
    unanswered: deque[tuple[int, int]] = field(default_factory=deque, repr=False)
    sent_bytes: int = 0
    read_bytes: int = 0  # of the sent bytes, according to the answers

    def host_stood_still(self, length_ns: int, now: int) -> None:
        """The coordinator could receive nothing for so long: this was no silence of the edge."""
        self.heard_ns = min(self.heard_ns + length_ns, now)
        self.unanswered.clear()

    def host_slept(self, now: int) -> None:
        """The coordinator's host slept: its clock stood still, the edge's did not.

        Their difference is measured again, and the edge gets its whole patience.
        """
        self.heard_ns = self.clock_since_ns = now
        self.rtt_ns, self.offset_ns = UNKNOWN_RTT, 0
        self.round_trips.clear()
        self.unanswered.clear()

    def pinged(self, now: int) -> None:
        self.pinged_ns = now
        self.unanswered.append((now, self.sent_bytes))

    def ping_can_wait(self, now: int, rarely_ns: int) -> bool:
        """Whether a ping would only wait in a queue, and the last one is not ``rarely_ns`` old."""
        return now < min(self.queued_until_ns, self.pinged_ns + rarely_ns)

    def answered(self, sent_ns: int, rtt_ns: int, offset_ns: int) -> bool:
        """Record the answer to the ping of ``sent_ns``: all bytes sent before it were read.

        False if no such ping was open, or if it says nothing about the path.
        """
        queued = bool(self.round_trips) and sent_ns < self.queued_until_ns
        if not queued:
            self.round_trips.append((rtt_ns, offset_ns))
            self.rtt_ns, self.offset_ns = min(self.round_trips)
        was_open = False
        while self.unanswered and self.unanswered[0][0] <= sent_ns:
            was_open = self.unanswered[0][0] == sent_ns
            self.read_bytes = self.unanswered.popleft()[1]
        return was_open and not queued

    def is_deaf(self, now: int, patience_ns: int) -> bool:
        """Whether the edge sends messages but does not read: its oldest open ping is too old.

        Such an edge would keep its task, and fill a queue, for ever. The limit is ``patience_ns``
        plus the time that a slow path needs for the bytes before the ping.
        """
        if not self.unanswered:
            return False
        sent_ns, before = self.unanswered[0]
        drain_ns = (before - self.read_bytes) * 8 * NS_PER_S // SLOWEST_BIT_S
        return now - sent_ns > patience_ns + drain_ns


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


class Sessions:
    """The table of sessions.

    ``counts``: wire errors, refusals and stale frames, by kind and edge. ``faults``: those to
    record.
    """

    def __init__(
        self, expected: Expected, incarnation: int, quarantined: Quarantine | None = None
    ) -> None:
        self.expected, self.incarnation = expected, incarnation
        self.quarantined = quarantined or Quarantine()
        self.by_routing: dict[bytes, Session] = {}
        self.by_edge: dict[str, Session] = {}  # joined ones only
        self.counts: Counter[tuple[str, str]] = Counter()
        # (kind, edge or WHOLE_RUN, reason), taken by the host
        self.faults: list[tuple[str, str, str]] = []
        self._unjoined: dict[str, dict[bytes, Session]] = {}  # by edge and routing id
        self._ended: dict[bytes, int] = {}  # routing id -> number of its latest session
        self._answered, self._records = PerSecond(), PerSecond()
        self._recorded = 0
        self._noisy: set[str] = set()  # edges that were named for useless messages
        # sessions whose heartbeat is still to come in this round; its parts, and their size
        self._round: deque[Session] = deque()
        self._parts = self._size = 1
        self._ticked_ns = 0
        self._now = 0  # of the latest call

    def go_on(self, counts: Iterable[Sequence[Any]], quarantined: Mapping[str, str]) -> None:
        """Go on with the counts [kind, edge, count] and quarantines of a run's earlier part."""
        for sort, who, count in counts:
            self.counts[sort, who] += count
        self.quarantined.edges.update(quarantined)

    def receive(
        self, routing: bytes, user: str | None, header: Any, body: Any, now: int
    ) -> list[SessionOutcome]:
        """Handle one frame. A malformed frame ends the peer's session.

        Only a Hello, or a frame of a session, is decoded. Of several headers in a frame, the last
        one has the body.
        """
        self._now = now
        outcomes: list[SessionOutcome] = []
        if is_bundle(header) and routing not in self.quarantined.muted:
            try:
                self.quarantined.count(routing, "frames", now, MOST_FRAMES)
                *others, header = unbundled(header)
            except WireError as error:
                return self.wire_error(routing, error)
            for each in others:
                outcomes += self._receive(routing, user, each, None)
        return outcomes + self._receive(routing, user, header, body)

    def _receive(
        self, routing: bytes, user: str | None, header: Any, body: Any
    ) -> list[SessionOutcome]:
        now = self._now
        if routing in self.quarantined.muted:
            self._count("muted frame")
            return []
        try:
            self.quarantined.count(routing, "frames", now, MOST_FRAMES)
            if says(header, Hello):
                self.quarantined.count(routing, "Hellos", now, MOST_HELLOS)
                hello, _, number = decode(header)
                return self._hello(routing, user, hello, number, now)
            session = self.by_routing.get(routing)
            if session is None:
                return self._stale(routing, head(header)[2])
            message, incarnation, number = decode(header)
            # an edge knows the incarnation from its Setup
            if number != session.number or incarnation != self.incarnation:
                if session.joined:
                    self.useless(session.edge, "one of another session")
                return self._stale(routing, number)
            if self.expected.keyed and user != session.edge:
                raise WireError(f"a frame of edge {session.edge} came with the key of {user}")
            return self._frame(session, message, body, now)
        except WireError as error:
            return self.wire_error(routing, error)

    def tick(self, now: int, drained: bool = True) -> list[SessionOutcome]:
        """Send due heartbeats, close connections, and end sessions that are silent or answer no
        ping.

        Many sessions have their heartbeats at different times. Sessions end only if all received
        frames were read (``drained``).
        """
        if now < self.next_tick():
            return []
        self._now = self._ticked_ns = now
        outcomes: list[SessionOutcome] = [Cut(routing) for routing in self.quarantined.cuts(now)]
        if not self._round:
            self._round.extend(self.by_routing.values())
            self._parts = min(max(len(self._round) // AT_ONCE, 1), MOST_PARTS)
            self._size = -(-len(self._round) // self._parts)
        # a little less: it is the next heartbeat or the one after it
        rarely_ns = self.expected.liveness_ns // RARE_PINGS - self.expected.heartbeat_ns // 2
        for _ in range(min(self._size, len(self._round))):
            session = self._round.popleft()
            if self.by_routing.get(session.routing) is not session:
                continue  # it has ended
            patience_ns = (
                self.expected.liveness_ns if session.joined else self.expected.join_patience_ns
            )
            if drained and now - session.heard_ns > patience_ns:
                outcomes += self._drop(session, SILENT)
            elif drained and session.is_deaf(now, patience_ns + 2 * self.expected.heartbeat_ns):
                self._count("deaf", session.edge, NO_ANSWER)
                outcomes += self._drop(session, NO_ANSWER)
            elif session.joined and not session.ping_can_wait(now, rarely_ns):
                session.pinged(now)
                outcomes.append(Reply(session.routing, session.number, Ping(now)))
        return outcomes

    def host_slept(self, now: int) -> None:
        """This host slept until ``now``: keep all sessions, and ping them at once."""
        for session in self.by_routing.values():
            session.host_slept(now)
        self._round.clear()
        self._ticked_ns = 0

    def host_stood_still(self, length_ns: int, now: int) -> None:
        """Nothing could be received for so long (ns): this does not count as edges' silence."""
        for session in self.by_routing.values():
            session.host_stood_still(length_ns, now)

    def peers(self) -> set[bytes]:
        """Routing ids of all connections that have a session, are muted, or will be closed."""
        return {*self.by_routing, *self.quarantined.connections()}

    def next_tick(self) -> int:
        return self._ticked_ns + self.expected.heartbeat_ns // self._parts

    def wire_error(self, routing: bytes, error: WireError) -> list[SessionOutcome]:
        """Count the error and end its session. A peer that exceeds a limit is quarantined."""
        if isinstance(error, LimitExceeded):
            return self.quarantine(routing, str(error))
        session = self.by_routing.get(routing)
        self._count("wire error", self._who(session), str(error))
        if session is None:  # an unknown peer gets no answer
            try:
                self.quarantined.count(routing, "malformed frames", self._now, MOST_STRAYS)
            except LimitExceeded as reason:
                return self.quarantine(routing, str(reason))
            return []
        return [
            _refuse(session, f"protocol error: {error}", final=False),
            *self._drop(session, f"wire error: {error}"),
        ]

    def useless(self, edge: str, what: str) -> None:
        """Count a message of a joined edge that changes nothing.

        An edge with many is named on record once. LimitExceeded if there are too many.
        """
        self.counts[USELESS, edge] += 1
        number = self.quarantined.count(edge, "useless messages", self._now, MOST_USELESS)
        if number >= NAMED_USELESS and edge not in self._noisy:
            self._noisy.add(edge)
            reason = f"{number} messages that change nothing in one second, such as {what}"
            self.faults.append((f"{USELESS}s", edge, reason))

    def quarantine(
        self, routing: bytes, reason: str, edge: str | None = None
    ) -> list[SessionOutcome]:
        """Exclude this peer for the rest of the run.

        It gets one refusal. Then its connection is no longer read, and is closed. Its edge is lost
        and may not come back. ``edge``: the peer's edge if the caller knows it; None: the edge of
        its session. Without keys, a session that has not joined proves no edge: then only the
        connection is excluded.
        """
        session = self.by_routing.get(routing)
        edge = self._who(session) if edge is None else edge
        self.quarantined.mute(routing, self._now, at_once=session is None)
        self._count("quarantined", edge, reason)
        ended = [] if session is None else [session]
        if edge is not None:
            self.quarantined.edges.setdefault(edge, reason)
            ended += [
                each
                for each in self.by_routing.values()
                if each.edge == edge and each is not session
            ]
        outcomes: list[SessionOutcome] = []
        for each in ended:
            outcomes.append(_refuse(each, f"quarantined: {reason}", final=True))
            outcomes += self._drop(each, f"quarantined: {reason}")
        return outcomes

    def deaf(self, routing: bytes) -> list[SessionOutcome]:
        """End the session of a peer that does not read: the last message to it is lost."""
        session = self.by_routing.get(routing)
        if session is None:
            return []
        self._count("queue full", self._who(session), NOT_READ)
        return self._drop(session, NOT_READ)

    def _who(self, session: Session | None) -> str | None:
        """The session's edge, if its key or its Join proves it: any peer can claim an id."""
        known = session is not None and (session.joined or self.expected.keyed)
        return session.edge if session is not None and known else None

    def finish(self, reason: str, more: bool) -> list[SessionOutcome]:
        """Tell all edges that the run has ended."""
        return [
            Reply(session.routing, session.number, RunFinished(printable(reason, MOST_TEXT), more))
            for session in self.by_routing.values()
        ]

    def take_faults(self) -> list[tuple[str, dict[str, str]]]:
        """The faults to record since the last call, as facts and their values."""
        faults, self.faults = self.faults, []
        return [
            (sort.replace(" ", "_"), {"edge": who, "reason": reason})
            for sort, who, reason in faults
        ]

    # ------------------------------------------------------------------ one frame
    def _hello(
        self, routing: bytes, user: str | None, hello: Hello, number: int, now: int
    ) -> list[SessionOutcome]:
        known, session = self.by_routing.get(routing), Session(routing, hello.edge, number, now)
        if known is None and self._ended.get(routing) == number:
            return self._stale(routing, number)  # it came twice, and late: the edge has gone on
        outcomes = [] if known is None else self._drop(known, REPLACED)
        fault = self.expected.fault(user, hello)
        if self.expected.keyed and user is not None and user != hello.edge:
            too_often = self.quarantined.too_often(user, "Hellos as another edge", now, MOST_CLAIMS)
            if too_often is not None:
                return [*outcomes, *self.quarantine(routing, too_often, user)]
        if fault is not None:
            return [*outcomes, self._refused(session, user, fault, final=True)]
        if hello.edge in self.quarantined.edges:
            self.quarantined.mute(routing, now)  # so it is refused once per connection
            reason = f"quarantined: {self.quarantined.edges[hello.edge]}"
            refused = self._refused(session, self._who(session), reason, final=True)
            return [*outcomes, refused]
        for other in list(self._unjoined.get(hello.edge, {}).values()):
            later = f"another session of edge {hello.edge} has begun"
            outcomes += self._replace(other, later, final=False)
        if len(self.by_routing) >= self.expected.max_sessions:
            return [*outcomes, self._refused(session, user, "too many sessions", final=False)]
        self.by_routing[routing] = session
        self._unjoined.setdefault(hello.edge, {})[routing] = session
        self.quarantined.stay(routing)
        return [*outcomes, Reply(routing, number, self.expected.setup)]

    def _frame(self, session: Session, message: Any, body: Any, now: int) -> list[SessionOutcome]:
        session.heard_ns = now
        if isinstance(message, Pong):
            answered = self._measure(session, message, now)
            if not answered:
                # it is also an edge's own sign of life, one per heartbeat
                most = MOST_USELESS + 4 * NS_PER_S // self.expected.heartbeat_ns
                self.quarantined.count(session.edge, "answers to no ping", now, most)
            if body is None or not session.joined:
                return answered
        if isinstance(message, Join) == session.joined:  # Join is sent once, before all else
            raise WireError(
                f"{type(message).__name__} {'after' if session.joined else 'before'} Join"
            )
        if isinstance(message, Join):
            return self._join(session, message)
        return [Passed(session, message, body)]

    def _join(self, session: Session, join: Join) -> list[SessionOutcome]:
        expected = self.expected
        digests = {
            "config": (join.config, expected.config_digest),
            "layout": (join.layout, expected.layout_digest),
            "data": (join.data, expected.data_digest),
            FROZEN_PART: (join.frozen, expected.frozen_digest),
        }
        differ = [name for name, (theirs, ours) in digests.items() if theirs != ours]
        fault = None
        if differ:
            hint = OTHER_MODEL if FROZEN_PART in differ else ""
            fault = (
                f"{' and '.join(differ)} differ{'s' if len(differ) == 1 else ''} from the"
                f" coordinator's{hint}"
            )
        elif join.samples < 1:  # strategies divide by it
            fault = "it joins with 0 samples, expected at least 1"
        if fault is not None:
            del self.by_routing[session.routing]
            self._no_longer_unjoined(session)
            return [self._refused(session, self._who(session), fault, final=True)]
        too_often = self.quarantined.too_often(session.edge, "sessions", self._now, MOST_JOINS)
        if too_often is not None:
            return self.quarantine(session.routing, too_often, session.edge)
        old = self.by_edge.get(session.edge)
        taken = f"another process has taken over as edge {session.edge}"
        outcomes = [] if old is None else self._replace(old, taken, final=True)
        session.joined = True
        self._no_longer_unjoined(session)
        self.by_edge[session.edge] = session
        return [
            *outcomes,
            Reply(session.routing, session.number, Welcome()),
            Entered(session, join),
        ]

    def _no_longer_unjoined(self, session: Session) -> None:
        others = self._unjoined.get(session.edge, {})
        others.pop(session.routing, None)
        if not others:
            self._unjoined.pop(session.edge, None)

    def _measure(self, session: Session, pong: Pong, now: int) -> list[SessionOutcome]:
        if not max(session.clock_since_ns, 1) <= pong.sent_ns <= now:
            return []  # the edge's own heartbeat, or an answer from before this host slept
        rtt_ns, offset_ns = now - pong.sent_ns, pong.clock_ns - (pong.sent_ns + now) // 2
        was_open = session.answered(pong.sent_ns, rtt_ns, offset_ns)
        return [Answered(session.edge, pong.sent_ns, rtt_ns)] if was_open else []

    def _stale(self, routing: bytes, number: int) -> list[SessionOutcome]:
        """Answer a frame of an unknown or ended session, at most once per second."""
        self._count("stale frame")
        if self._answered.count(routing, self._now) > 1:
            return []
        if routing not in self.by_routing:
            self.quarantined.leave(routing, self._now)
        return [Reply(routing, number, Refuse("this session has ended", final=False))]

    def _refused(self, session: Session, who: str | None, fault: str, final: bool) -> Reply:
        """Count a refusal and return it. ``who``: the proven edge; a claimed id is only quoted."""
        self.quarantined.leave(session.routing, self._now)
        claim = "" if who == session.edge else f"as edge {session.edge!r}: "
        self._count("refused", who, claim + fault)
        return _refuse(session, fault, final)

    def _count(self, sort: str, edge: str | None = None, reason: str | None = None) -> None:
        """Count a fault, and record it if it has a ``reason`` and the limits allow it."""
        who = edge or WHOLE_RUN
        self.counts[sort, who] += 1
        if reason is None:
            return
        named = sort == "quarantined" and edge is not None  # at most once for each edge
        few = self._records.count((sort, who), self._now) <= MOST_RECORDS
        if named or (few and self._recorded < MOST_FAULTS):
            self._recorded += not named
            self.faults.append((sort, who, printable(reason, MOST_TEXT)))

    def _replace(self, session: Session, reason: str, final: bool) -> list[SessionOutcome]:
        """End another session of an edge.

        ``final``: its process must not try again, because another process with the same id has
        joined. Before a Join the other session may be the newer one (a Hello can be late), so it
        may try again.
        """
        return [_refuse(session, reason, final), *self._drop(session, REPLACED)]

    def _drop(self, session: Session, reason: str) -> list[SessionOutcome]:
        self.by_routing.pop(session.routing, None)
        self._no_longer_unjoined(session)
        self._ended[session.routing] = session.number
        if len(self._ended) > MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        self.quarantined.leave(session.routing, self._now)
        if self.by_edge.get(session.edge) is not session:
            return []
        del self.by_edge[session.edge]
        return [SessionEnded(session.edge, printable(reason, MOST_TEXT))]


def _refuse(session: Session, reason: str, final: bool) -> Reply:
    return Reply(session.routing, session.number, Refuse(printable(reason, MOST_TEXT), final))
