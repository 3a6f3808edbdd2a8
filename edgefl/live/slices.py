"""The slices of a run's timeline in bounded memory: the latest ones exactly, all as shares."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable
from typing import Any

from edgefl.live.series import LatestItems

MOST_HELD, MOST_SENT, GAP = 100_000, 20_000, 5_000
FIRST_BIN_S, MOST_BINS, MOST_BINS_SENT = 0.25, 1024, 256

# [edge, lane, kind, begin_s, end_s, task or None, bytes or None], with numbers for edge and lane
EndedSlice = list[Any]
EDGE, LANE, KIND, BEGIN, END = range(5)


class Slices:
    """Slices that have ended."""

    def __init__(self, most: int = MOST_HELD) -> None:
        self._held: LatestItems[EndedSlice] = LatestItems(most)
        self._ends: deque[float] = deque(maxlen=most)  # of the same slices
        self._complete_from_s = 0.0  # slices that ended before may have been dropped
        self._shares = Shares()

    @property
    def total(self) -> int:
        """How many there were so far."""
        return self._held.total

    def add(self, one: EndedSlice) -> None:
        if len(self._ends) == self._ends.maxlen:
            self._complete_from_s = max(self._complete_from_s, self._ends[0])
        self._held.add(one)
        self._ends.append(one[END])
        self._shares.add(one)

    def since(self, seen: int) -> list[EndedSlice] | None:
        """Return the slices after the first ``seen``; None if there are too many."""
        return None if self.total - seen > GAP else self._held.since(seen)

    def newest(self) -> tuple[list[EndedSlice], float]:
        """Return the newest slices, and the second from which none is missing."""
        held = self._held.since(0)
        ends = (one[END] for one in held[:-MOST_SENT])
        return held[-MOST_SENT:], max(ends, default=self._complete_from_s)

    def window(self, begin_s: float, end_s: float, most: int) -> dict[str, Any]:
        """Return the slices in a window, or if these are not held or too many, shares of time."""
        inside = [one for one in self._held.since(0) if one[BEGIN] <= end_s and one[END] >= begin_s]
        if begin_s >= self._complete_from_s and len(inside) <= most:
            return {"exact": True, "slices": inside}
        return {"exact": False, **self._shares.window(begin_s, end_s)}


class Shares:
    """Seconds per time bin of each edge, lane and kind. Bins become wider as the run grows."""

    def __init__(self) -> None:
        self.bin_s = FIRST_BIN_S
        self._seconds: dict[tuple[int, int, str], array[float]] = {}

    def add(self, one: EndedSlice) -> None:
        begin, end = one[BEGIN], one[END]
        while end >= MOST_BINS * self.bin_s:
            self._widen()
        key = (one[EDGE], one[LANE], one[KIND])
        found = self._seconds.get(key)
        if found is None:
            found = self._seconds[key] = array("f")
        first, last = int(begin / self.bin_s), int(end / self.bin_s)
        found.extend([0.0] * (last + 1 - len(found)))
        if first == last:
            found[last] += end - begin
            return
        found[first] += (first + 1) * self.bin_s - begin
        for at in range(first + 1, last):
            found[at] += self.bin_s
        found[last] += end - last * self.bin_s

    def window(self, begin_s: float, end_s: float) -> dict[str, Any]:
        """Return the bins of a window as shares from 0 to 1; if there are many, several as one."""
        first = min(max(int(begin_s / self.bin_s), 0), MOST_BINS)
        last = min(int(max(end_s, 0.0) / self.bin_s) + 1, MOST_BINS)
        several = max(-(-(last - first) // MOST_BINS_SENT), 1)
        first -= first % several
        bins = []
        for (edge, lane, kind), seconds in self._seconds.items():
            starts = range(first, min(last, len(seconds)), several)
            sums = [sum(seconds[at : at + several]) for at in starts]
            if any(sums):
                shares = [round(each / (several * self.bin_s), 4) for each in sums]
                bins.append([edge, lane, kind, shares])
        return {"bin_s": several * self.bin_s, "first_s": first * self.bin_s, "bins": bins}

    def _widen(self) -> None:
        self.bin_s *= 2
        for key, seconds in self._seconds.items():
            self._seconds[key] = array("f", _pairs(seconds))


def _pairs(seconds: array[float]) -> Iterable[float]:
    return (sum(seconds[at : at + 2]) for at in range(0, len(seconds), 2))
