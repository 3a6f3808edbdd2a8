"""What edges are like and what they use: speeds, joules, samples of each label, links over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import NamedTuple

import numpy as np

from edgefl.record.files import ALL_EDGES, EDGES, LINKS
from edgefl.results import energy
from edgefl.results.figures.base import (
    COLOURS,
    DASHED,
    MARKERS,
    Canvas,
    Plot,
    PlotData,
    PlotStyle,
    Runs,
    axis_of,
    filled,
    first_seeds,
    look,
    marked,
    percents,
    whole_numbers,
)
from edgefl.results.read import MISSING, number, read_csv, spread
from edgefl.results.run_files import RunFiles
from edgefl.results.summary import unit_up_to
from emulator.energy.account import STATES

NAMED = 20  # up to this many edges are named below a figure; more are numbered
SPEEDS = ("name", "edge", "tasks", "median_s", "least_s", "most_s")
JOULES = ("name", "seed", "state", "joules")
SAMPLES = ("edge", "label", "samples")
USE = ("name", "direction", "at", "busy", "mbit_s", "capacity_mbit_s")


# ---------------------------------------------------------------------- speeds
class DeviceSpeeds(Plot):
    """Training time of each device, from the fastest to the slowest: median, least and most."""

    OF = "runs in which at least one training has ended"
    LIMITS = LOG = "y"
    WIDTH = "column"

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        by_run = {name: trainings(run) for name, run in first_seeds(runs)}
        speeds: dict[str, list[float]] = {}
        for of_run in by_run.values():
            for edge, seconds in of_run.items():
                speeds.setdefault(edge, []).append(median(seconds))
        rows = [
            (name, edge, len(seconds), median(seconds), min(seconds), max(seconds))
            for name, of_run in by_run.items()
            for edge in fastest_first(speeds)
            if (seconds := of_run.get(edge, []))
        ]
        return PlotData(SPEEDS, rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        axes = canvas.panel()
        strategies, (unit, unit_name) = data.by("name"), unit_up_to(max(data["most_s"]), "s")
        medians = {edge: each["median_s"] for edge, each in data.by("edge").items()}
        order = {edge: at for at, edge in enumerate(fastest_first(medians))}
        for place, (name, each) in enumerate(strategies.items()):
            shift = 0.6 * ((place + 0.5) / len(strategies) - 0.5)
            x = [order[edge] + shift for edge in each["edge"]]
            colour, marker = look(place)["color"], MARKERS[place % len(MARKERS)]
            low, middle, high = (
                [value / unit for value in each[column]]
                for column in ("least_s", "median_s", "most_s")
            )
            axes.vlines(x, low, high, color=colour, linewidth=0.8)
            text = canvas.text(name)
            axes.plot(
                x, middle, label=text, color=colour, marker=marker, linewidth=0, markersize=3.5
            )
        if len(order) <= NAMED:
            texts = list(order)
            axes.set_xticks(
                range(len(order)), texts, rotation=45, ha="right", rotation_mode="anchor"
            )
            axes.set_xlabel("Edge")
        else:
            whole_numbers(axes)
            axes.set_xlabel("Edges, from the fastest")
        axes.set_ylabel(f"Training of a task ({unit_name})")
        axes.set_ylim(bottom=0)
        if len(strategies) > 1:
            canvas.legend(axes)


def fastest_first(medians: Mapping[str, Sequence[float]]) -> list[str]:
    """Return the edges by the median of their medians in several runs."""
    return sorted(medians, key=lambda edge: (median(medians[edge]), edge))


def trainings(run: RunFiles) -> dict[str, list[float]]:
    """Return for each edge the emulated seconds that its trainings took, in order of their ends."""
    rows, number = run.events.rows, run.texts.number
    fact, event = rows.texts_of("fact"), rows.texts_of("event")
    kind = np.where(fact == MISSING, event, fact)  # a strategy may have been told
    started = kind == number("task_started")
    places = np.flatnonzero(started | (kind == number("update_ready")))
    edge, task = rows.texts_of("edge")[places], rows.whole("task")[places]
    t_s = rows.floats("t")[places]
    order = np.lexsort((task, edge))  # stable: the rows of a task stay in order
    same = (np.diff(edge[order]) == 0) & (np.diff(task[order]) == 0)
    begins, ends = started[places[order]][:-1], ~started[places[order]][1:]
    pairs = np.flatnonzero(same & begins & ends)
    pairs = pairs[np.argsort(order[pairs + 1])]
    seconds = t_s[order[pairs + 1]] - t_s[order[pairs]]
    names = run.texts.all
    by_edge: dict[str, list[float]] = {}
    for each, took_s in zip(edge[order[pairs]].tolist(), seconds.tolist()):
        by_edge.setdefault(names[each], []).append(took_s)
    return by_edge


# ---------------------------------------------------------------------- energy
class EnergyUse(Plot):
    """Modelled joules of all edges: idle, compute, send, receive, tail; the mean over seeds."""

    OF = "runs with powers in their config (devices.energy, links.radio)"
    LIMITS = "y"
    LOG = ""
    WIDTH = "column"

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        by_run = [
            (name, run.config.get("seed"), edges.values())
            for name, of_strategy in runs.items()
            for run in of_strategy
            if (edges := energy.joules(run.path))
        ]
        rows = [
            (name, seed, state, sum(each.get(f"{state}_j", 0.0) for each in edges))
            for name, seed, edges in by_run
            for state in STATES
        ]
        return PlotData(JOULES, rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        axes = canvas.panel()
        strategies = data.by("name")
        means = {
            (name, state): fmean(of_state["joules"])
            for name, each in strategies.items()
            for state, of_state in each.by("state").items()
        }
        highest = max(sum(means[name, state] for state in STATES) for name in strategies)
        unit, text = unit_up_to(highest, "J")
        bottoms = [0.0] * len(strategies)
        for place, state in enumerate(STATES):
            heights = [means[name, state] / unit for name in strategies]
            if any(heights):
                axes.bar(
                    range(len(strategies)), heights, 0.7, bottoms, label=state, **filled(place)
                )
            bottoms = [low + height for low, height in zip(bottoms, heights)]
        canvas.name_bars(axes, list(strategies))
        axes.set_ylabel(f"Energy of all edges ({text})")
        canvas.legend(axes)


# ---------------------------------------------------------------------- labels
class LabelPartition(Plot):
    """Label partition: the samples of each label on each edge, and each edge's total."""

    OF = "runs with evaluation.by_label = true; of a config: edgefl data plot CONFIG"
    LIMITS = LOG = ""

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        for _, run in first_seeds(runs):  # the strategies of an experiment share a partition
            counts = {
                row["edge"]: [int(count) for key, count in row.items() if key.startswith("label_")]
                for row in read_csv(run.path / EDGES)
            }
            if counts:
                return of_counts(counts)
        return PlotData(SAMPLES, [])

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        from matplotlib.ticker import MaxNLocator

        edges = list(data.by("edge"))
        counts = np.array(data["samples"]).reshape(len(edges), -1).T
        totals, grid = canvas.panels(2, 1, 1.6, sharex=True, gridspec_kw={"height_ratios": (1, 3)})
        grid.grid(visible=False)
        totals.bar(np.arange(len(edges)), counts.sum(axis=0), width=0.8, color=COLOURS[0])
        totals.set_ylabel("Samples")
        image = grid.imshow(
            counts, aspect="auto", origin="lower", cmap="cividis", interpolation="nearest", vmin=0
        )
        grid.set_ylabel("Label")
        canvas.figure.colorbar(image, ax=grid, label="Samples of the label", pad=0.01)
        grid.yaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
        if len(edges) <= NAMED:
            grid.set_xticks(np.arange(len(edges)), edges, rotation=45, ha="right")
        else:
            whole_numbers(grid, 10, 2)
            grid.set_xlabel("Edge")


