"""What native links and devices did: a section, a table with one line per edge, and native.csv."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from edgefl.errors import printable
from edgefl.record.files import MEASURED
from edgefl.results.families import Family
from edgefl.results.measured import measured, numbers
from edgefl.results.run_files import find, title, write_table
from edgefl.results.tables import plain_table

SERIES = ("up_mbit_s", "down_mbit_s", "rtt_ms", "idle_rtt_ms", "samples_per_s")
PARTS = [(name, part) for name in SERIES for part in ("median", "p5", "p95", "count")]
COLUMNS = ("name", "run", "edge", *map("_".join, PARTS))
MOST_LINES = 24
SHOWN = {  # heading -> the column
    "up\nMbit/s": "up_mbit_s_median",
    "up\n5 %": "up_mbit_s_p5",
    "down\nMbit/s": "down_mbit_s_median",
    "down\n5 %": "down_mbit_s_p5",
    "RTT\nms": "rtt_ms_median",
    "RTT\n95 %": "rtt_ms_p95",
    "samples\n/s": "samples_per_s_median",
}


def load(paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Yield the columns of each edge of all runs in ``paths`` that has native links or devices.

    UserError if a path holds no run.
    """
    for name, runs in find(paths).items():
        for run in runs:
            for edge, each in measured(run).items():
                found = numbers(each)
                values = [found.get(series, {}).get(part) for series, part in PARTS]
                yield dict(zip(COLUMNS, (name, title(run), edge, *values)))


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return a table for 80 columns: goodput with its slow end, round trips with their long end."""
    shown = plain_table("Native links and devices (medians)")
    for heading in ("strategy", "edge"):
        shown.add_column(heading, overflow="fold")
    for heading in SHOWN:
        shown.add_column(heading, justify="right", no_wrap=True)
    for row in rows[:MOST_LINES]:
        names = [Text(printable(row[column])) for column in ("run", "edge")]
        shown.add_row(*names, *(_cell(row[column]) for column in SHOWN.values()))
    if len(rows) > MOST_LINES:
        shown.caption = Text(f"{len(rows) - MOST_LINES} more in native.csv")
    return shown


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"


class NativeReport(Family):
    """A table and a CSV file of goodput, round trips and training speed by edge."""

    def section(self, run: Path, emulated_s: float) -> dict[str, Any] | None:
        return {edge: numbers(each) for edge, each in measured(run).items()} or None

    def table(self, directories: Sequence[Path]) -> Table | None:
        rows = list(load(directories))
        return table(rows) if rows else None

    def leave(self, directories: Sequence[Path], folder: Path) -> list[str]:
        rows = list(load(directories))
        if not rows:
            return []
        write_table(folder / self.csv, COLUMNS, [list(row.values()) for row in rows])
        return [
            f"native links and devices by edge: {folder / self.csv}",
            f"the same with emulated ones: edgefl profile {directories[0]}",
        ]


FAMILY = NativeReport("native", order=60, mark=MEASURED, csv="native.csv")
