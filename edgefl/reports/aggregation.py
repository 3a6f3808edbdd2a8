"""How server steps weighed their K gradients: a section, a table, a CSV file and a figure.

Weighted staleness, aggregated and predominant gradients are defined in WKAFL, arXiv 2203.01214,
section 4.1; the figure is its figure 2. The rows are those of events.jsonl.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from edgefl.record.files import EDGES, EVENTS
from edgefl.reports.family import (
    Family,
    SectionRow,
    by_scheme,
    draw,
    pictures,
    rows_of,
    scheme_table,
)
from edgefl.results.compare import spread, write_table
from edgefl.results.figures.base import Plot, PlotData, Runs, first_seeds
from edgefl.results.figures.style import PlotStyle
from edgefl.results.tail import read_csv, read_events

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

    from edgefl.results.figures.canvas import Canvas

OF_STEP = "weighted_staleness"  # marks the report of a step
SHARE = "share"  # in the report of one gradient, see ``report_shares``

Row = Mapping[str, Any]
Shares = Mapping[str, float]  # of a step: edge -> p_i


def section(found: Sequence[tuple[int, Mapping[str, float]]]) -> dict[str, Any] | None:
    """Return the "aggregation" of summary.json from a run's ``steps``, or None without steps.

    tau_ave: mean over the steps of sum p_i tau_i, tau in versions; n_ave: mean number of gradients
    with p_i >= p_max / mu; predominant: number of steps by number of gradients with p_i > 0.1;
    clipped_share: share of all gradients, None for a scheme that does not clip.
    """
    if not found:
        return None
    gradients = sum(step["gradients"] for _, step in found)
    return {
        "steps": len(found),
        "gradients": int(gradients),
        "tau_ave": fmean(step[OF_STEP] for _, step in found),
        "n_ave": fmean(step["aggregated"] for _, step in found),
        "predominant": predominant([step for _, step in found]),
        "selected_ave": (
            fmean(step["selected"] for _, step in found)
            if all("selected" in step for _, step in found)
            else None
        ),
        "clipped_share": (
            sum(step["clipped"] for _, step in found) / gradients
            if all("clipped" in step for _, step in found)
            else None
        ),
        "stage_two_version": next(
            (version for version, step in found if step.get("stage") == 2), None
        ),
    }


def steps(events: Iterable[Row]) -> list[tuple[int, dict[str, float]]]:
    """Return for each step (version before the step, numbers reported about it)."""
    return [
        (event["version"], decision["values"])
        for event in events
        for decision in event.get("decisions", ())
        if decision["do"] == "report" and OF_STEP in decision["values"]
    ]


def shares(events: Iterable[Row]) -> list[dict[str, float]]:
    """Return for each step the share of each edge's gradient; [] without ``report_shares``."""
    found = (
        {
            decision["edge"]: decision["values"][SHARE]
            for decision in event.get("decisions", ())
            if decision["do"] == "report" and SHARE in decision["values"]
        }
        for event in events
    )
    return [each for each in found if each]


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
    return {
        "effective_ave": fmean(effective(list(step.values())) for step in found),
        "largest_label_ave": fmean(largest_label(step, held) for step in found) if held else None,
    }


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
    found = {}
    for row in rows:
        counts = {key: int(value) for key, value in row.items() if key.startswith("label_")}
        total = sum(counts.values())
        found[row["edge"]] = {key: count / total for key, count in counts.items() if count}
    return found


def predominant(reported: Iterable[Mapping[str, float]]) -> dict[str, int]:
    """Return the number of steps by their number of predominant gradients (figure 2a)."""
    counts = Counter(int(step["predominant"]) for step in reported)
    return {str(count): counts[count] for count in sorted(counts)}


FILE = "aggregation.csv"
NUMBERS = (
    "convergence_accuracy",
    "stability",
    "steps",
    "tau_ave",
    "n_ave",
    "selected_ave",
    "clipped_share",
    "stage_two_version",
)
COLUMNS = ("name", "seed", *NUMBERS, "predominant")
OF_SHARES = ("effective_ave", "largest_label_ave")  # only of runs with ``report_shares``


def value(row: SectionRow, key: str) -> Any:
    """Return a number of the section, or another one of summary.json."""
    return row.facts.get(key, row.section.get(key))


def write_csv(found: Sequence[SectionRow], path: Path) -> None:
    """Write one row per run; ``predominant`` is like "1:40 2:17", gradients:steps.

    OF_SHARES are columns only if a run has them.
    """
    more = OF_SHARES if any(OF_SHARES[0] in each.section for each in found) else ()
    rows = [
        [
            each.name,
            each.seed,
            *(value(each, key) for key in NUMBERS),
            _histogram(value(each, "predominant")),
            *(value(each, key) for key in more),
        ]
        for each in found
    ]
    write_table(path, (*COLUMNS, *more), rows)


