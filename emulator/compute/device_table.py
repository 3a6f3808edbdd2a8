"""Speeds from a published table of devices: CSV with a header, a row per device, and a column of
scores (larger is faster) or of times (smaller is faster), as AI-Benchmark's rankings have them.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np

from emulator.compute.device import check_rate
from emulator.compute.spread import check_count
from emulator.errors import BadValue, valid_name
from emulator.plain_text import read_text

MOST_DEVICES = 10_000


def read_device_table(path: Path, column: str) -> list[float]:
    """Read the numbers in a column, in the order of rows. The first column is the device's name.

    BadValue names the file, the line and the device.
    """
    name = f"device table {path}"
    try:
        lines = read_text(path, name).splitlines()
    except OSError as error:
        raise BadValue(f"{name}: cannot be read ({error.strerror})") from None
    if any(line.strip() for line in lines[:1]) and lines[0].lstrip()[0] in "[{":
        raise BadValue(f"{name}: is JSON, expected CSV with a header and a row for each device")
    reader = csv.reader(lines)
    header = [cell.strip() for cell in next(reader, [])]
    try:
        place = header.index(valid_name("column", column, header))
    except BadValue as error:
        raise BadValue(f"{name}: {error}") from None
    found = [
        _number(row, place, f"{name}, line {reader.line_num}", column)
        for row in reader
        if any(cell.strip() for cell in row)
    ]
    if not 0 < len(found) <= MOST_DEVICES:
        raise BadValue(f"{name}: expected 1 to {MOST_DEVICES} devices, found {len(found)}")
    return found


def _number(row: Sequence[str], place: int, where: str, column: str) -> float:
    text = row[place].strip() if place < len(row) else ""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise BadValue(
            f"{where} ({row[0].strip()[:60]}): {column}: expected a number above 0, found"
            f" {text[:60]!r}"
        )
    return value


def table_speeds(
    count: int,
    median_samples_per_s: float,
    values: Sequence[float],
    measure: str,
    rng: np.random.Generator,
) -> list[float]:
    """Draw the samples/s of ``count`` devices: each is any device of the table, with equal chance.

    ``values``: one number per device. The device of their median has ``median_samples_per_s``. With
    ``measure`` "score" a speed is in proportion to its number, with "time" to 1 / number.
    """
    check_count(count)
    check_rate("median_samples_per_s", median_samples_per_s)
    middle = median(values)
    speeds = [value / middle if measure == "score" else middle / value for value in values]
    return [median_samples_per_s * speeds[place] for place in rng.integers(len(speeds), size=count)]
