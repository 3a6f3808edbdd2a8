"""Fair shares of a capacity, and the service that a transfer gets from them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from emulator.capacity.service import WORK_PER_BYTE, bytes_by, moment_of


def shares(rate_bit_s: int, caps_bit_s: Sequence[int]) -> list[int]:
    """Divide ``rate_bit_s`` max-min fairly, in whole bit/s, by progressive filling.

    Shares are equal, except that none exceeds its cap; the others share what remains. The first
    uncapped ones get 1 bit/s more each for the remainder of the division, so no rate is lost.
    """
    given = [0] * len(caps_bit_s)
    left = len(caps_bit_s)
    order = sorted(range(left), key=caps_bit_s.__getitem__)
    for place, index in enumerate(order):
        if caps_bit_s[index] > rate_bit_s // left:
            for rest in sorted(order[place:]):
                given[rest] = -(-rate_bit_s // left) if rate_bit_s % left else rate_bit_s // left
                rate_bit_s, left = rate_bit_s - given[rest], left - 1
            break
        given[index] = caps_bit_s[index]
        rate_bit_s, left = rate_bit_s - given[index], left - 1
    return given


class Share:
    """The known service of one transfer.

    Rates are appended as time goes on, and removed if they must be computed again. Work is in bit *
    ns / s, as in ``emulator.capacity.service``.
    """

    __slots__ = ("_starts_ns", "_works", "_rates_bit_s")

    def __init__(self, start_ns: int) -> None:
        self._starts_ns, self._works, self._rates_bit_s = [start_ns], [0], [0]

    def add(self, from_ns: int, rate_bit_s: int) -> None:
        """Append ``rate_bit_s`` from ``from_ns`` on, which is not before the previous rate."""
        if rate_bit_s == self._rates_bit_s[-1]:
            return
        if from_ns == self._starts_ns[-1]:
            self._rates_bit_s[-1] = rate_bit_s
            return
        self._works.append(self.work(from_ns))
        self._starts_ns.append(from_ns)
        self._rates_bit_s.append(rate_bit_s)

    def cut(self, at_ns: int) -> None:
        """Remove the rates from ``at_ns`` on."""
        kept = max(bisect_left(self._starts_ns, at_ns), 1)
        del self._starts_ns[kept:], self._works[kept:], self._rates_bit_s[kept:]
        if self._starts_ns[0] >= at_ns:
            self._rates_bit_s[0] = 0

    def work(self, t_ns: int) -> int:
        """The work done by ``t_ns``, which is not before the last change of rate."""
        return self._works[-1] + self._rates_bit_s[-1] * (t_ns - self._starts_ns[-1])

    def served(self, t_ns: int) -> int:
        if t_ns <= self._starts_ns[0]:
            return 0
        return bytes_by(t_ns, self._starts_ns, self._works, self._rates_bit_s)

    def when(self, size_bytes: int) -> int:
        if size_bytes <= 0:
            return self._starts_ns[0]
        return moment_of(
            size_bytes * WORK_PER_BYTE, self._starts_ns, self._works, self._rates_bit_s
        )
