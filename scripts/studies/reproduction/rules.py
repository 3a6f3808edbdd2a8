"""The rule by which a claim holds, does not hold, or cannot be told; docs/results/rule.md says why.

Differences are paired by seed: two methods with one seed share data, devices and initial model. The
interval of their mean is Student's, at 95 %. A run without the number (a loss that is not finite, a
target that was never reached) counts with the worst number of the comparison; for a time to target
that is the end of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from edgefl.results.statistics import Interval, interval
from reproduction.entry import Finding, Verdict
from reproduction.results import MAIN, NoResults, Results

SMALLER = frozenset(
    {
        "final_loss",
        "final_train_loss",
        "late_train_loss",
        "stability",
        "time_to_target_s",
        "bytes_up",
        "bytes_down",
        "staleness_mean",
    }
)  # columns in which a smaller number is the better one

Key = tuple[str, str]  # (part, method)
Which = str | Key  # a method of the part "main", or (part, method)
MOST_COUNT = 1e7  # a larger number has four digits, too


@dataclass(frozen=True, slots=True)
class Paired:
    """The differences of two methods, seed by seed; positive: the first one is better.

    ``interval``: of their mean; None for fewer than two seeds.
    """

    differences: Mapping[int, float]
    mean: float
    interval: Interval | None

    def is_above(self, by: float = 0.0) -> bool:
        """Return whether the whole interval is above ``by``."""
        return self.interval is not None and self.interval.low > by

    def is_at_most(self, by: float = 0.0) -> bool:
        """Return whether the whole interval is at most ``by``."""
        return self.interval is not None and self.interval.high <= by

    def is_below(self, least: float) -> bool:
        """Return whether the whole interval is below ``least``."""
        return self.interval is not None and self.interval.high < least

    def verdict(self, by: float = 0.0, least: float = 0.0) -> Verdict:
        """Return the verdict on "the first one is better by more than ``by``", as ``better``."""
        if self.is_above(by):
            return Verdict.holds
        fails = self.is_at_most(by) or self.is_below(least)
        return Verdict.fails if fails else Verdict.unknown

    def __str__(self) -> str:
        """Return "+0.031 [+0.012, +0.050] over 3 seeds"."""
        bounds = (
            ""
            if self.interval is None
            else f" [{signed(self.interval.low)}, {signed(self.interval.high)}]"
        )
        seeds = len(self.differences)
        return f"{signed(self.mean)}{bounds} over {seeds} seed{'' if seeds == 1 else 's'}"


def paired(results: Results, method: Which, than: Which, column: str) -> Paired:
    """Return how much better ``method`` is in ``column``, over the seeds that both have.

    NoResults if they have no common seed.
    """
    ours, theirs = _filled(results, [method, than], column)
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        raise NoResults(f"{results.entry.name}: no seed that {method} and {than} both have")
    sign = -1 if column in SMALLER else 1
    differences = {seed: sign * (ours[seed] - theirs[seed]) for seed in seeds}
    values = list(differences.values())
    return Paired(differences, sum(values) / len(values), interval(values, "t"))


# ------------------------------------------------------------------ one comparison
def better(
    results: Results,
    method: Which,
    than: Which,
    column: str,
    by: float = 0.0,
    least: float = 0.0,
) -> Finding:
    """Judge "``method`` is better than ``than`` in ``column`` by more than ``by``".

    Holds: the interval of the paired differences is above ``by``. Does not hold: it is at most
    ``by``, or below ``least``, the smallest difference that the claim is about. Else it cannot be
    told.
    """
    found = paired(results, method, than, column)
    numbers = (f"{told(each)} {mean_of(results, each, column)}" for each in (method, than))
    return Finding(
        str(found),
        found.verdict(by, least),
        f"{label(column)}: {', '.join(numbers)}; paired difference {found}.",
    )


def best(
    results: Results, method: Which, others: Iterable[Which], column: str, least: float = 0.0
) -> Finding:
    """Judge "``method`` is better than each of ``others``": all comparisons must hold."""
    return every(
        {told(each): better(results, method, each, column, least=least) for each in others}
    )


def order(results: Results, methods: Sequence[Which], column: str, least: float = 0.0) -> Finding:
    """Judge an order of methods, the best one first: each is better than the next one."""
    return every(
        {
            f"{told(one)} before {told(next_one)}": better(
                results, one, next_one, column, least=least
            )
            for one, next_one in pairwise(methods)
        }
    )


def equal(results: Results, method: Which, other: Which, column: str, within: float) -> Finding:
    """Judge "both are equal up to ``within``".

    Holds: the interval is inside -within to within. Does not hold: it is outside on one side.
    """
    found = paired(results, method, other, column)
    if found.interval is None:
        verdict = Verdict.unknown
    elif -within <= found.interval.low and found.interval.high <= within:
        verdict = Verdict.holds
    elif found.interval.low > within or found.interval.high < -within:
        verdict = Verdict.fails
    else:
        verdict = Verdict.unknown
    why = f"{label(column)}: paired difference {found}; equal means within {within:g}."
    return Finding(str(found), verdict, why)


def at_least(results: Results, method: Which, column: str, bound: float) -> Finding:
    """Judge "the mean of ``column`` is at least ``bound``", by the interval of its mean."""
    return _bounded(results, method, column, bound, least=True)


def at_most(results: Results, method: Which, column: str, bound: float) -> Finding:
    """Judge "the mean of ``column`` is at most ``bound``", by the interval of its mean."""
    return _bounded(results, method, column, bound, least=False)


def _bounded(results: Results, method: Which, column: str, bound: float, least: bool) -> Finding:
    part, name = _key(method)
    given = list(results.values(name, column, part).values())
    values = [value for value in given if value is not None]
    if len(values) < len(given) or len(values) < 2:
        lacking = len(given) - len(values)
        why = f"{lacking} of {len(given)} runs have no {label(column)}." if lacking else ""
        return Finding(mean_of(results, method, column), Verdict.unknown, why or "One seed.")
    bounds = interval(values, "t")
    assert bounds is not None  # there are two values
    above, below = bounds.low >= bound, bounds.high < bound
    if not least:
        above, below = bounds.high <= bound, bounds.low > bound
    verdict = Verdict.holds if above else Verdict.fails if below else Verdict.unknown
    why = f"{label(column)}: mean in [{number(bounds.low)}, {number(bounds.high)}]"
    return Finding(
        mean_of(results, method, column),
        verdict,
        f"{why}, claimed at {'least' if least else 'most'} {bound:g}.",
    )


# ------------------------------------------------------------------ the best of a family
@dataclass(frozen=True, slots=True)
class Optimum:
    """The best member of a family: ``at`` by the means; ``candidates``: not worse by the rule."""

    at: float
    candidates: tuple[float, ...]

    def __str__(self) -> str:
        others = ", ".join(f"{x:g}" for x in self.candidates)
        return f"{self.at:g}" + (f" (not told from {others})" if len(self.candidates) > 1 else "")


def optimum(results: Results, family: Mapping[float, Which], column: str) -> Optimum:
    """Return the best x of a ``family`` x -> method.

    A candidate is an x whose paired difference to the best one has an interval that reaches 0.
    NoResults unless all members have runs.
    """
    filled = dict(zip(family, _filled(results, list(family.values()), column)))
    sign = -1 if column in SMALLER else 1
    means = {x: sign * _mean(values.values()) for x, values in filled.items()}
    at = max(means, key=lambda x: means[x])
    alike = [
        x
        for x, member in family.items()
        if x == at or not paired_of(filled[at], filled[x], sign).is_above()
    ]
    return Optimum(at, tuple(sorted(alike)))


def paired_of(ours: Mapping[int, float], theirs: Mapping[int, float], sign: int = 1) -> Paired:
    """Return the paired differences of two sets of numbers by seed; ``sign`` -1: smaller is better.

    NoResults if they have no common seed.
    """
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        raise NoResults("no common seed")
    differences = {seed: sign * (ours[seed] - theirs[seed]) for seed in seeds}
    return Paired(
        differences, _mean(differences.values()), interval(list(differences.values()), "t")
    )


def optimum_at(
    results: Results, family: Mapping[float, Which], column: str, claimed: Iterable[float]
) -> Finding:
    """Judge "the best x of the family is one of ``claimed``".

    Holds: all candidates are claimed. Does not hold: none is. Else it cannot be told.
    """
    found, wanted = optimum(results, family, column), set(claimed)
    inside = wanted & set(found.candidates)
    if set(found.candidates) <= wanted:
        verdict = Verdict.holds
    else:
        verdict = Verdict.unknown if inside else Verdict.fails
    return Finding(str(found), verdict, f"{label(column)}: {family_text(results, family, column)}.")


def optimum_falls(
    results: Results,
    before: Mapping[float, Which],
    after: Mapping[float, Which],
    column: str,
) -> Finding:
    """Judge "the best x of ``after`` is smaller than that of ``before``".

    Holds: every candidate of ``after`` is below every one of ``before``. Does not hold: none of
    ``after`` is below one of ``before``. Else it cannot be told.
    """
    first, second = optimum(results, before, column), optimum(results, after, column)
    if max(second.candidates) < min(first.candidates):
        verdict = Verdict.holds
    elif min(second.candidates) >= max(first.candidates):
        verdict = Verdict.fails
    else:
        verdict = Verdict.unknown
    why = (
        f"{label(column)}: {family_text(results, before, column)}; then"
        f" {family_text(results, after, column)}."
    )
    return Finding(f"{first} -> {second}", verdict, why)


# ------------------------------------------------------------------ several findings
def every(findings: Mapping[str, Finding]) -> Finding:
    """Judge a claim of several statements: it holds if all hold, and not if one does not."""
    verdicts = [each.verdict for each in findings.values()]
    for verdict in (Verdict.fails, Verdict.missing, Verdict.unknown):
        if verdict in verdicts:
            return _joined(findings, verdict)
    return _joined(findings, Verdict.holds)


def some(findings: Mapping[str, Finding]) -> Finding:
    """Judge a claim that one statement is enough for, such as one of several readings."""
    verdicts = [each.verdict for each in findings.values()]
    for verdict in (Verdict.holds, Verdict.missing, Verdict.unknown):
        if verdict in verdicts:
            return _joined(findings, verdict)
    return _joined(findings, Verdict.fails)


def fact(holds: bool, ours: str, why: str = "") -> Finding:
    """Judge what has no chance in it, such as a closed form."""
    return Finding(ours, Verdict.holds if holds else Verdict.fails, why)


def judged(judge: Callable[[Results], Finding], results: Results) -> Finding:
    """Return what a claim's ``judge`` finds; "not run" without the runs that it needs."""
    try:
        return judge(results)
    except NoResults as error:
        return Finding("", Verdict.missing, f"{error}.")


