"""How slotted strategies used a TDMA channel: rounds, staleness, wasted slots, lost uploads.

Computed from the files of one run. Only slotted strategies report these numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefl.errors import UserError
from edgefl.record.files import EVENTS
from edgefl.results.families import Family, reports
from edgefl.results.figures.base import (
    Canvas,
    Plot,
    PlotData,
    PlotStyle,
    Runs,
    first_seeds,
    logarithmic_if_wide,
    whole_numbers,
)
from edgefl.results.figures.curves import draw_line, evaluations, over_seeds
from edgefl.results.read import read_events
from edgefl.results.run_files import RunFiles, read_config, runs_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OF_ROUND = "end_slot"  # marks a slotted strategy's report of a round
COUNTED = ("uploads", "lost", "missed", "wasted_slots")
MS_PER_S = 1000.0
Bar = tuple[str, str, float, float]  # edge, "compute", "transmit" or "receive", from and to slot


# ---------------------------------------------------------------------- numbers
def rounds(events: Iterable[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Return the reports of the finished rounds, in order.

    Keys: end_slot, uploads, lost, missed, wasted_slots, staleness_least, staleness_most.
    """
    return [dict(values) for _, values in reports(events) if OF_ROUND in values]


def section(found: Sequence[Mapping[str, float]]) -> dict[str, int] | None:
    """Return the sums over ``rounds`` for summary.json; None without rounds."""
    if not found:
        return None
    return {
        "rounds": len(found),
        "end_slot": int(found[-1][OF_ROUND]),
        **{name: int(sum(each[name] for each in found)) for name in COUNTED},
    }


def slot_s(run: Path) -> float:
    """Return the slot length of the run's channel in seconds; UserError if it has no slots."""
    slot_ms = read_config(run).get("medium", {}).get("slot_ms")
    if slot_ms is None:
        raise UserError(
            f'{run}: no run on a TDMA channel (medium.kind = "tdma" in its config.toml)'
        )
    return float(slot_ms) / MS_PER_S


def bars_until(events: Iterable[Mapping[str, Any]], slot_s: float, until_slot: float) -> list[Bar]:
    """Return what the edges do until slot ``until_slot``. An edge without a bar waits."""
    bars: list[Bar] = []
    began: dict[str, float] = {}
    for event in events:
        slot = event["t"] / slot_s
        if slot > until_slot and not began:
            break
        name = event.get("event", event.get("fact"))
        if name == "task_started" and slot <= until_slot:
            began[event["edge"]] = slot
        elif name == "update_ready" and event["edge"] in began:
            bars.append((event["edge"], "compute", began.pop(event["edge"]), slot))
        for decision in event.get("decisions", ()):
            bars += _of_decision(decision)
    bars += [(edge, "compute", begin, until_slot) for edge, begin in began.items()]
    return [bar for bar in bars if bar[2] < until_slot]


def _of_decision(decision: Mapping[str, Any]) -> list[Bar]:
    if decision["do"] == "grant" and (slots := decision.get("slots")):
        return [(decision["edge"], "transmit", slots[0], slots[-1] + 1)]
    if decision["do"] in ("assign", "push") and (slots := decision.get("broadcast")):
        return [(edge, "receive", slots[0], slots[-1] + 1) for edge in decision["edges"]]
    return []


# ---------------------------------------------------------------------- figures
OF = "slotted strategies (tdma-fl, idfl, sync-tdma-fl), run past their first broadcast"
STALENESS = ("name", "round", "least", "most")
ROUND = "round"  # ``what`` of a row without an edge: a round ends here
MOST_SLOTS, LEAST_SLOTS, ROUNDS = 160, 40, 12  # to show: about so many rounds, within limits


