"""Models of how long a device computes.

The speed is constant, spread over the devices, random, thermally throttled, or slowed by other
work; or the device takes its real time.
"""

from __future__ import annotations

from emulator.compute.bursty import Bursts, Bursty, Steps
from emulator.compute.classes import (
    LONG,
    MEDIUM,
    MILD,
    SHORT,
    Drawn,
    RuntimeClass,
    runtime_classes,
)
from emulator.compute.device import Device, Native, Rate
from emulator.compute.device_table import read_device_table, table_speeds
from emulator.compute.memoryless import Memoryless
from emulator.compute.spread import even_speeds, lognormal_speeds
from emulator.compute.throttled import Throttled

__all__ = [
    "LONG",
    "MEDIUM",
    "MILD",
    "SHORT",
    "Bursts",
    "Bursty",
    "Device",
    "Drawn",
    "Memoryless",
    "Native",
    "Rate",
    "RuntimeClass",
    "Steps",
    "Throttled",
    "lognormal_speeds",
    "runtime_classes",
    "even_speeds",
    "read_device_table",
    "table_speeds",
]
