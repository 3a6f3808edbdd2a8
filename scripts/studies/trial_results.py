"""What the studies tell of a run, and over the seeds of a trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev

import orjson

from edgefl.results.summary import evaluations
from edgefl.results.tail import read_csv

LATE_S = 500.0  # emulated; how much of a run's end makes its late accuracy


@dataclass(frozen=True, slots=True)
class Result:
    """One run. ``late_accuracy``: the mean over the last LATE_S seconds, every model for as long as
    it was the newest one evaluated.

    ``convergence_accuracy``, the mean of the last ten evaluations, spans 500 s where there is a new
    model at each evaluation, and 2000 s where a round takes 200: it would favour schemes with many
    versions.
    """

    seed: int
    target_s: float | None
    late_accuracy: float | None
    convergence_accuracy: float | None
    final_accuracy: float | None
    versions: int
    updates: int
    discarded: int
    up_MB: float
    down_MB: float
    staleness: Mapping[str, int]


def result(run: Path, seed: int) -> Result:
    """What its files say."""
    facts = orjson.loads((run / "summary.json").read_bytes())
    late = late_accuracy(evaluations(read_csv(run / "metrics.csv")), facts["emulated_s"])
    accuracies = (late, facts["convergence_accuracy"], facts["final_accuracy"])
    discarded = sum(facts["updates_discarded"].values())
    sent = (facts["bytes_up"] / 1e6, facts["bytes_down"] / 1e6)
    return Result(
        seed,
        facts["time_to_target_s"],
        *accuracies,
        facts["versions"],
        facts["updates_applied"],
        discarded,
        *sent,
        facts["staleness"],
    )


def late_accuracy(points: Sequence[tuple[float, float]], end_s: float) -> float | None:
    """Mean over the last LATE_S before ``end_s`` of accuracies (emulated s, accuracy) that each
    hold until the next; None without any.
    """
    begin_s = max(0.0, end_s - LATE_S)
    total, seconds = 0.0, 0.0
    for (at_s, accuracy), (next_s, _) in zip(points, [*points[1:], (end_s, 0.0)]):
        held_s = min(next_s, end_s) - max(at_s, begin_s)
        if held_s > 0:
            total, seconds = total + held_s * accuracy, seconds + held_s
    return total / seconds if seconds else None


def mean(results: Sequence[Result], quantity: str) -> float | None:
    """Over the seeds; None if one of them has no such number: a mean over the lucky ones would
    flatter.
    """
    values = [getattr(each, quantity) for each in results]
    return None if not values or None in values else fmean(values)


def deviation(results: Sequence[Result], quantity: str) -> float | None:
    """Sample standard deviation over the seeds; None for a single one."""
    values = [getattr(each, quantity) for each in results]
    return None if len(values) < 2 or None in values else stdev(values)


def spread(results: Sequence[Result], quantity: str) -> tuple[float | None, float | None]:
    """(mean, deviation)."""
    return mean(results, quantity), deviation(results, quantity)


def median_staleness(results: Sequence[Result]) -> float | None:
    """Of all updates of all seeds."""
    gaps = [
        int(gap) for each in results for gap, count in each.staleness.items() for _ in range(count)
    ]
    return median(gaps) if gaps else None
