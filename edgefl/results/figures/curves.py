"""Curves over a run's evaluations, how they are drawn, and the target that they reach.

A server's model is constant between its versions, so every curve is a step function: the value of
an evaluation holds until the next one. Straight lines between evaluations would show accuracies
that no model had, most of all for synchronous schemes, whose versions are far apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgefl.config.scores import ACCURACY, SCORES, Score, score_of, target_in
from edgefl.errors import UserError
from edgefl.results import energy
from edgefl.results.axes import AXES, Axis, named
from edgefl.results.figures.base import PlotData, Runs
from edgefl.results.figures.style import PlotStyle
from edgefl.results.run_files import RunFiles
from edgefl.results.summary import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from edgefl.results.figures.canvas import Canvas

X = (*AXES, "round")  # a version, under the name that synchronous schemes use
MOST_POINTS = 2000  # of a mean curve; more are not visible
STEPS = "steps-post"  # matplotlib's name for a value that holds until the next point
Points = tuple[Sequence[float], Sequence[float]]  # x and y


@dataclass(frozen=True, slots=True)
class Line:
    """A scheme's mean over x.

    ``deviation`` is the sample standard deviation over its seeds, None for a single run.
    """

    x: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray | None


def over_seeds(curves: Sequence[Points]) -> Line:
    """Return the mean of several (x, y) step functions.

    It has every x of any curve within the range that all curves cover.
    """
    if len(curves) == 1:
        return Line(np.array(curves[0][0]), np.array(curves[0][1]), None)
    first, last = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    x = np.unique(np.concatenate([np.asarray(x) for x, _ in curves]))
    x = x[(x >= first) & (x <= last)]
    if len(x) > MOST_POINTS:
        x = x[np.linspace(0, len(x) - 1, MOST_POINTS).round().astype(int)]
    y = np.stack([step_values(points, x) for points in curves])
    return Line(x, y.mean(axis=0), y.std(axis=0, ddof=1))


def step_values(points: Points, x: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return the value of a step function at each ``x``, none of which is before its first point.

    ``points``: in order of x. Of several points at one x the last one counts.
    """
    places = np.searchsorted(np.asarray(points[0]), np.asarray(x), side="right") - 1
    return np.asarray(points[1])[places]


def evaluations(run: RunFiles, x: str, y: str) -> Points:
    """Return a run's finite values of the column ``y`` of metrics.csv, in order of time.

    Over emulated time the last value holds until the end of the run: there is a point there, too.
    """
    rows = sorted(run.metrics, key=lambda row: number(row.get("emulated_s")) or 0.0)
    pairs = [
        (at, value)
        for at, row in zip(_places(run, rows, named(x)), rows)
        if at is not None and (value := number(row.get(y))) is not None
    ]
    end_s = number(run.summary.get("emulated_s")) if named(x).name == "emulated_s" else None
    if pairs and end_s is not None and end_s > pairs[-1][0]:
        pairs.append((end_s, pairs[-1][1]))
    return [at for at, _ in pairs], [value for _, value in pairs]


def _places(run: RunFiles, rows: Sequence[Mapping[str, str]], axis: Axis) -> Sequence[float | None]:
    """Return where the evaluations are on an axis; None for those that are nowhere."""
    if axis is not AXES["joules"]:
        return [axis.value(row) for row in rows]
    found = energy.joules_at(run.path, [number(row.get("emulated_s")) or 0.0 for row in rows])
    return [None] * len(rows) if found is None else found


def line_rows(curves: Sequence[Points]) -> list[tuple[float, float, float | None]]:
    """Return (x, mean, deviation) over several (x, y) curves; curves without points do not count.

    [] if none has points, or if the ranges of x have nothing in common.
    """
    there = [points for points in curves if len(points[0])]
    if not there:
        return []
    line = over_seeds(there)
    spread = [None] * len(line.x) if line.deviation is None else line.deviation.tolist()
    return list(zip(line.x.tolist(), line.mean.tolist(), spread))


def rows_of(runs: Sequence[RunFiles], x: str, y: str) -> list[tuple[float, float, float | None]]:
    """Return (x, mean, deviation) of a column of metrics.csv over a scheme's runs."""
    return line_rows([evaluations(run, x, y) for run in runs])


