"""The label partition: how many samples of each label each edge has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgefl.record.files import EDGES
from edgefl.results.figures.base import Plot, PlotData, Runs, first_seeds
from edgefl.results.figures.style import PlotStyle
from edgefl.results.tail import read_csv

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from edgefl.results.figures.canvas import Canvas

COLUMNS = ("edge", "label", "samples")
NAMED = 20  # up to this many edges are named below the figure; more are numbered


class Labels(Plot):
    """Label partition: the samples of each label on each edge, and each edge's total."""

    OF = "runs with evaluation.by_label = true; of a config: edgefl data plot CONFIG"
    LIMITS = LOG = ""

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        for _, run in first_seeds(runs):  # the schemes of an experiment share a partition
            counts = {
                row["edge"]: [int(count) for key, count in row.items() if key.startswith("label_")]
                for row in read_csv(run.path / EDGES)
            }
            if counts:
                return of_counts(counts)
        return PlotData(COLUMNS, [])

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        edges = list(data.by("edge"))
        counts = np.array(data["samples"]).reshape(len(edges), -1).T
        totals, grid = canvas.panels(2, 1, 1.6, sharex=True, gridspec_kw={"height_ratios": (1, 3)})
        grid.grid(visible=False)
        totals.bar(np.arange(len(edges)), counts.sum(axis=0), width=0.8, color="#0072B2")
        totals.set_ylabel("Samples")
        image = grid.imshow(
            counts, aspect="auto", origin="lower", cmap="cividis", interpolation="nearest", vmin=0
        )
        grid.set_ylabel("Label")
        canvas.figure.colorbar(image, ax=grid, label="Samples of the label", pad=0.01)
        _ticks(grid, edges)


def of_counts(counts: Mapping[str, Sequence[int]]) -> PlotData:
    """Return the numbers of the figure; ``counts``: samples of each label, by edge."""
    rows = [
        (edge, label, int(number))
        for edge, numbers in counts.items()
        for label, number in enumerate(numbers)
    ]
    return PlotData(COLUMNS, rows)


def _ticks(axes: Axes, edges: Sequence[str]) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
    if len(edges) <= NAMED:
        axes.set_xticks(np.arange(len(edges)), edges, rotation=45, ha="right")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
        axes.set_xlabel("Edge")


PLOT = Labels()
