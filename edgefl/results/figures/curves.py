"""Accuracy (or another score) and loss over time or another x, and the time to the target.

A server's model is constant between its versions, so every curve is a step function: the value of
an evaluation holds until the next one. Straight lines between evaluations would show accuracies
that no model had, most of all for synchronous strategies, whose versions are far apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefl.config.scores import ACCURACY, SCORES, Score, score_of, target_in
from edgefl.errors import UserError
from edgefl.results import summary
from edgefl.results.figures.base import (
    DASHED,
    STEPS,
    Canvas,
    Plot,
    PlotData,
    PlotStyle,
    Runs,
    axis_of,
    filled,
    is_wide,
    logarithmic_if_wide,
    percents,
)
from edgefl.results.read import number
from edgefl.results.run_files import RunFiles
from edgefl.results.statistics import interval
from edgefl.results.summary import AXES, axis_named

if TYPE_CHECKING:
    from matplotlib.axes import Axes

X = (*AXES, "round")  # a version, under the name that synchronous strategies use
MOST_POINTS = 2000  # of a mean curve; more are not visible
SETS = {"test": "test_loss", "train": "train_loss"}
Curve = tuple[Sequence[float], Sequence[float]]  # x and y
LineRow = tuple[float, float, float | None]  # x, mean, deviation over seeds


# ---------------------------------------------------------------------- numbers
def evaluations(run: RunFiles, x: str, y: str) -> Curve:
    """Return a run's finite values of the column ``y`` of metrics.csv, in order of time.

    Over emulated time the last value holds until the end of the run: there is a point there, too,
    unless a value that is not finite came later. Joules are those of energy.csv, which also counts
    what is under way.
    """
    axis = axis_named(x)
    if axis.name == "joules":
        from edgefl.results import energy  # of the emulator's models; other axes need none

        points = summary.evaluations(run.metrics, y)
        joules = energy.joules_at(run.path, [t for t, _ in points]) or ()
        points = [(at, value) for at, (_, value) in zip(joules, points)]
    else:
        points = summary.evaluations(run.metrics, y, axis)
    end_s = number(run.summary.get("emulated_s")) if axis.name == "emulated_s" else None
    holds = end_s is not None and summary.ends_finite(run.metrics, y)
    if points and holds and end_s is not None and end_s > points[-1][0]:
        points.append((end_s, points[-1][1]))
    return [at for at, _ in points], [value for _, value in points]


def step_values(points: Curve, x: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return the value of a step function at each ``x``, none of which is before its first point.

    ``points``: in order of x. Of several points at one x the last one counts.
    """
    places = np.searchsorted(np.asarray(points[0]), np.asarray(x), side="right") - 1
    return np.asarray(points[1])[places]


def over_seeds(curves: Sequence[Curve]) -> list[LineRow]:
    """Return mean and sample deviation of step functions; those without points do not count.

    There is a row for every x of any curve within the range that all curves cover, and no deviation
    of a single curve.
    """
    known = [curve for curve in curves if len(curve[0])]
    if not known:
        return []
    if len(known) == 1:
        return [(at, value, None) for at, value in zip(*known[0])]
    first, last = max(x[0] for x, _ in known), min(x[-1] for x, _ in known)
    x = np.unique(np.concatenate([np.asarray(x) for x, _ in known]))
    x = x[(x >= first) & (x <= last)]
    if len(x) > MOST_POINTS:
        x = x[np.linspace(0, len(x) - 1, MOST_POINTS).round().astype(int)]
    y = np.stack([step_values(points, x) for points in known])
    return list(zip(x.tolist(), y.mean(axis=0).tolist(), y.std(axis=0, ddof=1).tolist()))


def rows_of(runs: Sequence[RunFiles], x: str, y: str) -> list[LineRow]:
    """Return (x, mean, deviation) of a column of metrics.csv over a strategy's runs."""
    return over_seeds([evaluations(run, x, y) for run in runs])


def every(runs: Runs) -> Iterator[tuple[str, RunFiles]]:
    """Yield all runs with the names of their strategies."""
    return ((name, run) for name, of_strategy in runs.items() for run in of_strategy)


def score_of_run(run: RunFiles) -> Score:
    """Return the score that the run's target refers to."""
    return score_of(run.config.get("evaluation", {}))


