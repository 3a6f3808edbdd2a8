"""Things that are due at a moment."""

from __future__ import annotations

import heapq
from typing import Any, Generic, TypeVar

from emulator.units import FOREVER

Item = TypeVar("Item")
# An entry of the queue: [moment, number, item, whether it is still to come]. A list, because it
# changes and is made for every event of a run.
Ticket = list[Any]
MOMENT, ITEM, TO_COME = 0, 2, 3
FEW = 64  # cancelled entries that are not worth building the queue anew


class Agenda(Generic[Item]):
    """A queue by time; what is due at the same ns comes out in the order it was put in.

    Cancelled entries keep no item, and at most as many of them as live ones (and ``FEW``) stay in
    the queue.
    """

    def __init__(self) -> None:
        self._heap: list[Ticket] = []  # its first entry is still to come
        self._added = 0
        self._cancelled = 0  # of the heap

    def add(self, at_ns: int, item: Item) -> Ticket:
        """Put it in; what is returned is good for ``cancel`` only."""
        entry = [at_ns, self._added, item, True]
        heapq.heappush(self._heap, entry)
        self._added += 1
        return entry

    def cancel(self, ticket: Ticket) -> None:
        """Take it out; without effect once it has come out."""
        if not ticket[TO_COME]:
            return
        ticket[ITEM], ticket[TO_COME] = None, False
        self._cancelled += 1
        if self._cancelled > max(FEW, len(self)):
            self._heap = [entry for entry in self._heap if entry[TO_COME]]
            heapq.heapify(self._heap)
            self._cancelled = 0
        self._uncover()

    def next_due(self) -> int:
        """The earliest moment, FOREVER when empty."""
        return self._heap[0][MOMENT] if self._heap else FOREVER

    def pop_due(self, now: int) -> list[tuple[int, Item]]:
        """Everything due at or before ``now``, as (moment, item) in order of time."""
        due = []
        while self._heap and self._heap[0][MOMENT] <= now:
            entry = heapq.heappop(self._heap)
            entry[TO_COME] = False
            due.append((entry[MOMENT], entry[ITEM]))
            if self._cancelled:
                self._uncover()
        return due

    def _uncover(self) -> None:
        """Drop cancelled entries from the front."""
        while self._heap and not self._heap[0][TO_COME]:
            heapq.heappop(self._heap)
            self._cancelled -= 1

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled
