"""Who is shut out, and how much each peer may say: bounds per connection, edge and second.

I/O-free; ``now`` is wall ns. A peer that exceeds a bound that no honest peer reaches is in
quarantine: its connection is muted (nothing that it sends is read or answered) and cut a moment
later, and its edge, where the peer has proved to be one, may not come back in this run.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable

from edgefl.protocol.errors import LimitExceeded

S_NS = 1_000_000_000
# 10,000 pieces of 64 KiB are 5 Gbit/s: far more than one edge can send
MOST_FRAMES = 10_000  # of one connection in a second
MOST_HELLOS = 20  # of one connection in a second
MOST_RECORDS = 5  # of one fact about an edge, in a second: the others are counted
MOST_STRAYS = 20  # malformed frames of one connection without a session, in a second
# an honest edge waits 0.05 to 2 s between two sessions
MOST_JOINS, JOINS_NS = 50, 5 * S_NS  # of one edge
# an edge that is started with the key of another is refused for good, and ends
MOST_CLAIMS = 10  # Hellos of one key as another edge, in as long
CUT_AFTER_NS = S_NS  # the refusal is on its way
FORGET_AFTER_NS = 10 * S_NS  # what the connection had sent has been read by then


class PerSecond:
    """Counts of anything, which begin anew each second."""

    def __init__(self) -> None:
        self._counts: Counter[Hashable] = Counter()
        self._began_ns = 0

    def count(self, key: Hashable, now: int) -> int:
        """How many times ``key`` was counted in this second, this one included."""
        if not 0 <= now - self._began_ns < S_NS:
            self._counts.clear()
            self._began_ns = now
        self._counts[key] += 1
        return self._counts[key]


class Quarantine:
    """``edges``: edge id -> why it is shut out. ``muted`` holds routing ids of connections."""

    def __init__(self) -> None:
        self.edges: dict[str, str] = {}
        self.muted: dict[bytes, int] = {}  # -> when it was muted
        self._cut: dict[bytes, int] = {}  # connections without a session -> when to cut them
        self._seen = PerSecond()
        self._joins: dict[str, deque[int]] = {}
        self._claims: dict[str, deque[int]] = {}

    # ------------------------------------------------------------------ bounds
    def heard(self, routing: bytes, now: int) -> None:
        """A frame came. LimitExceeded if they are too many."""
        if self._seen.count(routing, now) > MOST_FRAMES:
            raise LimitExceeded(f"more than {MOST_FRAMES} frames in a second")

    def greeted(self, routing: bytes, now: int) -> None:
        """A Hello came. LimitExceeded if they are too many."""
        if self._seen.count((routing, "hello"), now) > MOST_HELLOS:
            raise LimitExceeded(f"more than {MOST_HELLOS} Hellos in a second")

    def strayed(self, routing: bytes, now: int) -> str | None:
        """A malformed frame came outside a session: why its connection is quarantined, if it is."""
        if self._seen.count((routing, "stray"), now) <= MOST_STRAYS:
            return None
        return f"more than {MOST_STRAYS} malformed frames in a second"

    def joins(self, edge: str, now: int) -> str | None:
        """The edge is about to join: why it is quarantined instead, if it is."""
        joins = self._joins.setdefault(edge, deque(maxlen=MOST_JOINS))
        return _too_often(joins, now, "sessions")

    def claims(self, user: str, now: int) -> str | None:
        """The key of edge ``user`` greets as another edge: why it is quarantined, if it is."""
        claims = self._claims.setdefault(user, deque(maxlen=MOST_CLAIMS))
        return _too_often(claims, now, "Hellos as another edge")

    # ------------------------------------------------------------------ connections
    def mute(self, routing: bytes, now: int, at_once: bool = False) -> None:
        """``at_once``: nothing is on its way to it, so that it is cut with the next heartbeat."""
        self.muted[routing] = now
        self.leave(routing, now)
        if at_once:
            self._cut[routing] = now

    def leave(self, routing: bytes, now: int) -> None:
        """Cut the connection soon, unless it begins another session."""
        self._cut.setdefault(routing, now + CUT_AFTER_NS)

    def stay(self, routing: bytes) -> None:
        """The connection has a session."""
        self._cut.pop(routing, None)

    def connections(self) -> set[bytes]:
        """Muted, or to be cut."""
        return {*self.muted, *self._cut}

    def cuts(self, now: int) -> list[bytes]:
        """Connections to cut now."""
        due = [routing for routing, at_ns in self._cut.items() if at_ns <= now]
        for routing in due:
            del self._cut[routing]
        for routing, at_ns in list(self.muted.items()):
            if now - at_ns > FORGET_AFTER_NS:
                del self.muted[routing]
        return due


def _too_often(moments: deque[int], now: int, what: str) -> str | None:
    """Note ``now``, or say that a full deque of such moments is too new for one more."""
    if len(moments) == moments.maxlen and now - moments[0] < JOINS_NS:
        return f"more than {moments.maxlen} {what} in {JOINS_NS // S_NS} s"
    moments.append(now)
    return None