def table(found: Sequence[SectionRow]) -> Table:
    """Return a table for 80 columns: mean and deviation over the seeds of each scheme."""
    schemes = by_scheme(found)
    return scheme_table("Aggregation", schemes, _columns(schemes))


def _columns(schemes: dict[str, list[SectionRow]]) -> dict[str, list[str]]:
    """Return for each heading the cells, one per scheme."""

    def cells(key: str, form: Callable[[float], str]) -> list[str]:
        return [_cell([value(each, key) for each in runs], form) for runs in schemes.values()]

    return {
        "acc.\nlast 10 %": cells("convergence_accuracy", "{:.3f}".format),
        "stability\nlast 10": cells("stability", "{:.4f}".format),
        "steps\n": cells("steps", "{:.0f}".format),
        "tau\nave": cells("tau_ave", "{:.1f}".format),
        "N\nave": cells("n_ave", "{:.1f}".format),
        "selected\nave": cells("selected_ave", "{:.1f}".format),
        "clipped\n%": cells("clipped_share", lambda share: f"{100 * share:.0f}"),
        "stage 2\nversion": cells("stage_two_version", "{:.0f}".format),
    }


def _cell(values: Sequence[float | None], form: Callable[[float], str]) -> str:
    """Return the mean above its deviation, or "N of M" if not all runs have the number."""
    over = spread(values)
    if over.mean is None:
        return f"{over.n} of {over.of}" if over.n else "-"
    return (
        form(over.mean) if over.deviation is None else f"{form(over.mean)}\n±{form(over.deviation)}"
    )


def _histogram(counts: dict[str, int]) -> str:
    return " ".join(f"{count}:{steps}" for count, steps in counts.items())


PLOTTED = ("name", "panel", "gradients", "value")
Steps = list[dict[str, float]]


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
                shares = predominant(values).items()
                rows += [(name, "share", int(at), count / len(values)) for at, count in shares]
                rows += [(name, "staleness", *point) for point in by_count(values)]
        return PlotData(PLOTTED, rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        from edgefl.results.figures.canvas import DASHES, MARKERS, filled, fit_constant, look

        left, right = canvas.panels(2, 2, 2.3)
        schemes = data.by("name")
        width = 0.8 / len(schemes)
        for place, (name, each) in enumerate(schemes.items()):
            bars, points = each.where(panel="share"), each.where(panel="staleness")
            x = [at + (place - (len(schemes) - 1) / 2) * width for at in bars["gradients"]]
            left.bar(x, bars["value"], width, label=canvas.text(name), **filled(place))
            line = look(place) | {"marker": MARKERS[place % len(MARKERS)]}
            if line["linestyle"] != DASHES[0]:
                line["markerfacecolor"] = "white"
            right.plot(points["gradients"], points["value"], markersize=3, linewidth=0.8, **line)
        _label(left, "Predominant gradients (weight > 0.1)", "Share of the steps")
        _label(right, "Aggregated gradients", "Weighted staleness (versions)")
        fit_constant(right, data.where(panel="staleness")["value"])
        canvas.legend(left)


def by_count(values: Steps) -> list[tuple[float, float]]:
    """Return (aggregated gradients, mean weighted staleness of those steps), as in figure 2b."""
    counts = sorted({step["aggregated"] for step in values})
    of = {
        count: [step[OF_STEP] for step in values if step["aggregated"] == count] for count in counts
    }
    return [(count, sum(of[count]) / len(of[count])) for count in counts]


def _label(axes: Axes, x: str, y: str) -> None:
    from edgefl.results.figures.canvas import whole_numbers

    axes.set_xlabel(x)
    axes.set_ylabel(y)
    whole_numbers(axes)  # of gradients


class Aggregation(Family):
    """A table, a CSV file and a figure about the weights of gradients."""

    ORDER = 20
    MARK = OF_STEP
    FILES = (FILE, *pictures("aggregation"))

    def section(self, run: Path, emulated_s: float) -> dict[str, Any] | None:
        events = read_events(run / EVENTS)
        found, weights = section(steps(events)), shares(events)
        if found is None:
            return None
        held = labels_held(read_csv(run / EDGES)) if weights else {}
        return {**found, **of_shares(weights, held)}

    def table(self, directories: Sequence[Path]) -> Table | None:
        found = rows_of(directories, "aggregation")
        return table(found) if found else None

    def plots(self) -> Mapping[str, Plot]:
        return {"aggregation": AggregationPlot()}

    def leave(self, directories: Sequence[Path], folder: Path) -> list[str]:
        found = rows_of(directories, "aggregation")
        if not found:
            return []
        write_csv(found, folder / FILE)
        return draw(self, directories, folder, {"aggregation": "aggregation"})


FAMILY = Aggregation()
