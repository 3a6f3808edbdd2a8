"""One period of a periodic capacity, as a table.

With it, a distant moment needs one division, not a loop over millions of segments. A periodic
capacity has a method ``cycle(t_ns) -> Cycle | None`` in addition to ``segment``; curves and
compositions use it.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from copy import copy
from functools import lru_cache
from itertools import accumulate
from operator import mul

import numpy as np

from emulator.units import FOREVER

OPEN_BIT_S = FOREVER
"""The rate of an open gate: no limit."""
MAX_SEGMENTS = 500_000  # in the common period of a composition; if longer, segments are read
MAX_PERIOD_NS = 2**61  # so that sums of two moments fit 64 bits

Rates = Callable[[list[np.ndarray]], np.ndarray]


class Cycle:
    """Rates that repeat with ``period_ns`` from ``from_ns`` on.

    ``starts_ns`` are relative to ``from_ns``; the first is 0. A cycle is immutable and shared by
    all curves over the same capacity. Work is in bit * ns / s, as in ``emulator.capacity.service``.
    """

    __slots__ = ("from_ns", "period_ns", "starts_ns", "rates_bit_s", "work", "_works")

    def __init__(
        self,
        from_ns: int,
        period_ns: int,
        starts_ns: Sequence[int] | np.ndarray,
        rates_bit_s: Sequence[int] | np.ndarray,
    ) -> None:
        starts, rates = np.asarray(starts_ns, np.int64), np.asarray(rates_bit_s, np.int64)
        changes = np.concatenate(([True], rates[1:] != rates[:-1]))
        starts, rates = starts[changes], rates[changes]
        self.from_ns, self.period_ns = from_ns, period_ns
        # Arrays of 64-bit integers need 16 bytes per segment, and their items are Python integers,
        # which never overflow.
        self.starts_ns, self.rates_bit_s = array("q", starts.tobytes()), array("q", rates.tobytes())
        lengths: list[int] = np.diff(starts, append=period_ns).tolist()
        self._works: list[int] = [0, *accumulate(map(mul, self.rates_bit_s, lengths))]
        self.work = self._works.pop()  # of a whole period

    def state(self) -> tuple[int, int, np.ndarray, np.ndarray]:
        """What a checkpoint keeps: the constructor's arguments."""
        starts, rates = (np.asarray(each, np.int64) for each in (self.starts_ns, self.rates_bit_s))
        return self.from_ns, self.period_ns, starts, rates

    def restore(self, state: tuple[int, int, np.ndarray, np.ndarray]) -> None:
        self.__init__(*state)  # type: ignore[misc]  # as the constructor made it

    def moved(self, from_ns: int) -> Cycle:
        """Return the same cycle from another moment on; it shares the table."""
        moved = copy(self)
        moved.from_ns = from_ns
        return moved

    def mapped(self, rate: Callable[[int], int]) -> Cycle:
        """Return the cycle with every rate replaced by ``rate(rate)``."""
        kinds, which = np.unique(np.asarray(self.rates_bit_s), return_inverse=True)
        replaced = np.array([rate(int(kind)) for kind in kinds], np.int64)
        return Cycle(self.from_ns, self.period_ns, self.starts_ns, replaced[which])

    def segment(self, t_ns: int) -> tuple[int, int]:
        """As ``Capacity.segment``; FOREVER if the rate never changes."""
        if len(self.starts_ns) == 1:
            return self.rates_bit_s[0], FOREVER
        phase_ns = (t_ns - self.from_ns) % self.period_ns
        after = bisect_right(self.starts_ns, phase_ns)
        end_ns = self.starts_ns[after] if after < len(self.starts_ns) else self.period_ns
        return self.rates_bit_s[after - 1], min(t_ns - phase_ns + end_ns, FOREVER)

    def done(self, t_ns: int) -> int:
        """The work done from ``from_ns`` to ``t_ns``."""
        periods, phase_ns = divmod(t_ns - self.from_ns, self.period_ns)
        index = bisect_right(self.starts_ns, phase_ns) - 1
        return (
            periods * self.work
            + self._works[index]
            + self.rates_bit_s[index] * (phase_ns - self.starts_ns[index])
        )

    def when_done(self, work: int) -> int:
        """The smallest moment with ``done`` >= ``work`` > 0; FOREVER if there is none."""
        if self.work == 0:
            return FOREVER
        periods = (work - 1) // self.work
        rest = work - periods * self.work  # above 0, up to a whole period
        # the last segment that starts with less work done, so its rate is not 0
        index = bisect_left(self._works, rest) - 1
        # rounded up
        phase_ns = self.starts_ns[index] - (self._works[index] - rest) // self.rates_bit_s[index]
        return min(self.from_ns + periods * self.period_ns + phase_ns, FOREVER)

    def edges_ns(self, from_ns: int, period_ns: int) -> np.ndarray:
        """Where rates change within ``period_ns``, in ns from ``from_ns``.

        ``period_ns`` is a multiple of the cycle's own period.
        """
        if len(self.starts_ns) == 1:
            return np.zeros(1, np.int64)
        once = (
            np.asarray(self.starts_ns) - (from_ns - self.from_ns) % self.period_ns
        ) % self.period_ns
        begins = np.arange(0, period_ns, self.period_ns, dtype=np.int64)
        edges: np.ndarray = (begins[:, None] + once).ravel()
        return edges

    def rates_at(self, from_ns: int, offsets_ns: np.ndarray) -> np.ndarray:
        """The rates at ``from_ns`` + each of ``offsets_ns``."""
        phases_ns = (offsets_ns + (from_ns - self.from_ns) % self.period_ns) % self.period_ns
        indices = np.searchsorted(np.asarray(self.starts_ns), phases_ns, side="right") - 1
        rates: np.ndarray = np.asarray(self.rates_bit_s)[indices]
        return rates


@lru_cache(maxsize=256)  # returns the same object again: users compare cycles by identity
def constant(rate_bit_s: int, from_ns: int = 0) -> Cycle:
    """Make the cycle of a rate that never changes from ``from_ns`` on."""
    return Cycle(from_ns, 1, [0], [rate_bit_s])


def combined(cycles: Sequence[Cycle], rates: Rates) -> Cycle | None:
    """Combine ``cycles`` into one with ``rates`` of all their rates.

    None if their common period is too long for a table.
    """
    from_ns = max(cycle.from_ns for cycle in cycles)
    period_ns = math.lcm(*(cycle.period_ns for cycle in cycles if len(cycle.starts_ns) > 1))
    segments = sum(
        period_ns // cycle.period_ns * len(cycle.starts_ns)
        for cycle in cycles
        if len(cycle.starts_ns) > 1
    )
    if period_ns > MAX_PERIOD_NS or segments > MAX_SEGMENTS:
        return None
    edges = np.unique(
        np.concatenate([[0], *(cycle.edges_ns(from_ns, period_ns) for cycle in cycles)]).astype(
            np.int64
        )
    )
    return Cycle(
        from_ns, period_ns, edges, rates([cycle.rates_at(from_ns, edges) for cycle in cycles])
    )
