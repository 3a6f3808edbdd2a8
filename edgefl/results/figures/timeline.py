"""What each edge does over time: computing, sending, receiving, waiting, faults, merges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefl.results.columns import MISSING
from edgefl.results.figures.base import Plot, PlotData, Runs, first_seeds
from edgefl.results.figures.style import PlotStyle
from edgefl.results.intervals import (
    AWAY,
    COMPUTE,
    DOWNLINK,
    FAULT,
    LANES,
    SLICE_TYPES,
    UPLINK,
    SliceColumns,
    joined,
)
from edgefl.results.run_files import RunFiles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from edgefl.results.figures.canvas import Canvas

COLUMNS = ("name", "edge", "lane", "what", "begin_s", "end_s", "task", "bytes")
UNSEEN = 1e-5  # of the panel's width: narrower boxes are not drawn
MARK = "instant"  # the lane of what takes no time; its end is its begin
MERGE = "merge"
MOST_EDGES, MOST_PANELS = 24, 6  # of a panel; of a figure
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
        found = [_rows(name, run) for name, run in first_seeds(runs)]
        busy = [rows for rows in found if any(row[2] in PLACES for row in rows)]
        return PlotData(COLUMNS, [row for rows in busy for row in rows])

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        from edgefl.results.figures.canvas import axis_of, first_of

        everything = data.by("name")
        schemes = dict(list(everything.items())[:MOST_PANELS])
        every = {name: sorted(set(each["edge"])) for name, each in schemes.items()}
        shown = {name: edges[:MOST_EDGES] for name, edges in every.items()}
        heights = [0.35 + 0.15 * len(edges) for edges in shown.values()]
        panels = canvas.panels(
            len(schemes), 1, sum(heights) / len(heights), gridspec_kw={"height_ratios": heights}
        )
        used: dict[str, None] = {}
        until_s = max(data["end_s"])
        if canvas.style.xlim is None:
            most = MOST_SLICES[canvas.is_page]
            until_s = min(until_s, *(_full(each, shown[of], most) for of, each in schemes.items()))
        unit, label = axis_of("emulated_s", until_s)
        panels[-1].set_xlabel(label + first_of(len(schemes), len(everything)))
        for axes, (name, each) in zip(panels, schemes.items()):
            edges = shown[name]
            for what in _panel(axes, each, edges, until_s, unit):
                used[what] = None
            total, text = len(every[name]), canvas.text(name)
            part = f" (the first {len(edges)} of {total} edges)" if total > len(edges) else ""
            axes.set_title(text + part)
        _legend(canvas, used)


def _rows(name: str, run: RunFiles) -> list[tuple[Any, ...]]:
    found, instants = run.timeline, run.timeline.instant_columns()
    both = [found.slice_columns(), found.open_columns()]
    slices = SliceColumns(*joined(both, SLICE_TYPES))
    end_s = np.where(np.isnan(slices.end_s), found.emulated_s, slices.end_s)
    shown = (slices.kind != run.texts.number("idle")) & (end_s > slices.begin_s)
    lanes = np.array([run.texts.number(lane) for lane in (*LANES, MARK)])
    marks = len(instants.t_s)
    columns = [
        np.concatenate(each)
        for each in (
            (slices.edge[shown], instants.edge),
            (lanes[slices.lane[shown]], np.full(marks, lanes[-1])),
            (slices.kind[shown], instants.kind),
            (slices.begin_s[shown], instants.t_s),
            (end_s[shown], instants.t_s),
            (slices.task[shown], instants.task),
            (slices.size_bytes[shown], np.full(marks, MISSING)),
        )
    ]
    ranks, texts = run.texts.ranks(), np.array([*run.texts.all, None], object)
    order = np.lexsort((ranks[columns[1]], ranks[columns[0]], columns[3]))
    edge, lane, kind, begin_s, end_s, task, size_bytes = (each[order] for each in columns)
    named = (texts[each].tolist() for each in (edge, lane, kind))
    whole = (_with_gaps(each) for each in (task, size_bytes))
    return list(zip(repeat(name), *named, begin_s.tolist(), end_s.tolist(), *whole))


def _with_gaps(values: np.ndarray) -> list[int | None]:
    found: list[int | None] = values.tolist()
    for place in np.flatnonzero(values == MISSING).tolist():
        found[place] = None
    return found


def _full(data: PlotData, edges: Sequence[str], most: int) -> float:
    """Return when the panel of a run has ``most`` slices; infinite if it never has."""
    kept = set(edges)
    ends = [row[5] for row in data.rows if row[1] in kept and row[2] in PLACES]
    return float(sorted(ends)[most]) if len(ends) > most else math.inf


def _panel(
    axes: Axes, data: PlotData, edges: Sequence[str], until_s: float, unit: float
) -> Iterable[str]:
    """Draw a run's edges up to ``until_s``; yield the keys of LOOKS that occur."""
    from matplotlib.collections import PatchCollection

    rows = {edge: row for row, edge in enumerate(edges)}
    patches: dict[str, list[Any]] = {what: [] for what in LOOKS}
    merges = []
    for _, edge, lane, kind, begin_s, end_s, _, _ in data.rows:
        if begin_s > until_s:
            break  # the rows are in order of their beginnings
        seen = min(end_s, until_s) - begin_s > UNSEEN * until_s or lane == MARK
        if edge not in rows or not seen:
            continue
        if lane == MARK:
            merges += [(begin_s / unit, rows[edge])] if kind == MERGE else []
            continue
        what = AWAY if lane in (FAULT, AWAY) else str(kind)
        top, height = PLACES.get(str(lane), WHOLE)
        patches[what].append(_box(begin_s, min(end_s, until_s), rows[edge] + top, height, unit))
    for what, boxes in patches.items():
        if boxes:
            yield what
            colour, hatch, _ = LOOKS[what]
            look: Mapping[str, Any] = {"facecolor": colour, "hatch": hatch, "linewidth": 0}
            if what == AWAY:
                look = {"facecolor": "none", "hatch": hatch, "edgecolor": "0.35", "linewidth": 0}
            axes.add_collection(PatchCollection(boxes, label=what, **look))
    if merges:
        yield MERGE
        x, y = zip(*merges)
        axes.plot(x, y, linewidth=0, marker="|", color="black", markersize=6, markeredgewidth=0.8)
    axes.set_xlim(0, until_s / unit)
    axes.set_ylim(len(edges) - 0.5, -0.55)
    axes.set_yticks(range(len(edges)), edges, fontsize=6)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def _box(begin_s: Any, end_s: Any, top: float, height: float, unit: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((begin_s / unit, top), (end_s - begin_s) / unit, height)


def _legend(canvas: Canvas, used: Iterable[str]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    there = set(used)
    handles: list[Any] = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="0.35", linewidth=0.4, label=text)
        for what, (colour, hatch, text) in LOOKS.items()
        if what in there
    ]
    if MERGE in there:
        mark: dict[str, Any] = {"linewidth": 0, "marker": "|", "markersize": 7, "color": "black"}
        handles.append(Line2D([], [], label="update merged", **mark))
    canvas.legend_of(handles)


PLOT = EdgeTimeline()
