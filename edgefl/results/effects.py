"""How much better a scheme is than the baseline: difference of accuracies and speed-up, by seed.

Runs with the same seed have the same partition, devices and first model, so they are pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgefl.results.statistics import Interval, Method, PairedTest, interval, paired_test


@dataclass(frozen=True, slots=True)
class Reached:
    """When a run reached the target: at ``x``, or not until its ``end`` (None: not known)."""

    x: float | None
    end: float | None


@dataclass(frozen=True, slots=True)
class PairedEffect:
    """A scheme against the baseline over pairs of runs.

    ``size``: the mean difference or the speed-up; None if not known. ``bound``: ">" or "<" if the
    size is only a bound, because some runs never reach the target. ``having`` of ``pairs`` have the
    number. ``adjusted``: p after Holm's adjustment for all schemes that are compared.
    """

    pairs: int
    having: int
    size: float | None = None
    bound: str = ""
    interval: Interval | None = None
    test: PairedTest | None = None
    adjusted: float | None = None


def difference(
    own: Sequence[float | None],
    baseline: Sequence[float | None],
    method: Method,
    largest: float = math.inf,
) -> PairedEffect:
    """Return the mean difference, own minus baseline; entry i of both is a pair.

    ``largest``: the largest one that is possible, for the interval.

    There is none unless all pairs have both numbers (survivorship bias).
    """
    pairs = [(a, b) for a, b in zip(own, baseline, strict=True) if a is not None and b is not None]
    if not pairs or len(pairs) < len(own):
        return PairedEffect(len(own), len(pairs))
    values = [a - b for a, b in pairs]
    found = interval(values, method)
    return PairedEffect(
        len(own),
        len(pairs),
        math.fsum(values) / len(values),
        interval=None if found is None else found.within(-largest, largest),
        test=paired_test([a for a, _ in pairs], [b for _, b in pairs], method),
    )


def speed_up(own: Sequence[Reached], baseline: Sequence[Reached], method: Method) -> PairedEffect:
    """Return how many times as much x the baseline needs to the target; entry i is a pair.

    It is the geometric mean of the pairs' ratios, so that a speed-up of 2 and one of 1/2 cancel,
    and interval and test are those of the logarithms. If the runs of one of both do not all reach
    the target, their ends give a bound.
    """
    pairs = list(zip(own, baseline, strict=True))
    having = sum(a.x is not None and b.x is not None for a, b in pairs)
    ratios = [_ratio(a.x, b.x) for a, b in pairs]
    known = [ratio for ratio in ratios if ratio is not None]
    if pairs and len(known) == len(pairs):
        logs = [math.log(ratio) for ratio in known]
        of_logs = difference(logs, [0.0] * len(logs), method)
        return PairedEffect(
            len(pairs),
            having,
            math.exp(math.fsum(logs) / len(logs)),
            interval=_exp(of_logs.interval),
            test=of_logs.test,
        )
    for bound, bounds in (
        (">", [_ratio(a.x, b.end if b.x is None else b.x) for a, b in pairs]),
        ("<", [_ratio(a.end if a.x is None else a.x, b.x) for a, b in pairs]),
    ):
        there = [ratio for ratio in bounds if ratio is not None]
        if pairs and len(there) == len(pairs):
            size = math.exp(math.fsum(map(math.log, there)) / len(there))
            return PairedEffect(len(pairs), having, size, bound)
    return PairedEffect(len(pairs), having)


def _ratio(own: float | None, baseline: float | None) -> float | None:
    """Return baseline / own; None if one is missing or 0, as of a first model at the target."""
    return baseline / own if own and baseline else None


def _exp(of_logs: Interval | None) -> Interval | None:
    if of_logs is None:
        return None
    return Interval(math.exp(of_logs.low), math.exp(of_logs.high), of_logs.method)
