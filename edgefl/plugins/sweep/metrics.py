"""Numbers of a finished run by which settings are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from edgefl.config.scores import ACCURACY, score_of
from edgefl.errors import UserError, nearest, undamaged
from edgefl.record.files import METRICS, SUMMARY
from edgefl.results.compare import in_words_of
from edgefl.results.read import number, read_csv
from edgefl.results.summary import evaluations

LATE_S = 500.0  # emulated time at a run's end that late_accuracy covers


@dataclass(frozen=True, slots=True)
class Metric:
    """A number of a run; ``better`` is max or min. A run without the number is never the best."""

    name: str
    better: Callable[[Sequence[float]], float]

    def of(self, run: Path) -> float | None:
        """Return the number of a finished run; None if it has none.

        For example, a run that never reaches the target has no time to it.
        """
        with undamaged(run / SUMMARY):
            facts = orjson.loads((run / SUMMARY).read_bytes())
            score = score_of(facts)
            if score.falls and self.name.endswith((ACCURACY.name, WORST)):
                raise UserError(
                    f"--metric {self.name}: {run} has {score.title} as evaluation.metric, which is"
                    " better when lower: expected final_loss"
                )
            if self.name == LATE:
                points = evaluations(read_csv(run / METRICS), score.name)
                return late_accuracy(points, facts["emulated_s"])
            parts = {**(facts.get("edge_scores") or {}), **(facts.get("energy") or {})}
            whole = {**parts, **facts}
            return number(whole.get(in_words_of(self.name, score)))


LATE = "late_accuracy"
WORST = "worst_tenth"  # of the edges, with evaluation.edges
METRICS_BY_NAME: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("final_accuracy", max),
        Metric("convergence_accuracy", max),
        Metric("best_accuracy", max),
        Metric(LATE, max),
        Metric(WORST, max),
        Metric("final_loss", min),
        Metric("stability", min),
        Metric("time_to_target_s", min),
        Metric("joules_to_target", min),
    )
}


def metric(name: str) -> Metric:
    """Return the metric ``name``. UserError if there is none."""
    found = METRICS_BY_NAME.get(name)
    if found is None:
        raise UserError(f"--metric {name}: unknown metric{nearest(name, METRICS_BY_NAME)}")
    return found


def late_accuracy(points: Sequence[tuple[float, float]], end_s: float) -> float | None:
    """Return the mean accuracy over the last LATE_S before ``end_s``; None without points.

    ``points``: (emulated s, accuracy); each accuracy holds until the next point.
    """
    begin_s = max(0.0, end_s - LATE_S)
    total, seconds = 0.0, 0.0
    for (at_s, accuracy), (next_s, _) in zip(points, [*points[1:], (end_s, 0.0)]):
        held_s = min(next_s, end_s) - max(at_s, begin_s)
        if held_s > 0:
            total, seconds = total + held_s * accuracy, seconds + held_s
    return total / seconds if seconds else None


def facts_of(run: Path) -> dict[str, Any]:
    """Return summary.json of a finished run."""
    with undamaged(run / SUMMARY):
        found: dict[str, Any] = orjson.loads((run / SUMMARY).read_bytes())
        return found
