"""The delays of a broadcast, one a receiver."""

from __future__ import annotations

from typing import Mapping

from emulator.delay import Delay
from emulator.errors import BadValue


class Together:
    """The delay of a broadcast: it has arrived when the last receiver has it. ``each`` tells
    them apart.
    """

    def __init__(self, receivers: Mapping[str, Delay]) -> None:
        if not receivers:
            raise BadValue("broadcast: expected one receiver or more")
        self.receivers = dict(receivers)

    def arrival(self, sent_ns: int) -> int:
        return max(delay.arrival(sent_ns) for delay in self.receivers.values())

    def departure(self, arrival_ns: int) -> int:
        return min(delay.departure(arrival_ns) for delay in self.receivers.values())

    def each(self, sent_ns: int) -> dict[str, int]:
        """Receiver -> when a byte that leaves at ``sent_ns`` reaches it."""
        return {name: delay.arrival(sent_ns) for name, delay in self.receivers.items()}
