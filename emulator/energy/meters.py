"""Meters of a host's energy: RAPL of a processor, an INA219 or its like, and smart plugs.

A meter counts microjoules since its first reading. It asks no clock: ``read_uj`` takes the moment.
A meter that only tells the present power integrates it over the time between two readings, so
they should be a few seconds apart at most.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from emulator.errors import BadValue, Unavailable

POWERCAP = "sys/class/powercap"
HWMON = "sys/class/hwmon"
INA_NAMES = ("ina219", "ina220", "ina226", "ina230", "ina231")  # of the kernel's driver ina2xx
UW_PER_W, NS_PER_MS = 1_000_000, 1_000_000
METERS = ("rapl", "ina219", "auto", "http://...")  # what ``open_meter`` takes


class Meter(Protocol):
    """Counts the energy of this host."""

    name: str

    def read_uj(self, now_ns: int) -> int | None:
        """Microjoules since the first reading; None if the meter does not answer now."""


@dataclass(slots=True)
class Counter:
    """One energy counter of RAPL that begins again at 0 after ``most_uj``."""

    path: Path
    most_uj: int
    last_uj: int
    grown_uj: int = 0

    def read(self) -> int:
        now_uj = int(self.path.read_text())
        grown_uj = now_uj - self.last_uj
        self.grown_uj += grown_uj if grown_uj >= 0 else grown_uj + self.most_uj + 1
        self.last_uj = now_uj
        return self.grown_uj


@dataclass(slots=True)
class RaplMeter:
    """The processor's packages and their memory, or the whole platform where RAPL counts it.

    Linux, Intel and AMD. The files are for root only unless the administrator permits more:
    Unavailable then. A counter wraps after some minutes at full load, so read it more often.
    """

    counters: list[Counter]
    name: str = "rapl"

    @classmethod
    def open(cls, root: Path = Path("/")) -> RaplMeter:
        """Unavailable if this host has no RAPL, or if this user may not read it."""
        zones = {
            path: (path / "name").read_text().strip()
            for path in sorted((root / POWERCAP).glob("*:*"))
            if (path / "energy_uj").exists()
        }
        if any(path.name.startswith("intel-rapl:") for path in zones):
            # the same packages once more, by another interface
            zones = {path: name for path, name in zones.items() if "-mmio" not in path.name}
        whole = [path for path, name in zones.items() if name == "psys"]
        parts = [
            path for path, name in zones.items() if name.startswith("package") or name == "dram"
        ]
        if not zones:
            raise Unavailable(f"rapl: this host has no energy counters ({root / POWERCAP})")
        try:
            return cls([_counter(path) for path in whole or parts or list(zones)])
        except PermissionError as error:
            raise Unavailable(
                f"rapl: {error.filename}: only root may read it; to permit it until the next boot:"
                f" sudo chmod a+r {root / POWERCAP}/*/energy_uj"
            ) from error

    def read_uj(self, now_ns: int) -> int | None:
        try:
            return sum(counter.read() for counter in self.counters)
        except (OSError, ValueError):
            return None


@dataclass(slots=True)
class PowerMeter:
    """Integrates a power: ``power_uw()`` is the present one in microwatts, None if unknown."""

    name: str
    power_uw: Callable[[], int | None]
    grown: int = 0  # in uW x ns
    last: tuple[int, int] | None = field(default=None)  # moment and power

    def read_uj(self, now_ns: int) -> int | None:
        power_uw = self.power_uw()
        if power_uw is None:
            self.last = None  # the time until the next reading is not known
            return None
        if self.last is not None:
            then_ns, then_uw = self.last
            self.grown += (then_uw + power_uw) * max(0, now_ns - then_ns) // 2
        self.last = now_ns, power_uw
        return self.grown // 10**9


def ina219(root: Path = Path("/")) -> PowerMeter:
    """An INA219 (or INA220, 226, 230, 231) on I2C, read through the kernel's driver ina2xx.

    The board's device tree must name it, for example `dtoverlay=i2c-sensor,ina219` on a Raspberry
    Pi; then `sensors` shows it. Unavailable if the kernel knows no such sensor.
    """
    for path in sorted((root / HWMON).glob("hwmon*")):
        name, power = _text(path / "name"), path / "power1_input"
        if name in INA_NAMES and power.exists():
            return PowerMeter(name, partial(_number, power))
    raise Unavailable(f"ina219: no sensor {', '.join(INA_NAMES)} in {root / HWMON}")


def plug(fetch: Callable[[], Any]) -> PowerMeter:
    """A smart plug that tells its power as JSON: ``fetch()`` returns what it answers, or raises.

    Known are Shelly (first generation `/meter/0`, second `/rpc/Switch.GetStatus?id=0`), Tasmota
    (`/cm?cmnd=Status%208`), and any answer that has a number `power`.
    """

    def power_uw() -> int | None:
        try:
            watts = plug_watts(fetch())
        except (OSError, ValueError):
            return None
        return None if watts is None else round(watts * UW_PER_W)

    return PowerMeter("plug", power_uw)


def plug_watts(answer: Any) -> float | None:
    """The power in a smart plug's JSON answer, in watts; None if it has none."""
    if not isinstance(answer, Mapping):
        return None
    inner = answer.get("StatusSNS")
    if isinstance(inner, Mapping):
        answer = inner.get("ENERGY", {})
    for key in ("apower", "power", "Power"):
        value = answer.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e6:
            return float(value)
    return None


def open_meter(what: str, fetch: Callable[[str], Any], root: Path = Path("/")) -> Meter | None:
    """The meter that a user names: "rapl", "ina219", the address of a plug, or "auto".

    "auto" takes the first one that this host has, and None if it has none; "" is no meter.
    ``fetch(address)`` returns the JSON at an address. BadValue for another name, Unavailable if
    this host does not have it.
    """
    if not what:
        return None
    if what.startswith(("http://", "https://")):
        return plug(lambda: fetch(what))
    kinds: Mapping[str, Callable[[Path], Meter]] = {"ina219": ina219, "rapl": RaplMeter.open}
    if what in kinds:
        return kinds[what](root)
    if what != "auto":
        raise BadValue(f"meter {what!r}: expected one of {', '.join(METERS)}")
    for kind in kinds.values():
        with suppress(Unavailable, OSError):
            return kind(root)
    return None


def _counter(path: Path) -> Counter:
    most_uj = _number(path / "max_energy_range_uj") or 2**32 - 1
    if not os.access(path / "energy_uj", os.R_OK):
        raise PermissionError(13, "Permission denied", str(path / "energy_uj"))
    return Counter(path / "energy_uj", most_uj, int((path / "energy_uj").read_text()))


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    try:
        return int(_text(path))
    except ValueError:
        return None
