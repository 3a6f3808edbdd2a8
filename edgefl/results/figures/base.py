"""What each figure is made of: its numbers, the user's choices, a surface to draw on, its files.

Start with ``Plot``: a figure is a class with ``data`` and ``draw``. ``Canvas`` gives the width for
print, panels, colours and a legend, and applies the user's choices. matplotlib is imported where it
is needed, since a base install has none; its objects are used without pyplot or global state.
"""

from __future__ import annotations

import csv
import io
import math
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefl.errors import UserError, nearest, needs
from edgefl.results.read import MISSING
from edgefl.results.run_files import RunFiles, find, replace_file
from edgefl.results.summary import ALIASES, check_number, unit_up_to

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# ---------------------------------------------------------------------- what a user may choose
WIDTHS = {"column": 3.33, "page": 7.0}  # inches: a column and the text of an ACM or IEEE page
FORMATS = ("png", "pdf", "svg")
Limits = tuple[float | None, float | None]
# a user's word for an x -> its name in ``Plot.X``; figures have an axis of rounds, too
SAME = {**ALIASES, "round": "round", "rounds": "round"}


@dataclass(frozen=True, slots=True)
class PlotStyle:
    """What a user may choose about a figure; each default is the figure's own choice.

    ``width``: a key of WIDTHS. ``x``: one of the figure's ``X``, or a word for it in SAME. ``xlim``
    and ``ylim``: in the units that the axes show. ``log``: "", "x", "y" or "xy". ``target``: an
    accuracy from 0 to 1. ``labels``: texts in place of the names of strategies, and of the axes "x"
    and "y".
    """

    width: str = ""
    x: str = ""
    xlim: Limits | None = None
    ylim: Limits | None = None
    log: str = ""
    title: str = ""
    target: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """UserError for a value that cannot be."""
        if self.width and self.width not in WIDTHS:
            expected = f"expected {' or '.join(WIDTHS)}"
            raise UserError(f"--width {self.width}: {expected}{nearest(self.width, WIDTHS)}")
        if self.log not in ("", "x", "y", "xy"):
            raise UserError(f"--log {self.log}: expected x, y or xy")
        object.__setattr__(self, "x", SAME.get(self.x, self.x))  # the class is frozen
        for option, limits in (("--xlim", self.xlim), ("--ylim", self.ylim)):
            if limits is not None and not _are_limits(limits):
                raise refused_limits(option, _shown(limits))
        check_number("--target", self.target)
        if not isinstance(self.labels, Mapping):
            raise UserError(f"labels: expected a dict of names and texts, found {self.labels!r}")
        labels = {f"--label {name}": text for name, text in self.labels.items()}
        for option, text in {"--title": self.title, **labels}.items():
            if not isinstance(text, str):
                raise UserError(f"{option}: expected a text, found {text!r}")


def _are_limits(limits: object) -> bool:
    """Whether these are a lower and an upper end; a missing one is None."""
    if not isinstance(limits, tuple | list) or len(limits) > 2:
        return False
    ends = [end for end in limits if end is not None]
    if not ends or not all(isinstance(end, Real) and math.isfinite(end) for end in ends):
        return False
    return sorted({*ends}) == ends


def _shown(limits: object) -> str:
    ends = limits if isinstance(limits, tuple | list) else [limits]
    texts = (f"{end:g}" if isinstance(end, Real) else f"{end}" for end in ends)
    return ",".join("" if end is None else text for end, text in zip(ends, texts))


def refused_limits(option: str, text: str) -> UserError:
    return UserError(
        f"{option} {text}: expected LOW,HIGH such as 0,10, the lower one first; one may be empty"
    )


# ---------------------------------------------------------------------- numbers
ROWS_AT_ONCE = 5000
Points = list[tuple[float, float]]  # (emulated s, value)
Runs = Mapping[str, Sequence[RunFiles]]  # of each strategy, by seed


class ArrayRows(Sequence[tuple[Any, ...]]):
    """The rows of many: numpy columns, of which only the rows that are looked at become tuples.

    MISSING in a column of whole numbers is None.
    """

    def __init__(self, columns: Sequence[np.ndarray]) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, which: Any) -> Any:
        """A row; of a slice the list of its rows."""
        if not isinstance(which, slice):
            return self[which : which + 1 or None][0]
        return list(zip(*(_values(each[which]) for each in self._columns)))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for first in range(0, len(self), ROWS_AT_ONCE):
            yield from self[first : first + ROWS_AT_ONCE]

    def column(self, place: int) -> list[Any]:
        return _values(self._columns[place])

    def where(self, chosen: np.ndarray) -> ArrayRows:
        return ArrayRows([each[chosen] for each in self._columns])


