"""How slotted strategies used a TDMA channel: rounds, staleness, wasted slots, lost uploads.

Computed from the files of one run. Only slotted strategies report these numbers.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefl.errors import UserError
from edgefl.record.files import EVENTS, METRICS
from edgefl.reports.family import Family, draw, pictures
from edgefl.results.figures.base import Plot, PlotData, Runs, first_seeds
from edgefl.results.figures.curves import evaluations, line_rows
from edgefl.results.figures.style import PlotStyle
from edgefl.results.run_files import RunFiles
from edgefl.results.rundirs import runs_of
from edgefl.results.tail import read_csv, read_events

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from edgefl.results.figures.canvas import Canvas

OF_ROUND = "end_slot"  # marks a slotted strategy's report of a round
COUNTED = ("uploads", "lost", "missed", "wasted_slots")
MS_PER_S = 1000.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A period in which ``edge`` does ``what``: "compute", "transmit" or "receive".

    ``begin`` and ``end`` are in slots. An edge without a bar waits.
    """

    edge: str
    what: str
    begin: float
    end: float


def rounds(events: Iterable[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Return the reports of the finished rounds, in order.

    Keys: end_slot, uploads, lost, missed, wasted_slots, staleness_least, staleness_most.
    """
    decisions = (decision for event in events for decision in event.get("decisions", ()))
    return [
        decision["values"]
        for decision in decisions
        if decision["do"] == "report" and OF_ROUND in decision["values"]
    ]


def section(found: Sequence[Mapping[str, float]]) -> dict[str, int] | None:
    """Return the sums over ``rounds`` for summary.json; None without rounds."""
    if not found:
        return None
    return {
        "rounds": len(found),
        "end_slot": int(found[-1][OF_ROUND]),
        **{name: int(sum(each[name] for each in found)) for name in COUNTED},
    }


def bars_until(events: Iterable[Mapping[str, Any]], slot_s: float, until_slot: float) -> list[Bar]:
    """Return what the edges do until slot ``until_slot``."""
    found: list[Bar] = []
    began: dict[str, float] = {}
    for event in events:
        slot = event["t"] / slot_s
        if slot > until_slot and not began:
            break
        name = event.get("event", event.get("fact"))
        if name == "task_started" and slot <= until_slot:
            began[event["edge"]] = slot
        elif name == "update_ready" and event["edge"] in began:
            found.append(Bar(event["edge"], "compute", began.pop(event["edge"]), slot))
        for decision in event.get("decisions", ()):
            found += _of_decision(decision)
    found += [Bar(edge, "compute", begin, until_slot) for edge, begin in began.items()]
    return [bar for bar in found if bar.begin < until_slot]


def slot_s(run: Path) -> float:
    """Return the slot length of the run's channel in seconds; UserError if it has no slots."""
    try:
        return (
            tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))["medium"]["slot_ms"]
            / MS_PER_S
        )
    except (OSError, KeyError, ValueError) as error:
        raise UserError(
            f'{run}: no run on a TDMA channel (medium.kind = "tdma" in its config.toml)'
        ) from error


def is_slotted(run: Path) -> bool:
    """Return whether a slotted strategy finished a round in this run."""
    return bool(rounds(read_events(run / "events.jsonl")))


def _of_decision(decision: Mapping[str, Any]) -> Iterable[Bar]:
    if decision["do"] == "grant" and decision.get("slots"):
        yield Bar(decision["edge"], "transmit", decision["slots"][0], decision["slots"][-1] + 1)
    elif decision["do"] == "assign" and decision.get("broadcast"):
        for edge in decision["edges"]:
            yield Bar(edge, "receive", decision["broadcast"][0], decision["broadcast"][-1] + 1)


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
    return [t / slot_s(run.path) for t in times], list(losses)


def _rounds(run: RunFiles) -> list[dict[str, float]]:
    return rounds(run.rows) if run.has_decisions("report") else []


def _bars(name: str, run: RunFiles) -> list[tuple[Any, ...]]:
    """Return a run's rows up to the last slot to show; [] if no round has ended."""
    rounds = _rounds(run)
    if not rounds:
        return []
    last = _last_slot(rounds)
    bars = bars_until(run.rows, slot_s(run.path), last)
    ends = [int(each[OF_ROUND]) for each in rounds if each[OF_ROUND] <= last]
    return [
        *((name, bar.edge, bar.what, bar.begin, min(bar.end, last)) for bar in bars),
        *((name, None, ROUND, end, end) for end in ends),
    ]


def _last_slot(rounds: Sequence[Mapping[str, float]]) -> int:
    """Return how many slots to show: about 12 rounds, within the limits that are readable."""
    shown = max(LEAST_SLOTS, int(rounds[min(len(rounds), 12) - 1][OF_ROUND]))
    return min(shown, MOST_SLOTS, int(rounds[-1][OF_ROUND]))


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


class Slots(Family):
    """A line per scheme, and figures: timeline, staleness over rounds, loss over slots."""

    ORDER = 30
    MARK = OF_ROUND
    FILES = pictures("timeline", "staleness", "loss_over_slots")

    def section(self, run: Path, emulated_s: float) -> dict[str, Any] | None:
        return section(rounds(read_events(run / EVENTS)))

    def plots(self) -> Mapping[str, Plot]:
        return {
            "slots": SlotsPlot(),
            "slot-staleness": SlotStalenessPlot(),
            "slot-loss": SlotLossPlot(),
        }

    def leave(self, directories: Sequence[Path], folder: Path) -> list[str]:
        first = {each: runs[0] for each in directories if (runs := runs_of(each))}
        sections = {each: self.section(run, 0.0) for each, run in first.items()}
        played = {each: section for each, section in sections.items() if section is not None}
        if not played:
            return []
        names = {"slots": "timeline", "slot-staleness": "staleness"}
        if any(row.get("train_loss") for each in played for row in read_csv(first[each] / METRICS)):
            names["slot-loss"] = "loss_over_slots"
        lines = [_line(each.name, section) for each, section in played.items()]
        return lines + draw(self, list(played), folder, names)


def _line(name: str, counted: Mapping[str, int]) -> str:
    return (
        f"{name}: {counted['rounds']} rounds by slot {counted['end_slot']},"
        f" {counted['uploads']} uploads, {counted['lost']} lost, {counted['missed']} devices"
        f" not ready at their turn, {counted['wasted_slots']} slots wasted"
    )


FAMILY = Slots()
