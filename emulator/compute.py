"""How long a device takes for its work."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from emulator.errors import BadValue
from emulator.units import NS_PER_S


class Device(Protocol):
    """The speed of one device."""

    def duration_ns(self, samples: float) -> int | None:
        """Emulated time for ``samples`` training samples (a costlier step counts as more); None: as long as it really takes."""
        ...


@dataclass(frozen=True, slots=True)
class Rate:
    """A device that trains on ``samples_per_s``, always."""

    samples_per_s: float

    def __post_init__(self) -> None:
        _check_rate("samples_per_s", self.samples_per_s)

    def duration_ns(self, samples: float) -> int:
        return round(samples / self.samples_per_s * NS_PER_S)


@dataclass(frozen=True, slots=True)
class Native:
    """Real hardware: no emulated duration, the time it takes is the time it takes."""

    def duration_ns(self, samples: float) -> None:
        return None


def spread(count: int, fastest_samples_per_s: float, slowest_ratio: float, rng: np.random.Generator) -> list[float]:
    """samples/s of ``count`` devices whose times per sample lie evenly from the fastest's to ``slowest_ratio`` times that, shuffled.

    Source: FedASMU, "slowest = 5 x fastest, uniform in between"; time is what is spread, since that is what is waited for.
    """
    if count < 1:
        raise BadValue(f"devices {count}: expected 1 or more")
    _check_rate("fastest_samples_per_s", fastest_samples_per_s)
    if not 1 <= slowest_ratio < math.inf:
        raise BadValue(f"slowest_ratio {slowest_ratio}: expected 1 or more (how many times slower the slowest device is)")
    return [float(fastest_samples_per_s / times) for times in rng.permutation(np.linspace(1.0, slowest_ratio, count))]


def _check_rate(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise BadValue(f"{name} {value}: expected a number above 0")