def _values(column: np.ndarray) -> list[Any]:
    if column.dtype.kind == "i":
        column = np.where(column == MISSING, np.array(None), column)
    values: list[Any] = column.tolist()
    return values


@dataclass(frozen=True, slots=True)
class PlotData:
    """The numbers behind a figure, as a table; a figure is drawn from nothing else.

    A cell is a text, a number or None. Times are in emulated seconds, sizes in bytes, shares from 0
    to 1.
    """

    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]

    def __getitem__(self, column: str) -> list[Any]:
        """Return the values of a column."""
        place = self.columns.index(column)
        if isinstance(self.rows, ArrayRows):
            return self.rows.column(place)
        return [row[place] for row in self.rows]

    def by(self, column: str) -> dict[Any, PlotData]:
        """Return the rows of each value of a column, in the order of their first rows."""
        groups: dict[Any, Any] = {value: [] for value in self[column]}
        if isinstance(self.rows, ArrayRows):
            of = np.array(self[column], object)
            groups = {value: self.rows.where(of == value) for value in groups}
        else:
            for value, row in zip(self[column], self.rows):
                groups[value].append(row)
        return {value: PlotData(self.columns, rows) for value, rows in groups.items()}

    def where(self, **values: Any) -> PlotData:
        """Return the rows that have these values."""
        wanted = [(self.columns.index(column), value) for column, value in values.items()]
        rows = [row for row in self.rows if all(row[at] == value for at, value in wanted)]
        return PlotData(self.columns, rows)

    def csv(self) -> str:
        """Return the table as CSV with a header; None is an empty field."""
        return "".join(self.csv_pieces())

    def csv_pieces(self) -> Iterator[str]:
        """Yield what ``csv`` returns, so that a caller who finds it too long can stop."""
        for first in range(0, len(self.rows) or 1, ROWS_AT_ONCE):
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            if not first:
                writer.writerow(self.columns)
            writer.writerows(self.rows[first : first + ROWS_AT_ONCE])
            yield text.getvalue()


def open_runs(directories: Sequence[Path]) -> Runs:
    """Return the runs of each strategy in ``directories`` by display name, see ``find``."""
    return {name: [RunFiles(path) for path in paths] for name, paths in find(directories).items()}


def first_seeds(runs: Runs) -> Iterator[tuple[str, RunFiles]]:
    """Yield the name and the first run of each strategy."""
    return ((name, of_strategy[0]) for name, of_strategy in runs.items())


def rows_of_series(
    runs: Runs, series: Callable[[RunFiles], Mapping[str, Points]]
) -> list[tuple[str, str, float, float]]:
    """Return (strategy, series, emulated s, value) of the series of each strategy's first run."""
    return [
        (name, one, t, value)
        for name, run in first_seeds(runs)
        for one, points in series(run).items()
        for t, value in points
    ]


# ---------------------------------------------------------------------- the look
# Okabe and Ito's colours, which colour-blind people can distinguish. Yellow is left out because it
# is too pale on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
# Markers and hatches differ too, because a grey print loses the colours.
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "||||", "----")
DASHES = ("-", "--", "-.", ":")  # the second begins with the eighth line
STEPS = "steps-post"  # matplotlib's name for a value that holds until the next point
DASHED: dict[str, Any] = {"color": "0.35", "linewidth": 0.9, "linestyle": (0, (4, 3)), "zorder": 1}
WIDE = 10  # ratio of the strategies' largest values above which an axis is logarithmic
NOISE = 1e-9  # relative to the largest value: smaller differences are rounding
TITLE = 0.19  # inches of height for a line of the title
TITLE_SIZE = 9  # points
MARGIN = 0.35  # inches of height for what is around the panels
MOST_EDGES, MOST_PANELS = 24, 6  # of a panel; of a figure with a panel for each strategy
LEGEND_COLUMNS = 5
LEGEND_SHARE = 0.97  # of the figure's width
# Fonts for letters that DejaVu Sans does not have, where they are installed.
OTHERS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "Droid Sans Fallback")
# By a value of ``--x``: the label of the axis, and its unit.
LABELS = {
    "emulated_s": ("Emulated time", "s"),
    "wall_s": ("Wall-clock time", "s"),
    "bytes": ("Sent, up and down", "B"),
    "joules": ("Energy of all edges", "J"),
    "version": ("Model version", ""),
    "round": ("Round", ""),
}


