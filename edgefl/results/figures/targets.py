"""The target accuracy of a run, and what it cost to reach it."""

from __future__ import annotations

from edgefl.config.scores import ACCURACY, SCORES, Score, score_of, target_in
from edgefl.errors import UserError
from edgefl.results.figures.base import Runs
from edgefl.results.figures.curves import evaluations
from edgefl.results.figures.style import PlotStyle
from edgefl.results.run_files import RunFiles
from edgefl.results.summary import number


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
