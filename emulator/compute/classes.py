"""Devices with random task times: the short, medium and long runtime classes of FedEcho."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emulator.compute.device import check_rate, check_span
from emulator.compute.spread import check_count
from emulator.units import NS_PER_S

UNIT_NS = 10 * NS_PER_S
MOST_LONG = 0.1  # "at most 10 % of clients long"
SAME_DRAW_NS = 5 * NS_PER_S
MIX = (3.0, 2.0, 1.0)  # concentrations of short, medium, long [FADAS's code]
SMALLEST = 1e-300  # a draw may be 0, which has no logarithm


@dataclass(frozen=True, slots=True)
class RuntimeClass:
    """A class of task times, uniform from ``low_ns`` to ``high_ns``."""

    name: str
    low_ns: int
    high_ns: int

    def __post_init__(self) -> None:
        check_span(f"runtime class {self.name}: low", self.low_ns)
        check_span(f"runtime class {self.name}: high", self.high_ns, self.low_ns)


SHORT = RuntimeClass("short", 1 * UNIT_NS, 2 * UNIT_NS)
MEDIUM = RuntimeClass("medium", 3 * UNIT_NS, 5 * UNIT_NS)
LONG = RuntimeClass("long", 50 * UNIT_NS, 80 * UNIT_NS)
MILD = RuntimeClass("long (mild)", 10 * UNIT_NS, 20 * UNIT_NS)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A device of one runtime class, with a new random speed for each period of work.

    The draw is the time that ``task_samples`` samples take. It depends only on ``seed`` and the 5 s
    interval in which the work starts. So the same call always gives the same result, and a start
    that is a few ms later, as on the wall clock, rarely changes it. Whole tasks of every class take
    longer than 5 s.
    """

    runtime: RuntimeClass
    task_samples: float
    seed: int

    def __post_init__(self) -> None:
        check_rate("task_samples", self.task_samples)

    @property
    def samples_per_s(self) -> float:
        """The highest possible speed."""
        return self.task_samples / self.runtime.low_ns * NS_PER_S

    def duration_ns(self, samples: float, start_ns: int = 0) -> int:
        rng = np.random.Generator(
            np.random.PCG64(np.random.SeedSequence([self.seed, start_ns // SAME_DRAW_NS]))
        )
        task_ns = int(rng.integers(self.runtime.low_ns, self.runtime.high_ns, endpoint=True))
        return round(samples / self.task_samples * task_ns)


def runtime_classes(
    sizes: Sequence[float], long: RuntimeClass, rng: np.random.Generator, gamma: float = 1.0
) -> list[RuntimeClass]:
    """Choose a runtime class for each device from the size of its data.

    A device gets the class c with the largest p_c r^(k_c / gamma). r = the device's size / the mean
    size; k = 0, 1, 2 for short, medium, long; p ~ Dirichlet(3, 2, 1) for each device. So devices
    with more data tend to be slower; a smaller ``gamma`` strengthens this. The formula and gamma =
    1 are ours: FedEcho describes the relation only in words.

    At most the share ``MOST_LONG`` of the devices is ``long``. If more devices qualify, those with
    the largest margin stay long and the others get their second-best class.
    """
    check_count(len(sizes))
    for size in sizes:
        check_rate("size of a device's data", size)
    check_rate("gamma", gamma)
    shares = np.log(np.asarray(sizes, dtype=np.float64) / np.mean(sizes)) / gamma
    scores = np.log(np.maximum(rng.dirichlet(MIX, len(sizes)), SMALLEST)) + shares[
        :, None
    ] * np.arange(3)
    margin = scores[:, 2] - scores[:, :2].max(axis=1)
    longest = np.argsort(-margin, kind="stable")[: math.floor(MOST_LONG * len(sizes))]
    longs = {int(index) for index in longest if margin[index] > 0}
    return [
        long if index in longs else (SHORT, MEDIUM)[int(scores[index, :2].argmax())]
        for index in range(len(sizes))
    ]
