"""Spreads, intervals and paired tests over the seeds of a strategy, and effects over a baseline.

There are two methods. "resampling" assumes no distribution: a bootstrap interval and a permutation
test. "t" assumes normal values: Student's interval and the paired t-test. Resampling needs ENOUGH
seeds: its interval lies within the range of the values, which covers the centre with probability
1 - 2^(1-n), and its smallest p is 2^(1-n). With fewer seeds both are useless at the usual 95 %, so
"auto" takes "t" then. All results are deterministic. docs/explanation/statistics.md has figures.

Runs with the same seed have the same partition, devices and first model, so they are pairs.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import NormalDist, stdev
from typing import Literal

import numpy as np

from edgefl.streams import Streams

Method = Literal["auto", "resampling", "t"]
Used = Literal["resampling", "t"]
CONFIDENCE = 0.95
ENOUGH = 6  # seeds, from which 2^(1-n) is below 0.05
MOST_EXACT = 70_000  # resamples or sign changes up to which all are taken, not a random sample
RESAMPLES = 50_000
BLOCK = 5_000  # resamples in memory at a time
ROUNDING = 1e-12  # relative difference below which two sums are equal
POWER, MOST_SEEDS = 0.8, 1_000  # of the number of seeds that a test needs
HAS_SCIPY = find_spec("scipy") is not None  # a base install has none


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of a quantity that ``n`` of ``of`` runs have.

    ``mean`` is None unless all have it (survivorship bias). ``deviation`` is
    sqrt(sum (x - mean)^2 / (n - 1)), None for a single run.
    """

    n: int
    of: int
    mean: float | None
    deviation: float | None


def spread(values: Sequence[float | None]) -> Spread:
    """Return the spread of ``values``; None stands for a run without the number.

    For example, a run that never reaches the target has no time to it.
    """
    known = [value for value in values if value is not None]
    n = len(known)
    if not known or n < len(values):
        return Spread(n, len(values), None, None)
    mean = math.fsum(known) / n
    squares = math.fsum((value - mean) ** 2 for value in known)
    return Spread(n, n, mean, math.sqrt(squares / (n - 1)) if n > 1 else None)


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval of a mean, in the unit of the values."""

    low: float
    high: float
    method: Used

    def within(self, lowest: float, highest: float) -> Interval:
        """Return the part that is possible for the quantity, such as 0 to 1 for an accuracy."""
        low, high = (min(max(each, lowest), highest) for each in (self.low, self.high))
        return Interval(low, high, self.method)


@dataclass(frozen=True, slots=True)
class PairedTest:
    """The two-sided test of whether ``n`` paired differences have the centre 0.

    ``difference``: their mean. ``p``: None for fewer than two pairs.
    """

    n: int
    difference: float
    p: float | None
    method: Used


def chosen(n: int, method: Method = "auto") -> Used:
    """Return the method for ``n`` values: "auto" is resampling if there are ENOUGH."""
    if method == "auto":
        return "resampling" if n >= ENOUGH else "t"
    return method


def interval(
    values: Sequence[float], method: Method = "auto", confidence: float = CONFIDENCE
) -> Interval | None:
    """Return the confidence interval of the mean; None for fewer than two values.

    ``confidence``: between 0 and 1. Without SciPy there is none.
    """
    n = len(values)
    if n < 2 or not HAS_SCIPY:
        return None
    used = chosen(n, method)
    sample = np.asarray(values, dtype=float)
    low, high = (_bootstrap if used == "resampling" else _student)(sample, confidence)
    return Interval(low, high, used)


def _student(sample: np.ndarray, confidence: float) -> tuple[float, float]:
    mean, freedom = math.fsum(sample) / len(sample), len(sample) - 1
    deviation = math.sqrt(math.fsum((sample - mean) ** 2) / freedom)
    half = _t_quantile(confidence, freedom) * deviation / math.sqrt(len(sample))
    return mean - half, mean + half


def _bootstrap(sample: np.ndarray, confidence: float) -> tuple[float, float]:
    """The expanded percentile interval: T. Hesterberg, The American Statistician 69 (2015).

    The plain percentile interval is too narrow by about sqrt((n-1)/n) and by z in place of t. The
    quantiles are moved outwards by both.
    """
    n = len(sample)
    outwards = math.sqrt(n / (n - 1)) * _t_quantile(confidence, n - 1)
    share = NormalDist().cdf(-outwards)
    low, high = np.quantile(_resampled_means(sample), (share, 1 - share))
    return float(low), float(high)


def _resampled_means(sample: np.ndarray) -> np.ndarray:
    n = len(sample)
    if n**n <= MOST_EXACT:
        drawn = np.stack(np.unravel_index(np.arange(n**n), (n,) * n), axis=-1)
        means: np.ndarray = sample[drawn].mean(axis=1)
        return means
    rng = Streams(0).rng("bootstrap", n)
    return np.concatenate(
        [sample[rng.integers(0, n, (BLOCK, n))].mean(axis=1) for _ in range(RESAMPLES // BLOCK)]
    )


def paired_test(
    values: Sequence[float], baseline: Sequence[float], method: Method = "auto"
) -> PairedTest:
    """Test whether ``values`` differ from ``baseline``; entry i of both is a pair (a seed).

    Resampling: all sign changes of the differences are equally likely if the pairs can be swapped
    (R. A. Fisher, The Design of Experiments, 1935, section 21). Without SciPy there is no p.
    ValueError for unequal lengths.
    """
    pairs = zip(values, baseline, strict=True)
    differences = np.asarray([value - reference for value, reference in pairs], dtype=float)
    n = len(differences)
    used = chosen(n, method)
    mean = math.fsum(differences) / n if n else 0.0
    if n < 2 or not HAS_SCIPY:
        return PairedTest(n, mean, None, used)
    p = (_sign_changes if used == "resampling" else _paired_t)(differences)
    return PairedTest(n, mean, p, used)


def _sign_changes(differences: np.ndarray) -> float:
    n = len(differences)
    own = abs(float(differences.sum())) - ROUNDING * float(np.abs(differences).sum())

    def as_far(bits: np.ndarray) -> int:
        return int(np.sum(np.abs((1 - 2 * bits) @ differences) >= own))

    if 2**n <= MOST_EXACT:
        return as_far(np.arange(2**n)[:, None] >> np.arange(n) & 1) / 2**n
    rng = Streams(0).rng("signs", n)
    found = sum(as_far(rng.integers(0, 2, (BLOCK, n))) for _ in range(RESAMPLES // BLOCK))
    # the observed signs count, too, so p is never 0 (Phipson and Smyth, 2010)
    return (found + 1) / (RESAMPLES + 1)


def _paired_t(differences: np.ndarray) -> float:
    n = len(differences)
    mean = math.fsum(differences) / n
    deviation = math.sqrt(math.fsum((differences - mean) ** 2) / (n - 1))
    if deviation <= ROUNDING * abs(mean):  # all are equal
        return 0.0 if mean else 1.0
    from scipy.special import stdtr

    return float(2 * stdtr(n - 1, -abs(mean) / deviation * math.sqrt(n)))


def _t_quantile(confidence: float, freedom: int) -> float:
    """Return the t that |T| of Student's T does not exceed with this probability."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))


