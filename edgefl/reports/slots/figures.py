"""Figures of runs on a TDMA channel: timeline, staleness over rounds, loss over slots.

Every figure function returns the PNG and the PDF that it wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from edgefl.errors import UserError
from edgefl.reports.slots import section as slots
from edgefl.results import rundirs
from edgefl.results.drawing import legend_above
from edgefl.results.plots import COLOURS, MARKERS, STYLE, WIDE, over_seeds, save
from edgefl.results.summary import number
from edgefl.results.tail import read_csv, read_events
from emulator.tdma.figure import LOOKS

MOST_ROWS, MOST_SLOTS, LEAST_SLOTS = 24, 160, 40
MOST_PANELS = 6
Seeds = list[tuple[list[float], list[float]]]


def timeline(dirs: Sequence[Path], out_png: Path) -> list[Path]:
    """Draw when each device computes, waits, transmits and receives, over slots.

    A device is a row; each of the first MOST_PANELS schemes has a panel, of its first seed.
    """
    found = {
        name: runs[0] for name, runs in rundirs.find(dirs).items() if slots.is_slotted(runs[0])
    }
    if not found:
        raise _none(dirs)
    with matplotlib.rc_context(STYLE | {"hatch.linewidth": 0.5}):
        return _saved(_panels(dict(list(found.items())[:MOST_PANELS])), out_png)


def staleness(dirs: Sequence[Path], out_png: Path) -> list[Path]:
    """Draw the staleness of each round's updates, in rounds, from the freshest to the stalest."""
    rounds = {
        name: slots.rounds(read_events(runs[0] / "events.jsonl"))
        for name, runs in rundirs.find(dirs).items()
    }
    found = {
        name: [(at, each) for at, each in enumerate(values) if "staleness_most" in each]
        for name, values in rounds.items()
    }
    if not any(found.values()):
        raise _none(dirs)
    with matplotlib.rc_context(STYLE):
        figure, axes = _one("Round", "Staleness (rounds)")
        for place, (name, values) in enumerate(found.items()):
            x = [at for at, _ in values]
            least = [each["staleness_least"] for _, each in values]
            most = [each["staleness_most"] for _, each in values]
            axes.plot(x, most, label=name, **_looks(place))
            axes.fill_between(
                x, least, most, color=COLOURS[place % len(COLOURS)], alpha=0.25, linewidth=0
            )
        axes.set_ylim(bottom=0)
        _legend(figure, axes)
        return _saved(figure, out_png)


def loss(dirs: Sequence[Path], out_png: Path) -> list[Path]:
    """Draw train loss over slots: mean and deviation over the seeds of each scheme.

    The axis is logarithmic if the losses differ widely, as when a model diverged.
    """
    curves: dict[str, Seeds] = {}
    for name, runs in rundirs.find(dirs).items():
        rows = [
            [
                (number(row["emulated_s"]), number(row["train_loss"]))
                for row in read_csv(run / "metrics.csv")
            ]
            for run in runs
        ]
        points = [
            [(t / slots.slot_s(run), y) for t, y in each if t is not None and y is not None]
            for run, each in zip(runs, rows)
        ]
        curves[name] = [([t for t, _ in each], [y for _, y in each]) for each in points if each]
    if not any(curves.values()):
        raise UserError(
            f"no train_loss in any metrics.csv of {', '.join(map(str, dirs))}"
            " (evaluation.train_samples)"
        )
    with matplotlib.rc_context(STYLE):
        figure, axes = _one("Slot", "Train loss")
        for place, (name, seeds) in enumerate(item for item in curves.items() if item[1]):
            line = over_seeds(seeds)
            axes.plot(line.x, line.mean, label=name, **_looks(place))
            if line.deviation is not None:
                axes.fill_between(
                    line.x,
                    line.mean - line.deviation,
                    line.mean + line.deviation,
                    color=COLOURS[place % len(COLOURS)],
                    alpha=0.2,
                    linewidth=0,
                )
        _logarithmic_if_wide(
            axes, np.concatenate([over_seeds(seeds).mean for seeds in curves.values() if seeds])
        )
        _legend(figure, axes)
        return _saved(figure, out_png)


# ------------------------------------------------------------------ drawing
def _logarithmic_if_wide(axes: Axes, losses: np.ndarray) -> None:
    drawn = losses[np.isfinite(losses) & (losses > 0)]
    if drawn.size and drawn.max() > WIDE * drawn.min():
        axes.set_yscale("log")
        axes.set_ylim(drawn.min() / 1.5, drawn.max() * 1.5)  # because a band may reach below 0
        axes.set_ylabel(f"{axes.get_ylabel()}, logarithmic")


