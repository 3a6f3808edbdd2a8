"""What native links and devices did, from measured.csv and links.csv: numbers, a table, native.csv.

A transfer of one edge shares its link with this edge's other transfers in the same direction. So
the unit is a busy period: a time in which at least one of them moved. Its bytes are those of all of
them, so its goodput is the link's. What other edges' transfers take of a common path cannot be seen
from here: ``Busy.others`` says how many of them moved at the same time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table
from rich.text import Text

from edgefl.errors import printable, undamaged
from edgefl.record.files import LINKS, MEASURED, PING, TRAINING
from edgefl.results.families import Family
from edgefl.results.read import TableColumns, read_csv, read_table
from edgefl.results.run_files import find, title, write_table
from edgefl.results.tables import plain_table

WAYS = ("up", "down")
# Below this time, a busy period measures the speed of the two programs and not that of the wire.
SHORT_S = 0.001


class Span(NamedTuple):
    """``amount`` (bytes or samples) from ``began_s`` to ``ended_s``."""

    began_s: float
    ended_s: float
    amount: float

    @property
    def per_s(self) -> float:
        return self.amount / (self.ended_s - self.began_s)


@dataclass(frozen=True, slots=True)
class Busy:
    """A busy period of one edge's link in one direction.

    ``steps`` follow one another without a gap. ``others``: how many other edges' links were busy in
    this direction at the same time, on average over the period.
    """

    steps: tuple[Span, ...]
    others: float = 0.0

    @property
    def began_s(self) -> float:
        return self.steps[0].began_s

    @property
    def ended_s(self) -> float:
        return self.steps[-1].ended_s

    @property
    def size_bytes(self) -> float:
        return sum(step.amount for step in self.steps)

    @property
    def seconds(self) -> float:
        return self.ended_s - self.began_s

    @property
    def rate_bit_s(self) -> float:
        """The goodput. A period below SHORT_S counts as that long: then this is a lower limit."""
        return 8 * self.size_bytes / max(self.seconds, SHORT_S)


@dataclass(slots=True)
class MeasuredEdge:
    """One edge in one run.

    ``rtts_s``: round trips of heartbeats. ``idle_rtts_s``: of those that met no transfer of this
    edge, which would have delayed them. ``training``: stretches with their samples.
    """

    busy: dict[str, list[Busy]] = field(default_factory=lambda: {way: [] for way in WAYS})
    rtts_s: list[float] = field(default_factory=list)
    idle_rtts_s: list[float] = field(default_factory=list)
    training: list[Span] = field(default_factory=list)


def measured(run: Path) -> dict[str, MeasuredEdge]:
    """Read what was measured in a run, by edge; empty if nothing is native."""
    with undamaged(run / LINKS):
        rows = read_csv(run / MEASURED)
        return of_rows(rows, read_table(run / LINKS)) if rows else {}


def of_rows(rows: Iterable[dict[str, str]], links: TableColumns) -> dict[str, MeasuredEdge]:
    """Return what the rows of measured.csv and links.csv tell of each edge."""
    found: defaultdict[str, MeasuredEdge] = defaultdict(MeasuredEdge)
    moved: defaultdict[tuple[str, str], list[Span]] = defaultdict(list)
    pings: defaultdict[str, list[Span]] = defaultdict(list)
    for row in rows:
        edge, what = row["edge"], row["what"]
        stretch = Span(float(row["began_s"]), float(row["ended_s"]), float(row["amount"]))
        if what == PING:
            pings[edge].append(stretch)
        elif what == TRAINING:
            found[edge].training.append(stretch)
        else:
            moved[edge, what].append(stretch)
    for (edge, way), stretches in moved.items():
        found[edge].busy[way] = busy_periods(stretches)
    for edge, of_edge in pings.items():
        found[edge].rtts_s = [ping.ended_s - ping.began_s for ping in of_edge]
    _find_idle(found, pings, links)
    _count_others(found)
    return dict(sorted(found.items()))


def busy_periods(stretches: Sequence[Span]) -> list[Busy]:
    """Join stretches of one link that touch or overlap to busy periods, in order of time.

    Where stretches overlap, their rates add up.
    """
    together: list[list[Span]] = []
    until_s = float("-inf")
    for stretch in sorted(stretches):
        if stretch.began_s > until_s:
            together.append([])
        together[-1].append(stretch)
        until_s = max(until_s, stretch.ended_s)
    return [Busy(tuple(_steps(group))) for group in together]


def _steps(group: Sequence[Span]) -> list[Span]:
    borders = sorted({moment for each in group for moment in (each.began_s, each.ended_s)})
    return [
        Span(
            begin,
            end,
            sum(
                each.per_s * (end - begin)
                for each in group
                if each.began_s <= begin and each.ended_s >= end
            ),
        )
        for begin, end in pairwise(borders)
    ]


def _find_idle(
    found: dict[str, MeasuredEdge],
    pings: dict[str, list[Span]],
    links: TableColumns,
) -> None:
    """Choose the heartbeats between whose sending and answer no transfer of the edge moved."""
    offered_s, finished_s = links["offered_s"], links["finished_s"]
    if np.isnan([offered_s, finished_s]).any():
        raise ValueError("offered_s, finished_s: expected a number in each row")
    for edge, of_edge in pings.items():
        own = links["edge"] == links.texts.number(edge)
        begins_s, ends_s = offered_s[own], finished_s[own]
        found[edge].idle_rtts_s = [
            ping.ended_s - ping.began_s
            for ping in of_edge
            if not ((begins_s < ping.ended_s) & (ends_s > ping.began_s)).any()
        ]


def _count_others(found: dict[str, MeasuredEdge]) -> None:
    for way in WAYS:
        periods = [busy for each in found.values() for busy in each.busy[way]]
        others = iter(_others(periods))
        for each in found.values():
            each.busy[way] = [Busy(busy.steps, next(others)) for busy in each.busy[way]]


def _others(periods: Sequence[Busy]) -> list[float]:
    """How many other links are busy during each period, on average over it.

    A link is busy in one of these periods at a time. Takes n log n steps for n periods.
    """
    began_s = np.array([busy.began_s for busy in periods])
    ended_s = np.array([busy.ended_s for busy in periods])
    moments = np.unique([began_s, ended_s])
    first, last = np.searchsorted(moments, began_s), np.searchsorted(moments, ended_s)
    changes = np.bincount(first, minlength=moments.size) - np.bincount(last, minlength=moments.size)
    busy_s = np.cumsum(np.diff(moments) * np.cumsum(changes)[:-1])  # of all links, by each moment
    busy_s = np.concatenate([[0.0], busy_s])
    together = (busy_s[last] - busy_s[first]) / (ended_s - began_s)
    return [float(count) for count in np.maximum(np.round(together - 1.0, 9), 0.0)]


# ------------------------------------------------------------------ numbers
def numbers(edge: MeasuredEdge) -> dict[str, dict[str, float]]:
    """Return one edge's goodput by direction, round trips and speed, each with its spread."""
    series = {
        **{f"{way}_mbit_s": [busy.rate_bit_s / 1e6 for busy in edge.busy[way]] for way in WAYS},
        "rtt_ms": [1e3 * rtt_s for rtt_s in edge.rtts_s],
        "idle_rtt_ms": [1e3 * rtt_s for rtt_s in edge.idle_rtts_s],
        "samples_per_s": [stretch.per_s for stretch in edge.training],
    }
    return {name: spread(values) for name, values in series.items() if values}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, 5th and 95th percentile (linear between two values) and the count."""
    p5, median, p95 = np.percentile(values, [5, 50, 95])
    return {"median": float(median), "p5": float(p5), "p95": float(p95), "count": len(values)}


# ------------------------------------------------------------------ the table and the file
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
