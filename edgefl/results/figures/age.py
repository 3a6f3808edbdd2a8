"""The age of the models on edges, and of merged updates, over time (``edgefl.results.age``).

The run is divided into parts. In each the mean is over the time of all edges, or over all updates
that were merged, of all seeds. The band is from the 5th to the 95th percentile of these ages.
"""

from __future__ import annotations

import math
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
    look,
)

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
        ages = {name: [run.ages for run in of_scheme] for name, of_scheme in runs.items()}
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
    """Return the moments of a scheme's steps, and mean, low and high from there on.

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


PLOTS = {"age": ModelAge(), "update-age": UpdateAge()}
