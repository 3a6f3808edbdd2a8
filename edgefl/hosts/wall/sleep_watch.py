"""Detect that the machine slept: suspended to memory or to disk, or its lid was closed.

Two clocks tell it: one stands still while the machine sleeps, the other goes on. The system's date
is not one of them, because it may jump for other reasons. This file has no I/O.
"""

from __future__ import annotations

from emulator.units import NS_PER_S

LEAST_NS = NS_PER_S  # a shorter sleep is not reported
# If reading the clocks took longer, the thread was interrupted: the reading is too inexact.
MOST_READING_NS = NS_PER_S // 10
LOOK_EVERY_NS = NS_PER_S // 20  # much less than LEAST_NS


class SleepWatch:
    """Compares two clocks again and again."""

    def __init__(self) -> None:
        self._ahead_ns: int | None = None  # how far the second clock was ahead at the last look
        self._looked_ns: int | None = None  # on the second clock

    def is_due(self, passed_ns: int) -> bool:
        """Whether to call ``look``; ``passed_ns``: the clock that goes on while the machine sleeps.

        This is every LOOK_EVERY_NS, because a look reads three clocks. It is at once after a sleep,
        which that clock has counted.
        """
        if self._looked_ns is not None and 0 <= passed_ns - self._looked_ns < LOOK_EVERY_NS:
            return False
        self._looked_ns = passed_ns
        return True

    def look(self, awake_ns: int, passed_ns: int, awake_after_ns: int) -> int:
        """How long (ns) the machine slept since the last call; 0 if it did not.

        ``awake_ns``: the clock that stands still in sleep, read before and after ``passed_ns``, the
        one that goes on.
        """
        exact = awake_after_ns - awake_ns <= MOST_READING_NS
        slept_ns = 0
        if self._ahead_ns is not None:
            # at least: a machine may also sleep between two readings
            slept_ns = passed_ns - awake_after_ns - self._ahead_ns
        if slept_ns < LEAST_NS:
            slept_ns = 0
        if exact or slept_ns:
            self._ahead_ns = passed_ns - awake_ns
        return slept_ns