def score_of_runs(runs: Runs) -> Score:
    """Return the score of all runs. UserError if they have different ones."""
    names = {score_of_run(run).name for _, run in every(runs)}
    if len(names) > 1:
        raise UserError(
            f"the runs have different evaluation.metric ({', '.join(sorted(names))}): expected runs"
            " with the same one"
        )
    return SCORES[names.pop()] if names else ACCURACY


def target_of(run: RunFiles, style: PlotStyle) -> float | None:
    """Return the user's target, else that of the run; None if there is none.

    UserError if the user's cannot be a value of the run's score.
    """
    score = score_of_run(run)
    summary.check_target(style.target, score)
    if style.target is not None:
        return style.target
    of_run = run.summary.get(f"target_{score.name}")
    return number(target_in(run.config.get("evaluation", {}))) or number(of_run)


def common_target(runs: Runs, style: PlotStyle) -> float:
    """Return the target accuracy that all runs have; UserError if there is none."""
    by_name = {name: target_of(run, style) for name, run in every(runs)}
    targets = set(by_name.values())
    if len(targets) == 1 and (target := targets.pop()) is not None:
        return target
    shown = ", ".join(f"{name}: {target or 'none'}" for name, target in list(by_name.items())[:4])
    raise UserError(
        f"no common target {score_of_runs(runs).title} ({shown}): choose one, such as --target 0.9"
    )


def in_words(target: float, score: Score) -> str:
    """Return "90%" for a share, else the number."""
    return f"{100 * target:g}%" if score.largest == 1 else f"{target:g}"


# ---------------------------------------------------------------------- drawing
def draw_curves(axes: Axes, data: PlotData, canvas: Canvas, column: str) -> None:
    """Draw a line per strategy, with a band of a standard deviation to each side if it has one.

    ``data``: rows with the columns "name", "x", "at", ``column`` and "deviation", of one x. If one
    strategy has sent far more bytes than another, the axis is logarithmic, too.
    """
    x, strategies = data["x"][0], data.by("name")
    unit, label = axis_of(x, max(data["at"]))
    wide = x == "bytes" and is_wide([max(each["at"]) for each in strategies.values()])
    above_zero = [at / unit for at in data["at"] if at > 0]
    logarithmic = bool(above_zero) and (wide or "x" in canvas.style.log)
    axes.set_xlabel(label + ", logarithmic" * logarithmic)
    for place, (name, each) in enumerate(strategies.items()):
        # With points at 0, matplotlib draws a horizontal line from the left edge to the next point.
        rows = zip(each["at"], each[column], each["deviation"])
        shown = [(at / unit, *row) for at, *row in rows if not logarithmic or at > 0]
        draw_line(axes, place, name, shown, canvas)
    axes.set_xlim(left=0)
    if logarithmic:
        axes.set_xscale("log")
        axes.set_xlim(left=min(above_zero))


def draw_line(
    axes: Axes, place: int, name: str, rows: Sequence[Sequence[Any]], canvas: Canvas
) -> None:
    """Draw (x, mean, deviation) of the ``place``-th strategy; no band without deviations."""
    x, mean, deviation = zip(*rows) if rows else ((), (), ())
    canvas.line(axes, place, name, x, mean, drawstyle=STEPS)
    if None not in deviation:
        middle, half = np.array(mean, dtype=float), np.array(deviation, dtype=float)
        canvas.band(axes, place, x, middle - half, middle + half, step="post")