@cache
def settings() -> Any:
    """Return matplotlib's settings for print, for its ``rc_context``."""
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    return {
        "font.family": ["DejaVu Sans", *(name for name in OTHERS if name in installed)],
        "font.size": 8,
        "axes.labelsize": 8,
        "axes.titlesize": 8,
        "figure.titlesize": TITLE_SIZE,
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
    """Return colour and dashes of the ``place``-th strategy; the eighth is the first, dashed."""
    return {
        "color": COLOURS[place % len(COLOURS)],
        "linestyle": DASHES[place // len(COLOURS) % len(DASHES)],
    }


def marked(place: int) -> dict[str, Any]:
    """Return the look of the ``place``-th strategy's line, with a few markers."""
    return look(place) | {
        "linewidth": 1.0,
        "marker": MARKERS[place % len(MARKERS)],
        "markersize": 4.5,
        "markeredgewidth": 0.5,
        "markeredgecolor": "white",
        "markevery": (0.03 + 0.02 * place % 0.15, 0.15),
    }


def dots(place: int) -> dict[str, Any]:
    """Return the look of the ``place``-th strategy's dots; from the eighth on they are hollow."""
    lap, at = divmod(place, len(COLOURS))
    hollow = {"markerfacecolor": "none", "markeredgewidth": 0.4}
    edge = hollow if lap % 2 else {"markeredgewidth": 0}
    return {"color": COLOURS[at], "marker": MARKERS[at], "linewidth": 0, **edge}


def filled(place: int) -> dict[str, Any]:
    """Return the look of the ``place``-th strategy's bars: colour, and hatch for grey prints."""
    hatch = HATCHES[place % len(HATCHES)] or ("++++" if place >= len(HATCHES) else "")
    return {
        "facecolor": COLOURS[place % len(COLOURS)],
        "hatch": hatch,
        "edgecolor": "white",
        "linewidth": 0,
    }


def axis_of(x: str, most: float) -> tuple[float, str]:
    """Return the unit of an axis up to ``most``, and its label. ``x``: a key of LABELS."""
    label, unit = LABELS[x]
    if not unit:
        return 1.0, label
    size, name = unit_up_to(most, unit)
    return size, f"{label} ({name})"


def is_wide(ends: Sequence[float]) -> bool:
    """Return whether the largest of some positive values hides the smallest on a linear axis."""
    positive = [end for end in ends if end > 0]
    return bool(positive) and max(positive) > WIDE * min(positive)


def is_constant(values: Sequence[float]) -> bool:
    """Return whether the values differ only by rounding."""
    most = max(map(abs, values), default=0.0)
    return max(values, default=0.0) - min(values, default=0.0) <= NOISE * most


# ---------------------------------------------------------------------- the surface
def printed_figure(**options: Any) -> Figure:
    """Return an empty figure for files, which pyplot does not know."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(dpi=300, **options)
    FigureCanvasAgg(figure)
    return figure


class Canvas:
    """A figure of the chosen width; its height grows with its panels and its legend.

    Or axes of the user's own figure, which keeps its size.
    """

    def __init__(
        self,
        style: PlotStyle,
        width: str,
        new: Callable[..., Figure] = printed_figure,
        given: Sequence[Axes] = (),
    ) -> None:
        """``width``: a key of WIDTHS, unless the style has one. ``new`` makes an empty figure.

        ``given``: the axes to draw on, in place of a figure. UserError for texts that matplotlib
        cannot draw.
        """
        for option, text in {"title": style.title, **style.labels}.items():
            check_text(option, text)
        self.style, self.given = style, list(given)
        self.is_page = (style.width or width) == "page" and not given
        self.figure: Any = (
            given[0].figure
            if given
            else new(figsize=(WIDTHS[style.width or width], 1.0), layout="constrained")
        )
        self.axes: list[Axes] = []  # those that the user's options are for
        self._named: set[str] = set()

    def panels(
        self, count: int, columns: int, height: float, narrow: int = 1, **options: Any
    ) -> list[Axes]:
        """Return ``count`` panels in rows of equal length, as far as possible.

        Each has a pale grid behind the data, and no frame at the top and at the right.
        ``columns``: at most, on a page; ``narrow``: at most, in a column. ``height``: of one panel,
        in inches. ``options`` go to matplotlib's ``subplots``. UserError if the user has given
        another number of axes.
        """
        if self.given:
            if len(self.given) != count:
                raise UserError(f"ax: this figure needs {count} axes, found {len(self.given)}")
            self.axes = self.given
        else:
            most = columns if self.is_page else narrow
            rows = -(-count // most)
            across = -(-count // rows)
            self.figure.set_figheight(MARGIN + height * rows)
            grid = self.figure.subplots(rows, across, squeeze=False, **options).ravel().tolist()
            for spare in grid[count:]:
                spare.remove()
            self.axes = grid[:count]
        for axes in self.axes:
            axes.grid(color="0.9", linewidth=0.5)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
        return self.axes

    def panel(self, height: float = 2.2) -> Axes:
        """Return the only panel."""
        return self.panels(1, 1, height)[0]

    def edge_panels(
        self, data: PlotData, first: float, each: float, word: str
    ) -> tuple[list[tuple[Axes, PlotData, list[str]]], str]:
        """Return a panel below another for each strategy: with its rows, and edges it has room for.

        Then the end of the x label, if not all strategies have a panel. A panel is ``first`` inches
        high and ``each`` more per edge. ``word``: for edges, in the titles.
        """
        strategies = data.by("name")
        shown = dict(list(strategies.items())[:MOST_PANELS])
        edges = {name: sorted({*rows["edge"]} - {None}) for name, rows in shown.items()}
        heights = [first + each * min(len(names), MOST_EDGES) for names in edges.values()]
        ratios = {"height_ratios": heights}
        panels = self.panels(len(shown), 1, sum(heights) / len(heights), gridspec_kw=ratios)
        for axes, (name, names) in zip(panels, edges.items()):
            part = first_of(min(len(names), MOST_EDGES), len(names), word)
            axes.set_title(self.text(name) + part)
        rows = [of[:MOST_EDGES] for of in edges.values()]
        return list(zip(panels, shown.values(), rows)), first_of(len(shown), len(strategies))

    def text(self, name: str) -> str:
        """Return what the user calls a strategy.

        A dollar sign in a directory's name is one; in a text of the user two enclose mathematics.
        """
        self._named.add(name)
        text = self.style.labels.get(name, name.replace("$", r"\$"))
        return f" {text}" if text.startswith("_") else text  # else it is not in the legend

    # ------------------------------------------------------------------ shapes
    def line(
        self, axes: Axes, place: int, name: str, x: Sequence[float], y: Any, **options: Any
    ) -> None:
        """Draw the line of the ``place``-th strategy. ``options`` go to matplotlib's ``plot``."""
        axes.plot(x, y, label=self.text(name), **options, **marked(place))

    def band(
        self, axes: Axes, place: int, x: Any, low: Any, high: Any, alpha: float = 0.2, **more: Any
    ) -> None:
        """Fill what is between two lines in the colour of the ``place``-th strategy."""
        colour = look(place)["color"]
        axes.fill_between(x, low, high, color=colour, alpha=alpha, linewidth=0, **more)

    def bars(self, axes: Axes, strategies: Mapping[str, PlotData], x: str, y: str) -> None:
        """Draw bars at whole numbers, those of the strategies side by side."""
        width = 0.8 / len(strategies)
        for place, (name, each) in enumerate(strategies.items()):
            shift = (place - (len(strategies) - 1) / 2) * width
            at = [number + shift for number in each[x]]
            axes.bar(at, each[y], width, label=self.text(name), **filled(place))
        whole_numbers(axes)

    def name_bars(self, axes: Axes, names: Sequence[str]) -> None:
        """Write the names of strategies below bars at 0, 1, ..., turned if they are too long."""
        texts = [self.text(name) for name in names]
        crowded = sum(map(len, texts)) > (80 if self.is_page else 34)
        turned: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
        axes.set_xticks(range(len(texts)), texts, **(turned if crowded else {}))
        axes.set_xlim(-0.55, len(texts) - 0.45)
        axes.grid(visible=False, axis="x")

    # ------------------------------------------------------------------ legend and title
    def legend(self, axes: Axes) -> None:
        """Put the legend of ``axes`` above all panels, or into the first of the user's axes."""
        self._legend(*axes.get_legend_handles_labels())

    def legend_of(self, handles: Sequence[Any]) -> None:
        """Put a legend of these patches and lines, with their labels, above all panels."""
        self._legend(handles, [each.get_label() for each in handles])

    def _legend(self, handles: Sequence[Any], labels: Sequence[str]) -> None:
        """Use as many columns as fit the figure's width, which grows by the legend's height.

        Names that are too long for one column are wrapped.
        """
        if self.given and labels:
            self.given[0].legend(handles, labels)
        if self.given or not labels:
            return
        room = LEGEND_SHARE * self.figure.get_figwidth()
        for count in range(min(len(labels), LEGEND_COLUMNS), 0, -1):
            width, height = self._placed(handles, labels, count)
            if width <= room:
                break
        longest = max(map(len, labels))
        while width > room and longest > 1:
            longest = min(longest - 1, int(longest * room / width))
            wrapped = ["\n".join(textwrap.wrap(label, longest)) for label in labels]
            width, height = self._placed(handles, wrapped, 1)
        self.figure.set_figheight(self.figure.get_figheight() + height)

    def _placed(
        self, handles: Sequence[Any], labels: Sequence[str], columns: int
    ) -> tuple[float, float]:
        """Replace the figure's legend; return its (width, height) in inches."""
        for former in list(self.figure.legends):
            former.remove()
        options: dict[str, Any] = {"loc": "outside upper center", "ncols": columns}
        legend = self.figure.legend(handles, labels, frameon=False, columnspacing=1.6, **options)
        renderer: Any = self.figure.canvas
        box = legend.get_window_extent(renderer.get_renderer())
        return box.width / self.figure.dpi, box.height / self.figure.dpi

    def finish(self) -> Figure:
        """Apply the user's limits, scales, title and labels; return the figure.

        UserError for a label of a name that is not in the figure.
        """
        style, known = self.style, self._named | {"x", "y"}
        for name in style.labels:
            if name not in known:
                raise UserError(f"--label {name}: not in this figure{nearest(name, known)}")
        for axes in self.axes:
            for which in style.log:
                _make_logarithmic(axes, which)
            if style.xlim is not None:
                axes.set_xlim(*style.xlim)
            if style.ylim is not None:
                axes.set_ylim(*style.ylim)
            if axes.get_xlabel() and "x" in style.labels:
                axes.set_xlabel(style.labels["x"])
            if axes.get_ylabel() and "y" in style.labels:
                axes.set_ylabel(style.labels["y"])
        if style.title and self.given:
            self.given[0].set_title(style.title)
        elif style.title:
            self._title(style.title)
        figure: Figure = self.figure
        return figure

    def _title(self, text: str) -> None:
        """Put the title at the top, above the legend if there is one."""
        from matplotlib.font_manager import FontProperties

        if self.figure.legends:
            self.figure.legends[0].set_title(text, prop=FontProperties(size=TITLE_SIZE))
        else:
            self.figure.suptitle(text, fontsize=TITLE_SIZE)
        self.figure.set_figheight(self.figure.get_figheight() + TITLE * (1 + text.count("\n")))


def check_text(what: str, text: str) -> None:
    """Raise UserError if what stands between two dollar signs is not mathematics."""
    from matplotlib import cbook
    from matplotlib.mathtext import MathTextParser

    try:
        if cbook.is_math_text(text):
            MathTextParser("path").parse(text)
    except ValueError:
        raise UserError(
            rf"{what}={text}: expected TeX mathematics between dollar signs, or \$ for a dollar"
        ) from None


def first_of(shown: int, count: int, what: str = "strategies") -> str:
    """Return the end of a label if a figure has no room for all strategies, or edges."""
    return f" (the first {shown} of {count} {what})" if shown < count else ""


def whole_numbers(axes: Axes, most: int = 9, least: int = 1) -> None:
    """Put the x ticks at whole numbers, also if there is only one."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=most, integer=True, min_n_ticks=least))


def percents(axes: Axes) -> None:
    """Show the shares of the y axis as percentages."""
    from matplotlib.ticker import PercentFormatter

    axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def label_lowest(panels: Sequence[Axes], label: str) -> None:
    """Give the lowest panel of each column the x ``label`` and ticks; they share the x axis."""
    places = [(axes, axes.get_subplotspec()) for axes in panels]
    lowest = {place.colspan.start: axes for axes, place in places if place is not None}
    for axes in lowest.values():  # the last one of each column
        axes.tick_params(labelbottom=True)
        axes.set_xlabel(label)


def fit_constant(axes: Axes, values: Sequence[float]) -> None:
    """If ``values`` are constant, give the axes a y range from 0 with the value in the middle.

    For the value 0 the range is -1 to 1. matplotlib's own range would be a tiny one around the
    value.
    """
    if values and is_constant(values):
        axes.set_ylim(*(sorted((0.0, 2 * values[0])) if values[0] else (-1.0, 1.0)))


def logarithmic_if_wide(axes: Axes, losses: Sequence[float]) -> None:
    """Make the axis logarithmic if the losses differ widely, as when a model diverged."""
    positive = [loss for loss in losses if loss > 0]
    if is_wide(positive):
        axes.set_yscale("log")
        axes.set_ylim(min(positive) / 1.5, max(positive) * 1.5)  # a band may reach below 0
        axes.set_ylabel(f"{axes.get_ylabel()}, logarithmic")


def _make_logarithmic(axes: Axes, which: str) -> None:
    """Make the axis ``which`` logarithmic, from the decade of the smallest positive value on."""
    from matplotlib.patches import Rectangle

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


# ---------------------------------------------------------------------- figures and their files
class Plot(ABC):
    """A kind of figure; derive a class and put an instance into a module's ``PLOTS``.

    The first line of the class's docstring is shown by ``edgefl plot --list``.
    """

    OF = "every run"  # which runs have it, for messages
    X: tuple[str, ...] = ()  # choices of ``PlotStyle.x``
    LIMITS = "xy"  # axes with numbers, which can have limits
    LOG = "xy"  # axes that can be logarithmic
    WIDTH = "page"  # unless the user chooses another one

    @abstractmethod
    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        """Return the numbers behind the figure, without rows if no run has any.

        UserError with the reason if these runs cannot have it together.
        """

    @abstractmethod
    def draw(self, data: PlotData, canvas: Canvas) -> None:
        """Draw ``data``, which has rows, on the empty ``canvas``."""

    @property
    def about(self) -> str:
        """One line about the figure."""
        return (type(self).__doc__ or "").partition("\n")[0]


LEFT = ("png", "pdf")  # the formats that a run leaves
DATES = {"png": "Software", "pdf": "CreationDate", "svg": "Date"}  # left out of the files


def drawn(plot: Plot, numbers: PlotData, style: PlotStyle) -> Figure:
    """Return the figure of these numbers, which ``plot.data`` has returned and which has rows."""
    with needs("lab", "a figure"):
        import matplotlib
    with matplotlib.rc_context(settings()):
        canvas = Canvas(style, plot.WIDTH)
        plot.draw(numbers, canvas)
        return canvas.finish()


def drawn_on(
    plot: Plot, numbers: PlotData, style: PlotStyle, given: Sequence[Axes] = ()
) -> list[Axes]:
    """Draw these numbers on ``given`` axes, or with pyplot as a new figure; return the axes.

    A new figure has the look of a figure in print. The user's own axes keep the user's settings.
    """
    with needs("lab", "a figure"):
        import matplotlib
        from matplotlib import pyplot
    with matplotlib.rc_context({} if given else settings()):
        canvas = Canvas(style, plot.WIDTH, pyplot.figure, given)
        try:
            plot.draw(numbers, canvas)
            canvas.finish()
        except UserError:
            if not given:
                pyplot.close(canvas.figure)  # else a notebook shows half a figure
            raise
        shows = matplotlib.is_interactive()
    matplotlib.interactive(shows)  # a notebook's backend sets it when it makes its first figure
    for axes in () if given else canvas.figure.axes:  # ticks are made when it is shown
        for which in ("x", "y"):
            axes.tick_params(which, labelsize=settings()[f"{which}tick.labelsize"])
    return canvas.axes


def rendered(figure: Figure, form: str) -> bytes:
    """Return the figure as "png", "pdf" or "svg", without a date: the same bytes each time."""
    import matplotlib

    content = io.BytesIO()
    with matplotlib.rc_context(settings()):
        figure.savefig(content, format=form, metadata={DATES[form]: None})
    return content.getvalue()


def save(figure: Figure, out: Path, forms: Sequence[str]) -> list[Path]:
    """Write a figure as ``out`` with the suffix of each format added; return the files."""
    paths = [out.with_name(f"{out.name}.{form}") for form in forms]
    for path, form in zip(paths, forms):
        replace_file(path, rendered(figure, form))
    return paths


def left(plot: Plot, runs: Runs, out: Path) -> list[Path]:
    """Write the figure as a run leaves it; return the PNG file, or [] if no run has it."""
    own = PlotStyle()
    numbers = plot.data(runs, own)
    return save(drawn(plot, numbers, own), out, LEFT)[:1] if numbers.rows else []
