"""How server steps weighed their K gradients: a section, a table, a CSV file and a figure.

Weighted staleness, aggregated and predominant gradients are defined in WKAFL, arXiv 2203.01214,
section 4.1; the figure is its figure 2. The rows are those of events.jsonl.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from edgefl.record.files import EDGES, EVENTS, Row
from edgefl.results.families import (
    Family,
    SectionRow,
    by_strategy,
    mean_cells,
    reports,
    strategy_table,
)
from edgefl.results.figures.base import (
    DASHES,
    MARKERS,
    Canvas,
    Plot,
    PlotData,
    PlotStyle,
    Runs,
    first_seeds,
    fit_constant,
    look,
    whole_numbers,
)
from edgefl.results.read import read_csv, read_events

if TYPE_CHECKING:
    from rich.table import Table

OF_STEP = "weighted_staleness"  # marks the report of a step
SHARE = "share"  # in the report of one gradient, see ``report_shares``
OF_SHARES = ("effective_ave", "largest_label_ave")  # only of runs with ``report_shares``
Shares = Mapping[str, float]  # of a step: edge -> p_i


# ---------------------------------------------------------------------- the section
def section(found: Sequence[tuple[int, Mapping[str, float]]]) -> dict[str, Any] | None:
    """Return the "aggregation" of summary.json from a run's ``steps``, or None without steps.

    tau_ave: mean over the steps of sum p_i tau_i, tau in versions; n_ave: mean number of gradients
    with p_i >= p_max / mu; predominant: number of steps by number of gradients with p_i > 0.1;
    clipped_share: share of all gradients, None for a strategy that does not clip.
    """
    if not found:
        return None
    steps = [step for _, step in found]
    gradients = sum(step["gradients"] for step in steps)
    selects, clips = (all(key in step for step in steps) for key in ("selected", "clipped"))
    return {
        "steps": len(steps),
        "gradients": int(gradients),
        "tau_ave": fmean(step[OF_STEP] for step in steps),
        "n_ave": fmean(step["aggregated"] for step in steps),
        "predominant": predominant(steps),
        "selected_ave": fmean(step["selected"] for step in steps) if selects else None,
        "clipped_share": sum(step["clipped"] for step in steps) / gradients if clips else None,
        "stage_two_version": next(
            (version for version, step in found if step.get("stage") == 2), None
        ),
    }


def steps(events: Iterable[Row]) -> list[tuple[int, dict[str, float]]]:
    """Return for each step (version before the step, numbers reported about it)."""
    return [(event["version"], dict(of)) for event, of in reports(events) if OF_STEP in of]


def shares(events: Iterable[Row]) -> list[dict[str, float]]:
    """Return for each step the share of each edge's gradient; [] without ``report_shares``."""
    by_event = (
        {
            decision["edge"]: decision["values"][SHARE]
            for decision in event.get("decisions", ())
            if decision["do"] == "report" and SHARE in decision["values"]
        }
        for event in events
    )
    return [each for each in by_event if each]


def of_shares(
    found: Sequence[Shares], held: Mapping[str, Mapping[str, float]]
) -> dict[str, float | None]:
    """Return what only the shares of all gradients tell; {} without any.

    effective_ave: mean over the steps of (sum p_i)^2 / sum p_i^2, the number of equally weighed
    gradients with the same variance of their mean; largest_label_ave: mean over the steps of the
    largest sum over i of p_i h_i(label), with h = ``held``: edge -> label -> its share of the
    edge's samples. None without ``held``.
    """
    if not found:
        return {}
    numbers = (
        fmean(effective(list(step.values())) for step in found),
        fmean(largest_label(step, held) for step in found) if held else None,
    )
    return dict(zip(OF_SHARES, numbers))


def effective(weights: Sequence[float]) -> float:
    """Return (sum p)^2 / sum p^2: K for equal weights, 1 if one has all; 0 if all are 0."""
    squares = sum(weight * weight for weight in weights)
    return sum(weights) ** 2 / squares if squares else 0.0


def largest_label(step: Shares, held: Mapping[str, Mapping[str, float]]) -> float:
    """Return the largest share of one label in a step."""
    of_label: dict[str, float] = {}
    for edge, share in step.items():
        for label, part in held[edge].items():
            of_label[label] = of_label.get(label, 0.0) + share * part
    return max(of_label.values(), default=0.0)


