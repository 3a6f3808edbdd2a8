"""Named links and devices as plain numbers, each with its source; every field can be overridden.

The numbers are in profiles.toml, with those of ``energy.power``. The source "ours" means not
measured.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from emulator.errors import BadValue, check_positive, check_whole, valid_name
from emulator.units import parse_duration, parse_rate


class ProfileFigure(NamedTuple):
    """One number of a profile, with the key of its source and how the number follows from it.

    ``value`` is text with a unit (link), samples/s (device), or in the unit of its key (power).
    """

    value: str
    source: str
    remark: str


Figures = Mapping[str, ProfileFigure]
REFERENCE_STEP = "LeNet-5 on 28 x 28 images, batch 32, one SGD step, one thread, PyTorch"


class _Tables(msgspec.Struct):
    """The content of profiles.toml."""

    sources: dict[str, str]
    links: dict[str, Figures]
    devices: Figures
    power_sources: dict[str, str]
    power: dict[str, Figures]
    radios: dict[str, Figures]


TABLES = msgspec.convert(
    tomllib.loads(Path(__file__).with_name("profiles.toml").read_text(encoding="utf-8")), _Tables
)
SOURCES, LINKS, DEVICES = TABLES.sources, TABLES.links, TABLES.devices


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
    """How fast a device trains ``REFERENCE_STEP``."""

    name: str
    samples_per_s: float


def link_fields(profile: str | None, **overrides: Any) -> dict[str, Any]:
    """Return the fields of a LinkProfile, except its name, by their names.

    They are those of the named profile, with any of up, down, latency, jitter and loss overridden.
    Without a profile only the overridden ones are there. An override is text with a unit ("2mbit",
    "30ms", "1%") or a number in bit/s, ns or as a share; None is no override.
    """
    figures: Figures = {}
    if profile is not None:
        figures = LINKS[valid_name("link profile", profile, LINKS)]
    values: dict[str, Any] = {key: figure.value for key, figure in figures.items()}
    values |= _overrides(f"profile {profile}: field" if profile else "field", overrides, _FIELDS)
    return {_FIELDS[key][0]: _FIELDS[key][1](value) for key, value in values.items()}


def link_profile(name: str, **overrides: Any) -> LinkProfile:
    """Return the named link with its fields overridden, as ``link_fields`` says."""
    return LinkProfile(name, **link_fields(name, **overrides))


def device_profile(name: str, **overrides: Any) -> DeviceProfile:
    """Return the named device, with samples_per_s overridden unless it is None."""
    figure = DEVICES[valid_name("device profile", name, DEVICES)]
    values: dict[str, Any] = {"samples_per_s": figure.value}
    values |= _overrides(f"profile {name}: field", overrides, values)
    samples_per_s = _number(values["samples_per_s"])
    check_positive("samples_per_s", samples_per_s)
    return DeviceProfile(name, samples_per_s)


def _overrides(what: str, overrides: Mapping[str, Any], valid: Iterable[str]) -> dict[str, Any]:
    """The overrides that are not None."""
    values = {key: value for key, value in overrides.items() if value is not None}
    for key in values:
        valid_name(what, key, valid)
    return values


def _whole(what: str, least: int, parse: Callable[[str], int]) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, str):
            return parse(value)
        check_whole(what, value, least, unit="bit/s or ns, or text with a unit")
        return int(value)

    return read


def _share(value: Any) -> float:
    percent = isinstance(value, str) and value.endswith("%")
    share = _number(value[:-1]) / 100 if percent else _number(value)
    if not 0 <= share < 1:
        raise BadValue(f"loss {value!r}: expected a share of packets below 1, such as 0.01 or 1%")
    return share


def _number(value: Any) -> float:
    """The number that a value is; nan if it is none."""
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return math.nan


# override: (field, what reads it)
_FIELDS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "up": ("up_bit_s", _whole("up", 1, parse_rate)),
    "down": ("down_bit_s", _whole("down", 1, parse_rate)),
    "latency": ("latency_ns", _whole("latency", 0, parse_duration)),
    "jitter": ("jitter_ns", _whole("jitter", 0, parse_duration)),
    "loss": ("loss", _share),
}
