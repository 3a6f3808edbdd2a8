"""How well the global model serves each edge: its scores on the edges' own samples, of clients.csv.

A section, a table, a CSV file and a figure of their mean, worst tenth, best tenth and standard
deviation over the edges: the measures of q-FFL (Li, Sanjabi, Beirami, Smith, "Fair Resource
Allocation in Federated Learning", ICLR 2020, arXiv 1905.10497, table 1, which has the variance).
Every edge counts the same, however many samples it has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefl.config.scores import ACCURACY, SCORES, Score, score_of
from edgefl.record.files import CLIENTS
from edgefl.results.families import Family, SectionRow, by_strategy, mean_cells, strategy_table
from edgefl.results.figures.base import (
    STEPS,
    Canvas,
    Plot,
    PlotData,
    PlotStyle,
    Runs,
    axis_of,
    logarithmic_if_wide,
    look,
    percents,
)
from edgefl.results.figures.curves import every, over_seeds, score_of_runs
from edgefl.results.read import iter_csv, number
from edgefl.results.run_files import RunFiles, read_config

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

PERPLEXITY = SCORES["perplexity"]
LOSS = Score("loss", "loss", math.inf, falls=True)
SPREAD = ("mean", "worst_tenth", "best_tenth", "std")


@dataclass(frozen=True, slots=True)
class ScoredVersion:
    """A version that was scored at emulated ``at_s``: edge -> score, and edge -> loss.

    Edges without samples, and values that are not finite, are left out. ``edges``: how many rows.
    """

    number: int
    at_s: float
    scores: dict[str, float] = field(default_factory=dict)
    losses: dict[str, float] = field(default_factory=dict)
    edges: list[str] = field(default_factory=list)


def scored_versions(run: Path, score: Score = ACCURACY) -> list[ScoredVersion]:
    """Return the versions in clients.csv in their order; [] without that file.

    A last one whose rows were not all written is left out. UserError for a damaged row.
    """
    found: list[ScoredVersion] = []
    for row in iter_csv(run / CLIENTS):
        version, at_s = int(row["version"]), float(row["emulated_s"])
        if not found or found[-1].number != version:
            found.append(ScoredVersion(version, at_s))
        newest, edge, loss = found[-1], row["edge"], number(row["loss"])
        value = number(row["accuracy"])
        if score is PERPLEXITY:
            value = None if loss is None or loss > 700 else math.exp(loss)
        newest.edges.append(edge)
        if value is not None:
            newest.scores[edge] = value
        if loss is not None:
            newest.losses[edge] = loss
    if found and len(found[-1].edges) < len(found[0].edges):
        found.pop()
    return found


def score_on_edges(score: Score) -> Score:
    """Return the score that edges have: of ``evaluation.metric`` if it is known of an edge, else
    the accuracy.
    """
    return score if score is PERPLEXITY else ACCURACY


def over_edges(values: Iterable[float], score: Score) -> dict[str, float]:
    """Return the mean, the means of the worst and of the best tenth (rounded up to whole edges),
    and the standard deviation of the population. There is at least one value.
    """
    ordered = np.array(sorted(values, reverse=score.falls))
    tenth = -(-len(ordered) // 10)
    parts = (ordered, ordered[:tenth], ordered[-tenth:])
    return dict(zip(SPREAD, [*(float(part.mean()) for part in parts), float(ordered.std())]))


# ---------------------------------------------------------------------- the figure
COLUMNS = ("name", "seed", "version", "emulated_s", "until_s", "edge")


class EdgeScoresPlot(Plot):
    """The scores on each edge's samples, from the worst edge on; worst tenth and mean over time."""

    OF = "runs with [evaluation.edges]"
    LIMITS = LOG = "y"

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        score = score_on_edges(score_of_runs(runs))
        rows = [row for name, run in every(runs) for row in _rows(name, run, score)]
        return PlotData((*COLUMNS, score.name), rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        score = SCORES[data.columns[-1]]
        strategies = data.by("name")
        several = any(
            len(run.by("version")) > 1
            for each in strategies.values()
            for run in each.by("seed").values()
        )
        panels = canvas.panels(1 + several, 2, 2.4, sharey=True)
        for axes in panels[:1] if canvas.is_page else panels:
            axes.set_ylabel(f"{score.title.capitalize()} on an edge's samples")
            if score.largest > 1:
                logarithmic_if_wide(axes, data[score.name])
        unit, label = axis_of("emulated_s", max(data["until_s"]))
        for place, (name, each) in enumerate(strategies.items()):
            _draw_edges(panels[0], place, name, each, score, canvas)
            if several:
                _draw_over_time(panels[1], place, each, score, unit)
        panels[0].axvspan(0, 10, color="0.92", zorder=0)
        panels[0].set_xlim(0, 100)
        panels[0].set_xlabel("Edges, the worst first (%)")
        panels[0].set_title("last model; grey: the worst tenth, and its mean", fontsize=7)
        if several:
            panels[1].set_title("mean (thin) and worst tenth (thick)", fontsize=7)
            panels[1].set_xlabel(label)
        if score.largest == 1:
            for axes in panels:
                percents(axes)
        canvas.legend(panels[0])


def _rows(name: str, run: RunFiles, score: Score) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a run. The scores of a version hold until the next one that was scored."""
    scored = scored_versions(run.path, score)
    if not scored:
        return
    seed, end_s = run.config.get("seed"), number(run.summary.get("emulated_s")) or 0.0
    ends = [*(later.at_s for later in scored[1:]), max(end_s, scored[-1].at_s)]
    for version, until_s in zip(scored, ends):
        for edge, value in version.scores.items():
            yield name, seed, version.number, version.at_s, until_s, edge, value


def _draw_edges(
    axes: Axes, place: int, name: str, each: PlotData, score: Score, canvas: Canvas
) -> None:
    """Draw the sorted scores of the last models of all seeds, and the mean of their worst tenth."""
    last = [list(run.by("version").values())[-1][score.name] for run in each.by("seed").values()]
    ordered = sorted((value for of in last for value in of), reverse=score.falls)
    at = np.linspace(0, 100, len(ordered) + 1).tolist()
    canvas.line(axes, place, name, at, [*ordered, ordered[-1]], drawstyle=STEPS)
    worst = fmean(over_edges(of, score)["worst_tenth"] for of in last)
    axes.plot([0, 10], [worst, worst], linewidth=2.2, **look(place))


def _draw_over_time(axes: Axes, place: int, each: PlotData, score: Score, unit: float) -> None:
    """Draw the mean (thin) and the worst tenth (thick) over time; the means of all seeds."""
    curves = []
    for run in each.by("seed").values():
        scored = list(run.by("version").values())
        times = [of["emulated_s"][0] / unit for of in scored]
        spreads = [over_edges(of[score.name], score) for of in scored]
        curves.append(([*times, scored[-1]["until_s"][0] / unit], [*spreads, spreads[-1]]))
    for part, width in (("mean", 0.8), ("worst_tenth", 1.8)):
        rows = over_seeds([(x, [of[part] for of in y]) for x, y in curves])
        x, y = [at for at, _, _ in rows], [value for _, value, _ in rows]
        axes.plot(x, y, linewidth=width, drawstyle=STEPS, **look(place))


# ---------------------------------------------------------------------- section and table
SHOWN = {  # heading -> value, its form, and what it is multiplied by
    "edges\n": ("edges", ".0f", 1),
    "version\n": ("version", ".0f", 1),
    "mean\n": ("mean", ".3f", 1),
    "worst\ntenth": ("worst_tenth", ".3f", 1),
    "best\ntenth": ("best_tenth", ".3f", 1),
    "deviation\n": ("std", ".3f", 1),
    "loss\nmean": ("loss_mean", ".3f", 1),
    "loss\nworst": ("loss_worst_tenth", ".3f", 1),
}


class EdgeScoresReport(Family):
    """The section of the last scored model, a table, a CSV file and a figure."""

    def section(self, run: Path, emulated_s: float) -> dict[str, Any] | None:
        score = score_on_edges(score_of(read_config(run).get("evaluation", {})))
        scored = scored_versions(run, score)
        if not scored or not scored[-1].scores:
            return None
        last = scored[-1]
        without = len(last.edges) - len(last.scores)
        losses = over_edges(last.losses.values(), LOSS) if last.losses else {}
        return {
            "score": score.name,
            "version": last.number,
            "emulated_s": last.at_s,
            "edges": len(last.scores),
            **({"edges_without": without} if without else {}),
            **over_edges(last.scores.values(), score),
            **{f"loss_{part}": value for part, value in losses.items()},
        }

    def table_of(self, rows: Sequence[SectionRow]) -> Table | None:
        strategies = by_strategy(rows)
        names = " or ".join(dict.fromkeys(SCORES[row.section["score"]].title for row in rows))
        shown = strategy_table(
            f"The last model on each edge's samples: {names}",
            strategies,
            mean_cells(strategies, SHOWN),
        )
        shown.caption = _without(strategies)
        return shown


def _without(strategies: Mapping[str, Sequence[SectionRow]]) -> str | None:
    """Say which runs have edges without scores."""
    most = {
        name: max(row.section.get("edges_without", 0) for row in rows)
        for name, rows in strategies.items()
    }
    if len({*most.values()}) == 1:
        most = {"all": next(iter(most.values()))}
    texts = [f"{name}: {count} edges without scores" for name, count in most.items() if count]
    return "\n".join(texts) or None


FAMILY = EdgeScoresReport(
    "edge_scores",
    order=55,
    mark=CLIENTS,
    plots={"clients": EdgeScoresPlot()},
    pictures={"clients": "clients"},
    csv="edge_scores.csv",
    columns=("score", "version", "edges", *SPREAD, *(f"loss_{part}" for part in SPREAD)),
)
