"""The delay of bytes between the link and the receiver."""

from __future__ import annotations

from typing import Protocol


class Delay(Protocol):
    """A one-way delay that keeps the order of bytes.

    ``arrival`` never decreases, so no byte overtakes another, whatever the jitter.
    """

    def arrival(self, sent_ns: int) -> int:
        """When a byte that leaves the link at ``sent_ns`` reaches the receiver.

        FOREVER for FOREVER.
        """
        ...

    def departure(self, arrival_ns: int) -> int:
        """The latest moment at which bytes can leave and arrive by ``arrival_ns``.

        This is the inverse of ``arrival``.
        """
        ...
