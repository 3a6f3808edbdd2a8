"""Use of the links over time: which share of them is busy, and what they carry together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edgefl.record.files import ALL_EDGES, LINKS
from edgefl.results.columns import spread
from edgefl.results.figures.base import Plot, PlotData, Runs, first_seeds
from edgefl.results.figures.style import PlotStyle
from edgefl.results.run_files import RunFiles
from edgefl.results.summary import number

if TYPE_CHECKING:
    from edgefl.results.figures.canvas import Canvas

COLUMNS = ("name", "direction", "at", "busy", "mbit_s", "capacity_mbit_s")
PARTS = 50
DIRECTIONS = {"up": "uplink", "down": "downlink"}
BITS = 8e-6  # Mbit per byte


class LinkUse(Plot):
    """Share of the edges' links that are busy, and their rate together, up and down, over time."""

    OF = "runs with at least one transfer"
    LIMITS = "x"
    LOG = ""

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        found = list(first_seeds(runs))
        ends = [_transfers(run).ended_s for _, run in found if run.links.count]
        end = max((float(each.max()) for each in ends), default=0.0)
        rows = [
            (name, direction, *part, capacity(run, direction))
            for direction in DIRECTIONS
            for name, run in found
            for part in _parts(run, direction, end)
        ]
        return PlotData(COLUMNS, rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        from matplotlib.ticker import PercentFormatter

        from edgefl.results.figures.canvas import axis_of, marked

        panels = canvas.panels(4, 2, 1.5, sharex=True)
        unit, label = axis_of("emulated_s", max(data["at"]))
        schemes = list(data.by("name"))
        for column, (direction, word) in enumerate(DIRECTIONS.items()):
            busy, rate = panels[column], panels[column + 2]
            for name, each in data.where(direction=direction).by("name").items():
                x, look = [at / unit for at in each["at"]], marked(schemes.index(name))
                busy.plot(x, each["busy"], label=canvas.text(name), **look)
                rate.plot(x, each["mbit_s"], **look)
            limits = {each for each in data.where(direction=direction)["capacity_mbit_s"] if each}
            for limit in sorted(limits):
                rate.axhline(limit, color="0.35", linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
            busy.yaxis.set_major_formatter(PercentFormatter(1.0))
            busy.set_ylabel(f"Busy {word}s")
            rate.set_ylabel(f"{word.capitalize()}s (Mbit/s)")
            for axes in (busy, rate):
                axes.set_ylim(bottom=0)
                axes.set_xlim(left=0)
        for axes in panels[2:] if canvas.is_page else panels[3:]:
            axes.set_xlabel(label)
        canvas.legend(panels[0])


def capacity(run: RunFiles, direction: str) -> float | None:
    """Return the Mbit/s of the cell that all links of a run share; None without a cell."""
    medium = run.config.get("medium", {})
    return number(medium.get(f"{direction}_mbit_s")) if medium.get("kind") == "cell" else None


def _parts(run: RunFiles, direction: str, end: float) -> list[tuple[float, float, float]]:
    found = _transfers(run)
    there = np.flatnonzero(run.links["direction"] == run.texts.number(direction))
    if not len(there) or end <= 0:
        return []
    transfers = Transfers(*(each[there] for each in found))
    joined = run.events.rows.texts_of("event") == run.texts.number("edge_joined")
    edges = len(np.unique(run.events.rows.texts_of("edge")[joined]))
    everyone = run.texts.number(ALL_EDGES)
    own = len(np.unique(transfers.edge[transfers.edge != everyone]))
    parts = use(transfers, everyone, max(edges, own, 1), end)
    own_end = float(found.ended_s.max())
    return [part for part in parts if part[0] - end / PARTS < own_end]


class Transfers(NamedTuple):
    """Rows of links.csv as columns."""

    edge: np.ndarray
    offered_s: np.ndarray
    ended_s: np.ndarray
    size_bytes: np.ndarray


def _transfers(run: RunFiles) -> Transfers:
    """All transfers of a run. ValueError for a field that is no number."""
    names = ("edge", "offered_s", "finished_s", "bytes")
    found = Transfers(*(run.links[name] for name in names))
    for name, column in zip(names[1:], found[1:]):
        if np.isnan(column).any():
            raise ValueError(f"{LINKS}: {name}: expected a number in each row")
    return found


def use(
    transfers: Transfers, everyone: int, number_of: int, end: float, parts: int = PARTS
) -> list[tuple[float, float, float]]:
    """Return (middle, share of busy links, Mbit/s) of each part of 0 to ``end``.

    ``number_of``: the edges; a transfer to ``everyone`` takes the links of all. A link is busy from
    the offer of a transfer to its end, and the bytes are spread evenly over this time.
    """
    _, first, edges = np.unique(transfers.edge, return_index=True, return_inverse=True)
    to_all = transfers.edge == everyone
    place = np.where(to_all, len(transfers.edge), first[edges])  # edges in the order of the rows
    times = transfers.size_bytes, transfers.ended_s, transfers.offered_s
    order = np.lexsort((*times, place))
    size, finish, begin = (each[order] for each in times)
    links = np.where(to_all[order], number_of, 1)
    reached = np.zeros(len(order))  # the end of all transfers of the edge before
    for those in np.split(np.arange(len(order)), np.flatnonzero(np.diff(place[order])) + 1):
        reached[those[1:]] = np.maximum(np.maximum.accumulate(finish[those[:-1]]), 0.0)
    bounds = np.linspace(0.0, end, parts + 1)
    of, part, within = _within(bounds, begin, finish)
    rate = size[of] * within / np.maximum(finish - begin, 1e-12)[of]
    carried = np.bincount(part, rate, parts)
    of, part, within = _within(bounds, np.maximum(begin, reached), finish)
    busy = np.bincount(part, links[of] * within, parts)
    length = end / parts
    middles = bounds[:-1] + length / 2
    shares, rates = busy / length / number_of, carried * BITS / length
    return list(zip(middles.tolist(), shares.tolist(), rates.tolist()))


def _within(
    bounds: np.ndarray, begin: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which intervals are in which parts between the bounds, and for which length."""
    last = len(bounds) - 2
    first_part = np.clip(np.searchsorted(bounds, begin, "right") - 1, 0, last)
    last_part = np.clip(np.searchsorted(bounds, end, "left") - 1, 0, last)
    counts = np.where(end > begin, last_part + 1 - first_part, 0)
    of = np.repeat(np.arange(len(begin)), counts)
    part = spread(first_part, counts)
    inside = np.minimum(end[of], bounds[part + 1]) - np.maximum(begin[of], bounds[part])
    return of, part, np.maximum(inside, 0.0)


PLOT = LinkUse()
