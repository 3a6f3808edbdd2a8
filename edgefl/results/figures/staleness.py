"""Staleness of the updates at their arrival: over time, and as a histogram."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgefl.results.figures.base import (
    Canvas,
    Plot,
    PlotData,
    PlotStyle,
    Runs,
    axis_of,
    first_seeds,
    percents,
    whole_numbers,
)
from edgefl.results.read import MISSING
from edgefl.results.run_files import RunFiles

PARTS = 40  # of the longest run
LOW, HIGH = 10, 90  # percentiles of the band
MOST_BARS = 24  # of a histogram; more are drawn as steps


class Staleness(Plot):
    """Staleness of the updates at their arrival: mean, and 10th to 90th percentile, over time."""

    OF = "runs with at least one update"
    X = ("emulated_s", "version", "round")
    LOG = ""  # many are 0
    WIDTH = "column"

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        x = style.x or "emulated_s"
        of_runs = {name: updates(run) for name, run in first_seeds(runs)}
        points = {
            name: (t_s if x == "emulated_s" else version, gap)
            for name, (t_s, version, gap) in of_runs.items()
        }
        end = max((at.max().item() for at, _ in points.values() if len(at)), default=0.0)
        rows = [(name, x, *part) for name, of in points.items() for part in parts(*of, end)]
        return PlotData(("name", "x", "at", "updates", "mean", "low", "high"), rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        axes = canvas.panel()
        unit, label = axis_of(data["x"][0], max(data["at"]))
        for place, (name, each) in enumerate(data.by("name").items()):
            x = [at / unit for at in each["at"]]
            canvas.line(axes, place, name, x, each["mean"])
            canvas.band(axes, place, x, each["low"], each["high"])
        axes.set_xlabel(label)
        axes.set_ylabel("Staleness (versions)")
        axes.set_xlim(left=0)
        axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))
        canvas.legend(axes)


def updates(run: RunFiles) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return emulated s, version, and staleness in versions of all updates at their arrival."""
    rows = run.events.rows
    places = np.flatnonzero(rows.texts_of("event") == run.texts.number("update_arrived"))
    version, base = rows.whole("version")[places], rows.whole("base_version")[places]
    if (base == MISSING).any():
        raise KeyError("base_version")
    return rows.floats("t")[places], version, version - base


def parts(
    at: np.ndarray, values: np.ndarray, end: float
) -> list[tuple[float, int, float, float, float]]:
    """Divide 0 to ``end`` into PARTS; return those with ``values``, which are ``at`` some place.

    Each is (its middle, number of values, mean, 10th percentile, 90th percentile).
    """
    part = np.zeros(len(at), np.int64)
    if end > 0:
        part = np.minimum((at / end * PARTS).astype(np.int64), PARTS - 1)
    found = []
    for each in np.unique(part).tolist():
        within = values[part == each]
        numbers = (np.mean(within), *np.percentile(within, (LOW, HIGH)))
        found.append(((each + 0.5) * end / PARTS, len(within), *map(float, numbers)))
    return found


class StalenessHistogram(Plot):
    """Histogram of the updates' staleness at their arrival, over all seeds of a scheme."""

    OF = "runs with at least one update"
    LOG = "y"
    WIDTH = "column"

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        rows: list[tuple[Any, ...]] = []
        for name, of_scheme in runs.items():
            counts = Counter(gap for run in of_scheme for gap in updates(run)[2].tolist())
            gaps = range(max(counts, default=-1) + 1)
            rows += [(name, gap, counts[gap], counts[gap] / counts.total()) for gap in gaps]
        return PlotData(("name", "staleness", "updates", "share"), rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        axes = canvas.panel()
        schemes = data.by("name")
        if len(data.rows) <= MOST_BARS:
            canvas.bars(axes, schemes, "staleness", "share")
        else:
            for place, (name, each) in enumerate(schemes.items()):
                canvas.line(axes, place, name, *outline(each["staleness"], each["share"]))
            whole_numbers(axes)
        axes.set_xlabel("Staleness (versions)")
        axes.set_ylabel("Share of the updates")
        percents(axes)
        axes.set_ylim(bottom=0)
        canvas.legend(axes)


def outline(gaps: Sequence[int], shares: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the corners (x and y) of the outline of bars of width 1 at ``gaps`` in a row."""
    x = [corner for gap in gaps for corner in (gap - 0.5, gap + 0.5)]
    y = [corner for share in shares for corner in (share, share)]
    return [x[0], *x, x[-1]], [0.0, *y, 0.0]


PLOTS = {"staleness": Staleness(), "staleness-histogram": StalenessHistogram()}