def power(effect: float, n: int, confidence: float = CONFIDENCE) -> float:
    """Return the probability that a paired t-test of ``n`` normal differences detects ``effect``.

    ``effect``: the mean of the differences, in their standard deviations. The statistic has the
    noncentral t distribution with n - 1 degrees of freedom, and effect sqrt(n) as noncentrality (J.
    Cohen, Statistical Power Analysis for the Behavioral Sciences, 1988, chapter 2).
    """
    from scipy.special import nctdtr

    centre, quantile = abs(effect) * math.sqrt(n), _t_quantile(confidence, n - 1)
    below, missed = (float(nctdtr(n - 1, centre, end)) for end in (-quantile, quantile))
    # SciPy returns NaN for many large effects
    if math.isnan(below):  # only where it is less than 1e-15
        below = 0.0
    if math.isnan(missed):  # only where it is 0 or 1
        missed = float(centre <= quantile)
    return 1.0 - missed + below


def seeds_needed(effect: float, confidence: float = CONFIDENCE) -> int | None:
    """Return how many seeds the paired t-test needs to detect ``effect`` with probability POWER.

    ``effect`` as in ``power``. None for more than MOST_SEEDS, and without SciPy.
    """
    if not HAS_SCIPY or math.isnan(effect) or power(effect, MOST_SEEDS, confidence) < POWER:
        return None
    counts = range(2, MOST_SEEDS + 1)
    return counts[bisect_left(counts, POWER, key=lambda n: power(effect, n, confidence))]


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Return the p values of several tests, adjusted so that all of them hold together.

    S. Holm, Scandinavian Journal of Statistics 6 (1979). None, a test that could not be made, stays
    None and is not counted.
    """
    order = sorted(
        (value, place) for place, value in enumerate(values) if value is not None
    )  # from the smallest
    adjusted: list[float | None] = [None] * len(values)
    largest = 0.0
    for rank, (value, place) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * value))
        adjusted[place] = largest
    return adjusted


def smallest_p(n: int, tests: int = 1) -> float:
    """Return the smallest p of a permutation test of ``n`` pairs, adjusted for several tests."""
    return min(1.0, tests * 2.0 ** (1 - n))


def pairs_needed(tests: int) -> int:
    """Return how many pairs a permutation test needs before any p is significant."""
    n = ENOUGH
    while smallest_p(n, tests) > 1 - CONFIDENCE:
        n += 1
    return n


@dataclass(frozen=True, slots=True)
class Reached:
    """When a run reached the target: at ``x``, or not until its ``end`` (None: not known)."""

    x: float | None
    end: float | None


@dataclass(frozen=True, slots=True)
class PairedEffect:
    """A strategy against the baseline over pairs of runs.

    ``size``: the mean difference or the speed-up; None if not known. ``bound``: ">" or "<" if the
    size is only a bound, because some runs never reach the target. ``having`` of ``pairs`` have the
    number. ``adjusted``: p after Holm's adjustment for all strategies that are compared. ``seeds``:
    how many pairs the paired t-test needs for 80 % power; None if that is not known, or too many.
    """

    pairs: int
    having: int
    size: float | None = None
    bound: str = ""
    interval: Interval | None = None
    test: PairedTest | None = None
    adjusted: float | None = None
    seeds: int | None = None


def difference(
    own: Sequence[float | None],
    baseline: Sequence[float | None],
    method: Method,
    largest: float = math.inf,
    matters: float | None = None,
) -> PairedEffect:
    """Return the mean difference, own minus baseline; entry i of both is a pair.

    ``largest``: the largest one that is possible, for the interval. ``matters``: the difference for
    which ``seeds`` are counted; None: the observed one.

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
        seeds=_seeds_for(values, matters),
    )


def _seeds_for(differences: Sequence[float], matters: float | None) -> int | None:
    """Return how many seeds detect a difference that matters, or the observed one."""
    if len(differences) < 2:
        return None
    deviation, mean = stdev(differences), math.fsum(differences) / len(differences)
    size = mean if matters is None else matters
    if deviation <= ROUNDING * abs(mean):  # all are equal
        return 2 if size else None
    return seeds_needed(size / deviation)


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
            seeds=of_logs.seeds,
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
