"""Capacities made of other capacities: the lowest of several, or one with a gate.

An outage or a slot table is a gate: 0 while closed, OPEN_BIT_S while open. So a link with gates is
the lowest of its rate and its gates. Compositions can be nested. Links with the same parts should
share one object, because it keeps a table of the common period.
"""

from __future__ import annotations

import numpy as np

from emulator.capacity import Capacity
from emulator.capacity.cycle import Cycle, combined
from emulator.errors import BadValue


class Lowest:
    """A capacity that is at every moment the lowest rate of its ``parts``."""

    def __init__(self, *parts: Capacity) -> None:
        if not parts:
            raise BadValue("the lowest of no capacities: expected one or more")
        self.parts = parts
        self._cycle: Cycle | None = None
        self._looked = False

    def state(self) -> tuple[Capacity, ...]:
        """What a checkpoint keeps: not the table, which may be large and is computed again."""
        return self.parts

    def restore(self, state: tuple[Capacity, ...]) -> None:
        self.parts, self._cycle, self._looked = state, None, False

    def segment(self, t_ns: int) -> tuple[int, int]:
        cycle = self.cycle(t_ns)
        if cycle is not None and t_ns >= cycle.from_ns:
            return cycle.segment(t_ns)
        pieces = [part.segment(t_ns) for part in self.parts]
        silent = [until_ns for rate_bit_s, until_ns in pieces if rate_bit_s == 0]
        if silent:
            # FOREVER if one part never serves again
            return 0, max(silent)
        return self._rate([rate_bit_s for rate_bit_s, _ in pieces]), min(
            until_ns for _, until_ns in pieces
        )

    def cycle(self, t_ns: int) -> Cycle | None:
        """The common period of the parts, computed once.

        None if a part has no period or the common one is too long for a table.
        """
        if not self._looked:
            self._looked = True
            cycles = [cycle_of(part, t_ns) for part in self.parts]
            known = [cycle for cycle in cycles if cycle is not None]
            self._cycle = combined(known, self._rates) if len(known) == len(cycles) else None
        return self._cycle

    def _rate(self, rates_bit_s: list[int]) -> int:
        return min(rates_bit_s)

    def _rates(self, rates_bit_s: list[np.ndarray]) -> np.ndarray:
        lowest: np.ndarray = np.minimum.reduce(rates_bit_s)
        return lowest


class Gated(Lowest):
    """``capacity`` while ``gate``, any capacity, has a rate above 0; otherwise 0."""

    def __init__(self, capacity: Capacity, gate: Capacity) -> None:
        super().__init__(capacity, gate)

    def _rate(self, rates_bit_s: list[int]) -> int:
        return rates_bit_s[0]

    def _rates(self, rates_bit_s: list[np.ndarray]) -> np.ndarray:
        return np.where(rates_bit_s[1] > 0, rates_bit_s[0], 0)


def cycle_of(capacity: Capacity, t_ns: int) -> Cycle | None:
    """Return the cycle of ``capacity``, queried at ``t_ns``; None if it has none."""
    cycle = getattr(capacity, "cycle", None)
    return None if cycle is None else cycle(t_ns)
