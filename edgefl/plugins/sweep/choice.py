"""Which setting is best, and which one a sweep tries beyond its grid: a next value at the edge at
which the best one lies, or one in a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from edgefl.config.experiment import Experiment, parts
from edgefl.config.scores import ACCURACY, score_of
from edgefl.errors import UserError, nearest, undamaged
from edgefl.plugins.sweep.settings import GridAxis, Setting
from edgefl.record.files import SUMMARY
from edgefl.results.compare import in_words_of
from edgefl.results.read import number
from edgefl.results.summary import DIVERGED, FAILED, verdict

# ---------------------------------------------------------------------- metrics
# Numbers of a finished run by which settings are compared.


@dataclass(frozen=True, slots=True)
class Metric:
    """A number of a run; ``better`` is max or min. A run without the number is never the best."""

    name: str
    better: Callable[[Sequence[float]], float]

    def check(self, experiment: Experiment) -> None:
        """Raise UserError if no run of this experiment can have the number."""
        evaluation, lacks = experiment.evaluation, ""
        if evaluation.score.falls and self.name.endswith((ACCURACY.name, WORST)):
            raise UserError(
                f"--metric {self.name}: evaluation.metric is {evaluation.score.title}, which is"
                " better when lower: expected final_loss"
            )
        if self.name in (TIME, JOULES) and evaluation.goal is None:
            lacks = "evaluation.target"
        elif self.name == JOULES and not any(
            each.devices.energy or each.links.radio for each in parts(experiment)
        ):
            lacks = "[devices.energy] or [links.radio]"
        elif self.name == WORST and evaluation.edges is None:
            lacks = "[evaluation.edges]"
        if lacks:
            raise UserError(f"--metric {self.name}: expected {lacks} in the config")

    def of(self, run: Path) -> float | None:
        """Return the number of a finished run; None if it has none.

        For example, a run that never reaches the target has no time to it.
        """
        with undamaged(run / SUMMARY):
            facts = orjson.loads((run / SUMMARY).read_bytes())
            if self.name == STABILITY and verdict(facts) in (FAILED, DIVERGED):
                return None  # nothing is as stable as a dead model
            sections = {**(facts.get("edge_scores") or {}), **(facts.get("energy") or {})}
            whole = {**sections, **facts}
            return number(whole.get(in_words_of(self.name, score_of(facts))))


WORST = "worst_tenth"  # of the edges
STABILITY, TIME, JOULES = "stability", "time_to_target_s", "joules_to_target"
METRICS_BY_NAME: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("final_accuracy", max),
        Metric("convergence_accuracy", max),
        Metric("best_accuracy", max),
        Metric(WORST, max),
        Metric("final_loss", min),
        Metric(STABILITY, min),
        Metric(TIME, min),
        Metric(JOULES, min),
    )
}


def metric(name: str) -> Metric:
    """Return the metric ``name``. UserError if there is none."""
    found = METRICS_BY_NAME.get(name)
    if found is None:
        raise UserError(f"--metric {name}: unknown metric{nearest(name, METRICS_BY_NAME)}")
    return found


def facts_of(run: Path) -> dict[str, Any]:
    """Return summary.json of a finished run."""
    with undamaged(run / SUMMARY):
        found: dict[str, Any] = orjson.loads((run / SUMMARY).read_bytes())
        return found


DIGITS = 4  # of a value between or beyond two others, or drawn from a span


@dataclass(frozen=True, slots=True)
class Tried:
    """A setting with its ``score`` by the metric; None: the run died, or has no such number."""

    setting: Setting
    score: float | None


def best_of(tried: Iterable[Tried], metric: Metric) -> Tried | None:
    """Return the setting with the best score, the first of several; None if none has a score."""
    scored = [each for each in tried if each.score is not None]
    if not scored:
        return None
    most = metric.better([each.score for each in scored if each.score is not None])
    return next(each for each in scored if each.score == most)


@dataclass(frozen=True, slots=True)
class GridEdge:
    """An axis whose best value is its smallest or its largest that was tried."""

    axis: GridAxis
    value: Any
    largest: bool
    beyond: Any | None  # the next value; None if the key's range ends here


def edges(axes: Sequence[GridAxis], tried: Sequence[Tried], metric: Metric) -> list[GridEdge]:
    """Return the axes of numbers whose best value lies at an edge of what was tried.

    An axis with one value has no edges: the user has fixed it.
    """
    best = best_of(tried, metric)
    found = []
    if best is None:
        return []
    for axis in axes:
        values = tried_values(axis, tried) if axis.has_order else []
        value = best.setting[axis.key]
        if len(values) > 1 and value in (values[0], values[-1]):
            largest = value == values[-1]
            found.append(GridEdge(axis, value, largest, beyond(values, largest)))
    return found


def tried_values(axis: GridAxis, tried: Sequence[Tried]) -> list[Any]:
    """Return the different values of an axis that were tried, from the smallest."""
    return sorted({each.setting[axis.key] for each in tried})


def beyond(values: Sequence[Any], largest: bool) -> Any | None:
    """Return the next value above the largest or below the smallest of at least two.

    Positive values go on with the ratio of the last two, others with their difference. None if
    that is no new value: a whole number cannot be below 1 in this way.
    """
    last, before = (values[-1], values[-2]) if largest else (values[0], values[1])
    following = last * (last / before) if min(values) > 0 else last + (last - before)
    made = _rounded(following, values)
    return None if made in values or (min(values) > 0 and made <= 0) else made


def between(values: Sequence[Any], value: Any) -> Any | None:
    """Return a new value between ``value`` and its neighbour that is further away; None if none.

    Positive values are divided evenly by ratio, others by difference.
    """
    place = values.index(value)
    ratio = min(values) > 0
    gaps = [
        (max(value, other) / min(value, other) if ratio else abs(value - other), other)
        for other in (*values[max(place - 1, 0) : place], *values[place + 1 : place + 2])
    ]
    for _, other in sorted(gaps, key=lambda gap: -gap[0]):
        middle = (value * other) ** 0.5 if ratio else (value + other) / 2
        made = _rounded(middle, values)
        if made not in values:
            return made
    return None


def _rounded(value: float, values: Sequence[Any]) -> Any:
    if all(isinstance(each, int) for each in values):
        return round(value)
    return float(f"{value:.{DIGITS}g}")


def next_setting(
    axes: Sequence[GridAxis],
    tried: Sequence[Tried],
    metric: Metric,
    is_valid: Callable[[Setting], bool] = lambda setting: True,
) -> Setting | None:
    """Return one more setting next to the best: beyond the first edge it lies at, else in a gap.

    It differs from the best in one value, so that a gain has one cause. An edge at which the
    option's range ends (``is_valid``) is no edge. So several methods get equal numbers of runs
    while one of them still moves an edge. None if there is nothing more to try.
    """
    best = best_of(tried, metric)
    if best is None:
        return None
    for edge in edges(axes, tried, metric):
        if edge.beyond is not None:
            further = best.setting.with_value(edge.axis.key, edge.beyond)
            if is_valid(further):
                return further
    known = {each.setting for each in tried}
    for axis in axes:
        values = tried_values(axis, tried) if axis.has_order else []
        if len(values) > 1:
            middle = between(values, best.setting[axis.key])
            made = None if middle is None else best.setting.with_value(axis.key, middle)
            if made is not None and made not in known and is_valid(made):
                return made
    return None
