"""The scores of a model on test data that a target, tables and figures can refer to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Score:
    """A score: the column of metrics.csv, and its name in texts and tables.

    ``largest``: the largest possible value. ``falls``: a lower value is better.
    """

    name: str
    title: str
    largest: float = 1.0
    falls: bool = False

    def reaches(self, value: float, target: float) -> bool:
        """Whether ``value`` is at least as good as ``target``."""
        return value <= target if self.falls else value >= target

    def betters(self, value: float, other: float) -> bool:
        """Whether ``value`` is better than ``other``."""
        return value < other if self.falls else value > other

    def best(self, values: Iterable[float]) -> float | None:
        """Return the best value; None without values."""
        return (min if self.falls else max)(values, default=None)


ACCURACY = Score("accuracy", "accuracy")
SCORES: Mapping[str, Score] = {
    score.name: score
    for score in (
        ACCURACY,
        Score("f1", "F1"),
        Score("perplexity", "perplexity", math.inf, falls=True),
        Score("exact_match", "exact match"),
    )
}

# What every evaluation measures besides, in the order of its result; the train loss may be missing.
LOSSES = tuple(
    Score(name, name.replace("_", " "), math.inf, falls=True)
    for name in ("train_loss", "test_loss")
)


def measured(evaluation: Any) -> dict[str, Score]:
    """Return what an evaluation measures by ``evaluation``, the table of a checked config.

    By the columns of metrics.csv, in the order of an evaluation's result (``edgefl.jobs.Scores``).
    """
    further = [SCORES[name] for name in evaluation.further]
    return {score.name: score for score in (*LOSSES, ACCURACY, *further)}


def score_of(evaluation: Any) -> Score:
    """Return the score that the table ``[evaluation]`` of a config.toml chooses.

    Nothing has checked the table: what is not understood is the accuracy.
    """
    name = evaluation.get("metric") if isinstance(evaluation, Mapping) else None
    return SCORES.get(name, ACCURACY) if isinstance(name, str) else ACCURACY


def target_in(evaluation: Any) -> Any:
    """Return the target in the table ``[evaluation]`` of a config.toml, unchecked; or None."""
    if not isinstance(evaluation, Mapping):
        return None
    found = evaluation.get("target")
    if found is None and score_of(evaluation) is ACCURACY:
        return evaluation.get("target_accuracy")
    return found
