"""Use of the links over time: which share of them is busy, and what they carry together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefl.record.files import ALL_EDGES
from edgefl.results.figures.base import Plot, PlotData, RunFiles, Runs, first_seeds
from edgefl.results.figures.style import PlotStyle
from edgefl.results.summary import number

if TYPE_CHECKING:
    from edgefl.results.figures.canvas import Canvas

COLUMNS = ("name", "direction", "at", "busy", "mbit_s", "capacity_mbit_s")
PARTS = 50
DIRECTIONS = {"up": "uplink", "down": "downlink"}
BITS = 8e-6  # Mbit per byte

Moment = tuple[float, float, float]  # begin and end in emulated s, bytes


class LinkUse(Plot):
    """Share of the edges' links that are busy, and their rate together, up and down, over time."""

    OF = "runs with at least one transfer"
    LIMITS = "x"
    LOG = ""

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        found = list(first_seeds(runs))
        end = max((float(row["finished_s"]) for _, run in found for row in run.links), default=0.0)
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


def edges_of(events: Iterable[Mapping[str, Any]]) -> int:
    """Return how many edges have joined."""
    return len({event["edge"] for event in events if event.get("event") == "edge_joined"})


def _parts(run: RunFiles, direction: str, end: float) -> list[tuple[float, float, float]]:
    moments: dict[str, list[Moment]] = {}
    for row in run.links:
        if row["direction"] == direction:
            times = float(row["offered_s"]), float(row["finished_s"])
            moments.setdefault(row["edge"], []).append((*times, float(row["bytes"])))
    if not moments or end <= 0:
        return []
    shared = moments.pop(ALL_EDGES, [])
    edges = max(edges_of(run.events), len(moments), 1)
    own_end = max(float(row["finished_s"]) for row in run.links)
    found = use(list(moments.values()), edges, end, shared)
    return [part for part in found if part[0] - end / PARTS < own_end]


def use(
    edges: Sequence[Sequence[Moment]],
    number_of: int,
    end: float,
    shared: Sequence[Moment] = (),
    parts: int = PARTS,
) -> list[tuple[float, float, float]]:
    """Return (middle, share of busy links, Mbit/s) of each part of 0 to ``end``.

    ``edges``: the transfers of each edge, of ``number_of`` edges; ``shared``: broadcasts to all.
    A link is busy from the offer of a transfer to its end, and the bytes are spread evenly over
    this time.
    """
    bounds = np.linspace(0.0, end, parts + 1)
    busy, carried = np.zeros(parts), np.zeros(parts)
    for moments, links in (*((each, 1) for each in edges), (shared, number_of)):
        reached = 0.0
        for begin, finish, size in sorted(moments):
            carried += size * _within(bounds, begin, finish) / max(finish - begin, 1e-12)
            busy += links * _within(bounds, max(begin, reached), finish)
            reached = max(reached, finish)
    length = end / parts
    middles = bounds[:-1] + length / 2
    shares, rates = busy / length / number_of, carried * BITS / length
    return list(zip(middles.tolist(), shares.tolist(), rates.tolist()))


def _within(bounds: np.ndarray, begin: float, end: float) -> np.ndarray:
    """Return the length of ``begin`` to ``end`` in each part between the bounds."""
    inside = np.clip(bounds, begin, max(begin, end))
    return np.diff(inside)


PLOT = LinkUse()
