"""Things that are due at a moment."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

from emulator.units import FOREVER

Item = TypeVar("Item")


class Agenda(Generic[Item]):
    """A queue by time; what is due at the same ns comes out in the order it was put in."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Item]] = []
        self._added = 0

    def add(self, at_ns: int, item: Item) -> None:
        heapq.heappush(self._heap, (at_ns, self._added, item))
        self._added += 1

    def next_due(self) -> int:
        """The earliest moment, FOREVER when empty."""
        return self._heap[0][0] if self._heap else FOREVER

    def pop_due(self, now: int) -> list[tuple[int, Item]]:
        """Everything due at or before ``now``, as (moment, item) in order of time."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            at_ns, _, item = heapq.heappop(self._heap)
            due.append((at_ns, item))
        return due

    def __len__(self) -> int:
        return len(self._heap)