class SlotsPlot(Plot):
    """When each device computes, waits, transmits and receives, over slots; rounds as lines."""

    OF = OF
    LIMITS = "x"
    LOG = ""

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        rows = [(name, *row) for name, run in first_seeds(runs) for row in _bars(run)]
        return PlotData(("name", "edge", "what", "begin_slot", "end_slot"), rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        from matplotlib.patches import Patch

        from emulator.figures import LOOKS

        panels, rest = canvas.edge_panels(data, 1.0, 0.14, "devices")
        for axes, rows, edges in panels:
            _draw_slots(axes, rows, edges, ticks=16 if canvas.is_page else 8)
        panels[-1][0].set_xlabel(f"Slot; rounds end at the dark lines{rest}")
        canvas.legend_of(
            [
                Patch(
                    facecolor=colour, hatch=hatch, edgecolor="white" if hatch else "0.6", label=what
                )
                for what, (colour, hatch) in LOOKS.items()
            ]
        )


def _bars(run: RunFiles) -> list[tuple[Any, ...]]:
    """Return a run's rows up to the last slot to show; [] if no round has ended."""
    ends = [int(each[OF_ROUND]) for each in _rounds(run)]
    if not ends:
        return []
    last = min(max(LEAST_SLOTS, ends[:ROUNDS][-1]), MOST_SLOTS, ends[-1])
    bars = bars_until(run.rows, slot_s(run.path), last)
    return [
        *((edge, what, begin, min(end, last)) for edge, what, begin, end in bars),
        *((None, ROUND, end, end) for end in ends if end <= last),
    ]


def _rounds(run: RunFiles) -> list[dict[str, float]]:
    return rounds(run.rows) if run.has_decisions("report") else []


def _draw_slots(axes: Axes, data: PlotData, edges: Sequence[str], ticks: int) -> None:
    from matplotlib.patches import Rectangle

    from emulator.figures import LOOKS

    places = {edge: row for row, edge in enumerate(edges)}
    last = max(data["end_slot"])
    axes.add_patch(Rectangle((0, -0.5), last, len(places), facecolor=LOOKS["wait"][0], linewidth=0))
    for _, edge, what, begin, end in data.rows:
        if edge in places:
            colour, hatch = LOOKS[what]
            look: dict[str, Any] = {"facecolor": colour, "hatch": hatch, "linewidth": 0}
            look["edgecolor"] = "white" if hatch else "none"
            axes.add_patch(Rectangle((begin, places[edge] - 0.4), end - begin, 0.8, **look))
        elif what == ROUND:
            axes.axvline(end, color="0.25", linewidth=0.7)
    axes.set_xlim(0, last)
    axes.set_ylim(len(places) - 0.5, -0.5)
    axes.set_xticks(range(int(last) + 1), minor=True)
    axes.grid(visible=False)
    axes.grid(axis="x", which="minor", color="0.6", linewidth=0.3)
    axes.tick_params(axis="x", which="minor", length=0)
    whole_numbers(axes, ticks, 2)
    axes.set_yticks(list(places.values()), list(places), fontsize=5)


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
        axes = canvas.panel()
        for place, (name, each) in enumerate(data.by("name").items()):
            canvas.line(axes, place, name, each["round"], each["most"])
            canvas.band(axes, place, each["round"], each["least"], each["most"], alpha=0.25)
        axes.set_xlabel("Round")
        axes.set_ylabel("Staleness (rounds)")
        axes.set_xlim(left=0)
        axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))
        canvas.legend(axes)


class SlotLossPlot(Plot):
    """Train loss over slots: mean and deviation over the seeds of each strategy."""

    OF = "runs on a TDMA channel with evaluation.train_samples"
    LOG = "y"
    WIDTH = "column"

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        rows: list[tuple[Any, ...]] = []
        for name, of_strategy in runs.items():
            curves = []
            for run in of_strategy:
                if slot_ms := run.config.get("medium", {}).get("slot_ms"):
                    times, losses = evaluations(run, "emulated_s", "train_loss")
                    curves.append(([t / (slot_ms / MS_PER_S) for t in times], losses))
            rows += [(name, len(of_strategy), *row) for row in over_seeds(curves)]
        return PlotData(("name", "runs", "slot", "loss", "deviation"), rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        axes = canvas.panel()
        axes.set_xlabel("Slot")
        axes.set_ylabel("Train loss")
        for place, (name, each) in enumerate(data.by("name").items()):
            draw_line(axes, place, name, [row[2:] for row in each.rows], canvas)
        axes.set_xlim(left=0)
        logarithmic_if_wide(axes, data["loss"])
        canvas.legend(axes)


class Slots(Family):
    """A line per strategy, and figures: timeline, staleness over rounds, loss over slots."""

    def section(self, run: Path, emulated_s: float) -> dict[str, Any] | None:
        return section(rounds(read_events(run / EVENTS)))

    def leave(self, directories: Sequence[Path], folder: Path) -> list[str]:
        counts = {
            each: counted
            for each in directories
            if (runs := runs_of(each)) and (counted := self.section(runs[0], 0.0)) is not None
        }
        lines = [
            f"{each.name}: {of['rounds']} rounds by slot {of['end_slot']}, {of['uploads']} uploads,"
            f" {of['lost']} lost, {of['missed']} devices not ready at their turn,"
            f" {of['wasted_slots']} slots wasted"
            for each, of in counts.items()
        ]
        return lines + self.draw(list(counts), folder, self.pictures) if counts else []


FAMILY = Slots(
    "slots",
    order=30,
    mark=OF_ROUND,
    plots={
        "slots": SlotsPlot(),
        "slot-staleness": SlotStalenessPlot(),
        "slot-loss": SlotLossPlot(),
    },
    pictures={
        "slots": "timeline",
        "slot-staleness": "staleness",
        "slot-loss": "loss_over_slots",
    },
)
