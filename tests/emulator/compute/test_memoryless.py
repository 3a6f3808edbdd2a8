"""Memoryless devices: a new exponential time for each period of work."""

from __future__ import annotations

import math

import numpy as np
import pytest

from emulator.compute import Memoryless
from emulator.errors import BadValue

S = 1_000_000_000


def test_memoryless_times_are_exponential() -> None:
    """Mean and deviation are equal, a share of 1/e exceeds the mean, and there is no memory."""
    device = Memoryless(32.0, seed=1)
    times = np.array([device.duration_ns(16, start) for start in range(4000)]) / S
    assert times.mean() == pytest.approx(0.5, rel=0.05) and times.std() == pytest.approx(
        0.5, rel=0.08
    )
    assert (times > 0.5).mean() == pytest.approx(math.exp(-1), abs=0.03)
    left = times[times > 0.5] - 0.5
    assert left.mean() == pytest.approx(0.5, rel=0.1)


def test_a_memoryless_time_depends_on_seed_and_moment_alone() -> None:
    one, other = Memoryless(32.0, seed=1), Memoryless(32.0, seed=2)
    assert (
        one.duration_ns(16, 7)
        == Memoryless(32.0, seed=1).duration_ns(16, 7)
        != other.duration_ns(16, 7)
    )
    assert one.duration_ns(16, 7) != one.duration_ns(16, 8)
    assert one.duration_ns(32, 7) == pytest.approx(2 * one.duration_ns(16, 7), abs=2), (
        "more work takes longer in proportion"
    )
    assert one.duration_ns(0, 7) == 0
    with pytest.raises(BadValue, match="samples_per_s"):
        Memoryless(0.0, seed=1)
