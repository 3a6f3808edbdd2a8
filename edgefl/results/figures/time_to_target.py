"""Time, bytes or versions until the target accuracy, as bars."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

from edgefl.config.scores import ACCURACY, SCORES
from edgefl.errors import UserError
from edgefl.results.figures.base import Plot, PlotData, Runs
from edgefl.results.figures.curves import (
    X,
    best_score,
    common_target,
    score_of_runs,
    to_target,
    told,
)
from edgefl.results.figures.style import PlotStyle
from edgefl.results.statistics import interval

if TYPE_CHECKING:
    from edgefl.results.figures.canvas import Canvas

COLUMNS = ("x", "seed", "at", "mean", "low", "high")


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
        columns = ("name", "target" if score is ACCURACY else f"target_{score.name}", *COLUMNS)
        rows: list[tuple[Any, ...]] = []
        for name, of_scheme in runs.items():
            reached = [to_target(run, target, x) for run in of_scheme]
            there = [each for each in reached if each is not None]
            all_do = len(there) == len(reached)
            mean, around = fmean(there) if all_do else None, interval(there) if all_do else None
            ends = (None, None) if around is None else (max(around.low, 0.0), around.high)
            rows += [
                (name, target, x, run.config.get("seed"), at, mean, *ends)
                for run, at in zip(of_scheme, reached)
            ]
        if all(row[4] is None for row in rows):
            best = best_score(runs)
            if best is not None and not score.reaches(best, target):
                lower = "higher" if score.falls else "lower"
                raise UserError(
                    f"no run reaches the {score.title} {target:g} (the best one: {best:.3g}):"
                    f" choose a {lower} one with --target"
                )
            return PlotData(columns, [])
        return PlotData(columns, rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        from edgefl.results.figures.canvas import axis_of, filled, name_bars

        (axes,) = canvas.panels(1, 1, 2.2)
        unit, label = axis_of(data["x"][0], max(at for at in data["at"] if at is not None))
        schemes = data.by("name")
        for place, each in enumerate(schemes.values()):
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
                dots: dict[str, Any] = {
                    "color": "black",
                    "markerfacecolor": "white",
                    "markeredgewidth": 0.7,
                }
                axes.plot([place + 0.22] * len(seeds), seeds, "o", markersize=3, **dots)
        names = [canvas.text(name) for name in schemes]
        name_bars(axes, names, canvas.is_page)
        axes.set_ylim(bottom=0)
        column = data.columns[1]
        score = SCORES.get(column.removeprefix("target_"), ACCURACY)
        share = f"{told(data[column][0], score)} {score.title}"
        axes.set_ylabel(f"{label.replace('Emulated time', 'Time')} to {share}")


PLOT = TimeToTarget()