def draw_curves(axes: Axes, data: PlotData, canvas: Canvas, column: str) -> None:
    """Draw a line per scheme, with a band of a standard deviation to each side if it has one.

    ``data``: rows with the columns "name", "x", "at", ``column`` and "deviation", of one x. If one
    scheme has sent far more bytes than another, the axis is logarithmic, too.
    """
    from edgefl.results.figures.canvas import axis_of, is_wide

    x, schemes = data["x"][0], data.by("name")
    unit, label = axis_of(x, max(data["at"]))
    wide = x == "bytes" and is_wide([max(each["at"]) for each in schemes.values()])
    above_zero = [at / unit for at in data["at"] if at > 0]
    logarithmic = bool(above_zero) and (wide or "x" in canvas.style.log)
    axes.set_xlabel(label + ", logarithmic" * logarithmic)
    for place, (name, each) in enumerate(schemes.items()):
        # With points at 0, matplotlib draws a horizontal line from the left edge to the next point.
        kept = [row for row in each.rows if not logarithmic or row[each.columns.index("at")] > 0]
        shown = PlotData(each.columns, kept)
        at = [value / unit for value in shown["at"]]
        draw_line(axes, place, canvas.text(name), at, shown[column], shown["deviation"])
    axes.set_xlim(left=0)
    if logarithmic:
        axes.set_xscale("log")
        axes.set_xlim(left=min(above_zero))


def draw_line(
    axes: Axes,
    place: int,
    name: str,
    x: Sequence[float],
    mean: Sequence[float],
    deviation: Sequence[float | None],
) -> None:
    """Draw the ``place``-th scheme; ``deviation``: to each side, None without a band."""
    from edgefl.results.figures.canvas import look, marked

    axes.plot(x, mean, label=name, drawstyle=STEPS, **marked(place))
    if None not in deviation:
        middle, half = np.array(mean, dtype=float), np.array(deviation, dtype=float)
        band = {"color": look(place)["color"], "alpha": 0.2, "linewidth": 0}
        axes.fill_between(x, middle - half, middle + half, step="post", **band)


def logarithmic_if_wide(axes: Axes, losses: Sequence[float]) -> None:
    """Make the axis logarithmic if the losses differ widely, as when a model diverged."""
    from edgefl.results.figures.canvas import is_wide

    drawn = [loss for loss in losses if loss > 0]
    if is_wide(drawn):
        axes.set_yscale("log")
        axes.set_ylim(min(drawn) / 1.5, max(drawn) * 1.5)  # because a band may reach below 0
        axes.set_ylabel(f"{axes.get_ylabel()}, logarithmic")


def target_of(run: RunFiles, style: PlotStyle) -> float | None:
    """Return the user's target accuracy, else that of the run; None if there is none."""
    if style.target is not None:
        return style.target
    score = score_of_run(run)
    return number(target_in(run.config.get("evaluation", {}))) or number(
        run.summary.get(f"target_{score.name}")
    )


def score_of_run(run: RunFiles) -> Score:
    """Return the score that the run's target refers to."""
    return score_of(run.config.get("evaluation", {}))


def score_of_runs(runs: Runs) -> Score:
    """Return the score of all runs. UserError if they have different ones."""
    found = {score_of_run(run).name for of_scheme in runs.values() for run in of_scheme}
    if len(found) > 1:
        raise UserError(
            f"the runs have different evaluation.metric ({', '.join(sorted(found))}): expected runs"
            " with the same one"
        )
    return SCORES[found.pop()] if found else ACCURACY


def told(target: float, score: Score) -> str:
    """Return "90%" for a share, else the number."""
    return f"{100 * target:g}%" if score.largest == 1 else f"{target:g}"


def common_target(runs: Runs, style: PlotStyle) -> float:
    """Return the target accuracy that all runs have; UserError if there is none."""
    found = {name: target_of(run, style) for name, of_scheme in runs.items() for run in of_scheme}
    targets = set(found.values())
    if len(targets) == 1 and (target := targets.pop()) is not None:
        return target
    shown = ", ".join(f"{name}: {target or 'none'}" for name, target in list(found.items())[:4])
    raise UserError(
        f"no common target {score_of_runs(runs).title} ({shown}): choose one, such as --target 0.9"
    )


def to_target(run: RunFiles, target: float, x: str) -> float | None:
    """Return x of the first evaluation that reaches ``target``; None if none does."""
    score = score_of_run(run)
    places = zip(*evaluations(run, x, score.name))
    return next((at for at, value in places if score.reaches(value, target)), None)


def best_score(runs: Runs) -> float | None:
    """Return the best score of all runs; None without an evaluation."""
    score = score_of_runs(runs)
    each = (run for of_scheme in runs.values() for run in of_scheme)
    return score.best(value for run in each for value in evaluations(run, "version", score.name)[1])
