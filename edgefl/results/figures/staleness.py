"""Staleness of the updates over time: their mean and their spread in each part of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgefl.results.columns import MISSING
from edgefl.results.figures.base import Plot, PlotData, Runs, first_seeds
from edgefl.results.figures.style import PlotStyle
from edgefl.results.run_files import RunFiles

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
        end = max((at.max().item() for at, _ in found.values() if len(at)), default=0.0)
        rows = [(name, x, *part) for name, points in found.items() for part in parts(*points, end)]
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
    return [
        (
            (each + 0.5) * end / PARTS,
            len(within),
            float(np.mean(within)),
            float(np.percentile(within, LOW)),
            float(np.percentile(within, HIGH)),
        )
        for each in np.unique(part).tolist()
        if len(within := values[part == each])
    ]


def _points(run: RunFiles, x: str) -> tuple[np.ndarray, np.ndarray]:
    t_s, version, gap = updates(run)
    return (t_s if x == "emulated_s" else version), gap


PLOT = Staleness()
