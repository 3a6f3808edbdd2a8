"""Figures for a paper: PNG to look at, PDF (vectors, embedded fonts) to print. Drawn by objects: no pyplot, no global state."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from edgefl.errors import UserError
from edgefl.results import compare, rundirs
from edgefl.results.summary import number
from edgefl.results.tail import read_csv

# Okabe and Ito's colours, which the colour-blind can tell apart; yellow is left out, too pale on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
# Colours alone are lost in a grey print, so the markers differ too; dashes begin with the eighth line.
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":")
STYLE = {
    "font.family": "DejaVu Sans", "font.size": 8, "axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7, "legend.fontsize": 8,
    "axes.linewidth": 0.6, "xtick.major.width": 0.6, "ytick.major.width": 0.6, "pdf.fonttype": 42, "path.simplify": True,
}


@dataclass(frozen=True, slots=True)
class Curve:
    """One run's evaluations: emulated seconds, bytes sent up to then (up and down), accuracy."""

    name: str
    emulated_s: list[float]
    sent_bytes: list[float]
    accuracy: list[float]


def accuracy(dirs: Sequence[Path], out_png: Path) -> list[Path]:
    """Accuracy over emulated time and over bytes sent, a line for each run; returns the two files written."""
    runs = rundirs.find(dirs)
    curves = [curve for curve in (_curve(name, run) for name, run in runs.items()) if curve.accuracy]
    if not curves:
        raise UserError(f"no evaluation in any metrics.csv of {', '.join(str(path) for path in dirs)}: nothing to plot")
    targets = {compare.load_run(run, name).target_accuracy for name, run in runs.items()} - {None}
    with matplotlib.rc_context(STYLE):
        figure = _draw(curves, sorted(target for target in targets if target is not None))
        return [_save(figure, out_png, "png"), _save(figure, out_png.with_suffix(".pdf"), "pdf")]


def _curve(name: str, run: Path) -> Curve:
    points = []
    for row in read_csv(run / "metrics.csv"):
        t, share, up, down = (number(row.get(key)) for key in ("emulated_s", "accuracy", "bytes_up", "bytes_down"))
        if t is not None and share is not None:
            points.append((t, (up or 0.0) + (down or 0.0), share))
    points.sort()
    return Curve(name, [p[0] for p in points], [p[1] for p in points], [p[2] for p in points])


def _draw(curves: Sequence[Curve], targets: Sequence[float]) -> Figure:
    figure = Figure(figsize=(7.0, 2.9), dpi=300, layout="constrained")
    FigureCanvasAgg(figure)
    over_time, over_bytes = figure.subplots(1, 2, sharey=True)
    seconds, time_unit = _time_unit(max(curve.emulated_s[-1] for curve in curves))
    size, size_unit = compare.byte_unit(max(curve.sent_bytes[-1] for curve in curves))
    for place, curve in enumerate(curves):
        _line(over_time, place, curve.name, [t / seconds for t in curve.emulated_s], curve.accuracy)
        _line(over_bytes, place, curve.name, [sent / size for sent in curve.sent_bytes], curve.accuracy)
    for axes, label in ((over_time, f"Emulated time ({time_unit})"), (over_bytes, f"Sent, up and down ({size_unit})")):
        _finish(axes, label, targets)
    over_time.set_ylabel("Test accuracy")
    handles, labels = over_time.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 5), frameon=False, handlelength=2.6, columnspacing=1.6)
    return figure


def _line(axes: Axes, place: int, name: str, x: Sequence[float], y: Sequence[float]) -> None:
    axes.plot(
        x, y, label=name, color=COLOURS[place % len(COLOURS)], linestyle=DASHES[place // len(COLOURS) % len(DASHES)], linewidth=1.0,
        marker=MARKERS[place % len(MARKERS)], markersize=4.5, markeredgewidth=0.5, markeredgecolor="white", markevery=(0.03 + 0.02 * place, 0.15),
    )


def _finish(axes: Axes, label: str, targets: Sequence[float]) -> None:
    for target in targets:
        axes.axhline(target, color="0.35", linewidth=0.9, linestyle=(0, (4, 3)), zorder=1, label=f"target {100 * target:g}%")
    axes.set_xlabel(label)
    axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.grid(color="0.9", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _time_unit(longest_s: float) -> tuple[float, str]:
    return (3600, "h") if longest_s >= 3 * 3600 else (60, "min") if longest_s >= 600 else (1, "s")


def _save(figure: Figure, path: Path, kind: str) -> Path:
    data = io.BytesIO()
    figure.savefig(data, format=kind, metadata={"CreationDate": None} if kind == "pdf" else {"Software": None})
    compare.replace_file(path, data.getvalue())
    return path
