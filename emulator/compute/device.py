"""What every device is, and the two simplest: a constant rate, and real hardware."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from emulator.errors import BadValue
from emulator.units import NS_PER_S


class Device(Protocol):
    """The speed of one device."""

    def duration_ns(self, samples: float, start_ns: int = 0) -> int | None:
        """Emulated time for ``samples`` training samples (a costlier step counts as more), begun
        at ``start_ns``; None: as long as it really takes.
        """
        ...


@dataclass(frozen=True, slots=True)
class Rate:
    """A device that trains on ``samples_per_s``, always."""

    samples_per_s: float

    def __post_init__(self) -> None:
        check_rate("samples_per_s", self.samples_per_s)

    def duration_ns(self, samples: float, start_ns: int = 0) -> int:
        return round(samples / self.samples_per_s * NS_PER_S)


@dataclass(frozen=True, slots=True)
class Native:
    """Real hardware: no emulated duration, the time it takes is the time it takes."""

    def duration_ns(self, samples: float, start_ns: int = 0) -> None:
        return None


def check_rate(name: str, value: float) -> None:
    """BadValue unless ``value`` is a finite number above 0."""
    if not 0 < value < math.inf:
        raise BadValue(f"{name} {value}: expected a number above 0")


def check_span(name: str, value_ns: int, least_ns: int = 1) -> None:
    """BadValue unless ``value_ns`` is a whole number of ns, at least ``least_ns``."""
    if not isinstance(value_ns, int) or isinstance(value_ns, bool) or value_ns < least_ns:
        raise BadValue(f"{name} {value_ns!r}: expected a whole number of ns, {least_ns} or more")
