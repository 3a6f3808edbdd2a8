"""Growing lists with a bound, for readers that come back for what is new."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Generic, TypeVar

Item = TypeVar("Item")


class LatestItems(Generic[Item]):
    """The latest ``most`` items of a growing list; older ones are dropped."""

    def __init__(self, most: int) -> None:
        self.most, self.total = most, 0  # items that are held; that were ever added
        self._items: deque[Item] = deque(maxlen=most)

    def add(self, item: Item) -> None:
        self.total += 1
        self._items.append(item)

    def extend(self, items: Sequence[Item], dropped: int = 0) -> None:
        """Add many items; ``dropped``: so many before them were too old to be made at all."""
        self.total += dropped + len(items)
        self._items.extend(items)

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
        self.extend([item])

    def extend(self, items: Iterable[Item]) -> None:
        """Add many items."""
        for item in items:
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
