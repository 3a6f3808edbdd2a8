"""The device interface, and the two simplest devices: a constant rate, and real hardware."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from emulator.errors import BadValue
from emulator.units import NS_PER_S


class Device(Protocol):
    """The computing speed of one device."""

    def duration_ns(self, samples: float, start_ns: int = 0) -> int | None:
        """Emulated ns to train on ``samples`` samples, starting at ``start_ns``.

        A more expensive step counts as more samples. None: the real duration counts.
        """
        ...


@dataclass(frozen=True, slots=True)
class Rate:
    """A device with the constant speed ``samples_per_s``."""

    samples_per_s: float

    def __post_init__(self) -> None:
        check_rate("samples_per_s", self.samples_per_s)

    def duration_ns(self, samples: float, start_ns: int = 0) -> int:
        return round(samples / self.samples_per_s * NS_PER_S)


@dataclass(frozen=True, slots=True)
class Native:
    """Real hardware: the real duration counts, none is emulated."""

    def duration_ns(self, samples: float, start_ns: int = 0) -> None:
        return None


def check_rate(name: str, value: float) -> None:
    """Raise BadValue unless ``value`` is a finite number above 0."""
    if not 0 < value < math.inf:
        raise BadValue(f"{name} {value}: expected a number above 0")


def check_span(name: str, value_ns: int, least_ns: int = 1) -> None:
    """Raise BadValue unless ``value_ns`` is a whole number of ns, at least ``least_ns``."""
    if not isinstance(value_ns, int) or isinstance(value_ns, bool) or value_ns < least_ns:
        raise BadValue(f"{name} {value_ns!r}: expected a whole number of ns, {least_ns} or more")
