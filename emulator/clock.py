"""Time in emulated nanoseconds: the two clocks of a run, and a queue of items by moment."""

from __future__ import annotations

import ctypes
import heapq
import sys
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from emulator.errors import BadValue
from emulator.units import FOREVER, NS_PER_S

_PR_SET_TIMERSLACK = 29


class WallClock:
    """Emulated time that runs ``speed`` times as fast as CLOCK_MONOTONIC after ``start``.

    ``monotonic_ns`` reads that clock.
    """

    def __init__(
        self, speed: float = 1.0, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        if not 0 < speed < float("inf"):
            raise BadValue(
                f"speed {speed}: expected a number above 0 (emulated seconds per real second)"
            )
        self.speed, self.monotonic_ns = speed, monotonic_ns
        self._origin_ns: int | None = None
        self._from_ns = 0
        self.began_unix_s: float | None = None
        """Unix time of emulated 0, to line up with what other programs have recorded."""

    def start_from(self, at_ns: int) -> None:
        """Let ``start`` begin at this emulated moment, and stand still there until then."""
        self._from_ns = at_ns

    def start(self) -> None:
        """Set emulated time 0, or the moment of ``start_from``, to now."""
        self._origin_ns = self.monotonic_ns()
        self.began_unix_s = time.time_ns() / NS_PER_S - self._from_ns / self.speed / NS_PER_S

    def now(self) -> int:
        """Emulated ns since ``start``; before it 0, or the moment of ``start_from``."""
        return self.at_monotonic(self.monotonic_ns())

    def at_monotonic(self, monotonic_ns: int) -> int:
        """Convert a CLOCK_MONOTONIC time, from any process of this machine, to emulated ns.

        Before ``start`` it does not move.
        """
        if self._origin_ns is None:
            return self._from_ns
        return self._from_ns + int((monotonic_ns - self._origin_ns) * self.speed)

    def real_s_until(self, t_ns: int) -> float:
        """Real seconds from now to the emulated moment ``t_ns``; negative if it has passed."""
        now_ns = self.monotonic_ns()
        origin_ns = now_ns if self._origin_ns is None else self._origin_ns
        return ((t_ns - self._from_ns) / self.speed + (origin_ns - now_ns)) / NS_PER_S

    def wait_until(self, t_ns: int) -> None:
        """Sleep until the emulated moment ``t_ns`` and never return early.

        ``precise_timers`` makes it more exact.
        """
        if self._origin_ns is None:
            raise RuntimeError("wait_until needs a started clock")
        # The second comparison is in emulated ns: with rounding, the first alone could return
        # before now() reaches t_ns.
        while (rest_s := self.real_s_until(t_ns)) > 0 or self.now() < t_ns:
            time.sleep(max(rest_s, 0.0))


class VirtualClock:
    """Emulated time that the host of the run moves forward in jumps."""

    def __init__(self) -> None:
        self._now_ns = 0

    def now(self) -> int:
        return self._now_ns

    def advance(self, to_ns: int) -> None:
        """Jump to ``to_ns``. ValueError if that is in the past."""
        if to_ns < self._now_ns:
            raise ValueError(f"time cannot go back from {self._now_ns} to {to_ns} ns")
        self._now_ns = to_ns


def precise_timers() -> bool:
    """Set 1 ns timer slack (default 50 us) for this thread and threads that it starts later.

    Return False if the system does not support or allow it.
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    status: int = libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)
    return status == 0


Item = TypeVar("Item")
# An entry of the queue: [moment, number, item, whether it is still pending]. A list, because it
# is mutable and cheap to create: every event of a run creates one.
Ticket = list[Any]
MOMENT, ITEM, TO_COME = 0, 2, 3
FEW = 64  # with no more cancelled entries than this, the queue is not rebuilt


class Agenda(Generic[Item]):
    """A queue ordered by time; items due at the same ns come out in the order of insertion.

    A cancelled entry holds no item. The queue keeps at most max(``FEW``, number of live entries)
    cancelled entries.
    """

    def __init__(self) -> None:
        self._heap: list[Ticket] = []  # the first entry is always pending
        self._added = 0
        self._cancelled = 0  # entries in the heap

    def add(self, at_ns: int, item: Item) -> Ticket:
        """Insert ``item``, due at ``at_ns``. The returned ticket serves only for ``cancel``."""
        entry = [at_ns, self._added, item, True]
        heapq.heappush(self._heap, entry)
        self._added += 1
        return entry

    def cancel(self, ticket: Ticket) -> None:
        """Remove the entry; no effect if it was already popped."""
        if not ticket[TO_COME]:
            return
        ticket[ITEM], ticket[TO_COME] = None, False
        self._cancelled += 1
        if self._cancelled > FEW and 2 * self._cancelled > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[TO_COME]]
            heapq.heapify(self._heap)
            self._cancelled = 0
        elif self._heap[0] is ticket:
            self._uncover()

    def next_due(self) -> int:
        """The earliest moment; FOREVER if the queue is empty."""
        return self._heap[0][MOMENT] if self._heap else FOREVER

    def pending(self) -> list[tuple[int, Item]]:
        """All items as (moment, item), in the order in which they will be due."""
        # moment and number differ in every two entries, so items are not compared
        return [(entry[MOMENT], entry[ITEM]) for entry in sorted(self._heap) if entry[TO_COME]]

    def pop_due(self, now: int) -> list[tuple[int, Item]]:
        """Remove and return all items due at or before ``now``, as (moment, item) by time."""
        due = []
        while self._heap and self._heap[0][MOMENT] <= now:
            entry = heapq.heappop(self._heap)
            entry[TO_COME] = False
            due.append((entry[MOMENT], entry[ITEM]))
            if self._cancelled:
                self._uncover()
        return due

    def _uncover(self) -> None:
        """Remove cancelled entries from the front."""
        while self._heap and not self._heap[0][TO_COME]:
            heapq.heappop(self._heap)
            self._cancelled -= 1

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled
