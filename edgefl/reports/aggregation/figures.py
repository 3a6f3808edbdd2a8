"""Predominant gradients of a step, and staleness over gradients used.

See WKAFL, arXiv 2203.01214, figure 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgefl.reports.aggregation.section import MARK, predominant, steps
from edgefl.results.figures.base import Plot, PlotData, Runs, first_seeds
from edgefl.results.figures.style import PlotStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from edgefl.results.figures.canvas import Canvas

COLUMNS = ("name", "panel", "gradients", "value")
Steps = list[dict[str, float]]


class AggregationPlot(Plot):
    """Share of the steps by number of predominant gradients; staleness by gradients used."""

    OF = "wkafl and the methods it is compared with"
    LIMITS = "x"
    LOG = ""

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        rows: list[tuple[Any, ...]] = []
        for name, run in first_seeds(runs):
            events = run.rows if run.has_decisions("report") else ()
            if values := [step for _, step in steps(events)]:
                shares = predominant(values).items()
                rows += [(name, "share", int(at), count / len(values)) for at, count in shares]
                rows += [(name, "staleness", *point) for point in by_count(values)]
        return PlotData(COLUMNS, rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        from edgefl.results.drawing import fit_constant
        from edgefl.results.figures.canvas import DASHES, MARKERS, filled, look

        left, right = canvas.panels(2, 2, 2.3)
        schemes = data.by("name")
        width = 0.8 / len(schemes)
        for place, (name, each) in enumerate(schemes.items()):
            bars, points = each.where(panel="share"), each.where(panel="staleness")
            x = [at + (place - (len(schemes) - 1) / 2) * width for at in bars["gradients"]]
            left.bar(x, bars["value"], width, label=canvas.text(name), **filled(place))
            line = look(place) | {"marker": MARKERS[place % len(MARKERS)]}
            if line["linestyle"] != DASHES[0]:
                line["markerfacecolor"] = "white"
            right.plot(points["gradients"], points["value"], markersize=3, linewidth=0.8, **line)
        _label(left, "Predominant gradients (weight > 0.1)", "Share of the steps")
        _label(right, "Aggregated gradients", "Weighted staleness (versions)")
        fit_constant(right, data.where(panel="staleness")["value"])
        canvas.legend(left)


def by_count(values: Steps) -> list[tuple[float, float]]:
    """Return (aggregated gradients, mean weighted staleness of those steps), as in figure 2b."""
    counts = sorted({step["aggregated"] for step in values})
    of = {count: [step[MARK] for step in values if step["aggregated"] == count] for count in counts}
    return [(count, sum(of[count]) / len(of[count])) for count in counts]


def _label(axes: Axes, x: str, y: str) -> None:
    from edgefl.results.figures.canvas import whole_numbers

    axes.set_xlabel(x)
    axes.set_ylabel(y)
    whole_numbers(axes)  # of gradients
