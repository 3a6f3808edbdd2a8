"""Starlink on the Road: UDP throughput of a Starlink dish on a car, 15 s at a time.

``timestamp_start`` is the second of a row, ``download`` and ``upload`` are bit/s, empty where they
were not measured. Between two measurements of 15 s the dish was not measured: those pauses are cut
out.

Source: D. Laniewski et al., "Starlink on the road: a first look at mobile Starlink performance in
Central Europe", TMA 2024; https://github.com/sys-uos/Starlink-on-the-Road
"""

from __future__ import annotations

import csv
from collections.abc import Iterable

from emulator.traces.formats.trace_format import TraceFormat
from emulator.traces.recording import Recording, held, in_order, moment, not_of, number

TIME = "%Y-%m-%d %H:%M:%S"
COLUMN = {"down": "download", "up": "upload"}
NEEDED = ("timestamp_start", "download", "upload")


def convert(lines: Iterable[str], name: str, direction: str, series: str | None) -> Recording:
    """One direction; rows without a value for it are left out."""
    reader = csv.DictReader(lines)
    if not set(NEEDED) <= set(reader.fieldnames or ()):
        raise not_of("starlink-road", name, f"columns {', '.join(NEEDED)}", str(reader.fieldnames))
    rows: list[tuple[int, int]] = []
    for row in reader:
        where, value = f"{name}, line {reader.line_num}", row[COLUMN[direction]]
        at_s = moment(row["timestamp_start"] or "", TIME)
        rate = number(value) if value else 0.0
        if at_s is None or rate is None:
            raise not_of(
                "starlink-road",
                where,
                "a time and rates in bit/s",
                ",".join(map(str, row.values())),
            )
        if value:
            in_order(where, rows[-1][0] if rows else None, at_s)
            rows.append((at_s, round(rate)))
    return held(rows, name, longest_s=1)


def known(line: str) -> bool:
    return line.startswith("timestamp_start,") and ",download,upload," in line


FORMAT = TraceFormat("starlink-road", "UDP over Starlink on a car", ("down", "up"), known, convert)
