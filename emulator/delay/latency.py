"""A constant delay."""

from __future__ import annotations

from emulator.errors import BadValue
from emulator.units import FOREVER


class Latency:
    """A constant one-way delay of ``delay_ns``, an integer of 0 or more."""

    def __init__(self, delay_ns: int) -> None:
        if not isinstance(delay_ns, int) or isinstance(delay_ns, bool) or delay_ns < 0:
            raise BadValue(f"latency {delay_ns!r}: expected a whole number of ns, 0 or more")
        self.delay_ns = delay_ns

    def arrival(self, sent_ns: int) -> int:
        return min(sent_ns + self.delay_ns, FOREVER)

    def departure(self, arrival_ns: int) -> int:
        return arrival_ns - self.delay_ns
