"""Outages: gates that close in given windows or by a random process."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from emulator.capacity.cycle import OPEN_BIT_S, Cycle, constant
from emulator.errors import BadValue
from emulator.units import FOREVER, seconds_text

# durations per draw; constant, so that the sequence depends only on the generator
_DRAWS = 256


class Windows:
    """A capacity of ``rate_bit_s``, and 0 in each of ``windows``.

    A window is (begin, end) in ns, without the end. Windows are in order and do not overlap. An
    outage with the end FOREVER never ends.
    """

    def __init__(self, windows: Sequence[tuple[int, int]], rate_bit_s: int = OPEN_BIT_S) -> None:
        for begin_ns, end_ns in windows:
            if not 0 <= begin_ns < end_ns:
                raise BadValue(
                    f"outage from {seconds_text(begin_ns)} s to {seconds_text(end_ns)} s: expected"
                    " 0 or more, and an end after the begin"
                )
        for (_, end_ns), (begin_ns, _) in pairwise(windows):
            if begin_ns < end_ns:
                raise BadValue(
                    f"outage at {seconds_text(begin_ns)} s: begins before the previous outage ends,"
                    f" at {seconds_text(end_ns)} s"
                )
        self.rate_bit_s = rate_bit_s
        joined: list[list[int]] = []
        for begin_ns, end_ns in windows:
            if joined and joined[-1][1] == begin_ns:
                joined[-1][1] = end_ns
            else:
                joined.append([begin_ns, end_ns])
        # closed after an odd number of borders
        self._borders_ns = [border for window in joined for border in window]

    def segment(self, t_ns: int) -> tuple[int, int]:
        passed = bisect_right(self._borders_ns, t_ns)
        until_ns = self._borders_ns[passed] if passed < len(self._borders_ns) else FOREVER
        return 0 if passed % 2 else self.rate_bit_s, min(until_ns, FOREVER)

    def cycle(self, t_ns: int) -> Cycle | None:
        """The constant rate after the last window."""
        last_ns = self._borders_ns[-1] if self._borders_ns else 0
        return (
            constant(self.rate_bit_s, last_ns)
            if last_ns < FOREVER
            else constant(0, self._borders_ns[-2])
        )


class OnOff:
    """A gate that alternates between open and closed, for exponential times; it starts open.

    The mean times are ``mean_on_ns`` and ``mean_off_ns``; each time is at least 1 ns. No other code
    may draw from ``rng``. Times are drawn in order of time, only as far as needed, and kept, so the
    order of calls changes nothing.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        mean_on_ns: int,
        mean_off_ns: int,
        rate_bit_s: int = OPEN_BIT_S,
    ) -> None:
        for name, mean_ns in (("open", mean_on_ns), ("closed", mean_off_ns)):
            if not 1 <= mean_ns < math.inf:
                raise BadValue(f"mean time {name} {mean_ns} ns: expected 1 ns or more")
        self.rate_bit_s = rate_bit_s
        self._rng = rng
        self._means_ns = np.tile([float(mean_on_ns), float(mean_off_ns)], _DRAWS // 2)
        self._borders_ns = [0]

    def segment(self, t_ns: int) -> tuple[int, int]:
        if t_ns >= FOREVER:
            return 0, FOREVER
        while self._borders_ns[-1] <= t_ns:
            self._draw()
        after = bisect_right(self._borders_ns, t_ns)
        return self.rate_bit_s if after % 2 or not after else 0, self._borders_ns[after]

    def _draw(self) -> None:
        at_ns = self._borders_ns[-1]
        for duration_ns in self._rng.exponential(self._means_ns).tolist():
            at_ns = min(at_ns + max(1, round(duration_ns)), FOREVER)
            self._borders_ns.append(at_ns)
