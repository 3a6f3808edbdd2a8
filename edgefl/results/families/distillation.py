"""The numbers that a distilling server reports per round: a figure of them over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edgefl.results.families import Family, reports
from edgefl.results.figures.base import (
    Canvas,
    Plot,
    PlotData,
    PlotStyle,
    Points,
    Runs,
    axis_of,
    fit_constant,
    label_lowest,
    rows_of_series,
)
from edgefl.results.run_files import RunFiles

COLUMNS = ("name", "number", "emulated_s", "value")
PANELS = {  # reported number -> title
    "alpha": "alpha, weight of the divergence",
    "entropy": "entropy of the teachers",
    "teachers": "devices with logits",
    "logits_age": "age of the logits (versions)",
    "server_s": "server time (emulated s)",
    "checkpoints": "versions in use",
}


class DistillationPlot(Plot):
    """What distilling strategies report about each round, over time: one panel per number."""

    OF = "strategies that distil, such as fedecho"
    LIMITS = LOG = "x"  # each panel has another y

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        return PlotData(COLUMNS, rows_of_series(runs, _of_run))

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        values = data.by("number")
        numbers = [number for number in PANELS if number in values]
        strategies = list(data.by("name"))
        unit, label = axis_of("emulated_s", max(data["emulated_s"]))
        panels = canvas.panels(len(numbers), 3, 1.5, sharex=True)
        label_lowest(panels, label)
        for axes, number in zip(panels, numbers):
            for place, strategy in enumerate(strategies):
                points = values[number].where(name=strategy)
                x = [t / unit for t in points["emulated_s"]]
                canvas.line(axes, place, strategy, x, points["value"])
            axes.set_title(PANELS[number], fontsize=7)
            fit_constant(axes, values[number]["value"])
        canvas.legend(panels[0])


def _of_run(run: RunFiles) -> dict[str, Points]:
    return series(run.rows if run.has_decisions("report") else ())


def series(events: Iterable[Mapping[str, Any]]) -> dict[str, Points]:
    """Return for each panel its values over time, from the reports that count teachers."""
    points: dict[str, Points] = {name: [] for name in PANELS}
    for event, values in reports(events):
        if "teachers" in values:
            for name in PANELS.keys() & values.keys():
                points[name].append((event["t"], float(values[name])))
    return points


FAMILY = Family(
    "distillation",
    order=40,
    mark="teachers",
    plots={"distillation": DistillationPlot()},
    pictures={"distillation": "distillation"},
)
