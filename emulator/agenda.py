"""A queue of items, each due at a moment."""

from __future__ import annotations

import heapq
from typing import Any, Generic, TypeVar

from emulator.units import FOREVER

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
