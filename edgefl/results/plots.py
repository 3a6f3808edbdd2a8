"""Figures for a paper: PNG for the screen, PDF (vectors, embedded fonts) for print.

They use matplotlib's objects: no pyplot, no global state.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from edgefl.errors import UserError
from edgefl.results import compare, rundirs
from edgefl.results.drawing import legend_above
from edgefl.results.summary import number
from edgefl.results.tail import read_csv

# Okabe and Ito's colours, which colour-blind people can distinguish. Yellow is left out because it
# is too pale on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
# Markers differ too, because a grey print loses the colours. Dashes begin with the eighth line.
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":")
MOST_POINTS = 400  # of a mean curve; more are not visible
WIDE = 10  # ratio of the schemes' largest values above which an axis is logarithmic
# matplotlib's own type lists each of its keys
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 8,
    "legend.handlelength": 2.6,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "pdf.fonttype": 42,
    "path.simplify": True,
}


@dataclass(frozen=True, slots=True)
class Curve:
    """One run's evaluations: emulated seconds, bytes sent until then (up and down), accuracy."""

    emulated_s: list[float]
    sent_bytes: list[float]
    accuracy: list[float]


@dataclass(frozen=True, slots=True)
class Line:
    """A scheme's mean accuracy over x.

    ``deviation`` is the sample standard deviation over its seeds, None for a single run.
    """

    x: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray | None

    def above_zero(self) -> Line:
        """Return the line without points at x = 0, for a logarithmic axis.

        With them, matplotlib draws a horizontal line from the left edge to the next point.
        """
        kept = self.x > 0
        deviation = None if self.deviation is None else self.deviation[kept]
        return Line(self.x[kept], self.mean[kept], deviation)


def accuracy(dirs: Sequence[Path], out_png: Path) -> list[Path]:
    """Draw accuracy over emulated time and over bytes sent, one line per scheme.

    A scheme with several seeds has a band of +- one standard deviation. Return the two files
    written.
    """
    found = rundirs.find(dirs)
    schemes = {
        name: [curve for curve in map(_curve, runs) if curve.accuracy]
        for name, runs in found.items()
    }
    schemes = {name: curves for name, curves in schemes.items() if curves}
    if not schemes:
        raise UserError(
            f"no evaluation in any metrics.csv of {', '.join(str(path) for path in dirs)}: nothing"
            " to plot"
        )
    targets = {
        compare.load_run(run, name).target_accuracy for name, runs in found.items() for run in runs
    } - {None}
    with matplotlib.rc_context(STYLE):
        figure = _draw(schemes, sorted(target for target in targets if target is not None))
        return [save(figure, out_png, "png"), save(figure, out_png.with_suffix(".pdf"), "pdf")]


def _curve(run: Path) -> Curve:
    points = []
    for row in read_csv(run / "metrics.csv"):
        t, share, up, down = (
            number(row.get(key)) for key in ("emulated_s", "accuracy", "bytes_up", "bytes_down")
        )
        if t is not None and share is not None:
            points.append((t, (up or 0.0) + (down or 0.0), share))
    points.sort()
    return Curve([p[0] for p in points], [p[1] for p in points], [p[2] for p in points])


