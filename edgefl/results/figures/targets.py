"""The target accuracy of a run, and what it cost to reach it."""

from __future__ import annotations

from collections.abc import Sequence

from edgefl.errors import UserError
from edgefl.results.figures.base import RunFiles, Runs
from edgefl.results.figures.curves import evaluations
from edgefl.results.figures.style import PlotStyle
from edgefl.results.summary import number


def target_of(run: RunFiles, style: PlotStyle) -> float | None:
    """Return the user's target accuracy, else that of the run; None if there is none."""
    if style.target is not None:
        return style.target
    return number(run.config.get("evaluation", {}).get("target_accuracy")) or number(
        run.summary.get("target_accuracy")
    )


def common_target(runs: Runs, style: PlotStyle) -> float:
    """Return the target accuracy that all runs have; UserError if there is none."""
    found = {name: target_of(run, style) for name, of_scheme in runs.items() for run in of_scheme}
    targets = set(found.values())
    if len(targets) == 1 and (target := targets.pop()) is not None:
        return target
    shown = ", ".join(f"{name}: {target or 'none'}" for name, target in list(found.items())[:4])
    raise UserError(f"no common target accuracy ({shown}): choose one, such as --target 0.9")


def to_target(run: RunFiles, target: float, x: str) -> float | None:
    """Return x of the first evaluation that reaches ``target``; None if none does."""
    return _first(*evaluations(run, x, "accuracy"), target)


def best_accuracy(runs: Runs) -> float | None:
    """Return the largest accuracy of all runs; None without an evaluation."""
    each = (run for of_scheme in runs.values() for run in of_scheme)
    return max(
        (share for run in each for share in evaluations(run, "version", "accuracy")[1]),
        default=None,
    )


def _first(places: Sequence[float], accuracies: Sequence[float], target: float) -> float | None:
    return next((at for at, share in zip(places, accuracies) if share >= target), None)
