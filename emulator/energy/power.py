"""The power of devices and radios in each of their states: of named ones, or from numbers.

Each number of a named one has its source, in profiles.toml. A device's power is that of the whole
board without its radio; idle: booted, and nothing runs; compute: all its cores are busy. Powers are
in watts, ``_j_mbit`` in joules per Mbit. Numbers that depend on a device's settings, such as its
clock, are orders of magnitude: measure your own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from emulator.errors import BadValue, valid_name
from emulator.profiles import TABLES, Figures
from emulator.units import to_ns

POWER_SOURCES, DEVICE_POWER, RADIOS = TABLES.power_sources, TABLES.power, TABLES.radios
UW_PER_W = 1_000_000
FJ_PER_J = 10**15  # 1 fJ is 1 uW for 1 ns
FJ_PER_BIT = 10**9  # of 1 J per Mbit
MOST = 1e9  # watts, or joules per Mbit; more is a mistake
NEEDED, NEEDED_OF_RADIO = ("idle_w", "compute_w"), ("idle_w", "send_w", "receive_w")


@dataclass(frozen=True, slots=True)
class DevicePower:
    """The power of a whole device, in watts: while it waits, and while it trains."""

    idle_w: float
    compute_w: float

    def __post_init__(self) -> None:
        _at_least("compute_w", self.compute_w, self.idle_w)


@dataclass(frozen=True, slots=True)
class RadioPower:
    """The power of a radio, in watts, and what each Mbit costs in addition, in joules.

    ``tail_w``: for ``tail_s`` seconds after a transfer, until the radio is idle again.
    """

    idle_w: float = 0.0
    send_w: float = 0.0
    receive_w: float = 0.0
    send_j_mbit: float = 0.0
    receive_j_mbit: float = 0.0
    tail_w: float = 0.0
    tail_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("send_w", "receive_w"):
            _at_least(name, getattr(self, name), self.idle_w)
        if self.tail_s:
            _at_least("tail_w", self.tail_w, self.idle_w)
        for name in ("send_j_mbit", "receive_j_mbit"):
            if not 0 <= getattr(self, name) <= MOST:
                raise BadValue(f"{name} {getattr(self, name):g}: expected 0 to {MOST:g} J per Mbit")


@dataclass(frozen=True, slots=True)
class EdgePower:
    """The power of one edge with its radio, in whole microwatts and femtojoules.

    ``idle_uw`` flows all the time. The other powers come on top of it, so states may overlap: an
    edge may compute, send and receive at once. ``latency_ns``: one way, of its link.
    """

    idle_uw: int
    compute_uw: int
    send_uw: int = 0
    receive_uw: int = 0
    send_fj_bit: int = 0
    receive_fj_bit: int = 0
    tail_uw: int = 0
    tail_ns: int = 0
    latency_ns: int = 0

    @classmethod
    def of(
        cls, device: DevicePower | None, radio: RadioPower | None, latency_ns: int = 0
    ) -> EdgePower:
        """The power of an edge with this device and this radio; None: it costs nothing."""
        board, air = device or DevicePower(0.0, 0.0), radio or RadioPower()
        return cls(
            idle_uw=_uw(board.idle_w) + _uw(air.idle_w),
            compute_uw=_uw(board.compute_w) - _uw(board.idle_w),
            send_uw=_uw(air.send_w) - _uw(air.idle_w),
            receive_uw=_uw(air.receive_w) - _uw(air.idle_w),
            send_fj_bit=round(air.send_j_mbit * FJ_PER_BIT),
            receive_fj_bit=round(air.receive_j_mbit * FJ_PER_BIT),
            tail_uw=_uw(air.tail_w) - _uw(air.idle_w) if air.tail_s else 0,
            tail_ns=to_ns(air.tail_s),
            latency_ns=latency_ns,
        )


def device_power(name: str | None, **watts: float | None) -> DevicePower:
    """The named device's power, with idle_w and compute_w overridden unless they are None.

    Without a name both are needed. BadValue for an unknown name, or a number that is missing.
    """
    return DevicePower(**_numbers("power of device", name, DEVICE_POWER, watts, NEEDED))


def radio_power(name: str | None, **numbers: float | None) -> RadioPower:
    """The named radio's power, with its numbers overridden unless they are None.

    Without a name, idle_w, send_w and receive_w are needed; the others are then 0.
    """
    return RadioPower(**_numbers("radio", name, RADIOS, numbers, NEEDED_OF_RADIO))


def _numbers(
    what: str,
    name: str | None,
    profiles: Mapping[str, Figures],
    said: Mapping[str, float | None],
    needed: Iterable[str],
) -> dict[str, float]:
    given = {key: value for key, value in said.items() if value is not None}
    if name is not None:
        figures = profiles[valid_name(what, name, profiles)]
        return {key: float(figure.value) for key, figure in figures.items()} | given
    missing = [key for key in needed if key not in given]
    if missing:
        raise BadValue(
            f"{missing[0]}: missing; give it, or a profile (one of {', '.join(profiles)})"
        )
    return given


def _uw(watts: float) -> int:
    return round(watts * UW_PER_W)


def _at_least(name: str, watts: float, idle_w: float) -> None:
    if not watts >= idle_w:
        raise BadValue(f"{name}: expected at least the idle power ({idle_w:g} W), found {watts:g}")
    if watts > MOST:
        raise BadValue(f"{name}: expected at most {MOST:g} W, found {watts:g}")
