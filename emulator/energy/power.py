"""The power of devices and radios in each of their states: of named ones, or from numbers.

Each number of a named one has its source. A device's power is that of the whole board without its
radio; idle: booted, and nothing runs; compute: all its cores are busy. Powers are in watts,
``_j_mbit`` in joules per Mbit. Numbers that depend on a device's settings, such as its clock, are
orders of magnitude: measure your own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from emulator.errors import BadValue, valid_name
from emulator.profiles import ProfileFigure
from emulator.units import to_ns

POWER_SOURCES: Mapping[str, str] = {
    "pidramble": (
        "Geerling, Raspberry Pi Dramble, power consumption benchmarks, Pi 4 B,"
        " https://www.pidramble.com/wiki/benchmarks/power-consumption; what idle means:"
        " https://github.com/geerlingguy/raspberry-pi-dramble/issues/180"
    ),
    "geerling-2024": (
        "Geerling, LLMs accelerated with eGPU on a Raspberry Pi 5, 2024, section Performance,"
        " https://www.jeffgeerling.com/blog/2024/llms-accelerated-egpu-on-raspberry-pi-5"
    ),
    "powerjoular": (
        "Noureddine, PowerJoular, power models from measurements, Pi 5 B 1.0, 64 bit, linear,"
        " https://github.com/joular/powerjoular/blob/main/src/raspberry_pi_cpu_formula.adb"
    ),
    "jetson-stats": (
        "jetson_stats, input power of an idle Jetson Nano developer kit (JetPack 4.4),"
        " https://github.com/rbonghi/jetson_stats/issues/73"
    ),
    "nvidia-l4t": (
        "NVIDIA, Jetson Linux developer guide, power management for Jetson Nano, table of power"
        " modes, https://docs.nvidia.com/jetson/l4t/index.html"
    ),
    "xiaomi-pro": (
        "Battery drain of a Xiaomi Mi Notebook Pro (eighth generation Core i5 or i7), idle,"
        " https://github.com/daliansky/XiaoMi-Pro-Hackintosh/issues/116"
    ),
    "intel-ark": (
        "Intel, product specifications, Core i5-8250U (the i7-8550U has the same TDP),"
        " https://ark.intel.com/content/www/us/en/ark/products/124967.html"
    ),
    "android-profile": (
        "Power profile of a Google Pixel 6a in Android,"
        " https://github.com/LineageOS/android_device_google_bluejay, file"
        " overlay/FrameworkResOverlayVendorBluejay/res/xml/power_profile.xml; what its values mean:"
        " https://source.android.com/docs/core/power/values"
    ),
    "m5stack": (
        "M5Stack, Module NBIoT with an M5311, electrical characteristics,"
        " https://docs.m5stack.com/zh_CN/module/nb-iot; 3.3 V is the typical voltage of a similar"
        " module, Tuya's NM1, https://developer.tuya.com/en/docs/iot/nm1?id=K98367zlm6pet"
    ),
    "huang-2012": (
        "Huang et al., A close examination of performance and power characteristics of 4G LTE"
        " networks, MobiSys 2012, its power model of LTE, https://doi.org/10.1145/2307636.2307658"
    ),
}

DEVICE_POWER: Mapping[str, Mapping[str, ProfileFigure]] = {
    "pi4": {
        "idle_w": ProfileFigure("2.7", "pidramble", "540 mA at 5 V, idle"),
        "compute_w": ProfileFigure("6.4", "pidramble", "1280 mA at 5 V, stress --cpu 4"),
    },
    "pi5": {
        "idle_w": ProfileFigure("3", "geerling-2024", "a Pi 5, idle"),
        "compute_w": ProfileFigure(
            "7.9", "powerjoular", "4.403 + 3.458 x load in W, at a load of 100 %"
        ),
    },
    "jetson-nano": {
        "idle_w": ProfileFigure("0.94", "jetson-stats", "940 mW, read from the board's own meter"),
        "compute_w": ProfileFigure(
            "10", "nvidia-l4t", "the budget of its default mode, which is an upper bound"
        ),
    },
    "laptop": {
        "idle_w": ProfileFigure("5.5", "xiaomi-pro", "5.4 to 5.5 W from the battery, screen on"),
        "compute_w": ProfileFigure(
            "20.5", "intel-ark", "the idle power and the processor's TDP, 15 W"
        ),
    },
    "phone": {
        "idle_w": ProfileFigure(
            "0.15",
            "android-profile",
            "cpu.suspend 10 mA + cpu.idle 28.6 mA at 3.85 V: awake, screen off",
        ),
        "compute_w": ProfileFigure(
            "3.7",
            "android-profile",
            "all cores at their highest clock: idle + cpu.active 12.4 mA + clusters 9.4 mA + 4 x"
            " 58.45 + 2 x 79.04 + 2 x 254.25 mA, at 3.85 V",
        ),
    },
}

RADIOS: Mapping[str, Mapping[str, ProfileFigure]] = {
    "lte": {
        "idle_w": ProfileFigure("0", "android-profile", "modem.controller.sleep: 0 mA"),
        "send_w": ProfileFigure("1.288", "huang-2012", "1288 mW, whatever the rate"),
        "receive_w": ProfileFigure("1.288", "huang-2012", "1288 mW, whatever the rate"),
        "send_j_mbit": ProfileFigure("0.43839", "huang-2012", "438.39 mW for each Mbit/s"),
        "receive_j_mbit": ProfileFigure("0.05197", "huang-2012", "51.97 mW for each Mbit/s"),
        "tail_w": ProfileFigure("1.06", "huang-2012", "1060 mW while the connection is kept"),
        "tail_s": ProfileFigure("11.576", "huang-2012", "until the connection is released"),
    },
    "wifi": {
        "idle_w": ProfileFigure("0.14", "android-profile", "wifi.controller.idle: 38 mA, 3.7 V"),
        "send_w": ProfileFigure("1.74", "android-profile", "wifi.controller.tx: 470 mA, 3.7 V"),
        "receive_w": ProfileFigure("0.363", "android-profile", "wifi.controller.rx: 98 mA, 3.7 V"),
    },
    "nb-iot": {
        "idle_w": ProfileFigure("0.0013", "m5stack", "0.4 mA at 3.3 V, paging every 1.28 s"),
        "send_w": ProfileFigure("0.551", "m5stack", "167 mA at 3.3 V, 23 dBm, one 15 kHz tone"),
        "receive_w": ProfileFigure("0.178", "m5stack", "54 mA at 3.3 V"),
    },
}


UW_PER_W = 1_000_000
FJ_PER_J = 10**15  # 1 fJ is 1 uW for 1 ns
FJ_PER_BIT = 10**9  # of 1 J per Mbit
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
    profiles: Mapping[str, Mapping[str, ProfileFigure]],
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
    if not (math.isfinite(watts) and watts >= idle_w):
        raise BadValue(f"{name}: expected at least the idle power ({idle_w:g} W), found {watts:g}")
