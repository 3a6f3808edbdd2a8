"""The surface that a figure is drawn on: a width for print, panels, colours, the user's options.

It uses matplotlib's objects: no pyplot, no global state.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import cbook
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.mathtext import MathTextParser
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from edgefl.errors import UserError, nearest
from edgefl.results.compare import byte_unit
from edgefl.results.figures.style import WIDTHS, Limits, PlotStyle

# Okabe and Ito's colours, which colour-blind people can distinguish. Yellow is left out because it
# is too pale on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
# Markers and hatches differ too, because a grey print loses the colours.
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "||||", "----")
DASHES = ("-", "--", "-.", ":")  # the second begins with the eighth line
WIDE = 10  # ratio of the schemes' largest values above which an axis is logarithmic
TITLE = 0.19  # inches of height for a line of the title
CLOCKS = {"emulated_s": "Emulated time", "wall_s": "Wall-clock time"}
MARGIN = 0.35  # inches of height for what is around the panels
# Fonts for letters that DejaVu Sans does not have, where they are installed.
OTHERS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "Droid Sans Fallback")
FALLBACKS = [name for name in OTHERS if name in {font.name for font in fontManager.ttflist}]
# matplotlib's own type lists each of its keys
STYLE: Any = {
    "font.family": ["DejaVu Sans", *FALLBACKS],
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "figure.titlesize": 9,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 8,
    "legend.handlelength": 2.6,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "hatch.linewidth": 0.5,
    "pdf.fonttype": 42,  # TrueType, which journals ask for
    "svg.fonttype": "path",  # looks the same without the font
    "svg.hashsalt": "edgefl",  # the same file each time
    "path.simplify": True,
}


def look(place: int) -> dict[str, Any]:
    """Return colour and dashes of the ``place``-th scheme; the eighth is the first, dashed."""
    return {
        "color": COLOURS[place % len(COLOURS)],
        "linestyle": DASHES[place // len(COLOURS) % len(DASHES)],
    }


def marked(place: int) -> dict[str, Any]:
    """Return the look of the ``place``-th scheme's line, with a few markers."""
    return look(place) | {
        "linewidth": 1.0,
        "marker": MARKERS[place % len(MARKERS)],
        "markersize": 4.5,
        "markeredgewidth": 0.5,
        "markeredgecolor": "white",
        "markevery": (0.03 + 0.02 * place % 0.15, 0.15),
    }


def dots(place: int) -> dict[str, Any]:
    """Return the look of the ``place``-th scheme's dots; from the eighth on they are hollow."""
    lap, at = divmod(place, len(COLOURS))
    hollow = {"markerfacecolor": "none", "markeredgewidth": 0.4}
    edge = hollow if lap % 2 else {"markeredgewidth": 0}
    return {"color": COLOURS[at], "marker": MARKERS[at], "linewidth": 0, **edge}


def filled(place: int) -> dict[str, Any]:
    """Return the look of the ``place``-th scheme's bars: a colour, and a hatch for grey prints."""
    hatch = HATCHES[place % len(HATCHES)] or ("++++" if place >= len(HATCHES) else "")
    return {
        "facecolor": COLOURS[place % len(COLOURS)],
        "hatch": hatch,
        "edgecolor": "white",
        "linewidth": 0,
    }


def unit_of_time(longest_s: float) -> tuple[float, str]:
    """Return (seconds, name) of the unit for an axis up to ``longest_s``."""
    return (3600, "h") if longest_s >= 3 * 3600 else (60, "min") if longest_s >= 600 else (1, "s")


def unit_of_energy(most_j: float) -> tuple[float, str]:
    """Return (joules, name) of the unit for an axis up to ``most_j``."""
    return (1e6, "MJ") if most_j >= 1e6 else (1e3, "kJ") if most_j >= 1e3 else (1, "J")


def axis_of(x: str, most: float) -> tuple[float, str]:
    """Return the unit of an axis up to ``most``, and its label. ``x``: a value of ``--x``."""
    if x in CLOCKS:
        size, name = unit_of_time(most)
        return size, f"{CLOCKS[x]} ({name})"
    if x == "bytes":
        size, name = byte_unit(most)
        return size, f"Sent, up and down ({name})"
    if x == "joules":
        size, name = unit_of_energy(most)
        return size, f"Energy of all edges ({name})"
    return 1.0, {"version": "Model version", "round": "Round"}[x]


