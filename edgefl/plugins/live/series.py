"""Growing series in bounded memory, for readers that come back for what is new."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

import numpy as np

from edgefl.results.read import MISSING, TableColumns, Texts, spread, tuples
from edgefl.results.timeline import SLICES

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


FIRST_BIN_S = 0.1
MOST_BINS = 600
DIRECTIONS = ("up", "down")

# Bit/s of all links of a direction at an emulated second; None: unknown, or not emulated.
CapacityAt = Callable[[str, float], float | None]


class LinkBins:
    """Bits per time bin and direction. The bins become wider as the run grows.

    A transfer's bits count evenly between the moment when it was asked for and its end, because
    links.csv does not say more.
    """

    def __init__(self, capacity_at: CapacityAt) -> None:
        self.bin_s = FIRST_BIN_S
        self.changed = 0  # rises with every row
        self.bytes = dict.fromkeys(DIRECTIONS, 0)
        self._capacity_at = capacity_at
        self._bits: dict[str, list[float]] = {way: [] for way in DIRECTIONS}
        self._capacity: dict[str, list[float | None]] = {way: [] for way in DIRECTIONS}

    def take(self, rows: TableColumns) -> None:
        """Take rows of links.csv."""
        begin, end, size = (rows.get(name) for name in ("offered_s", "finished_s", "bytes"))
        there = ~(np.isnan(begin) | np.isnan(end) | np.isnan(size))
        for way in DIRECTIONS:
            own = there & (rows.get("direction") == rows.texts.number(way))
            if own.any():
                self._add(
                    way, np.maximum(begin[own], 0.0), np.maximum(end[own], 0.0), size[own] * 8
                )
                self.bytes[way] += int(size[own].sum())
                self.changed += int(own.sum())

    def whole(self, until_s: float) -> dict[str, Any]:
        """Return the rates (bit/s) of all bins up to ``until_s``, with the capacities."""
        self._widen(until_s)
        bins = min(int(until_s / self.bin_s) + 1, MOST_BINS)
        rates = {way: self._padded(way, bins) for way in DIRECTIONS}
        return {
            "from_s": 0.0,
            "bin_s": self.bin_s,
            **{way: [round(bits / self.bin_s) for bits in rates[way]] for way in DIRECTIONS},
            **{f"{way}_capacity": self._capacities(way, bins) for way in DIRECTIONS},
        }

    def _add(self, way: str, begin: np.ndarray, end: np.ndarray, bits: np.ndarray) -> None:
        self._widen(float(end.max()))
        first, last = ((x / self.bin_s).astype(np.int64) for x in (begin, end))
        last = np.maximum(first, last)
        counts = last + 1 - first
        of, at = np.repeat(np.arange(len(begin)), counts), spread(first, counts)
        inside = np.minimum((at + 1) * self.bin_s, end[of]) - np.maximum(at * self.bin_s, begin[of])
        one = counts[of] == 1
        parts = np.where(one, bits[of], bits[of] * inside / np.where(one, 1.0, (end - begin)[of]))
        sums = np.bincount(at, parts)
        found = self._bits[way]
        found.extend([0.0] * (len(sums) - len(found)))
        for place in np.unique(at).tolist():
            found[place] += float(sums[place])

    def _widen(self, until_s: float) -> None:
        """Make the bins twice as wide, until they reach ``until_s``."""
        while until_s >= MOST_BINS * self.bin_s:
            self.bin_s *= 2
            for way, bits in self._bits.items():
                self._bits[way] = [sum(bits[at : at + 2]) for at in range(0, len(bits), 2)]
                self._capacity[way] = []

    def _padded(self, way: str, bins: int) -> list[float]:
        found = self._bits[way][:bins]
        return found + [0.0] * (bins - len(found))

    def _capacities(self, way: str, bins: int) -> list[float | None]:
        """The capacity in the middle of each bin."""
        found = self._capacity[way]
        for at in range(len(found), bins):
            rate = self._capacity_at(way, (at + 0.5) * self.bin_s)
            found.append(None if rate is None else round(rate))
        return found[:bins]


MOST_HELD, MOST_SENT, GAP = 100_000, 20_000, 5_000
FIRST_SHARES_S, MOST_SHARES, MOST_BINS_SENT = 0.25, 1024, 256

# [edge, lane, kind, begin_s, end_s, task or None, bytes or None], with numbers for edge and lane
EndedSlice = list[Any]


class Slices:
    """Slices that have ended. Edges have the numbers of the page, kinds those of ``texts``."""

    def __init__(self, texts: Texts, most: int = MOST_HELD) -> None:
        self.total = 0  # how many there were so far
        self._texts, self._most = texts, most
        self._parts = [np.zeros(0, SLICES)]  # the latest ones
        self._complete_from_s = 0.0  # slices that ended before may have been dropped
        self._shares = Shares(texts)

    def extend(self, slices: np.ndarray) -> None:
        """Take more SLICES."""
        self.total += len(slices)
        self._parts.append(slices)
        self._shares.extend(slices)
        if sum(map(len, self._parts)) > 2 * self._most:
            self._held()

    def _held(self) -> np.ndarray:
        """The latest slices, and no more than ``most``."""
        found = np.concatenate(self._parts)
        dropped = found["end_s"][: -self._most]
        self._complete_from_s = max(self._complete_from_s, float(dropped.max(initial=0.0)))
        self._parts = [found[-self._most :]]
        return self._parts[0]

    def _shown(self, slices: np.ndarray) -> list[EndedSlice]:
        texts = self._texts.all
        return [
            [edge, lane, texts[kind], begin_s, end_s, _known(task), _known(size)]
            for edge, lane, kind, begin_s, end_s, task, size in tuples(slices)
        ]

    def since(self, seen: int) -> list[EndedSlice] | None:
        """Return the slices after the first ``seen``; None if there are too many."""
        new = self.total - seen
        if new > GAP:
            return None
        held = self._held()
        return self._shown(held[max(len(held) - new, 0) :])

    def newest(self) -> tuple[list[EndedSlice], float]:
        """Return the newest slices, and the second from which none is missing."""
        held = self._held()
        ends = held["end_s"][:-MOST_SENT]
        from_s = float(ends.max()) if len(ends) else self._complete_from_s
        return self._shown(held[-MOST_SENT:]), from_s

    def window(self, begin_s: float, end_s: float, most: int) -> dict[str, Any]:
        """Return the slices in a window, or if these are not held or too many, shares of time."""
        held = self._held()
        inside = (held["begin_s"] <= end_s) & (held["end_s"] >= begin_s)
        if begin_s >= self._complete_from_s and inside.sum() <= most:
            return {"exact": True, "slices": self._shown(held[inside])}
        return {"exact": False, **self._shares.window(begin_s, end_s)}


def _known(value: int) -> int | None:
    return None if value == MISSING else value


class Shares:
    """Seconds per time bin of each edge, lane and kind. Bins become wider as the run grows."""

    def __init__(self, texts: Texts) -> None:
        self.bin_s = FIRST_SHARES_S
        self._texts = texts
        self._rows: dict[tuple[int, ...], int] = {}  # edge, lane, kind -> row of ``_seconds``
        self._seconds = np.zeros((0, MOST_SHARES), np.float32)

    def extend(self, slices: np.ndarray) -> None:
        """Take more SLICES."""
        if not len(slices):
            return
        begin_s, end_s = slices["begin_s"], slices["end_s"]
        while end_s.max() >= MOST_SHARES * self.bin_s:
            self._widen()
        edge, lane, kind = (slices[name].astype(np.int64) for name in ("edge", "lane", "kind"))
        keys = (edge << 36) + (lane << 32) + kind  # one number: much faster than three
        different, first, of_slices = np.unique(keys, return_index=True, return_inverse=True)
        rows = np.zeros(len(different), np.int64)
        for at in np.argsort(first).tolist():  # a new one gets its row when it comes first
            key = tuple(each[first[at]].item() for each in (edge, lane, kind))
            rows[at] = self._rows.setdefault(key, len(self._rows))
        if (more := len(self._rows) - len(self._seconds)) > 0:
            empty = np.zeros((max(more, len(self._seconds)), MOST_SHARES), np.float32)
            self._seconds = np.concatenate([self._seconds, empty])
        first = (begin_s / self.bin_s).astype(np.int64)
        counts = (end_s / self.bin_s).astype(np.int64) + 1 - first
        of, at = np.repeat(np.arange(len(first)), counts), spread(first, counts)
        inside = np.minimum((at + 1) * self.bin_s, end_s[of])
        inside -= np.maximum(at * self.bin_s, begin_s[of])
        np.add.at(self._seconds, (rows[of_slices[of]], at), inside)

    def window(self, begin_s: float, end_s: float) -> dict[str, Any]:
        """Return the bins of a window as shares from 0 to 1; if there are many, several as one."""
        first = min(max(int(begin_s / self.bin_s), 0), MOST_SHARES)
        last = min(int(max(end_s, 0.0) / self.bin_s) + 1, MOST_SHARES)
        several = max(-(-(last - first) // MOST_BINS_SENT), 1)
        first -= first % several
        texts, bins = self._texts.all, []
        for (edge, lane, kind), row in self._rows.items():
            seconds = self._seconds[row]
            used = np.flatnonzero(seconds)[-1:].sum() + 1  # behind them there is nothing yet
            starts = range(first, min(last, int(used)), several)
            sums = [float(seconds[at : at + several].sum()) for at in starts]
            if any(sums):
                shares = [round(each / (several * self.bin_s), 4) for each in sums]
                bins.append([edge, lane, texts[kind], shares])
        return {"bin_s": several * self.bin_s, "first_s": first * self.bin_s, "bins": bins}

    def _widen(self) -> None:
        self.bin_s *= 2
        wide = self._seconds.reshape(len(self._seconds), MOST_SHARES // 2, 2).sum(axis=2)
        self._seconds = np.concatenate([wide, np.zeros_like(wide)], axis=1)
