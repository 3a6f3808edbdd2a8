"""Devices whose stretches of work take exponentially distributed times: how long one has been at
work says nothing about when it will be done.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from emulator.compute.device import Rate, check_rate


@dataclass(frozen=True, slots=True)
class Memoryless:
    """A device that trains on ``samples_per_s`` on average: every stretch of work takes a time
    drawn anew.

    Source: Dutta et al. 2018 (arXiv 1803.01113), the learners of whose K-async SGD take exponential
    times. Of P such devices at work on equally much, any K are as likely to be done first: a draw
    by lot, without a loop that draws.

    The draw depends only on ``seed`` and on the moment at which the stretch starts: the same
    question always has the same answer.
    """

    samples_per_s: float
    seed: int

    def __post_init__(self) -> None:
        check_rate("samples_per_s", self.samples_per_s)

    def duration_ns(self, samples: float, start_ns: int = 0) -> int:
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, start_ns])))
        return math.ceil(rng.exponential(Rate(self.samples_per_s).duration_ns(samples)))