def labels_held(rows: Iterable[Mapping[str, str]]) -> dict[str, dict[str, float]]:
    """Return edge -> label -> share of its samples, from the rows of edges.csv."""
    held = {}
    for row in rows:
        counts = {key: int(value) for key, value in row.items() if key.startswith("label_")}
        total = sum(counts.values())
        held[row["edge"]] = {key: count / total for key, count in counts.items() if count}
    return held


def predominant(reported: Iterable[Mapping[str, float]]) -> dict[str, int]:
    """Return the number of steps by their number of predominant gradients (figure 2a)."""
    counts = Counter(int(step["predominant"]) for step in reported)
    return {str(count): counts[count] for count in sorted(counts)}


# ---------------------------------------------------------------------- the table
COLUMNS = {  # heading -> value, its form, and what it is multiplied by
    "accuracy\nlast 10 %": ("convergence_accuracy", ".3f", 1),
    "stability\nlast 10": ("stability", ".4f", 1),
    "steps\n": ("steps", ".0f", 1),
    "staleness\nmean": ("tau_ave", ".1f", 1),
    "used\nmean": ("n_ave", ".1f", 1),
    "selected\nmean": ("selected_ave", ".1f", 1),
    "clipped\n%": ("clipped_share", ".0f", 100),
    "stage 2\nversion": ("stage_two_version", ".0f", 1),
}


# ---------------------------------------------------------------------- the figure
class AggregationPlot(Plot):
    """Share of the steps by number of predominant gradients; staleness by gradients used."""

    OF = "wkafl and the methods it is compared with"
    LIMITS = "x"
    LOG = ""

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        rows: list[tuple[Any, ...]] = []
        for name, run in first_seeds(runs):
            events = run.rows if run.has_decisions("report") else ()
            if values := [step for _, step in steps(events)]:
                counts = predominant(values).items()
                rows += [(name, "share", int(at), count / len(values)) for at, count in counts]
                rows += [(name, "staleness", *point) for point in by_count(values)]
        return PlotData(("name", "panel", "gradients", "value"), rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        left, right = canvas.panels(2, 2, 2.3)
        bars, points = data.where(panel="share"), data.where(panel="staleness")
        canvas.bars(left, bars.by("name"), "gradients", "value")
        for place, each in enumerate(points.by("name").values()):
            line = look(place) | {"marker": MARKERS[place % len(MARKERS)]}
            if line["linestyle"] != DASHES[0]:
                line["markerfacecolor"] = "white"
            right.plot(each["gradients"], each["value"], markersize=3, linewidth=0.8, **line)
        left.set_xlabel("Predominant gradients (weight > 0.1)")
        left.set_ylabel("Share of the steps")
        right.set_xlabel("Aggregated gradients")
        right.set_ylabel("Weighted staleness (versions)")
        whole_numbers(right)
        fit_constant(right, points["value"])
        canvas.legend(left)


def by_count(values: Iterable[Mapping[str, float]]) -> list[tuple[float, float]]:
    """Return (aggregated gradients, mean weighted staleness of those steps), as in figure 2b."""
    staleness: dict[float, list[float]] = {}
    for step in values:
        staleness.setdefault(step["aggregated"], []).append(step[OF_STEP])
    return [(count, sum(of) / len(of)) for count, of in sorted(staleness.items())]


class Aggregation(Family):
    """A table, a CSV file and a figure about the weights of gradients."""

    def section(self, run: Path, emulated_s: float) -> dict[str, Any] | None:
        events = read_events(run / EVENTS)
        found, weights = section(steps(events)), shares(events)
        if found is None:
            return None
        held = labels_held(read_csv(run / EDGES)) if weights else {}
        return {**found, **of_shares(weights, held)}

    def columns_of(self, rows: Sequence[SectionRow]) -> tuple[str, ...]:
        return self.columns + OF_SHARES * any(OF_SHARES[0] in row.section for row in rows)

    def table_of(self, rows: Sequence[SectionRow]) -> Table | None:
        strategies = by_strategy(rows)
        return strategy_table("Aggregation", strategies, mean_cells(strategies, COLUMNS))


FAMILY = Aggregation(
    "aggregation",
    order=20,
    mark=OF_STEP,
    plots={"aggregation": AggregationPlot()},
    pictures={"aggregation": "aggregation"},
    csv="aggregation.csv",
    columns=(*(key for key, _, _ in COLUMNS.values()), "predominant"),
)
