"""The energy of the edges, by what it was needed for."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

from edgefl.results import energy
from edgefl.results.figures.base import Plot, PlotData, Runs
from edgefl.results.figures.style import PlotStyle
from emulator.energy.account import STATES

if TYPE_CHECKING:
    from edgefl.results.figures.canvas import Canvas

COLUMNS = ("name", "seed", "state", "joules")


class EnergyUse(Plot):
    """Modelled joules of all edges: idle, compute, send, receive, tail; the mean over seeds."""

    OF = "runs with powers in their config (devices.energy, links.radio)"
    LIMITS = "y"
    LOG = ""
    WIDTH = "column"

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        rows: list[tuple[Any, ...]] = []
        for name, of_scheme in runs.items():
            for run in of_scheme:
                edges = energy.joules(run.path)
                for state in STATES if edges else ():
                    whole = sum(each.get(f"{state}_j", 0.0) for each in (edges or {}).values())
                    rows.append((name, run.config.get("seed"), state, whole))
        return PlotData(COLUMNS, rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        from edgefl.results.figures.canvas import filled, name_bars, unit_of_energy

        (axes,) = canvas.panels(1, 1, 2.2)
        schemes = data.by("name")
        means = {
            (name, state): fmean(of_state["joules"])
            for name, each in schemes.items()
            for state, of_state in each.by("state").items()
        }
        highest = max(sum(means[name, state] for state in STATES) for name in schemes)
        unit, text = unit_of_energy(highest)
        bottoms = [0.0] * len(schemes)
        for place, state in enumerate(STATES):
            heights = [means[name, state] / unit for name in schemes]
            if any(heights):
                look = filled(place)
                axes.bar(range(len(schemes)), heights, 0.7, bottoms, label=state, **look)
            bottoms = [low + height for low, height in zip(bottoms, heights)]
        name_bars(axes, [canvas.text(name) for name in schemes], canvas.is_page)
        axes.set_ylabel(f"Energy of all edges ({text})")
        canvas.legend(axes)


PLOT = EnergyUse()
