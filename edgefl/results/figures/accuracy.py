"""Accuracy, or another score, over emulated time and over bytes sent, or over another x."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefl.config.scores import SCORES
from edgefl.errors import UserError
from edgefl.results.figures.base import Plot, PlotData, Runs
from edgefl.results.figures.curves import X, draw_curves, rows_of, score_of_runs, target_of, told
from edgefl.results.figures.style import PlotStyle

if TYPE_CHECKING:
    from edgefl.results.figures.canvas import Canvas


class Accuracy(Plot):
    """Test accuracy over emulated time and over bytes sent; seeds give a band of +-1 deviation."""

    OF = "runs with at least one evaluation"
    X = X

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        if not style.x and (style.xlim or "x" in style.log or "x" in style.labels):
            raise UserError("this figure has two x axes: choose one with --x, such as --x bytes")
        score = score_of_runs(runs)
        rows = [
            (name, len(of_scheme), target_of(of_scheme[0], style), x, at, mean, deviation)
            for x in ((style.x,) if style.x else ("emulated_s", "bytes"))
            for name, of_scheme in runs.items()
            for at, mean, deviation in rows_of(of_scheme, x, score.name)
        ]
        columns = ("name", "runs", "target", "x", "at", score.name, "deviation")
        return PlotData(columns, rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        from matplotlib.ticker import PercentFormatter

        score = next(SCORES[column] for column in data.columns if column in SCORES)
        kinds = data.by("x")
        panels = canvas.panels(len(kinds), 2, 2.4, sharey=True)
        for axes, of_x in zip(panels, kinds.values()):
            draw_curves(axes, of_x, canvas, score.name)
            for target in sorted({each for each in data["target"] if each is not None}):
                axes.axhline(
                    target,
                    color="0.35",
                    linewidth=0.9,
                    linestyle=(0, (4, 3)),
                    zorder=1,
                    label=f"target {told(target, score)}",
                )
            if score.largest == 1:
                axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        for axes in panels if not canvas.is_page else panels[:1]:
            axes.set_ylabel(f"Test {score.title}")
        canvas.legend(panels[0])


PLOT = Accuracy()
