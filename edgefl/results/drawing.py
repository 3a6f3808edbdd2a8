"""Helpers of several figures: a legend that fits long names, and panels without empty axes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

LEGEND_COLUMNS = 5
LEGEND_SHARE = 0.97  # of the figure's width
NOISE = 1e-9  # relative to the largest value: smaller differences are rounding


def legend_above(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Put a legend above all axes, in as many columns as fit the figure's width.

    Names that are too long for one column are wrapped. The figure grows by the legend's height. It
    must have a constrained layout.
    """
    if not labels:
        return
    room = LEGEND_SHARE * figure.get_figwidth()
    for count in range(min(len(labels), LEGEND_COLUMNS), 0, -1):
        width, height = _placed(figure, handles, labels, count)
        if width <= room:
            break
    longest = max(map(len, labels))
    while width > room and longest > 1:
        longest = min(longest - 1, int(longest * room / width))
        wrapped = ["\n".join(textwrap.wrap(label, longest)) for label in labels]
        width, height = _placed(figure, handles, wrapped, 1)
    figure.set_figheight(figure.get_figheight() + height)


def _placed(
    figure: Figure, handles: Sequence[Any], labels: Sequence[str], columns: int
) -> tuple[float, float]:
    """Replace the figure's legend; return its (width, height) in inches."""
    for former in list(figure.legends):
        former.remove()
    legend = figure.legend(
        handles,
        labels,
        loc="outside upper center",
        ncols=columns,
        frameon=False,
        columnspacing=1.6,
    )
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    box = legend.get_window_extent(canvas.get_renderer())
    return box.width / figure.dpi, box.height / figure.dpi


def label_lowest(panels: Sequence[Axes], label: str) -> None:
    """Give the lowest panel of each column the x ``label`` and ticks; they share the x axis."""
    places = [(axes, axes.get_subplotspec()) for axes in panels]
    lowest = {place.colspan.start: axes for axes, place in places if place is not None}
    for axes in lowest.values():  # the last one of each column
        axes.tick_params(labelbottom=True)
        axes.set_xlabel(label)


def is_constant(values: Sequence[float]) -> bool:
    """Return whether the values differ only by rounding."""
    most = max(map(abs, values), default=0.0)
    return max(values, default=0.0) - min(values, default=0.0) <= NOISE * most


def fit_constant(axes: Axes, values: Sequence[float]) -> bool:
    """If ``values`` are constant, give the axes a y range from 0 with the value in the middle.

    For the value 0 the range is -1 to 1. matplotlib's own range would be a tiny one around the
    value. Return whether the values are constant.
    """
    constant = bool(values) and is_constant(values)
    if constant:
        axes.set_ylim(*(sorted((0.0, 2 * values[0])) if values[0] else (-1.0, 1.0)))
    return constant
