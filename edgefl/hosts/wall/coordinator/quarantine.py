"""Limits on what a peer may send, and the quarantine of peers that exceed them.

This module has no I/O; ``now`` is wall ns. Limits are per connection, edge and second, and no
honest peer reaches them. A peer that exceeds one is quarantined: its connection is muted (no
message is read or answered) and closed soon after. If the peer has proved to be an edge, that edge
may not come back in this run.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable

from edgefl.protocol.errors import LimitExceeded

S_NS = 1_000_000_000
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
MOST_JOINS, JOINS_NS = 50, 5 * S_NS  # of one edge
# an edge that is started with another edge's key is refused finally, and ends
MOST_CLAIMS = 10  # Hellos of one key as another edge, within JOINS_NS
CUT_AFTER_NS = S_NS  # time for the refusal to arrive
FORGET_AFTER_NS = 10 * S_NS  # by then all that the connection had sent was read


class PerSecond:
    """Counts by key, reset each second."""

    def __init__(self) -> None:
        self._counts: Counter[Hashable] = Counter()
        self._began_ns = 0

    def count(self, key: Hashable, now: int) -> int:
        """Count ``key``, and return how often it was counted in this second."""
        if not 0 <= now - self._began_ns < S_NS:
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
        self._joins: dict[str, deque[int]] = {}
        self._claims: dict[str, deque[int]] = {}

    # ------------------------------------------------------------------ bounds
    def heard(self, routing: bytes, now: int) -> None:
        """Count a frame. LimitExceeded if there are too many."""
        if self._seen.count(routing, now) > MOST_FRAMES:
            raise LimitExceeded(f"more than {MOST_FRAMES} frames in a second")

    def greeted(self, routing: bytes, now: int) -> None:
        """Count a Hello. LimitExceeded if there are too many."""
        if self._seen.count((routing, "hello"), now) > MOST_HELLOS:
            raise LimitExceeded(f"more than {MOST_HELLOS} Hellos in a second")

    def strayed(self, routing: bytes, now: int) -> str | None:
        """Count a malformed frame outside a session. Returns a reason for quarantine, or None."""
        if self._seen.count((routing, "stray"), now) <= MOST_STRAYS:
            return None
        return f"more than {MOST_STRAYS} malformed frames in a second"

    def useless(self, edge: str, now: int) -> int:
        """Count a message that changes nothing, and return how many came in this second.

        LimitExceeded if there are too many.
        """
        number = self._seen.count((edge, "useless"), now)
        if number > MOST_USELESS:
            raise LimitExceeded(f"more than {MOST_USELESS} useless messages in a second")
        return number

    def ponged(self, edge: str, now: int, heartbeat_ns: int) -> None:
        """Count an answer to no ping. It is also an edge's own sign of life, one per heartbeat.

        LimitExceeded if there are too many.
        """
        most = MOST_USELESS + 4 * S_NS // heartbeat_ns
        if self._seen.count((edge, "pong"), now) > most:
            raise LimitExceeded(f"more than {most} answers to no ping in a second")

    def joins(self, edge: str, now: int) -> str | None:
        """Count a join of the edge. Returns a reason for quarantine, or None."""
        joins = self._joins.setdefault(edge, deque(maxlen=MOST_JOINS))
        return _too_often(joins, now, "sessions")

    def claims(self, user: str, now: int) -> str | None:
        """Count a Hello as another edge, sent with the key of edge ``user``.

        Returns a reason for quarantine, or None.
        """
        claims = self._claims.setdefault(user, deque(maxlen=MOST_CLAIMS))
        return _too_often(claims, now, "Hellos as another edge")

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


def _too_often(moments: deque[int], now: int, what: str) -> str | None:
    """Append ``now``, or return a reason if the deque is full and its oldest moment too recent."""
    if len(moments) == moments.maxlen and now - moments[0] < JOINS_NS:
        return f"more than {moments.maxlen} {what} in {JOINS_NS // S_NS} s"
    moments.append(now)
    return None
