"""Does an edge read what is sent to it? One that gives signs of life and answers no ping does not:
it would hold its task, and fill a queue, for ever.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from emulator.units import NS_PER_S

# of a real path: what was sent before a ping has to be read before it
SLOWEST_BIT_S = 256_000


@dataclass(slots=True, eq=False)
class Hearing:
    """Of one session. ``pings``: those without an answer, (sent at, bytes sent before), in wall
    ns.
    """

    sent_bytes: int = 0
    read_bytes: int = 0  # of those, as far as the answers tell
    pings: deque[tuple[int, int]] = field(default_factory=deque, repr=False)

    def pinged(self, now: int) -> None:
        self.pings.append((now, self.sent_bytes))

    def answered(self, sent_ns: int) -> None:
        """The ping of ``sent_ns`` is answered, and what was sent before it was read."""
        while self.pings and self.pings[0][0] <= sent_ns:
            self.read_bytes = self.pings.popleft()[1]

    def is_lost(self, now: int, patience_ns: int) -> bool:
        """Whether the oldest ping without an answer was sent longer ago than ``patience_ns`` and
        the time that a slow path needs for what was sent before it.
        """
        if not self.pings:
            return False
        sent_ns, before = self.pings[0]
        drain_ns = (before - self.read_bytes) * 8 * NS_PER_S // SLOWEST_BIT_S
        return now - sent_ns > patience_ns + drain_ns
