"""Quantiles of a long stream of numbers in bounded memory."""

from __future__ import annotations

from array import array
from typing import Any

_FINE_BITS = 7  # values below 2**7 are exact; above, there are 2**6 buckets per octave
_BUCKETS = 2**_FINE_BITS + (64 - _FINE_BITS) * 2 ** (_FINE_BITS - 1)


class Quantiles:
    """A histogram of integers from 0 to 2**64 - 1 with logarithmic buckets, always 30 KB.

    The relative error of a quantile is at most 1/128 (0.8 %); the maximum is exact. Numbers below
    0 count as 0.
    """

    __slots__ = ("_buckets", "count", "max")

    def __init__(self) -> None:
        self._buckets = array("Q", bytes(8 * _BUCKETS))
        self.count = 0
        self.max = 0

    def add(self, value: int, times: int = 1) -> None:
        value = max(0, value)
        shift = max(0, value.bit_length() - _FINE_BITS)
        self._buckets[(shift << (_FINE_BITS - 1)) + (value >> shift)] += times
        self.count += times
        self.max = max(self.max, value)

    def copy(self) -> Quantiles:
        made = Quantiles()
        made._buckets, made.count, made.max = self._buckets[:], self.count, self.max
        return made

    def counts(self) -> list[Any]:
        """Return [count, max, [[bucket, count], ...]] as plain JSON."""
        full = [[index, count] for index, count in enumerate(self._buckets) if count]
        return [self.count, self.max, full]

    def take_counts(self, counts: list[Any]) -> None:
        """Go on from ``counts`` of another one."""
        self.count, self.max, full = counts
        self._buckets = array("Q", bytes(8 * _BUCKETS))
        for index, count in full:
            self._buckets[index] = count

    def percentile(self, percent: int) -> int | None:
        """The smallest number that at least ``percent`` % of all numbers do not exceed.

        This is the nearest-rank definition. None if there are no numbers.
        """
        rank = max(1, -(-self.count * percent // 100))
        seen = 0
        for index, count in enumerate(self._buckets):
            seen += count
            if seen >= rank:
                return min(_middle(index), self.max)
        return None


def _middle(index: int) -> int:
    """The number in the middle of a bucket."""
    shift = max(0, (index >> (_FINE_BITS - 1)) - 1)
    low = (index - (shift << (_FINE_BITS - 1))) << shift
    return low + ((1 << shift) - 1) // 2
