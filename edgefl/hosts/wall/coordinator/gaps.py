"""Gaps of the pacing thread: it woke up too late, or one turn took too long."""

from __future__ import annotations

from collections.abc import Callable


class Gaps:
    """Calls ``found(began, length)`` for each gap longer than ``least_ns``.

    Moments are of one monotonic clock, in ns. An intended sleep is no gap: only the time after
    its intended end counts.
    """

    def __init__(self, least_ns: int, found: Callable[[int, int], None]) -> None:
        self.least_ns, self.found = least_ns, found
        self._busy_ns: int | None = None  # when the current turn began
        self._until_ns: int | None = None  # intended end of the sleep

    def sleeps(self, now: int, until_ns: int) -> None:
        """The turn ends; the next one begins at ``until_ns`` or earlier."""
        self._look(self._busy_ns, now)
        self._until_ns = max(now, until_ns)

    def wakes(self, now: int) -> None:
        """A turn begins."""
        self._look(self._until_ns, now)
        self._busy_ns = now

    def _look(self, since_ns: int | None, now: int) -> None:
        if since_ns is not None and now - since_ns > self.least_ns:
            self.found(since_ns, now - since_ns)