def over_seeds(curves: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Line:
    """Return the mean of several (x, y) curves, interpolated linearly.

    It has every x of any curve within the range that all curves cover.
    """
    if len(curves) == 1:
        return Line(np.array(curves[0][0]), np.array(curves[0][1]), None)
    first, last = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    x = np.unique(np.concatenate([np.asarray(x) for x, _ in curves]))
    x = x[(x >= first) & (x <= last)]
    if len(x) > MOST_POINTS:
        x = np.linspace(first, last, MOST_POINTS)
    y = np.stack([np.interp(x, xs, ys) for xs, ys in curves])
    return Line(x, y.mean(axis=0), y.std(axis=0, ddof=1))


def _draw(schemes: Mapping[str, Sequence[Curve]], targets: Sequence[float]) -> Figure:
    figure = Figure(figsize=(7.0, 2.75), dpi=300, layout="constrained")
    FigureCanvasAgg(figure)
    over_time, over_bytes = figure.subplots(1, 2, sharey=True)
    curves = [curve for of_scheme in schemes.values() for curve in of_scheme]
    seconds, time_unit = unit_of_time(max(curve.emulated_s[-1] for curve in curves))
    size, size_unit = compare.byte_unit(max(curve.sent_bytes[-1] for curve in curves))
    sent = [
        np.concatenate([curve.sent_bytes for curve in of_scheme]) / size
        for of_scheme in schemes.values()
    ]
    logarithmic = _is_wide(sent)
    for place, (name, of_scheme) in enumerate(schemes.items()):
        in_time = over_seeds([(curve.emulated_s, curve.accuracy) for curve in of_scheme])
        in_bytes = over_seeds([(curve.sent_bytes, curve.accuracy) for curve in of_scheme])
        _line(over_time, place, name, in_time, seconds)
        _line(over_bytes, place, name, in_bytes.above_zero() if logarithmic else in_bytes, size)
    for axes, label in (
        (over_time, f"Emulated time ({time_unit})"),
        (over_bytes, f"Sent, up and down ({size_unit})"),
    ):
        _finish(axes, label, targets)
    if logarithmic:
        over_bytes.set_xscale("log")
        over_bytes.set_xlim(left=min(x[x > 0].min() for x in sent if x.any()))
        over_bytes.set_xlabel(f"{over_bytes.get_xlabel()}, logarithmic")
    over_time.set_ylabel("Test accuracy")
    legend_above(figure, over_time)
    return figure


def look(place: int) -> dict[str, Any]:
    """Return colour and dashes of the ``place``-th scheme; the eighth is the first, dashed."""
    return {
        "color": COLOURS[place % len(COLOURS)],
        "linestyle": DASHES[place // len(COLOURS) % len(DASHES)],
    }


def _line(axes: Axes, place: int, name: str, line: Line, unit: float) -> None:
    axes.plot(
        line.x / unit,
        line.mean,
        label=name,
        **look(place),
        linewidth=1.0,
        marker=MARKERS[place % len(MARKERS)],
        markersize=4.5,
        markeredgewidth=0.5,
        markeredgecolor="white",
        markevery=(0.03 + 0.02 * place % 0.15, 0.15),
    )
    if line.deviation is not None:
        low, high = line.mean - line.deviation, line.mean + line.deviation
        axes.fill_between(
            line.x / unit, low, high, color=look(place)["color"], alpha=0.2, linewidth=0
        )


def _finish(axes: Axes, label: str, targets: Sequence[float]) -> None:
    for target in targets:
        axes.axhline(
            target,
            color="0.35",
            linewidth=0.9,
            linestyle=(0, (4, 3)),
            zorder=1,
            label=f"target {100 * target:g}%",
        )
    axes.set_xlabel(label)
    axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.grid(color="0.9", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _is_wide(schemes: Sequence[np.ndarray]) -> bool:
    """Return whether one scheme sends far more than another, so a linear axis hides the latter.

    ``schemes``: the x values of each scheme.
    """
    ends = [x.max() for x in schemes if x.any()]
    return bool(ends) and max(ends) > WIDE * min(ends)


def unit_of_time(longest_s: float) -> tuple[float, str]:
    """Return (seconds, name) of the unit for an axis up to ``longest_s``."""
    return (3600, "h") if longest_s >= 3 * 3600 else (60, "min") if longest_s >= 600 else (1, "s")


def save(figure: Figure, path: Path, kind: str) -> Path:
    """Write the figure as "png" or "pdf", without a date in the file; return ``path``."""
    data = io.BytesIO()
    figure.savefig(
        data, format=kind, metadata={"CreationDate": None} if kind == "pdf" else {"Software": None}
    )
    compare.replace_file(path, data.getvalue())
    return path
