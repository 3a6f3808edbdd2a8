"""Numbers of a run of K-asynchronous gradients: how its steps weighed the gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import correlation, fmean

from edgefl.record.files import EVENTS
from edgefl.reports.aggregation import OF_STEP, steps
from edgefl.results.summary import number
from edgefl.results.tail import read_events
from edgefl.sweep.metrics import facts_of
from reproduction.entry import Measure

FEW = 5  # predominant gradients (WKAFL, figure 2a)
LEAST_STEPS = 10  # of a point of figure 2b


def of_aggregation(key: str) -> Measure:
    """Return a measure: the number ``key`` of the run's section "aggregation"."""

    def measure(run: Path) -> float | None:
        return number((facts_of(run).get("aggregation") or {}).get(key))

    return measure


def share_of_few(run: Path) -> float | None:
    """Return the share of steps in which at most FEW gradients have a weight above .1."""
    counts = (facts_of(run).get("aggregation") or {}).get("predominant")
    if not counts:
        return None
    few = sum(of for number, of in counts.items() if int(number) <= FEW)
    return float(few / sum(counts.values()))


def linearity(run: Path) -> float | None:
    """Return the correlation of figure 2b's points: gradients used and their mean staleness."""
    return linearity_of([values for _, values in steps(read_events(run / EVENTS))])


def linearity_of(found: Sequence[Mapping[str, float]]) -> float | None:
    """Return the correlation over the numbers of used gradients that LEAST_STEPS steps have.

    None for fewer than three of them, or if staleness is the same for all.
    """
    by_count: dict[float, list[float]] = {}
    for step in found:
        by_count.setdefault(step["aggregated"], []).append(step[OF_STEP])
    points = [(count, fmean(gaps)) for count, gaps in by_count.items() if len(gaps) >= LEAST_STEPS]
    if len(points) < 3 or len({gap for _, gap in points}) == 1:
        return None
    return correlation(*map(list, zip(*points)))


WEIGHTS: Mapping[str, Callable[[Path], float | None]] = {
    "tau_ave": of_aggregation("tau_ave"),
    "n_ave": of_aggregation("n_ave"),
    "clipped_share": of_aggregation("clipped_share"),
    "effective": of_aggregation("effective_ave"),
    "largest_label": of_aggregation("largest_label_ave"),
}
