"""What native links and devices did: a section, a table with one line per edge, and native.csv."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from edgefl.errors import printable
from edgefl.record.files import MEASURED
from edgefl.reports.family import Family
from edgefl.results import rundirs
from edgefl.results.compare import write_table
from edgefl.results.forms import plain_table
from edgefl.results.measured import measured, numbers

SERIES = ("up_mbit_s", "down_mbit_s", "rtt_ms", "idle_rtt_ms", "samples_per_s")
SPREAD = ("median", "p5", "p95", "count")
COLUMNS = ("name", "run", "edge", *(f"{name}_{part}" for name in SERIES for part in SPREAD))
MOST_LINES = 24
LEFT = ("strategy", "edge")
SHOWN = {  # heading -> series and its part
    "up\nMbit/s": ("up_mbit_s", "median"),
    "up\np5": ("up_mbit_s", "p5"),
    "down\nMbit/s": ("down_mbit_s", "median"),
    "down\np5": ("down_mbit_s", "p5"),
    "RTT\nms": ("rtt_ms", "median"),
    "RTT\np95": ("rtt_ms", "p95"),
    "samples\n/s": ("samples_per_s", "median"),
}


@dataclass(frozen=True, slots=True)
class EdgeRow:
    """What was measured of an edge in a run of the scheme ``name``."""

    name: str
    run: str
    edge: str
    series: dict[str, dict[str, float]]

    def value(self, name: str, part: str) -> float | None:
        return self.series.get(name, {}).get(part)


def load(paths: Sequence[Path]) -> list[EdgeRow]:
    """Load the edges of all runs in ``paths`` or below that have native links or devices.

    UserError if a path holds no run.
    """
    return [
        EdgeRow(name, rundirs.title(run), edge, numbers(each))
        for name, runs in rundirs.find(paths).items()
        for run in runs
        for edge, each in measured(run).items()
    ]


def write_csv(found: Sequence[EdgeRow], path: Path) -> None:
    """Write one row per run and edge: median, 5th and 95th percentile and count of each series."""
    rows = [
        [row.name, row.run, row.edge]
        + [row.value(name, part) for name in SERIES for part in SPREAD]
        for row in found
    ]
    write_table(path, COLUMNS, rows)


def table(found: Sequence[EdgeRow]) -> Table:
    """Return a table for 80 columns: goodput with its slow end, round trips with their long end."""
    shown = plain_table("Native links and devices (medians)")
    for heading in LEFT:
        shown.add_column(heading, overflow="fold")
    for heading in SHOWN:
        shown.add_column(heading, justify="right", no_wrap=True)
    for row in found[:MOST_LINES]:
        cells = [_cell(row.value(*what)) for what in SHOWN.values()]
        shown.add_row(Text(printable(row.run)), Text(printable(row.edge)), *cells)
    if len(found) > MOST_LINES:
        shown.caption = Text(f"{len(found) - MOST_LINES} more in native.csv")
    return shown


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"


class NativeReport(Family):
    """A table and a CSV file of goodput, round trips and training speed by edge."""

    ORDER = 60
    MARK = MEASURED
    FILES = ("native.csv",)

    def section(self, run: Path, emulated_s: float) -> dict[str, Any] | None:
        return {edge: numbers(each) for edge, each in measured(run).items()} or None

    def table(self, directories: Sequence[Path]) -> Table | None:
        found = load(directories)
        return table(found) if found else None

    def leave(self, directories: Sequence[Path], folder: Path) -> list[str]:
        found = load(directories)
        if not found:
            return []
        write_csv(found, folder / self.FILES[0])
        return [
            f"native links and devices by edge: {folder / self.FILES[0]}",
            f"the same with emulated ones: edgefl profile {directories[0]}",
        ]


FAMILY = NativeReport()
