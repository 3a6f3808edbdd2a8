"""Growing lists with a bound, for readers that come back for what is new."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Generic, TypeVar

Item = TypeVar("Item")


class LatestItems(Generic[Item]):
    """The latest ``most`` items of a growing list; older ones are dropped."""

    def __init__(self, most: int) -> None:
        self.total = 0  # of items that were ever added
        self._items: deque[Item] = deque(maxlen=most)

    def add(self, item: Item) -> None:
        self.total += 1
        self._items.append(item)

    def since(self, seen: int) -> list[Item]:
        """Return what was added after the first ``seen`` items, as far as it is still held."""
        new = min(self.total - seen, len(self._items))
        return list(islice(self._items, len(self._items) - new, None))


class ThinnedItems(Generic[Item]):
    """At most ``most`` items of the whole list: if there are more, every second one is dropped.

    So its points become sparse, but reach back to the beginning. The first and the last one stay.
    """

    def __init__(self, most: int) -> None:
        self.total = 0
        self._most = most
        self._items: list[tuple[int, Item]] = []  # with their numbers, from 1 on

    def add(self, item: Item) -> None:
        self.total += 1
        self._items.append((self.total, item))
        if len(self._items) > self._most:
            self._items = [*self._items[:-1:2], self._items[-1]]

    def since(self, seen: int) -> list[Item]:
        """Return what was added after the first ``seen`` items, as far as it is still held."""
        at = len(self._items)
        while at and self._items[at - 1][0] > seen:
            at -= 1
        return [item for _, item in self._items[at:]]
