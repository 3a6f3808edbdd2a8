"""Named links and devices as plain numbers; every field can be overridden.

``emulator.profile_table`` gives the source of each number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from emulator.errors import BadValue, valid_name
from emulator.profile_table import DEVICES, LINKS
from emulator.units import parse_duration, parse_rate


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """Both directions of the link of one device.

    Latency and jitter are one-way; jitter is the standard deviation around the latency.
    """

    name: str
    up_bit_s: int
    down_bit_s: int
    latency_ns: int
    jitter_ns: int
    loss: float  # share of packets, 0 to below 1


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """How fast a device trains ``profile_table.REFERENCE_STEP``."""

    name: str
    samples_per_s: float


def link_profile(name: str, **overrides: Any) -> LinkProfile:
    """Return the named link, with any of up, down, latency, jitter and loss overridden.

    An override is text with a unit ("2mbit", "30ms", "1%") or a number in bit/s, ns or as a
    share. None keeps the value of the profile.
    """
    figures = LINKS[valid_name("link profile", name, LINKS)]
    said = _overridden(name, overrides, figures)
    values = {
        key: _LINK_FIELDS[key](said.get(key, figure.value)) for key, figure in figures.items()
    }
    return LinkProfile(
        name, values["up"], values["down"], values["latency"], values["jitter"], values["loss"]
    )


def device_profile(name: str, **overrides: Any) -> DeviceProfile:
    """Return the named device, with samples_per_s overridden unless it is None."""
    figure = DEVICES[valid_name("device profile", name, DEVICES)]
    said = _overridden(name, overrides, ["samples_per_s"])
    return DeviceProfile(name, _number("samples_per_s", said.get("samples_per_s", figure.value)))


def _overridden(name: str, overrides: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    said = {key: value for key, value in overrides.items() if value is not None}
    for key in said:
        valid_name(f"profile {name}: field", key, fields)
    return said


def _whole(what: str, least: int, parse: Callable[[str], int]) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, str):
            return parse(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise BadValue(
                f"{what} {value!r}: expected text with a unit or a whole number of {least} or more"
            )
        return value

    return read


def _share(value: Any) -> float:
    share = (
        _number("loss", value[:-1], least=0.0) / 100
        if isinstance(value, str) and value.endswith("%")
        else _number("loss", value, least=0.0)
    )
    if share >= 1:
        raise BadValue(f"loss {value!r}: expected a share of packets below 1, such as 0.01 or 1%")
    return share


def _number(what: str, value: Any, least: float | None = None) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (number > 0 if least is None else number >= least) or number == math.inf:
        raise BadValue(
            f"{what} {value!r}: expected a number"
            f" {'above 0' if least is None else f'of {least:g} or more'}"
        )
    return number


_LINK_FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "up": _whole("up", 1, parse_rate),
    "down": _whole("down", 1, parse_rate),
    "latency": _whole("latency", 0, parse_duration),
    "jitter": _whole("jitter", 0, parse_duration),
    "loss": _share,
}
