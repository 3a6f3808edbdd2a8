"""Devices with exponentially distributed computing times.

The exponential distribution is memoryless: the elapsed time says nothing about the remaining time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from emulator.compute.device import Rate, check_rate


@dataclass(frozen=True, slots=True)
class Memoryless:
    """A device that needs an exponential time for each period of work.

    ``samples_per_s`` gives its mean. Source: Dutta et al. 2018 (arXiv 1803.01113): the learners of
    their K-async SGD take exponential times. If P such devices have equal work, every set of K is
    equally likely to finish first. This equals uniform random sampling of K devices.

    The draw depends only on ``seed`` and the moment at which the work starts, so the same call
    always gives the same result.
    """

    samples_per_s: float
    seed: int

    def __post_init__(self) -> None:
        check_rate("samples_per_s", self.samples_per_s)

    def duration_ns(self, samples: float, start_ns: int = 0) -> int:
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, start_ns])))
        return math.ceil(rng.exponential(Rate(self.samples_per_s).duration_ns(samples)))