def _joined(findings: Mapping[str, Finding], verdict: Verdict) -> Finding:
    ours = "; ".join(f"{name} {each.ours}" for name, each in findings.items() if each.ours)
    why = " ".join(f"{name}: {each.verdict}. {each.why}".strip() for name, each in findings.items())
    return Finding(ours, verdict, why)


# ------------------------------------------------------------------ texts
def signed(value: float) -> str:
    """Return "+0.031" or "-12.4": three digits."""
    return f"{value:+.3g}"


def number(value: float | None) -> str:
    """Return "0.712": four digits, "49,999" for a whole number, "none" for None."""
    if value is None:
        return "none"
    whole = float(value).is_integer() and abs(value) < MOST_COUNT
    return f"{value:,.0f}" if whole else f"{value:.4g}"


def label(column: str) -> str:
    """Return a column's name as words."""
    return column.removesuffix("_s").replace("_", " ") + (" (s)" if column.endswith("_s") else "")


def told(which: Which) -> str:
    """Return a method's name, with its part if it is not that of "main"."""
    part, method = _key(which)
    return method if part == MAIN else f"{method} ({part})"


def mean_of(results: Results, which: Which, column: str) -> str:
    """Return "0.712 ± 0.004" over the seeds, or how many runs have the number."""
    part, method = _key(which)
    found = results.spread(method, column, part)
    if found.mean is None:
        return f"none in {found.of - found.n} of {found.of} runs"
    return number(found.mean) + ("" if found.deviation is None else f" ± {found.deviation:.2g}")


