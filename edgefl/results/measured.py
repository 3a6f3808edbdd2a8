"""What the native links and devices of a run did, from its measured.csv and links.csv.

A transfer of one edge shares its link with this edge's other transfers in the same direction. So
the unit is a busy period: a time in which at least one of them moved. Its bytes are those of all of
them, so its goodput is the link's. What other edges' transfers take of a common path cannot be seen
from here: ``Busy.others`` says how many of them moved at the same time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgefl.errors import undamaged
from edgefl.record.files import LINKS, MEASURED, PING, TRAINING
from edgefl.results.read import TableColumns, read_csv, read_table

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
