"""Learned parameters, the weights they give, and the refresh points that were chosen."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgefl.reports.dissemination.section import (
    MARK,
    Outcome,
    refresh_points,
    reported,
    requests_of,
    updates,
)
from edgefl.results.figures.base import Plot, PlotData, Points, Runs, rows_of_series
from edgefl.results.figures.style import PlotStyle
from edgefl.results.run_files import RunFiles

if TYPE_CHECKING:
    from edgefl.results.figures.canvas import Canvas

OF = "fedasmu, fedssmu and their ablations"
CONTROLS = ("name", "parameter", "emulated_s", "value")
REFRESH_POINTS = ("name", "refresh_point", "updates", "share")
# from the server's "report" decisions: number -> title
SERVER = {
    "alpha": "alpha, weight of an update",
    "lambda": "lambda",
    "sigma": "sigma",
    "iota": "iota",
}
# from updates that merged a fresh model: number -> title
DEVICE = {
    "beta": "beta, weight of a fresh model",
    "gamma": "gamma",
    "upsilon": "upsilon",
    "reward": "reward, loss before - after",
}
PANELS = {**SERVER, **DEVICE}
SLIGHT = 0.01


class ControlsPlot(Plot):
    """Learned weights and the parameters that they come from, over time: one panel each."""

    OF = OF
    LIMITS = LOG = "x"  # each panel has another y

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        return PlotData(CONTROLS, rows_of_series(runs, lambda run: series(_rows(run))))

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        from edgefl.results.drawing import fit_constant, label_lowest
        from edgefl.results.figures.canvas import axis_of, dots

        there = data.by("parameter")
        parameters = [parameter for parameter in PANELS if parameter in there]
        schemes = list(data.by("name"))
        unit, label = axis_of("emulated_s", max(data["emulated_s"]))
        panels = canvas.panels(len(parameters), 4, 1.4, narrow=2, sharex=True)
        label_lowest(panels, label)
        for axes, parameter in zip(panels, parameters):
            shown = there[parameter]["value"]
            base = _base(shown)
            for place, scheme in enumerate(schemes):
                # dots, not a line, because values next to each other are from different devices
                points = there[parameter].where(name=scheme)
                x = [t / unit for t in points["emulated_s"]]
                y = [value - base for value in points["value"]]
                axes.plot(x, y, **dots(place), markersize=1.8, alpha=0.6)
            title = f"{parameter} - {base:.12g}" if base else PANELS[parameter]
            axes.set_title(title, fontsize=7)
            axes.ticklabel_format(axis="y", useOffset=False, scilimits=(-3, 4))
            axes.yaxis.get_offset_text().set_fontsize(6)
            fit_constant(axes, shown)
        for place, name in enumerate(schemes):  # invisible lines, for the legend only
            panels[0].plot([], [], label=canvas.text(name), **dots(place), markersize=4.5)
        canvas.legend(panels[0])


class RefreshPointsPlot(Plot):
    """After how many epochs devices asked for a fresher model; over all seeds of a scheme."""

    OF = OF
    LOG = "y"
    WIDTH = "column"

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        rows: list[tuple[Any, ...]] = []
        for name, of_scheme in runs.items():
            counts = Counter(at for run in of_scheme for at in refresh_points(_rows(run)))
            total = counts.total()
            rows += [(name, at, counts[at], counts[at] / total) for at in sorted(counts)]
        return PlotData(REFRESH_POINTS, rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        from matplotlib.ticker import PercentFormatter

        from edgefl.results.figures.canvas import filled, whole_numbers

        (axes,) = canvas.panels(1, 1, 2.2)
        schemes = data.by("name")
        width = 0.8 / len(schemes)
        for place, (name, each) in enumerate(schemes.items()):
            x = [at + (place - (len(schemes) - 1) / 2) * width for at in each["refresh_point"]]
            axes.bar(x, each["share"], width, label=canvas.text(name), **filled(place))
        axes.set_xlabel("Refresh point (finished epochs)")
        axes.set_ylabel("Share of the requests")
        whole_numbers(axes)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        canvas.legend(axes)


def _rows(run: RunFiles) -> Sequence[Mapping[str, Any]]:
    """The rows of a run in which a device asked, or a strategy reported something; else none."""
    rows, number = run.events.rows, run.texts.number
    asked = (rows.texts_of("event") == number(MARK)) | (
        rows.texts_of("fact") == number("request_too_late")
    )
    return run.rows if run.has_decisions("report") or asked.any() else ()


def series(events: Sequence[Mapping[str, Any]]) -> dict[str, Points]:
    """Return for each parameter its values over the arrival times of updates.

    The server's values are those at the arrival, a device's those of the merge in that update.
    """
    found: dict[str, Points] = {name: [] for name in PANELS}
    asked = requests_of(events).by_task
    for event in updates(events):
        _add(found, SERVER, event["t"], reported(event))
        request = asked.get(event["task"])
        if request is not None and request.outcome is Outcome.MERGED:
            _add(found, DEVICE, event["t"], event["numbers"])
    return found


def _add(
    found: dict[str, Points], names: Mapping[str, str], t: float, values: Mapping[str, Any]
) -> None:
    for name in names:
        if values.get(name) is not None:
            found[name].append((t, float(values[name])))


def _base(values: Sequence[float]) -> float:
    """Return what to subtract from a panel's values so that its axis shows small differences.

    It is the first value, rounded, if the values differ by less than SLIGHT; else 0.
    """
    from edgefl.results.drawing import is_constant

    spread = max(values) - min(values)
    return (
        round(values[0], math.ceil(-math.log10(spread)))
        if not is_constant(values) and spread < SLIGHT * abs(values[0])
        else 0.0
    )
