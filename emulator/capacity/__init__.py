"""How many bits per second something carries, as a function of time."""

from __future__ import annotations

from typing import Protocol


class Capacity(Protocol):
    """A piecewise constant rate. All of the arithmetic over it stands once, in
    ``emulator.capacity.service``.
    """

    def segment(self, t_ns: int) -> tuple[int, int]:
        """(rate_bit_s, until_ns): the rate, 0 or more, that holds from ``t_ns`` up to but not
        including ``until_ns`` > ``t_ns``.

        A capacity that never changes again says FOREVER; so must one that never serves again, or
        ``when`` would search without end.
        """
        ...
