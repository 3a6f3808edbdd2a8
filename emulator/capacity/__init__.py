"""Capacities: rates in bit/s as functions of time."""

from __future__ import annotations

from typing import Protocol


class Capacity(Protocol):
    """A piecewise constant rate.

    ``emulator.capacity.service`` computes bytes and moments from it.
    """

    def segment(self, t_ns: int) -> tuple[int, int]:
        """Return (rate_bit_s, until_ns): the rate holds from ``t_ns`` until before ``until_ns``.

        The rate is 0 or more, and ``until_ns`` > ``t_ns``. A capacity that never changes again
        returns FOREVER. One that never serves again must do so too, otherwise ``when`` would search
        without end.
        """
        ...