def of_counts(counts: Mapping[str, Sequence[int]]) -> PlotData:
    """Return the numbers of the partition; ``counts``: samples of each label, by edge."""
    rows = [
        (edge, label, int(samples))
        for edge, of_edge in counts.items()
        for label, samples in enumerate(of_edge)
    ]
    return PlotData(SAMPLES, rows)


# ---------------------------------------------------------------------- links
PARTS = 50
DIRECTIONS = {"up": "uplink", "down": "downlink"}
BITS = 8e-6  # Mbit per byte


class LinkUse(Plot):
    """Share of the edges' links that are busy, and their rate together, up and down, over time."""

    OF = "runs with at least one transfer"
    LIMITS = "x"
    LOG = ""

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        by_run = [(name, run, Transfers.of(run)) for name, run in first_seeds(runs)]
        end = max((float(each.ended_s.max()) for *_, each in by_run if len(each.edge)), default=0.0)
        rows = [
            (name, direction, *part, capacity(run, direction))
            for direction in DIRECTIONS
            for name, run, transfers in by_run
            for part in _parts(run, transfers, direction, end)
        ]
        return PlotData(USE, rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        panels = canvas.panels(4, 2, 1.5, sharex=True)
        unit, label = axis_of("emulated_s", max(data["at"]))
        strategies = list(data.by("name"))
        for column, (direction, word) in enumerate(DIRECTIONS.items()):
            busy, rate = panels[column], panels[column + 2]
            own = data.where(direction=direction)
            for name, each in own.by("name").items():
                x, place = [at / unit for at in each["at"]], strategies.index(name)
                canvas.line(busy, place, name, x, each["busy"])
                rate.plot(x, each["mbit_s"], **marked(place))
            for limit in sorted({each for each in own["capacity_mbit_s"] if each}):
                rate.axhline(limit, **DASHED)
            percents(busy)
            busy.set_ylabel(f"Busy {word}s")
            rate.set_ylabel(f"{word.capitalize()}s (Mbit/s)")
            for axes in (busy, rate):
                axes.set_ylim(bottom=0)
                axes.set_xlim(left=0)
        for axes in panels[2:] if canvas.is_page else panels[3:]:
            axes.set_xlabel(label)
        canvas.legend(panels[0])


class Transfers(NamedTuple):
    """Rows of links.csv as columns."""

    edge: np.ndarray
    offered_s: np.ndarray
    ended_s: np.ndarray
    size_bytes: np.ndarray

    @classmethod
    def of(cls, run: RunFiles) -> Transfers:
        """All transfers of a run. ValueError for a field that is no number."""
        names = ("edge", "offered_s", "finished_s", "bytes")
        columns = [run.table(LINKS)[name] for name in names]
        for name, column in zip(names[1:], columns[1:]):
            if np.isnan(column).any():
                raise ValueError(f"{LINKS}: {name}: expected a number in each row")
        return cls(*columns)


def capacity(run: RunFiles, direction: str) -> float | None:
    """Return the Mbit/s of the cell that all links of a run share; None without a cell."""
    medium = run.config.get("medium", {})
    return number(medium.get(f"{direction}_mbit_s")) if medium.get("kind") == "cell" else None


def _parts(
    run: RunFiles, transfers: Transfers, direction: str, end: float
) -> list[tuple[float, float, float]]:
    """Return ``use`` of a run's links in one direction, up to the run's own end."""
    places = np.flatnonzero(run.table(LINKS)["direction"] == run.texts.number(direction))
    if not len(places) or end <= 0:
        return []
    own = Transfers(*(each[places] for each in transfers))
    joined = run.events.rows.texts_of("event") == run.texts.number("edge_joined")
    edges = len(np.unique(run.events.rows.texts_of("edge")[joined]))
    everyone = run.texts.number(ALL_EDGES)
    seen = len(np.unique(own.edge[own.edge != everyone]))
    parts = use(own, everyone, max(edges, seen, 1), end)
    own_end = float(transfers.ended_s.max())
    return [part for part in parts if part[0] - end / PARTS < own_end]


def use(
    transfers: Transfers, everyone: int, edges: int, end: float, parts: int = PARTS
) -> list[tuple[float, float, float]]:
    """Return (middle, share of busy links, Mbit/s) of each part of 0 to ``end``.

    A transfer to ``everyone`` takes the links of all ``edges``. A link is busy from the offer of a
    transfer to its end, and the bytes are spread evenly over this time.
    """
    _, first, of_edge = np.unique(transfers.edge, return_index=True, return_inverse=True)
    to_all = transfers.edge == everyone
    place = np.where(to_all, len(transfers.edge), first[of_edge])  # edges in the order of the rows
    times = transfers.size_bytes, transfers.ended_s, transfers.offered_s
    order = np.lexsort((*times, place))
    size, finish, begin = (each[order] for each in times)
    links = np.where(to_all[order], edges, 1)
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
    shares, rates = busy / length / edges, carried * BITS / length
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


PLOTS = {
    "devices": DeviceSpeeds(),
    "energy-use": EnergyUse(),
    "labels": LabelPartition(),
    "link-use": LinkUse(),
}
