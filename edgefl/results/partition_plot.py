"""Figure of a partition: how many samples of each label each edge has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from edgefl.results.plots import COLOURS, STYLE, save

NAMED = 20  # up to this many edges are named below the figure; more are numbered


def labels(counts: np.ndarray, edges: Sequence[str], out_png: Path) -> list[Path]:
    """Draw ``counts`` (classes, edges): samples per label and edge, and each edge's total above.

    Return the two files written.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.0, 3.6), dpi=300, layout="constrained")
        FigureCanvasAgg(figure)
        totals, grid = figure.subplots(2, 1, sharex=True, height_ratios=(1, 3))
        totals.bar(np.arange(len(edges)), counts.sum(axis=0), width=0.8, color=COLOURS[0])
        totals.set_ylabel("Samples")
        image = grid.imshow(
            counts, aspect="auto", origin="lower", cmap="cividis", interpolation="nearest", vmin=0
        )
        grid.set_ylabel("Label")
        figure.colorbar(image, ax=grid, label="Samples of the label", pad=0.01)
        _ticks(grid, edges)
        totals.spines[["top", "right"]].set_visible(False)
        return [save(figure, out_png, "png"), save(figure, out_png.with_suffix(".pdf"), "pdf")]


def _ticks(axes: Axes, edges: Sequence[str]) -> None:
    axes.yaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
    if len(edges) <= NAMED:
        axes.set_xticks(np.arange(len(edges)), edges, rotation=45, ha="right")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
        axes.set_xlabel("Edge")
