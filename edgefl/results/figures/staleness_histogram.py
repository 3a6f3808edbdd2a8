"""How many updates have which staleness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgefl.results.figures.base import Plot, PlotData, Runs
from edgefl.results.figures.staleness import updates
from edgefl.results.figures.style import PlotStyle

if TYPE_CHECKING:
    from edgefl.results.figures.canvas import Canvas

COLUMNS = ("name", "staleness", "updates", "share")
MOST_BARS = 24  # more are drawn as steps


class StalenessHistogram(Plot):
    """Histogram of the updates' staleness at their arrival, over all seeds of a scheme."""

    OF = "runs with at least one update"
    LOG = "y"
    WIDTH = "column"

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        rows: list[tuple[Any, ...]] = []
        for name, of_scheme in runs.items():
            counts: Counter[int] = Counter()
            for run in of_scheme:
                counts.update(updates(run)[2].tolist())
            total = counts.total()
            rows += [
                (name, gap, counts[gap], counts[gap] / total)
                for gap in range(max(counts, default=-1) + 1)
            ]
        return PlotData(COLUMNS, rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        from matplotlib.ticker import PercentFormatter

        from edgefl.results.figures.canvas import filled, marked, whole_numbers

        (axes,) = canvas.panels(1, 1, 2.2)
        schemes = data.by("name")
        width = 0.8 / len(schemes)
        for place, (name, each) in enumerate(schemes.items()):
            if len(data.rows) <= MOST_BARS:
                shift = (place - (len(schemes) - 1) / 2) * width
                at = [gap + shift for gap in each["staleness"]]
                axes.bar(at, each["share"], width, label=canvas.text(name), **filled(place))
            else:
                x, y = outline(each["staleness"], each["share"])
                axes.plot(x, y, label=canvas.text(name), **marked(place))
        axes.set_xlabel("Staleness (versions)")
        axes.set_ylabel("Share of the updates")
        whole_numbers(axes)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_ylim(bottom=0)
        canvas.legend(axes)


def outline(gaps: Sequence[int], shares: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the corners (x and y) of the outline of bars of width 1 at ``gaps`` in a row."""
    x, y = [gaps[0] - 0.5], [0.0]
    for gap, share in zip(gaps, shares):
        x += [gap - 0.5, gap + 0.5]
        y += [share, share]
    return [*x, gaps[-1] + 0.5], [*y, 0.0]


PLOT = StalenessHistogram()
