"""Distributions of speed over the devices of a run."""

from __future__ import annotations

import math

import numpy as np

from emulator.compute.device import check_rate
from emulator.errors import BadValue


def even_speeds(
    count: int, fastest_samples_per_s: float, slowest_ratio: float, rng: np.random.Generator
) -> list[float]:
    """Return the samples/s of ``count`` devices with evenly spaced times per sample, shuffled.

    The times go from that of the fastest device to ``slowest_ratio`` times as much. Source:
    FedASMU, "slowest = 5 x fastest, uniform in between". Times are evenly spaced, not speeds,
    because the run waits for times.
    """
    check_count(count)
    check_rate("fastest_samples_per_s", fastest_samples_per_s)
    if not 1 <= slowest_ratio < math.inf:
        raise BadValue(
            f"slowest_ratio {slowest_ratio}: expected 1 or more (how many times slower the slowest"
            " device is)"
        )
    times = rng.permutation(np.linspace(1.0, slowest_ratio, count))
    speeds: list[float] = (fastest_samples_per_s / times).tolist()
    return speeds


def lognormal_speeds(
    count: int, median_samples_per_s: float, sigma: float, rng: np.random.Generator
) -> list[float]:
    """Draw the samples/s of ``count`` devices from a log-normal distribution.

    Each is median x exp(sigma x a standard normal number), so times per sample are log-normal with
    the same sigma. Two thirds of the devices lie between median / e^sigma and median x e^sigma.
    """
    check_count(count)
    check_rate("median_samples_per_s", median_samples_per_s)
    if not 0 <= sigma <= LARGEST_SIGMA:
        raise BadValue(f"sigma {sigma}: expected 0 (all equal) to {LARGEST_SIGMA:g}")
    return [
        float(median_samples_per_s * math.exp(sigma * normal))
        for normal in rng.standard_normal(count)
    ]


LARGEST_SIGMA = 5.0  # e^5 is 148; a larger spread is probably a typing error


def check_count(count: int) -> None:
    """Raise BadValue unless there is at least one device."""
    if count < 1:
        raise BadValue(f"devices {count}: expected 1 or more")
