"""Results of one run in a study, and statistics over the seeds of a trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev

from edgefl.results.summary import evaluations
from edgefl.results.tail import read_csv
from edgefl.sweep.metrics import facts_of, late_accuracy


@dataclass(frozen=True, slots=True)
class Result:
    """The results of one run.

    ``late_accuracy`` is the mean over the last LATE_S seconds, weighted by the time for which each
    model was the newest evaluated one. ``convergence_accuracy``, the mean of the last ten
    evaluations, spans 500 s with a new model at each evaluation but 2000 s with rounds of 200 s, so
    it favours schemes with many versions.
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
    """Read the results of a finished run."""
    facts = facts_of(run)
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


def mean(results: Sequence[Result], quantity: str) -> float | None:
    """Return the mean over the seeds; None unless all have the number (survivorship bias)."""
    values = [getattr(each, quantity) for each in results]
    return None if not values or None in values else fmean(values)


def deviation(results: Sequence[Result], quantity: str) -> float | None:
    """Return the sample standard deviation over the seeds; None for a single seed."""
    values = [getattr(each, quantity) for each in results]
    return None if len(values) < 2 or None in values else stdev(values)


def spread(results: Sequence[Result], quantity: str) -> tuple[float | None, float | None]:
    """Return (mean, deviation) over the seeds."""
    return mean(results, quantity), deviation(results, quantity)


def median_staleness(results: Sequence[Result]) -> float | None:
    """Return the median staleness over all updates of all seeds."""
    gaps = [
        int(gap) for each in results for gap, count in each.staleness.items() for _ in range(count)
    ]
    return median(gaps) if gaps else None
