"""Test and train loss over emulated time, or over another x."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefl.results.figures.base import Plot, PlotData, Runs
from edgefl.results.figures.curves import X, draw_curves, logarithmic_if_wide, rows_of
from edgefl.results.figures.style import PlotStyle

if TYPE_CHECKING:
    from edgefl.results.figures.canvas import Canvas

COLUMNS = ("name", "runs", "of", "x", "at", "loss", "deviation")
SETS = {"test": "test_loss", "train": "train_loss"}


class Loss(Plot):
    """Test loss, and train loss where it was recorded; the mean over seeds, with its deviation."""

    OF = "runs with at least one evaluation"
    X = X

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        x = style.x or "emulated_s"
        rows = [
            (name, len(of_scheme), of, x, at, mean, deviation)
            for of, column in SETS.items()
            for name, of_scheme in runs.items()
            for at, mean, deviation in rows_of(of_scheme, x, column)
        ]
        return PlotData(COLUMNS, rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        kinds = data.by("of")
        panels = canvas.panels(len(kinds), 2, 2.4)
        for axes, (of, each) in zip(panels, kinds.items()):
            draw_curves(axes, each, canvas, "loss")
            axes.set_ylabel(f"{of.capitalize()} loss")
            logarithmic_if_wide(axes, each["loss"])
        canvas.legend(panels[0])


PLOT = Loss()
