"""A device whose speed varies over time because other programs use it too.

The variation is a piecewise constant factor on its rate.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np

from emulator.compute.device import Rate, check_rate, check_span
from emulator.errors import BadValue
from emulator.units import FOREVER


class Pace(Protocol):
    """A piecewise constant factor on a device's rate."""

    def segment(self, t_ns: int) -> tuple[float, int]:
        """Return (factor, until_ns): the factor holds from ``t_ns`` until before ``until_ns``.

        ``t_ns`` is 0 or more, ``until_ns`` > ``t_ns``, and the factor is above 0.
        """
        ...


class Steps:
    """A pace of ``factors[i]`` from ``starts_ns[i]`` on, and 1 before the first."""

    def __init__(self, starts_ns: Sequence[int], factors: Sequence[float]) -> None:
        if len(starts_ns) != len(factors) or any(
            later <= earlier for earlier, later in itertools.pairwise(starts_ns)
        ):
            raise BadValue(
                "steps: expected as many factors as starts, and starts in order, got"
                f" {list(starts_ns)} and {list(factors)}"
            )
        for start_ns, factor in zip(starts_ns, factors):
            check_span("steps: start", start_ns, 0)
            check_rate("steps: factor", factor)
        self._starts_ns, self._factors = list(starts_ns), [1.0, *factors]

    def segment(self, t_ns: int) -> tuple[float, int]:
        index = bisect_right(self._starts_ns, t_ns)
        return self._factors[index], (
            self._starts_ns[index] if index < len(self._starts_ns) else FOREVER
        )


class Bursts:
    """A pace that alternates between calm periods (factor 1) and bursts of other work (``factor``).

    Their lengths are exponentially distributed with means ``calm_ns`` and ``burst_ns``; it starts
    calm at 0. Lengths are drawn once, in order of time, so the results do not depend on the order
    of the calls.
    """

    def __init__(
        self, calm_ns: int, burst_ns: int, factor: float, rng: np.random.Generator
    ) -> None:
        check_span("calm", calm_ns)
        check_span("burst", burst_ns)
        check_rate("factor", factor)
        self._means_ns, self._factors, self._rng = (calm_ns, burst_ns), (1.0, factor), rng
        self._ends_ns = [self._length_ns(0)]

    def segment(self, t_ns: int) -> tuple[float, int]:
        while self._ends_ns[-1] <= t_ns:
            self._ends_ns.append(self._ends_ns[-1] + self._length_ns(len(self._ends_ns) % 2))
        index = bisect_right(self._ends_ns, t_ns)
        return self._factors[index % 2], self._ends_ns[index]

    def _length_ns(self, kind: int) -> int:
        return max(1, math.ceil(self._rng.exponential(self._means_ns[kind])))


@dataclass(frozen=True, slots=True)
class Bursty:
    """A device that trains at ``samples_per_s`` times the current factor of its pace."""

    samples_per_s: float
    pace: Pace

    def __post_init__(self) -> None:
        check_rate("samples_per_s", self.samples_per_s)

    def duration_ns(self, samples: float, start_ns: int = 0) -> int:
        """The smallest whole number of ns in which the work is done.

        Exact: computed with fractions over the segments of the pace.
        """
        left = Fraction(Rate(self.samples_per_s).duration_ns(samples))  # ns at factor 1
        now = start_ns
        while left > 0:
            factor, until_ns = self.pace.segment(now)
            needed_ns = math.ceil(left / Fraction(factor))
            if until_ns >= FOREVER or now + needed_ns <= until_ns:
                return now + needed_ns - start_ns
            left -= (until_ns - now) * Fraction(factor)
            now = until_ns
        return now - start_ns
