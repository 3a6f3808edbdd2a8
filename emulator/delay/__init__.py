"""How long bytes travel after they were served."""

from __future__ import annotations

from typing import Protocol


class Delay(Protocol):
    """Keeps order by its shape: ``arrival`` never decreases, so no byte overtakes another,
    whatever the jitter.
    """

    def arrival(self, sent_ns: int) -> int:
        """When a byte that leaves the link at ``sent_ns`` reaches the receiver; FOREVER for
        FOREVER.
        """
        ...

    def departure(self, arrival_ns: int) -> int:
        """The latest moment of leaving whose bytes have arrived by ``arrival_ns``: the inverse
        of ``arrival``.
        """
        ...
