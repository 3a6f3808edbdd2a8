"""Runs on a TDMA channel: who uses which slot, staleness over rounds, loss over slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgefl.reports.slots import section as slots
from edgefl.results.figures.base import Plot, PlotData, Runs, first_seeds
from edgefl.results.figures.curves import evaluations, line_rows
from edgefl.results.figures.style import PlotStyle
from edgefl.results.run_files import RunFiles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from edgefl.results.figures.canvas import Canvas

OF = "slotted strategies (tdma-fl, idfl, sync-tdma-fl), run past their first broadcast"
SLOTS = ("name", "edge", "what", "begin_slot", "end_slot")
STALENESS = ("name", "round", "least", "most")
LOSS = ("name", "runs", "slot", "loss", "deviation")
ROUND = "round"  # ``what`` of a row without an edge: a round ends here
MOST_ROWS, MOST_SLOTS, LEAST_SLOTS = 24, 160, 40
MOST_PANELS = 6


class SlotsPlot(Plot):
    """When each device computes, waits, transmits and receives, over slots; rounds as lines."""

    OF = OF
    LIMITS = "x"
    LOG = ""

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        found = {name: _bars(name, run) for name, run in first_seeds(runs)}
        return PlotData(SLOTS, [row for rows in found.values() for row in rows])

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        from matplotlib.patches import Patch

        from edgefl.results.figures.canvas import first_of
        from emulator.figures import LOOKS

        everything = data.by("name")
        schemes = dict(list(everything.items())[:MOST_PANELS])
        edges = {name: sorted({*each["edge"]} - {None}) for name, each in schemes.items()}
        heights = [1.0 + 0.14 * min(len(names), MOST_ROWS) for names in edges.values()]
        panels = canvas.panels(
            len(schemes), 1, sum(heights) / len(heights), gridspec_kw={"height_ratios": heights}
        )
        for axes, (name, each) in zip(panels, schemes.items()):
            _slots(axes, each, edges[name], ticks=16 if canvas.is_page else 8)
            shown = min(len(edges[name]), MOST_ROWS)
            part = f" (the first {shown} of {len(edges[name])} devices)"
            axes.set_title(canvas.text(name) + part * (shown < len(edges[name])))
        first = first_of(len(schemes), len(everything))
        panels[-1].set_xlabel(f"Slot; rounds end at the dark lines{first}")
        canvas.legend_of(
            [
                Patch(
                    facecolor=colour, hatch=hatch, edgecolor="white" if hatch else "0.6", label=what
                )
                for what, (colour, hatch) in LOOKS.items()
            ]
        )


class SlotStalenessPlot(Plot):
    """Staleness of each round's updates, in rounds, from the freshest to the stalest."""

    OF = OF
    LOG = ""  # many are 0
    WIDTH = "column"

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        rows = [
            (name, at, each["staleness_least"], each["staleness_most"])
            for name, run in first_seeds(runs)
            for at, each in enumerate(_rounds(run))
            if "staleness_most" in each
        ]
        return PlotData(STALENESS, rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        from edgefl.results.figures.canvas import look, marked

        (axes,) = canvas.panels(1, 1, 2.2)
        for place, (name, each) in enumerate(data.by("name").items()):
            axes.plot(each["round"], each["most"], label=canvas.text(name), **marked(place))
            band = {"color": look(place)["color"], "alpha": 0.25, "linewidth": 0}
            axes.fill_between(each["round"], each["least"], each["most"], **band)
        axes.set_xlabel("Round")
        axes.set_ylabel("Staleness (rounds)")
        axes.set_xlim(left=0)
        axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))
        canvas.legend(axes)


class SlotLossPlot(Plot):
    """Train loss over slots: mean and deviation over the seeds of each scheme."""

    OF = "runs on a TDMA channel with evaluation.train_samples"
    LOG = "y"
    WIDTH = "column"

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        rows: list[tuple[Any, ...]] = []
        for name, of_scheme in runs.items():
            on_channel = [run for run in of_scheme if run.config.get("medium", {}).get("slot_ms")]
            curves = [_over_slots(run) for run in on_channel]
            rows += [(name, len(of_scheme), *row) for row in line_rows(curves)]
        return PlotData(LOSS, rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        from edgefl.results.figures.curves import draw_line, logarithmic_if_wide

        (axes,) = canvas.panels(1, 1, 2.2)
        axes.set_xlabel("Slot")
        axes.set_ylabel("Train loss")
        for place, (name, each) in enumerate(data.by("name").items()):
            values = each["slot"], each["loss"], each["deviation"]
            draw_line(axes, place, canvas.text(name), *values)
        axes.set_xlim(left=0)
        logarithmic_if_wide(axes, data["loss"])
        canvas.legend(axes)


def _over_slots(run: RunFiles) -> tuple[list[float], list[float]]:
    times, losses = evaluations(run, "emulated_s", "train_loss")
    return [t / slots.slot_s(run.path) for t in times], list(losses)


def _rounds(run: RunFiles) -> list[dict[str, float]]:
    return slots.rounds(run.rows) if run.has_decisions("report") else []


def _bars(name: str, run: RunFiles) -> list[tuple[Any, ...]]:
    """Return a run's rows up to the last slot to show; [] if no round has ended."""
    rounds = _rounds(run)
    if not rounds:
        return []
    last = _last_slot(rounds)
    bars = slots.bars(run.rows, slots.slot_s(run.path), last)
    ends = [int(each[slots.MARK]) for each in rounds if each[slots.MARK] <= last]
    return [
        *((name, bar.edge, bar.what, bar.begin, min(bar.end, last)) for bar in bars),
        *((name, None, ROUND, end, end) for end in ends),
    ]


def _last_slot(rounds: Sequence[Mapping[str, float]]) -> int:
    """Return how many slots to show: about 12 rounds, within the limits that are readable."""
    shown = max(LEAST_SLOTS, int(rounds[min(len(rounds), 12) - 1][slots.MARK]))
    return min(shown, MOST_SLOTS, int(rounds[-1][slots.MARK]))


def _slots(axes: Axes, data: PlotData, edges: Sequence[str], ticks: int) -> None:
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import MaxNLocator

    from emulator.figures import LOOKS

    rows = {edge: row for row, edge in enumerate(edges[:MOST_ROWS])}
    last = max(data["end_slot"])
    axes.add_patch(Rectangle((0, -0.5), last, len(rows), facecolor=LOOKS["wait"][0], linewidth=0))
    for _, edge, what, begin, end in data.rows:
        if edge in rows:
            colour, hatch = LOOKS[what]
            look: dict[str, Any] = {"facecolor": colour, "hatch": hatch, "linewidth": 0}
            look["edgecolor"] = "white" if hatch else "none"
            axes.add_patch(Rectangle((begin, rows[edge] - 0.4), end - begin, 0.8, **look))
        elif what == ROUND:
            axes.axvline(end, color="0.25", linewidth=0.7)
    axes.set_xlim(0, last)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xticks(range(int(last) + 1), minor=True)
    axes.grid(visible=False)
    axes.grid(axis="x", which="minor", color="0.6", linewidth=0.3)
    axes.tick_params(axis="x", which="minor", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=ticks, integer=True))
    axes.set_yticks(list(rows.values()), list(rows), fontsize=5)