def _panels(runs: Mapping[str, Path]) -> Figure:
    read = {
        name: (read_events(run / "events.jsonl"), slots.slot_s(run)) for name, run in runs.items()
    }
    last = {name: _last_slot(slots.rounds(events)) for name, (events, _) in read.items()}
    edges = {
        name: sorted(
            {
                edge
                for event in events
                for decision in event.get("decisions", ())
                if decision["do"] == "assign"
                for edge in decision["edges"]
            }
        )
        for name, (events, _) in read.items()
    }
    heights = [1.0 + 0.14 * min(len(names), MOST_ROWS) for names in edges.values()]
    figure = Figure(figsize=(7.0, 0.4 + sum(heights)), dpi=200, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(runs), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (name, (events, slot_s)) in zip(panels, read.items()):
        _timeline(
            axes,
            name,
            edges[name],
            slots.bars(events, slot_s, last[name]),
            slots.rounds(events),
            last[name],
        )
    panels[-1].set_xlabel("Slot (rounds end at the dark lines)")
    handles = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="white" if hatch else "0.6", label=what)
        for what, (colour, hatch) in LOOKS.items()
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False)
    return figure


def _last_slot(rounds: Sequence[Mapping[str, float]]) -> int:
    """Return how many slots to show: about 12 rounds, within the limits that are readable."""
    shown = max(LEAST_SLOTS, int(rounds[min(len(rounds), 12) - 1][slots.MARK]))
    return min(shown, MOST_SLOTS, int(rounds[-1][slots.MARK]))


def _timeline(
    axes: Axes,
    name: str,
    edges: list[str],
    bars: list[slots.Bar],
    rounds: Sequence[Mapping[str, float]],
    last: int,
) -> None:
    rows = {edge: row for row, edge in enumerate(edges[:MOST_ROWS])}
    axes.add_patch(Rectangle((0, -0.5), last, len(rows), facecolor=LOOKS["wait"][0], linewidth=0))
    for bar in bars:
        if bar.edge in rows:
            colour, hatch = LOOKS[bar.what]
            corner, width = (bar.begin, rows[bar.edge] - 0.4), min(bar.end, last) - bar.begin
            axes.add_patch(
                Rectangle(
                    corner,
                    width,
                    0.8,
                    facecolor=colour,
                    hatch=hatch,
                    edgecolor="white" if hatch else "none",
                    linewidth=0,
                )
            )
    axes.set_xlim(0, last)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xticks(range(last + 1), minor=True)
    axes.grid(axis="x", which="minor", color="0.6", linewidth=0.3)
    axes.tick_params(axis="x", which="minor", length=0)
    for each in rounds:
        if each[slots.MARK] <= last:
            axes.axvline(each[slots.MARK], color="0.25", linewidth=0.7)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=16, integer=True))
    axes.set_yticks(list(rows.values()), list(rows), fontsize=5)
    axes.set_title(
        (
            name
            if len(rows) == len(edges)
            else f"{name} (the first {len(rows)} of {len(edges)} devices)"
        ),
        fontsize=8,
    )


def _one(x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(4.6, 2.8), dpi=300, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(color="0.9", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _looks(place: int) -> dict[str, Any]:
    dashed = "--" if place // len(COLOURS) % 2 else "-"
    marker = {
        "marker": MARKERS[place % len(MARKERS)],
        "markersize": 4,
        "markeredgewidth": 0,
        "markevery": (0.03 + 0.02 * place % 0.15, 0.15),
    }
    return {"color": COLOURS[place % len(COLOURS)], "linestyle": dashed, "linewidth": 1.0, **marker}


def _legend(figure: Figure, axes: Axes) -> None:
    axes.set_xlim(left=0)
    legend_above(figure, axes)


def _saved(figure: Figure, out_png: Path) -> list[Path]:
    return [save(figure, out_png, "png"), save(figure, out_png.with_suffix(".pdf"), "pdf")]


def _none(dirs: Sequence[Path]) -> UserError:
    return UserError(
        f"no round of a slotted strategy in {', '.join(map(str, dirs))}: expected tdma-fl, idfl or"
        " sync-tdma-fl, run past its first broadcast"
    )