def family_text(results: Results, family: Mapping[float, Which], column: str) -> str:
    """Return "1: 2.3, 5: 0.34" of the members' means."""
    return ", ".join(f"{x:g}: {mean_of(results, each, column)}" for x, each in family.items())


# ------------------------------------------------------------------ numbers
def _key(which: Which) -> Key:
    return (MAIN, which) if isinstance(which, str) else which


def _mean(values: Iterable[float]) -> float:
    given = list(values)
    return sum(given) / len(given)


def _filled(results: Results, methods: Sequence[Which], column: str) -> list[dict[int, float]]:
    """Return the numbers of each method by seed, with the worst one where a run has none.

    For a time to target the worst is the longest run of the comparison. NoResults if no run has a
    number.
    """
    raw = [results.values(name, column, part) for part, name in map(_key, methods)]
    there = [value for values in raw for value in values.values() if value is not None]
    if column == "time_to_target_s":
        ends = [results.values(name, "emulated_s", part) for part, name in map(_key, methods)]
        there = [value for values in ends for value in values.values() if value is not None]
    if not there:
        raise NoResults(f"{results.entry.name}: no run has a {label(column)}")
    worst = max(there) if column in SMALLER else min(there)
    return [
        {seed: worst if value is None else value for seed, value in values.items()}
        for values in raw
    ]
