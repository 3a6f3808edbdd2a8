"""Use of all links together over time, and the capacity that they have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgefl.results.columns import TableColumns, spread
from emulator.fidelity import Quantiles
from emulator.units import NS_PER_S

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


class LinkLag:
    """How late transfers ended after the moment that the emulation gave them."""

    def __init__(self) -> None:
        self._lags_ns = Quantiles()

    def take(self, rows: TableColumns) -> None:
        """Take rows of links.csv."""
        lags_s = rows.get("finished_s") - rows.get("scheduled_s")
        lags_s = lags_s[~np.isnan(lags_s)]
        lags, counts = np.unique(np.rint(lags_s * NS_PER_S).astype(np.int64), return_counts=True)
        for lag_ns, count in zip(lags.tolist(), counts.tolist()):
            self._lags_ns.add(lag_ns, count)

    def quantiles_ms(self) -> dict[str, float] | None:
        """Return {"p50", "p99", "max"} of the whole run; None without a transfer."""
        lags = self._lags_ns
        if not lags.count:
            return None
        found = {"p50": lags.percentile(50), "p99": lags.percentile(99), "max": lags.max}
        return {name: round((lag or 0) * 1000 / NS_PER_S, 3) for name, lag in found.items()}
