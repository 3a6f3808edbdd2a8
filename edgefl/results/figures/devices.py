"""How long each device trains: the speeds of the devices."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefl.results.columns import MISSING
from edgefl.results.figures.base import Plot, PlotData, Runs, first_seeds
from edgefl.results.figures.style import PlotStyle
from edgefl.results.run_files import RunFiles

if TYPE_CHECKING:
    from edgefl.results.figures.canvas import Canvas

COLUMNS = ("name", "edge", "tasks", "median_s", "least_s", "most_s")
NAMED = 20  # up to this many edges are named; more are numbered


class DeviceSpeeds(Plot):
    """Training time of each device, from the fastest to the slowest: median, least and most."""

    OF = "runs in which at least one training has ended"
    LIMITS = "y"
    LOG = "y"
    WIDTH = "column"

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        found = {name: trainings(run) for name, run in first_seeds(runs)}
        speeds: dict[str, list[float]] = {}
        for of_run in found.values():
            for edge, seconds in of_run.items():
                speeds.setdefault(edge, []).append(median(seconds))
        order = sorted(speeds, key=lambda edge: (median(speeds[edge]), edge))
        rows = [
            (name, edge, len(seconds), median(seconds), min(seconds), max(seconds))
            for name, of_run in found.items()
            for edge in order
            if (seconds := of_run.get(edge, []))
        ]
        return PlotData(COLUMNS, rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        from edgefl.results.figures.canvas import MARKERS, look, unit_of_time, whole_numbers

        (axes,) = canvas.panels(1, 1, 2.2)
        schemes, unit = data.by("name"), unit_of_time(max(data["most_s"]))
        slowest = {edge: each["median_s"] for edge, each in data.by("edge").items()}
        order = {
            edge: at
            for at, edge in enumerate(sorted(slowest, key=lambda e: (median(slowest[e]), e)))
        }
        for place, (name, each) in enumerate(schemes.items()):
            shift = 0.6 * ((place + 0.5) / len(schemes) - 0.5)
            x = [order[edge] + shift for edge in each["edge"]]
            colour = look(place)["color"]
            low, high = (
                [value / unit[0] for value in each[name]] for name in ("least_s", "most_s")
            )
            axes.vlines(x, low, high, color=colour, linewidth=0.8)
            dots: dict[str, Any] = {
                "marker": MARKERS[place % len(MARKERS)],
                "linewidth": 0,
                "markersize": 3.5,
            }
            middle = [value / unit[0] for value in each["median_s"]]
            axes.plot(x, middle, label=canvas.text(name), color=colour, **dots)
        if len(order) <= NAMED:
            axes.set_xticks(
                range(len(order)), list(order), rotation=45, ha="right", rotation_mode="anchor"
            )
            axes.set_xlabel("Edge")
        else:
            whole_numbers(axes)
            axes.set_xlabel("Edges, from the fastest")
        axes.set_ylabel(f"Training of a task ({unit[1]})")
        axes.set_ylim(bottom=0)
        if len(schemes) > 1:
            canvas.legend(axes)
        else:
            canvas.text(next(iter(schemes)))


def trainings(run: RunFiles) -> dict[str, list[float]]:
    """Return for each edge the emulated seconds that its trainings took."""
    rows, number = run.events.rows, run.texts.number
    fact, event = rows.texts_of("fact"), rows.texts_of("event")
    kind = np.where(fact == MISSING, event, fact)  # a strategy may have been told
    started = kind == number("task_started")
    there = np.flatnonzero(started | (kind == number("update_ready")))
    edge, task = rows.texts_of("edge")[there], rows.whole("task")[there]
    t_s = rows.floats("t")[there]
    order = np.lexsort((task, edge))  # stable: the rows of a task stay in order
    same = (edge[order][1:] == edge[order][:-1]) & (task[order][1:] == task[order][:-1])
    begins, ends = started[there[order]][:-1], ~started[there[order]][1:]
    places = np.flatnonzero(same & begins & ends)
    places = places[np.argsort(order[places + 1])]  # in the order in which they ended
    seconds = t_s[order[places + 1]] - t_s[order[places]]
    names = run.texts.all
    found: dict[str, list[float]] = {}
    for each, took_s in zip(edge[order[places]].tolist(), seconds.tolist()):
        found.setdefault(names[each], []).append(took_s)
    return found


PLOT = DeviceSpeeds()
