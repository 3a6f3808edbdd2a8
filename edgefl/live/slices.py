"""The slices of a run's timeline in bounded memory: the latest ones exactly, all as shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgefl.results.columns import MISSING, Texts, spread
from edgefl.results.intervals import SLICE_TYPES, SliceColumns, joined

MOST_HELD, MOST_SENT, GAP = 100_000, 20_000, 5_000
FIRST_BIN_S, MOST_BINS, MOST_BINS_SENT = 0.25, 1024, 256

# [edge, lane, kind, begin_s, end_s, task or None, bytes or None], with numbers for edge and lane
EndedSlice = list[Any]


class Slices:
    """Slices that have ended. Edges have the numbers of the page, kinds those of ``texts``."""

    def __init__(self, texts: Texts, most: int = MOST_HELD) -> None:
        self.total = 0  # how many there were so far
        self._texts, self._most = texts, most
        self._parts: list[Sequence[np.ndarray]] = []  # the latest ones
        self._complete_from_s = 0.0  # slices that ended before may have been dropped
        self._shares = Shares(texts)

    def extend(self, slices: SliceColumns) -> None:
        self.total += len(slices.edge)
        self._parts.append(slices)
        self._shares.extend(slices)
        if sum(len(part[0]) for part in self._parts) > 2 * self._most:
            self._held()

    def _held(self) -> SliceColumns:
        """The latest slices, and no more than ``most``."""
        found = joined(self._parts, SLICE_TYPES)
        if len(dropped := found[END][: -self._most]):
            self._complete_from_s = max(self._complete_from_s, float(dropped.max()))
        self._parts = [[each[-self._most :] for each in found]]
        return SliceColumns(*self._parts[0])

    def _shown(self, slices: SliceColumns) -> list[EndedSlice]:
        texts = self._texts.all
        return [
            [edge, lane, texts[kind], begin_s, end_s, _known(task), _known(size)]
            for edge, lane, kind, begin_s, end_s, task, size in zip(*(x.tolist() for x in slices))
        ]

    def since(self, seen: int) -> list[EndedSlice] | None:
        """Return the slices after the first ``seen``; None if there are too many."""
        new = self.total - seen
        if new > GAP:
            return None
        held = self._held()
        first = max(len(held.edge) - new, 0)
        return self._shown(SliceColumns(*(each[first:] for each in held)))

    def newest(self) -> tuple[list[EndedSlice], float]:
        """Return the newest slices, and the second from which none is missing."""
        held = self._held()
        ends = held.end_s[:-MOST_SENT]
        newest = SliceColumns(*(each[-MOST_SENT:] for each in held))
        return self._shown(newest), float(ends.max()) if len(ends) else self._complete_from_s

    def window(self, begin_s: float, end_s: float, most: int) -> dict[str, Any]:
        """Return the slices in a window, or if these are not held or too many, shares of time."""
        held = self._held()
        inside = (held.begin_s <= end_s) & (held.end_s >= begin_s)
        if begin_s >= self._complete_from_s and inside.sum() <= most:
            found = SliceColumns(*(each[inside] for each in held))
            return {"exact": True, "slices": self._shown(found)}
        return {"exact": False, **self._shares.window(begin_s, end_s)}


END = SliceColumns._fields.index("end_s")


def _known(value: int) -> int | None:
    return None if value == MISSING else value


class Shares:
    """Seconds per time bin of each edge, lane and kind. Bins become wider as the run grows."""

    def __init__(self, texts: Texts) -> None:
        self.bin_s = FIRST_BIN_S
        self._texts = texts
        self._rows: dict[tuple[int, ...], int] = {}  # edge, lane, kind -> row of ``_seconds``
        self._seconds = np.zeros((0, MOST_BINS), np.float32)

    def extend(self, slices: SliceColumns) -> None:
        if not len(slices.edge):
            return
        while slices.end_s.max() >= MOST_BINS * self.bin_s:
            self._widen()
        keys = np.stack([slices.edge, slices.lane, slices.kind], axis=1)
        different, first, of_slices = np.unique(
            keys, axis=0, return_index=True, return_inverse=True
        )
        rows = np.zeros(len(different), np.int64)
        for at in np.argsort(first).tolist():  # a new one gets its row when it comes first
            rows[at] = self._rows.setdefault(tuple(different[at].tolist()), len(self._rows))
        if (more := len(self._rows) - len(self._seconds)) > 0:
            empty = np.zeros((max(more, len(self._seconds)), MOST_BINS), np.float32)
            self._seconds = np.concatenate([self._seconds, empty])
        first = (slices.begin_s / self.bin_s).astype(np.int64)
        counts = (slices.end_s / self.bin_s).astype(np.int64) + 1 - first
        of, at = np.repeat(np.arange(len(first)), counts), spread(first, counts)
        inside = np.minimum((at + 1) * self.bin_s, slices.end_s[of])
        inside -= np.maximum(at * self.bin_s, slices.begin_s[of])
        np.add.at(self._seconds, (rows[of_slices.ravel()[of]], at), inside)

    def window(self, begin_s: float, end_s: float) -> dict[str, Any]:
        """Return the bins of a window as shares from 0 to 1; if there are many, several as one."""
        first = min(max(int(begin_s / self.bin_s), 0), MOST_BINS)
        last = min(int(max(end_s, 0.0) / self.bin_s) + 1, MOST_BINS)
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
        wide = self._seconds.reshape(len(self._seconds), -1, 2).sum(axis=2)
        self._seconds = np.concatenate([wide, np.zeros_like(wide)], axis=1)
