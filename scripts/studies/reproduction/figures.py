"""The figures of the pages, drawn from the result files in the look of all figures of edgefl."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten, wrap
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullLocator, StrMethodFormatter

from edgefl.results.figures.base import Canvas, PlotStyle, look, marked, save, settings
from edgefl.results.figures.curves import STEPS, step_values
from edgefl.results.summary import unit_up_to
from reproduction.drawings import lines_of
from reproduction.entry import Figure, Point, Verdict
from reproduction.results import NoResults, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORM = "svg"
POINTS = 200  # of a mean curve
MOST_COLUMNS, HEIGHT = 3, 2.2  # panels in a row; inches
DECADE = 10.0
MARKERS_UP_TO = 12  # points of a line that get a marker each
TITLE = 32  # characters of a line of a panel's title
# The forest: inches of a row; widths of labels and plot; characters of a label's line and of a
# group's name; ends and ticks of the axis.
ROW, SHARES, LABEL, TITLES = 0.24, (1.2, 1.0), 74, 70
FURTHEST, TICKS = 100.0, (-100, -10, -1, 0, 1, 10, 100)
SIGNS = {  # colours that the colour-blind tell apart, too
    Verdict.holds: ("#009E73", "o"),
    Verdict.fails: ("#D55E00", "X"),
    Verdict.equal: ("#0072B2", "s"),
    Verdict.unknown: ("0.55", "^"),
    Verdict.missing: ("0.55", "_"),
}
THEIRS = {"marker": "D", "markersize": 4, "markerfacecolor": "none", "markeredgewidth": 0.9}
NAMES = {
    "accuracy": "Test accuracy",
    "loss": "Test loss",
    "train_loss": "Train loss",
    "version": "Version of the model",
}
Curves = Mapping[int, Sequence[tuple[float, float]]]  # seed -> points
Panels = Mapping[str, Mapping[str, Curves]]  # panel -> line -> its curves


def write(figure: Figure, results: Results, folder: Path) -> Path | None:
    """Write a figure of an entry; return its file, None if there is nothing to draw."""
    path = folder / f"{results.entry.name}-{figure.name}"
    if not figure.lines:
        return write_curves(figure, curves_of(figure, results), path)
    return _written(lambda canvas: _lines(figure, results, canvas), path)


def write_curves(figure: Figure, panels: Panels, path: Path) -> Path | None:
    """Write curves to ``path``, without its suffix; return the file, None without a curve."""
    return _written(lambda canvas: _curves(figure, panels, canvas), path)


def _written(draw: Callable[[Canvas], bool], path: Path) -> Path | None:
    with matplotlib.rc_context(settings()):
        canvas = Canvas(PlotStyle(), "page")
        if not draw(canvas):
            return None
        made = canvas.finish()
    return save(made, path, (FORM,))[0]


# ------------------------------------------------------------------ curves
def curves_of(figure: Figure, results: Results) -> Panels:
    """Return what a figure shows: a panel for each part, a curve for each method."""
    return {
        part.title or part.name: {
            method.shown: curve
            for method in part.methods
            if (not figure.methods or method.shown in figure.methods)
            and (curve := results.curve(f"{part.name}/{method.shown}", figure.column, figure.x))
        }
        for part in results.entry.parts
        if not figure.parts or part.name in figure.parts
    }


def _curves(figure: Figure, panels_of: Panels, canvas: Canvas) -> bool:
    found = {name: curves for name, curves in panels_of.items() if curves}
    if not found:
        return False
    places = _places(found.values())
    panels = canvas.panels(len(found), MOST_COLUMNS, HEIGHT, sharey=True)
    for axes, (name, curves) in zip(panels, found.items()):
        size, unit = _unit(figure, curves)
        for method, curve in curves.items():
            _draw_curve(axes, curve, size, canvas.text(method), places[method])
        _finish(axes, figure.log, name if len(found) > 1 else "")
        axes.set_xlabel(unit)
    panels[0].set_ylabel(NAMES.get(figure.column, figure.column))
    _legend(canvas, panels)
    return True


def _unit(figure: Figure, curves: Mapping[str, Curves]) -> tuple[float, str]:
    if figure.x != "emulated_s":
        return 1.0, NAMES.get(figure.x, figure.x)
    ends = [points[-1][0] for curve in curves.values() for points in curve.values() if points]
    size, unit = unit_up_to(max(ends, default=1.0), "s")
    return size, f"Emulated time ({unit})"


def _draw_curve(axes: Axes, curve: Curves, size: float, name: str, place: int) -> None:
    """Draw the mean over the seeds, and a band from the lowest to the highest seed."""
    x, values = on_one_grid(list(curve.values()))
    axes.plot(x / size, values.mean(axis=0), label=name, drawstyle=STEPS, **marked(place))
    if len(values) > 1:
        axes.fill_between(
            x / size,
            values.min(axis=0),
            values.max(axis=0),
            color=look(place)["color"],
            alpha=0.15,
            linewidth=0,
            step="post",
        )


def on_one_grid(curves: Sequence[Sequence[tuple[float, float]]]) -> tuple[np.ndarray, np.ndarray]:
    """Return (x, a row of values for each curve) where all curves have points.

    A curve holds its value until its next point.
    """
    begin = max(points[0][0] for points in curves)
    end = min(points[-1][0] for points in curves)
    x = np.unique([at for points in curves for at, _ in points if begin <= at <= end])
    if len(x) > POINTS:
        x = x[np.linspace(0, len(x) - 1, POINTS).round().astype(int)]
    rows = [
        step_values(([at for at, _ in points], [value for _, value in points]), x)
        for points in curves
    ]
    return x, np.asarray(rows)


# ------------------------------------------------------------------ lines
def _lines(figure: Figure, results: Results, canvas: Canvas) -> bool:
    try:
        given = lines_of(figure.lines, results)
    except NoResults:
        return False
    found = {
        name: {line: points for line, points in lines.items() if points}
        for name, lines in given.items()
    }
    found = {name: lines for name, lines in found.items() if lines}
    if not found:
        return False
    places = _places(found.values())
    panels = canvas.panels(len(found), MOST_COLUMNS, HEIGHT, sharey=True)
    for axes, (name, lines) in zip(panels, found.items()):
        for line, points in lines.items():
            _draw_line(axes, points, canvas.text(line), places[line], figure.joined)
        if figure.zero:
            axes.axhline(0.0, color="0.35", linewidth=0.8, zorder=1)
        _finish(axes, figure.log, name)
        if "x" in figure.log:
            _ticks(axes, lines)
        axes.set_xlabel(figure.x)
    panels[0].set_ylabel(figure.y)
    _legend(canvas, panels)
    return True


def _draw_line(axes: Axes, points: Sequence[Point], name: str, place: int, joined: bool) -> None:
    ordered = sorted(points, key=lambda point: point.x)
    x, y = [point.x for point in ordered], [point.y for point in ordered]
    style = marked(place)
    if len(ordered) <= MARKERS_UP_TO:
        style["markevery"] = 1
    if not joined:
        style["linestyle"] = "none"
    axes.plot(x, y, label=name, **style)
    bars = [
        (each.x, each.low, each.high)
        for each in ordered
        if each.low is not None and each.high is not None
    ]
    if bars:
        axes.vlines(*zip(*bars), color=look(place)["color"], linewidth=0.9, alpha=0.7)


def _ticks(axes: Axes, lines: Mapping[str, Sequence[Point]]) -> None:
    """Put the ticks of a logarithmic axis at the points, if they are few.

    A vertical line, such as a bound, has no tick: it may be between two others.
    """
    at = [{point.x for point in points} for points in lines.values()]
    places = sorted(set().union(*(each for each in at if len(each) > 1)))
    if len(places) <= MARKERS_UP_TO:
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.set_xticks([], minor=True)


# ------------------------------------------------------------------ the forest of main claims
@dataclass(frozen=True, slots=True)
class Tree:
    """A claim of the forest: ``effects`` and ``theirs`` as multiples of what matters.

    ``effects``: ours, as ``entry.Finding`` has them. ``theirs``: the paper's; None: no number.
    ``is_small``: whether the runs have the small scale.
    """

    text: str
    verdict: Verdict
    effects: tuple[float, ...]
    theirs: float | None
    is_small: bool


def write_forest(groups: Mapping[str, Sequence[Tree]], path: Path) -> Path | None:
    """Write the claims of each group, one below the other on one axis; as ``write_curves``."""
    return _written(lambda canvas: _forest(groups, canvas), path)


def _forest(groups: Mapping[str, Sequence[Tree]], canvas: Canvas) -> bool:
    rows: list[str | Tree] = [row for name, its in groups.items() for row in (name, *its)]
    if not rows:
        return False
    ratios = {"width_ratios": SHARES}
    labels, axes = canvas.panels(2, 2, ROW * len(rows), sharey=True, gridspec_kw=ratios)
    labels.axis("off")
    labels.set_xlim(0.0, 1.0)
    axes.set_xscale("symlog", linthresh=1.0, linscale=0.6)
    axes.set_xlim(-FURTHEST, FURTHEST)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.axvspan(-1.0, 1.0, color="0.92", linewidth=0, zorder=0)
    axes.axvline(0.0, color="0.35", linewidth=0.8, zorder=1)
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.set_yticks([])
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("Advantage; 1 is the smallest that matters")
    for y, row in enumerate(rows):
        if isinstance(row, str):
            _label(labels, y, shorten(row, TITLES), fontweight="bold", fontsize=6.5)
        else:
            _tree(labels, axes, y, row)
    handles = [
        Line2D([], [], label=verdict, linestyle="none", color=colour, marker=marker, markersize=5)
        for verdict, (colour, marker) in SIGNS.items()
    ]
    theirs = Line2D([], [], label="the paper", linestyle="none", color="black", **THEIRS)
    canvas.legend_of([*handles, theirs])
    return True


def _tree(labels: Axes, axes: Axes, y: int, row: Tree) -> None:
    colour, marker = SIGNS[row.verdict]
    _label(labels, y, "\n".join(wrap(row.text, LABEL)), fontsize=5.5, linespacing=0.95)
    face = "none" if row.is_small else colour
    sign = {"marker": marker, "color": colour, "markerfacecolor": face, "clip_on": False}
    labels.plot([1.0], [y], markersize=5, **sign)
    if row.effects:
        mean, low, high = (min(max(each, -FURTHEST), FURTHEST) for each in row.effects)
        axes.plot([low, high], [y, y], color=colour, linewidth=1.3, solid_capstyle="butt")
        axes.plot([mean], [y], markersize=3.5, **sign)
    if row.theirs is not None:
        axes.plot([row.theirs], [y], color="black", clip_on=False, **THEIRS)


def _label(labels: Axes, y: int, text: str, **look: Any) -> None:
    """Write a label, whose length does not change the layout."""
    labels.text(0.0, y, text, va="center", **look).set_in_layout(False)


# ------------------------------------------------------------------ both
def _places(panels: Iterable[Iterable[str]]) -> dict[str, int]:
    """Return the place of each line by its name: the same in all panels."""
    names = [name for lines in panels for name in lines]
    return {name: place for place, name in enumerate(dict.fromkeys(names))}


def _finish(axes: Axes, log: str, title: str) -> None:
    if title:
        axes.set_title("\n".join(wrap(title, TITLE)))
    if "x" in log:
        axes.set_xscale("log")
    if "y" in log:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        if high < DECADE * low:  # too few powers of ten for ticks
            axes.yaxis.set_major_locator(MaxNLocator(6))
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.yaxis.set_minor_locator(NullLocator())


def _legend(canvas: Canvas, panels: Sequence[Axes]) -> None:
    """Put one legend with the lines of all panels above them."""
    named: dict[str, object] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels()):
            named.setdefault(label, handle)
    canvas.legend_of(list(named.values()))