class Accuracy(Plot):
    """Test accuracy over emulated time and over bytes sent; seeds give a band of +-1 deviation."""

    OF = "runs with at least one evaluation"
    X = X

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        if not style.x and (style.xlim or "x" in style.log or "x" in style.labels):
            raise UserError("this figure has two x axes: choose one with --x, such as --x bytes")
        score = score_of_runs(runs)
        rows = [
            (name, len(of_strategy), target_of(of_strategy[0], style), x, *row)
            for x in ((style.x,) if style.x else ("emulated_s", "bytes"))
            for name, of_strategy in runs.items()
            for row in rows_of(of_strategy, x, score.name)
        ]
        return PlotData(("name", "runs", "target", "x", "at", score.name, "deviation"), rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        score = next(SCORES[column] for column in data.columns if column in SCORES)
        kinds = data.by("x")
        panels = canvas.panels(len(kinds), 2, 2.4, sharey=True)
        for axes, of_x in zip(panels, kinds.values()):
            draw_curves(axes, of_x, canvas, score.name)
            for target in sorted({each for each in data["target"] if each is not None}):
                axes.axhline(target, **DASHED, label=f"target {in_words(target, score)}")
            if score.largest == 1:
                percents(axes)
        for axes in panels if not canvas.is_page else panels[:1]:
            axes.set_ylabel(f"Test {score.title}")
        canvas.legend(panels[0])


class Loss(Plot):
    """Test loss, and train loss where it was recorded; the mean over seeds, with its deviation."""

    OF = "runs with at least one evaluation"
    X = X

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        x = style.x or "emulated_s"
        rows = [
            (name, len(of_strategy), of, x, *row)
            for of, column in SETS.items()
            for name, of_strategy in runs.items()
            for row in rows_of(of_strategy, x, column)
        ]
        return PlotData(("name", "runs", "of", "x", "at", "loss", "deviation"), rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        kinds = data.by("of")
        panels = canvas.panels(len(kinds), 2, 2.4)
        for axes, (of, each) in zip(panels, kinds.items()):
            draw_curves(axes, each, canvas, "loss")
            axes.set_ylabel(f"{of.capitalize()} loss")
            logarithmic_if_wide(axes, each["loss"])
        canvas.legend(panels[0])


class TimeToTarget(Plot):
    """Bars of the time to the target accuracy: mean over seeds, 95 % interval, a dot per seed."""

    OF = "runs with a common target accuracy that at least one reaches"
    X = X
    LIMITS = LOG = "y"
    WIDTH = "column"

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        target, x = common_target(runs, style), style.x or "emulated_s"
        score = score_of_runs(runs)
        # the column's name says what the target is a value of
        of_target = "target" if score is ACCURACY else f"target_{score.name}"
        rows: list[tuple[Any, ...]] = []
        for name, of_strategy in runs.items():
            curves = [zip(*evaluations(run, x, score.name)) for run in of_strategy]
            reached = [
                next((at for at, value in curve if score.reaches(value, target)), None)
                for curve in curves
            ]
            known = [at for at in reached if at is not None]
            all_do = len(known) == len(reached)
            mean, around = fmean(known) if all_do else None, interval(known) if all_do else None
            ends = (None, None) if around is None else (max(around.low, 0.0), around.high)
            rows += [
                (name, target, x, run.config.get("seed"), at, mean, *ends)
                for run, at in zip(of_strategy, reached)
            ]
        if all(row[4] is None for row in rows):
            rows = []
            _refuse_unreached(runs, target, score)
        return PlotData(("name", of_target, "x", "seed", "at", "mean", "low", "high"), rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        axes = canvas.panel()
        unit, label = axis_of(data["x"][0], max(at for at in data["at"] if at is not None))
        strategies = data.by("name")
        for place, each in enumerate(strategies.values()):
            seeds = [at / unit for at in each["at"] if at is not None]
            mean, low, high = (each[column][0] for column in ("mean", "low", "high"))
            if mean is None:  # a mean over the seeds that reached it would be too good
                text = f"{len(seeds)} of {len(each.rows)}"
                bottom: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "va": "bottom"}
                axes.text(place, 0.02, text, ha="center", fontsize=7, **bottom)
            else:
                axes.bar(place, mean / unit, 0.7, **filled(place))
            if low is not None:
                error = [[(mean - low) / unit], [(high - mean) / unit]]
                axes.errorbar(place, mean / unit, error, color="black", capsize=3, linewidth=0.9)
            if len(each.rows) > 1:
                hollow: dict[str, Any] = {"markerfacecolor": "white", "markeredgewidth": 0.7}
                at = [place + 0.22] * len(seeds)
                axes.plot(at, seeds, "o", color="black", markersize=3, **hollow)
        canvas.name_bars(axes, list(strategies))
        axes.set_ylim(bottom=0)
        column = data.columns[1]
        score = SCORES.get(column.removeprefix("target_"), ACCURACY)
        share = f"{in_words(data[column][0], score)} {score.title}"
        axes.set_ylabel(f"{label.replace('Emulated time', 'Time')} to {share}")


def _refuse_unreached(runs: Runs, target: float, score: Score) -> None:
    """UserError if the best evaluation of all runs is below the target."""
    values = (evaluations(run, "version", score.name)[1] for _, run in every(runs))
    best = score.best(value for of_run in values for value in of_run)
    if best is not None and not score.reaches(best, target):
        raise UserError(
            f"no run reaches the {score.title} {target:g} (the best one: {best:.3g}):"
            f" choose a {'higher' if score.falls else 'lower'} one with --target"
        )


PLOTS = {"accuracy": Accuracy(), "loss": Loss(), "time-to-target": TimeToTarget()}
