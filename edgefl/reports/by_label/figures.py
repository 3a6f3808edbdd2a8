"""Accuracy over time on the data that each runtime class of devices holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefl.reports.by_label.section import by_runtime
from edgefl.results.figures.base import Plot, PlotData, Runs, rows_of_series
from edgefl.results.figures.curves import STEPS
from edgefl.results.figures.style import PlotStyle

if TYPE_CHECKING:
    from edgefl.results.figures.canvas import Canvas

COLUMNS = ("name", "runtime", "emulated_s", "accuracy")
# order of the panels, by the first word of a runtime class
SLOWER = {"short": 1, "medium": 2, "long": 3}


class RuntimesPlot(Plot):
    """Accuracy on the data of each runtime class of devices, over time; one panel per class."""

    OF = "runs with evaluation.by_label = true"
    LOG = ""

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        return PlotData(COLUMNS, rows_of_series(runs, lambda run: by_runtime(run.path)))

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        from matplotlib.ticker import PercentFormatter

        from edgefl.results.figures.canvas import axis_of, marked

        classes = sorted(data.by("runtime"), key=_slowness)
        unit, label = axis_of("emulated_s", max(data["emulated_s"]))
        across = min(len(classes), 3)
        panels = canvas.panels(len(classes), across, 2.2, sharey=True)
        schemes = list(data.by("name"))
        for axes, runtime in zip(panels, classes):
            of_class = data.where(runtime=runtime)
            for place, scheme in enumerate(schemes):
                points = of_class.where(name=scheme)
                x = [t / unit for t in points["emulated_s"]]
                text = canvas.text(scheme)
                axes.plot(x, points["accuracy"], label=text, drawstyle=STEPS, **marked(place))
            axes.set_title(f"what {runtime} devices hold", fontsize=7)
            axes.set_xlabel(label)
            axes.set_ylim(0, 1)
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        for axes in panels[::across] if canvas.is_page else panels:
            axes.set_ylabel("Accuracy by label, weighted")
        canvas.legend(panels[0])


def _slowness(runtime: str) -> tuple[int, str]:
    return SLOWER.get(runtime.split()[0], 0), runtime
