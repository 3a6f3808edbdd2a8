"""A rate that never changes."""

from __future__ import annotations

from emulator.capacity.cycle import Cycle, constant
from emulator.errors import BadValue
from emulator.units import FOREVER


class Constant:
    """A capacity of ``rate_bit_s``, an integer above 0."""

    def __init__(self, rate_bit_s: int) -> None:
        if not isinstance(rate_bit_s, int) or isinstance(rate_bit_s, bool) or rate_bit_s <= 0:
            raise BadValue(f"rate {rate_bit_s!r}: expected a whole number of bit/s above 0")
        self.rate_bit_s = rate_bit_s

    def segment(self, t_ns: int) -> tuple[int, int]:
        return self.rate_bit_s, FOREVER

    def cycle(self, t_ns: int) -> Cycle:
        return constant(self.rate_bit_s)
