"""Limits on what a peer may send, and the quarantine of peers that exceed them.

This module has no I/O; ``now`` is wall ns. Limits are per connection, edge and second, or per task
of an edge, and no honest peer reaches them. A peer that exceeds one is quarantined: its connection
is muted (no message is read or answered) and closed soon after. If the peer has proved to be an
edge, that edge may not come back in this run.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Hashable, Iterable

from edgefl.protocol.errors import LimitExceeded, WireError
from emulator.units import NS_PER_S

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
