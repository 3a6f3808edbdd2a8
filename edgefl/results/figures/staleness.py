"""How old models and updates are: staleness in versions at arrival, and age over time.

Staleness is of each update that is not discarded on its arrival: over time, and as a histogram. Age
is that of the models on edges, and of merged updates (``edgefl.results.age``): the run is divided
into parts, in each the mean is over the time of all edges, or over all updates that were merged, of
all seeds. The band is from the 5th to the 95th percentile of these ages.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from edgefl.results.age import (
    HIGH,
    SECONDS,
    VERSIONS,
    Ages,
    mean_ages,
    quantile,
    quantile_s,
    quantile_versions,
)
from edgefl.results.figures.base import (
    STEPS,
    Canvas,
    Plot,
    PlotData,
    PlotStyle,
    Runs,
    axis_of,
    first_seeds,
    look,
    percents,
    whole_numbers,
)
from edgefl.results.read import MISSING
from edgefl.results.run_files import RunFiles

PARTS = 40  # of the longest run
BAND = 10, 90  # percentiles
MOST_BARS = 24  # of a histogram; more are drawn as steps


class Staleness(Plot):
    """Staleness of the updates at their arrival: mean, and 10th to 90th percentile, over time."""

    OF = "runs with at least one update that was not discarded on its arrival"
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
    """Return emulated s, version, and staleness in versions of updates at their arrival.

    As in all tables: without those that the strategy discards then.
    """
    rows, decisions, task = run.events.rows, run.events.decisions, run.events.rows.whole("task")
    places = np.flatnonzero(rows.texts_of("event") == run.texts.number("update_arrived"))
    discards = np.flatnonzero(decisions.texts_of("do") == run.texts.number("discard"))
    in_row = run.events.decided_in[discards]
    own = decisions.whole("task")[discards] == task[in_row]
    places = np.setdiff1d(places, in_row[own])
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
        numbers = (np.mean(within), *np.percentile(within, BAND))
        found.append(((each + 0.5) * end / PARTS, len(within), *map(float, numbers)))
    return found


class StalenessHistogram(Plot):
    """Histogram of the updates' staleness at their arrival, over all seeds of a strategy."""

    OF = "runs with at least one update that was not discarded on its arrival"
    LOG = "y"
    WIDTH = "column"

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        rows: list[tuple[Any, ...]] = []
        for name, of_strategy in runs.items():
            counts = Counter(gap for run in of_strategy for gap in updates(run)[2].tolist())
            gaps = range(max(counts, default=-1) + 1)
            rows += [(name, gap, counts[gap], counts[gap] / counts.total()) for gap in gaps]
        return PlotData(("name", "staleness", "updates", "share"), rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        axes = canvas.panel()
        strategies = data.by("name")
        if len(data.rows) <= MOST_BARS:
            canvas.bars(axes, strategies, "staleness", "share")
        else:
            for place, (name, each) in enumerate(strategies.items()):
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


# ---------------------------------------------------------------------- age
LOW = 1 - HIGH
VALUES = ("mean", "low", "high")
COLUMNS = ("name", "runs", "unit", "at", "until", *VALUES)
LABELS = {SECONDS: "{} (s)", VERSIONS: "{} (versions)"}
Part = tuple[str, float, float, float, float, float]  # the columns from "unit" on


class ModelAge(Plot):
    """Age of the models on the edges, in seconds and versions: mean, and 5th to 95th percentile."""

    OF = "runs in which an edge got a model"
    Y = "Age of the models"
    PARTS = 60  # of the longest run

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        ages = {name: [run.ages for run in of_strategy] for name, of_strategy in runs.items()}
        ends = {name: [each.end_s for each in of] for name, of in ages.items()}
        length_s = max((end_s for of in ends.values() for end_s in of), default=0.0) / self.PARTS
        rows: list[tuple[Any, ...]] = []
        for name, of in ages.items():
            # where all seeds are still running
            borders, end_s = np.arange(self.PARTS) * length_s, min(ends[name])
            borders = np.append(borders[borders < end_s], end_s)
            for begin_s, end_s in zip(borders[:-1].tolist(), borders[1:].tolist()):
                rows += [(name, len(of), *part) for part in self.parts(of, begin_s, end_s)]
        return PlotData(COLUMNS, sorted(rows, key=lambda row: row[2] == VERSIONS))

    def parts(self, ages: Sequence[Ages], begin_s: float, end_s: float) -> Iterator[Part]:
        """Yield the rows of a part; none if nothing has an age there."""
        held = [each.held.between(begin_s, end_s) for each in ages]
        if not any(len(each.edge) for each in held):
            return
        for unit, mean, found in zip(
            (SECONDS, VERSIONS), mean_ages(held), (quantile_s, quantile_versions)
        ):
            yield unit, begin_s, end_s, mean, found(held, LOW), found(held, HIGH)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        panels = canvas.panels(2, 2, 2.2)
        unit_s, label = axis_of("emulated_s", max(data["until"]))
        for axes, (unit, of_unit) in zip(panels, data.by("unit").items()):
            for place, (name, each) in enumerate(of_unit.by("name").items()):
                at, mean, low, high = corners(each)
                x = [moment / unit_s for moment in at]
                canvas.line(axes, place, name, x, mean, drawstyle=STEPS)
                canvas.band(axes, place, x, low, high, alpha=0.12, step="post")
                edge = look(place) | {"linewidth": 0.5, "alpha": 0.6, "drawstyle": STEPS}
                axes.plot(x, high, **edge)
            axes.set_xlabel(label)
            axes.set_ylabel(LABELS[unit].format(self.Y))
            axes.set_xlim(left=0)
            axes.set_ylim(0, max(1.0, axes.get_ylim()[1]) if unit == VERSIONS else None)
        canvas.legend(panels[0])


def corners(parts: PlotData) -> list[list[float]]:
    """Return the moments of a strategy's steps, and mean, low and high from there on.

    Where a part is missing they are NaN.
    """
    rows: list[tuple[float, ...]] = []
    until = math.nan
    for begin, *values, end in zip(*(parts[each] for each in ("at", *VALUES, "until"))):
        if rows and begin > until:
            rows.append((until, *[math.nan] * len(values)))
        rows.append((begin, *values))
        until = end
    rows.append((until, *rows[-1][1:]))
    return [list(column) for column in zip(*rows)]


class UpdateAge(ModelAge):
    """Age of merged updates at their merge, in seconds and versions since their base model."""

    OF = "runs that have merged an update"
    Y = "Age of merged updates"
    PARTS = 20

    def parts(self, ages: Sequence[Ages], begin_s: float, end_s: float) -> Iterator[Part]:
        inside = [(of.updates.t_s > begin_s) & (of.updates.t_s <= end_s) for of in ages]
        of_updates = [each.of_updates() for each in ages]
        for place, unit in enumerate((SECONDS, VERSIONS)):
            values = np.concatenate([of[place][at] for of, at in zip(of_updates, inside)])
            if len(values):
                low, high = (quantile(values, share) for share in (LOW, HIGH))
                yield unit, begin_s, end_s, float(values.mean()), low, high


PLOTS = {
    "age": ModelAge(),
    "staleness": Staleness(),
    "staleness-histogram": StalenessHistogram(),
    "update-age": UpdateAge(),
}