class Canvas:
    """A figure of the chosen width; its height grows with its panels and its legend."""

    def __init__(self, style: PlotStyle, width: str) -> None:
        """``width``: a key of WIDTHS, unless the style has one.

        UserError for texts that matplotlib cannot draw.
        """
        for option, text in {"title": style.title, **style.labels}.items():
            check_text(option, text)
        self.style = style
        self.is_page = (style.width or width) == "page"
        self.figure = Figure(
            figsize=(WIDTHS[style.width or width], 1.0), dpi=300, layout="constrained"
        )
        FigureCanvasAgg(self.figure)
        self.axes: list[Axes] = []  # those that the user's options are for
        self._named: set[str] = set()

    def panels(
        self, count: int, columns: int, height: float, narrow: int = 1, **options: Any
    ) -> list[Axes]:
        """Return ``count`` panels in rows of equal length, as far as possible.

        ``columns``: at most, on a page; ``narrow``: at most, in a column. ``height``: of one panel,
        in inches. ``options`` go to matplotlib's ``subplots``.
        """
        most = columns if self.is_page else narrow
        rows = -(-count // most)
        across = -(-count // rows)
        self.figure.set_figheight(MARGIN + height * rows)
        grid = self.figure.subplots(rows, across, squeeze=False, **options).ravel().tolist()
        for spare in grid[count:]:
            spare.remove()
        self.axes = grid[:count]
        for axes in self.axes:
            plain(axes)
        return self.axes

    def text(self, name: str) -> str:
        """Return what the user calls a scheme.

        A dollar sign in a directory's name is one; in a text of the user two enclose mathematics.
        """
        self._named.add(name)
        text = self.style.labels.get(name, name.replace("$", r"\$"))
        return f" {text}" if text.startswith("_") else text  # else it is not in the legend

    def legend(self, axes: Axes) -> None:
        """Put the legend of ``axes`` above all panels."""
        legend_above(self.figure, *axes.get_legend_handles_labels())

    def legend_of(self, handles: Sequence[Any]) -> None:
        """Put a legend of these patches and lines, with their labels, above all panels."""
        legend_above(self.figure, handles, [each.get_label() for each in handles])

    def finish(self) -> Figure:
        """Apply the user's limits, scales, title and labels; return the figure.

        UserError for a label of a name that is not in the figure.
        """
        self._check_labels()
        style = self.style
        for axes in self.axes:
            for which in style.log:
                _make_logarithmic(axes, which)
            _limit(axes.set_xlim, style.xlim)
            _limit(axes.set_ylim, style.ylim)
            if axes.get_xlabel() and "x" in style.labels:
                axes.set_xlabel(style.labels["x"])
            if axes.get_ylabel() and "y" in style.labels:
                axes.set_ylabel(style.labels["y"])
        if style.title:
            self._title(style.title)
        return self.figure

    def _title(self, text: str) -> None:
        """Put the title at the top, above the legend if there is one."""
        size = STYLE["figure.titlesize"]
        if self.figure.legends:
            self.figure.legends[0].set_title(text, prop=FontProperties(size=size))
        else:
            self.figure.suptitle(text, fontsize=size)
        self.figure.set_figheight(self.figure.get_figheight() + TITLE * (1 + text.count("\n")))

    def _check_labels(self) -> None:
        known = self._named | {"x", "y"}
        for name in self.style.labels:
            if name not in known:
                raise UserError(f"--label {name}: not in this figure{nearest(name, known)}")


def check_text(what: str, text: str) -> None:
    """Raise UserError if what stands between two dollar signs is not mathematics."""
    try:
        if cbook.is_math_text(text):
            MathTextParser("path").parse(text)
    except ValueError:
        raise UserError(
            rf"{what}={text}: expected TeX mathematics between dollar signs, or \$ for a dollar"
        ) from None


def plain(axes: Axes) -> None:
    """Draw a pale grid behind the data, and no frame at the top and at the right."""
    axes.grid(color="0.9", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def first_of(shown: int, schemes: int) -> str:
    """Return the end of an axis' label if a figure has no room for all schemes."""
    return f" (the first {shown} of {schemes} schemes)" if shown < schemes else ""


def whole_numbers(axes: Axes) -> None:
    """Put the x ticks at whole numbers, also if there is only one."""
    axes.xaxis.set_major_locator(MaxNLocator(nbins=9, integer=True, min_n_ticks=1))


def name_bars(axes: Axes, names: Sequence[str], is_page: bool) -> None:
    """Write the names below bars at 0, 1, ..., turned if they are too long for the width."""
    crowded = sum(map(len, names)) > (80 if is_page else 34)
    turned: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(range(len(names)), names, **(turned if crowded else {}))
    axes.set_xlim(-0.55, len(names) - 0.45)
    axes.grid(visible=False, axis="x")


def is_wide(ends: Sequence[float]) -> bool:
    """Return whether the largest of some positive values hides the smallest on a linear axis."""
    positive = [end for end in ends if end > 0]
    return bool(positive) and max(positive) > WIDE * min(positive)


def _make_logarithmic(axes: Axes, which: str) -> None:
    """Make the axis ``which`` logarithmic, from the decade of the smallest positive value on."""
    at = "xy".index(which)
    values = [
        value
        for line in axes.get_lines()
        if line.get_transform() == axes.transData
        for value in np.asarray(line.get_xydata(), dtype=float)[:, at]
    ]
    values += [
        bar.get_bbox().get_points()[1, at] for bar in axes.patches if isinstance(bar, Rectangle)
    ]
    positive = [value for value in values if value > 0 and np.isfinite(value)]
    if not positive:
        raise UserError(f"--log {which}: nothing in this figure is above 0")
    low, set_scale, set_limits = (
        (axes.get_xlim()[0], axes.set_xscale, axes.set_xlim),
        (axes.get_ylim()[0], axes.set_yscale, axes.set_ylim),
    )[at]
    set_scale("log")
    if low <= 0:
        set_limits(10 ** np.floor(np.log10(min(positive))), 1.5 * max(positive))


def _limit(setter: Any, limits: Limits | None) -> None:
    if limits is not None:
        setter(*limits)


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
