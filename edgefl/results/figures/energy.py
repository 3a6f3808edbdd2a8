"""What the edges have used their energy for."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from edgefl.results.energy import joules
from edgefl.results.figures.base import Plot, PlotData, Runs
from edgefl.results.figures.style import PlotStyle
from emulator.energy.account import STATES

if TYPE_CHECKING:
    from edgefl.results.figures.canvas import Canvas

COLUMNS = ("name", "edge", "state", "joules")


class Energy(Plot):
    """Modelled energy of all edges by what it was used for, a bar per scheme: mean over seeds."""

    OF = "runs whose config has [devices.energy] or [links.radio]"
    LIMITS = "y"
    LOG = ""
    WIDTH = "column"

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        rows = []
        for name, of_scheme in runs.items():
            found = [each for run in of_scheme if (each := joules(run.path)) is not None]
            for edge in sorted({edge for each in found for edge in each}):
                of_edge = [each[edge] for each in found if edge in each]
                rows += [
                    (name, edge, state, fmean(each[f"{state}_j"] for each in of_edge))
                    for state in STATES
                ]
        return PlotData(COLUMNS, rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        from edgefl.results.figures.canvas import filled, unit_of_energy

        (axes,) = canvas.panels(1, 1, 2.2)
        schemes = {name: each.by("state") for name, each in data.by("name").items()}
        sums = {
            name: [sum(each[state]["joules"]) for state in STATES] for name, each in schemes.items()
        }
        unit, unit_name = unit_of_energy(max(map(sum, sums.values())))
        below = [0.0] * len(sums)
        for place, state in enumerate(STATES):
            heights = [each[place] / unit for each in sums.values()]
            if any(heights):
                axes.bar(range(len(sums)), heights, 0.7, below, label=state, **filled(place))
                below = [low + height for low, height in zip(below, heights)]
        axes.set_xticks(range(len(sums)), [canvas.text(name) for name in sums])
        axes.grid(visible=False, axis="x")
        axes.set_ylim(bottom=0)
        axes.set_ylabel(f"Energy of all edges ({unit_name})")
        canvas.legend(axes)


PLOT = Energy()
