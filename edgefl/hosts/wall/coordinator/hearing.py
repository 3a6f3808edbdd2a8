"""Detect an edge that sends messages but does not read: it answers no ping.

Such an edge would keep its task, and fill a queue, for ever.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from emulator.units import NS_PER_S

# of a real path: the edge reads a ping only after everything that was sent before it
SLOWEST_BIT_S = 256_000


@dataclass(slots=True, eq=False)
class Hearing:
    """The pings of one session.

    ``pings``: pings without an answer, as (wall ns when sent, bytes sent before).
    """

    sent_bytes: int = 0
    read_bytes: int = 0  # of the sent bytes, according to the answers
    pings: deque[tuple[int, int]] = field(default_factory=deque, repr=False)

    def pinged(self, now: int) -> None:
        self.pings.append((now, self.sent_bytes))

    def answered(self, sent_ns: int) -> bool:
        """Record the answer to the ping of ``sent_ns``: all bytes sent before it were read.

        False if no such ping was open.
        """
        was_open = False
        while self.pings and self.pings[0][0] <= sent_ns:
            was_open = self.pings[0][0] == sent_ns
            self.read_bytes = self.pings.popleft()[1]
        return was_open

    def is_lost(self, now: int, patience_ns: int) -> bool:
        """Whether the oldest unanswered ping is too old.

        The limit is ``patience_ns`` plus the time that a slow path needs for the bytes before it.
        """
        if not self.pings:
            return False
        sent_ns, before = self.pings[0]
        drain_ns = (before - self.read_bytes) * 8 * NS_PER_S // SLOWEST_BIT_S
        return now - sent_ns > patience_ns + drain_ns
