"""Devices whose tasks take a random time: the short, medium and long runtime classes of FedEcho's experiments."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from emulator.compute.device import check_rate, check_span
from emulator.compute.spread import check_count
from emulator.errors import BadValue
from emulator.units import NS_PER_S

UNIT_NS = 10 * NS_PER_S
MOST_LONG = 0.1  # "at most 10 % of clients long"
SHORT_TO_MEDIUM = 3 / 5  # of the devices that are not long, as many are short [ours, after FADAS's Dirichlet(3, 2, 1)]


@dataclass(frozen=True, slots=True)
class RuntimeClass:
    """A task takes uniformly from ``low_ns`` to ``high_ns``."""

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
    """A device of one runtime class: ``task_samples`` samples take a time that is drawn anew for each stretch of work.

    The draw depends on ``seed`` and the stretch's start alone, so that the same question has the same answer, whoever asks and how often.
    """

    runtime: RuntimeClass
    task_samples: float
    seed: int

    def __post_init__(self) -> None:
        check_rate("task_samples", self.task_samples)

    @property
    def samples_per_s(self) -> float:
        """The speed at its fastest."""
        return self.task_samples / self.runtime.low_ns * NS_PER_S

    def duration_ns(self, samples: float, start_ns: int = 0) -> int:
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, start_ns])))
        task_ns = int(rng.integers(self.runtime.low_ns, self.runtime.high_ns, endpoint=True))
        return round(samples / self.task_samples * task_ns)


def runtime_classes(count: int, long: RuntimeClass, rng: np.random.Generator, long_share: float = MOST_LONG) -> list[RuntimeClass]:
    """A class for each of ``count`` devices, shuffled: a ``long_share`` (rounded down) of them ``long``, 3/5 of the rest short, the others medium."""
    check_count(count)
    if not 0 <= long_share <= MOST_LONG:
        raise BadValue(f"long_share {long_share}: expected 0 to {MOST_LONG:g}")
    longs = math.floor(count * long_share)
    shorts = round((count - longs) * SHORT_TO_MEDIUM)
    classes = [long] * longs + [SHORT] * shorts + [MEDIUM] * (count - longs - shorts)
    return [classes[index] for index in rng.permutation(count)]
