"""Staleness of the updates over time: their mean and their spread in each part of the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefl.results.figures.base import Plot, PlotData, RunFiles, Runs, first_seeds
from edgefl.results.figures.style import PlotStyle

if TYPE_CHECKING:
    from edgefl.results.figures.canvas import Canvas

COLUMNS = ("name", "x", "at", "updates", "mean", "low", "high")
PARTS = 40  # of the longest run
LOW, HIGH = 10, 90  # percentiles of the band


class Staleness(Plot):
    """Staleness of the updates at their arrival: mean, and 10th to 90th percentile, over time."""

    OF = "runs with at least one update"
    X = ("emulated_s", "version", "round")
    LOG = ""  # many are 0
    WIDTH = "column"

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        x = style.x or "emulated_s"
        found = {name: _points(run, x) for name, run in first_seeds(runs)}
        end = max((at for points in found.values() for at, _ in points), default=0.0)
        rows = [(name, x, *part) for name, points in found.items() for part in parts(points, end)]
        return PlotData(COLUMNS, rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        from edgefl.results.figures.canvas import axis_of, look, marked

        (axes,) = canvas.panels(1, 1, 2.2)
        unit, label = axis_of(data["x"][0], max(data["at"]))
        for place, (name, each) in enumerate(data.by("name").items()):
            x = [at / unit for at in each["at"]]
            axes.plot(x, each["mean"], label=canvas.text(name), **marked(place))
            band = {"color": look(place)["color"], "alpha": 0.2, "linewidth": 0}
            axes.fill_between(x, each["low"], each["high"], **band)
        axes.set_xlabel(label)
        axes.set_ylabel("Staleness (versions)")
        axes.set_xlim(left=0)
        axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))
        canvas.legend(axes)


def updates(events: Iterable[Mapping[str, Any]]) -> Iterable[tuple[float, int, int]]:
    """Yield (emulated s, version, staleness in versions) of each update at its arrival."""
    for event in events:
        if event.get("event") == "update_arrived":
            yield event["t"], event["version"], event["version"] - event["base_version"]


def parts(
    points: Iterable[tuple[float, float]], end: float
) -> list[tuple[float, int, float, float, float]]:
    """Divide 0 to ``end`` into PARTS; return those with points.

    Each is (its middle, points, mean, 10th percentile, 90th percentile).
    """
    within: dict[int, list[float]] = {}
    for at, value in points:
        part = min(int(at / end * PARTS), PARTS - 1) if end > 0 else 0
        within.setdefault(part, []).append(value)
    return [
        (
            (part + 0.5) * end / PARTS,
            len(values),
            float(np.mean(values)),
            float(np.percentile(values, LOW)),
            float(np.percentile(values, HIGH)),
        )
        for part, values in sorted(within.items())
    ]


def _points(run: RunFiles, x: str) -> list[tuple[float, float]]:
    return [(t if x == "emulated_s" else version, gap) for t, version, gap in updates(run.events)]


PLOT = Staleness()
