"""The numbers that a distilling server reports per round: a figure of them over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefl.reports.family import Family, draw, pictures
from edgefl.results.figures.base import Plot, PlotData, Points, Runs, rows_of_series
from edgefl.results.figures.style import PlotStyle
from edgefl.results.run_files import RunFiles

if TYPE_CHECKING:
    from edgefl.results.figures.canvas import Canvas

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
    """What distilling schemes report about each round, over time: one panel per number."""

    OF = "strategies that distil, such as fedecho"
    LIMITS = LOG = "x"  # each panel has another y

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        return PlotData(COLUMNS, rows_of_series(runs, lambda run: series(_rows(run))))

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        from edgefl.results.figures.canvas import axis_of, fit_constant, label_lowest, marked

        there = data.by("number")
        numbers = [number for number in PANELS if number in there]
        schemes = list(data.by("name"))
        unit, label = axis_of("emulated_s", max(data["emulated_s"]))
        panels = canvas.panels(len(numbers), 3, 1.5, sharex=True)
        label_lowest(panels, label)
        for axes, number in zip(panels, numbers):
            for place, scheme in enumerate(schemes):
                points = there[number].where(name=scheme)
                x = [t / unit for t in points["emulated_s"]]
                text = canvas.text(scheme)
                axes.plot(x, points["value"], label=text, **marked(place))
            axes.set_title(PANELS[number], fontsize=7)
            fit_constant(axes, there[number]["value"])
        canvas.legend(panels[0])


def _rows(run: RunFiles) -> Iterable[Mapping[str, Any]]:
    return run.rows if run.has_decisions("report") else ()


def series(events: Iterable[Mapping[str, Any]]) -> dict[str, Points]:
    """Return for each panel its values over time, from the reports that count teachers."""
    found: dict[str, Points] = {name: [] for name in PANELS}
    for event in events:
        for decision in event.get("decisions", ()):
            values = decision.get("values", {})
            if "teachers" in values:
                for name in PANELS.keys() & values.keys():
                    found[name].append((event["t"], float(values[name])))
    return found


class Distillation(Family):
    """A figure of the numbers reported per round."""

    ORDER = 40
    MARK = "teachers"
    FILES = pictures("distillation")

    def plots(self) -> Mapping[str, Plot]:
        return {"distillation": DistillationPlot()}

    def leave(self, directories: Sequence[Path], folder: Path) -> list[str]:
        return draw(self, directories, folder, {"distillation": "distillation"})


FAMILY = Distillation()
