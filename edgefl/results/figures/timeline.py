"""What each edge does over time: computing, sending, receiving, waiting, faults, merges."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefl.results.figures.base import (
    ArrayRows,
    Canvas,
    Plot,
    PlotData,
    PlotStyle,
    Runs,
    axis_of,
    first_seeds,
)
from edgefl.results.read import MISSING, as_rows, columns_of
from edgefl.results.run_files import RunFiles
from edgefl.results.timeline import (
    AWAY,
    COMPUTE,
    DOWNLINK,
    FAULT,
    LANES,
    SLICES,
    UPLINK,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = ("name", "edge", "lane", "what", "begin_s", "end_s", "task", "bytes")
UNSEEN = 1e-5  # of the panel's width: narrower boxes are not drawn
MARK = "instant"  # the lane of what takes no time; its end is its begin
MERGE = "merge"
# Of a panel, in a column and on a page. Later ones are left out, unless --xlim asks for them.
MOST_SLICES = (200, 420)

# colour, hatch, and what the legend says; the brightness differs too, for grey prints
LOOKS = {
    "training": ("#56B4E9", "", "training"),
    "wait": ("#F0E442", "", "waiting, in a task"),
    "send": ("#D55E00", "", "sending"),
    "receive": ("#00523B", "", "receiving"),
    "away": ("#FFFFFF", "xxxxx", "away or faulty"),
}
# of an edge's row: top and height. Faults are drawn over the whole row.
PLACES = {COMPUTE: (-0.42, 0.44), UPLINK: (0.05, 0.18), DOWNLINK: (0.26, 0.18)}
WHOLE = (-0.42, 0.86)


class EdgeTimeline(Plot):
    """Timeline: when each edge trains, waits, sends and receives; faults, and merged updates."""

    OF = "runs in which at least one edge has got a task"
    LIMITS = "x"
    LOG = ""

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        by_run = [_columns(name, run) for name, run in first_seeds(runs)]
        busy = [columns for columns in by_run if not PLACES.keys().isdisjoint(columns[2])]
        if not busy:
            return PlotData(COLUMNS, [])
        return PlotData(COLUMNS, ArrayRows([np.concatenate(each) for each in zip(*busy)]))

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        panels, rest = canvas.edge_panels(data, 0.35, 0.15, "edges")
        until_s = max(data["end_s"])
        if canvas.style.xlim is None:
            most = MOST_SLICES[canvas.is_page]
            until_s = min(until_s, *(_full(rows, edges, most) for _, rows, edges in panels))
        unit, label = axis_of("emulated_s", until_s)
        panels[-1][0].set_xlabel(label + rest)
        used = {
            what
            for axes, rows, edges in panels
            for what in _draw_panel(axes, rows, edges, until_s, unit)
        }
        _legend(canvas, used)


def _columns(name: str, run: RunFiles) -> list[np.ndarray]:
    """Return the slices and instants of a run, in the order of their beginnings, as COLUMNS."""
    slices, instants = run.timeline.slice_rows(and_open=True), run.timeline.instant_rows()
    slices["end_s"][np.isnan(slices["end_s"])] = run.timeline.emulated_s
    lasts = slices["end_s"] > slices["begin_s"]
    slices = slices[lasts & (slices["kind"] != run.texts.number("idle"))]
    edge, kind, t_s, task, _ = columns_of(instants)
    marks = as_rows(SLICES, edge, len(LANES), kind, t_s, t_s, task, MISSING)
    columns = columns_of(np.concatenate([slices, marks]))
    lanes = np.array([run.texts.number(lane) for lane in (*LANES, MARK)])
    columns[1] = lanes[columns[1]]
    ranks, texts = run.texts.ranks(), np.array([*run.texts.all, None], object)
    order = np.lexsort((ranks[columns[1]], ranks[columns[0]], columns[3]))
    texts_of, numbers = columns[:3], columns[3:]
    named = [texts[each[order]] for each in texts_of]
    return [np.full(len(order), name, object), *named, *(each[order] for each in numbers)]


def _full(data: PlotData, edges: Sequence[str], most: int) -> float:
    """Return when the panel of a run has ``most`` slices; infinite if it never has."""
    kept = set(edges)
    columns = zip(data["edge"], data["lane"], data["end_s"])
    ends = [end_s for edge, lane, end_s in columns if edge in kept and lane in PLACES]
    return float(sorted(ends)[most]) if len(ends) > most else math.inf


def _draw_panel(
    axes: Axes, data: PlotData, edges: Sequence[str], until_s: float, unit: float
) -> Iterator[str]:
    """Draw a run's edges up to ``until_s``; yield the keys of LOOKS that occur, and MERGE."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    places = {edge: row for row, edge in enumerate(edges)}
    boxes: dict[str, list[Rectangle]] = {what: [] for what in LOOKS}
    merges = []
    for _, edge, lane, kind, begin_s, end_s, _, _ in data.rows:
        if begin_s > until_s:
            break  # the rows are in order of their beginnings
        if edge not in places:
            continue
        if lane == MARK:
            merges += [(begin_s / unit, places[edge])] if kind == MERGE else []
            continue
        seen_s = min(end_s, until_s) - begin_s
        if seen_s > UNSEEN * until_s:
            top, height = PLACES.get(lane, WHOLE)
            corner = begin_s / unit, places[edge] + top
            what = AWAY if lane in (FAULT, AWAY) else kind
            boxes[what].append(Rectangle(corner, seen_s / unit, height))
    for what, own in boxes.items():
        if own:
            yield what
            colour, hatch, _ = LOOKS[what]
            look: dict[str, Any] = {"facecolor": colour, "hatch": hatch, "linewidth": 0}
            if what == AWAY:
                look |= {"facecolor": "none", "edgecolor": "0.35"}
            axes.add_collection(PatchCollection(own, label=what, **look))
    if merges:
        yield MERGE
        x, y = zip(*merges)
        axes.plot(x, y, linewidth=0, marker="|", color="black", markersize=6, markeredgewidth=0.8)
    axes.set_xlim(0, until_s / unit)
    axes.set_ylim(len(edges) - 0.5, -0.55)
    axes.set_yticks(range(len(edges)), edges, fontsize=6)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def _legend(canvas: Canvas, used: set[str]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="0.35", linewidth=0.4, label=text)
        for what, (colour, hatch, text) in LOOKS.items()
        if what in used
    ]
    if MERGE in used:
        mark: dict[str, Any] = {"linewidth": 0, "marker": "|", "markersize": 7, "color": "black"}
        handles.append(Line2D([], [], label="update merged", **mark))
    canvas.legend_of(handles)


PLOTS = {"timeline": EdgeTimeline()}
