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
from reproduction.results import MAIN, NoResults, Results, key_in

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

OPPOSITE = {Verdict.holds: Verdict.fails, Verdict.fails: Verdict.holds}
MOST_COUNT = 1e7  # a larger number has four digits, too


@dataclass(frozen=True, slots=True)
class Paired:
    """The differences of two methods, seed by seed; positive: the first one is better.

    ``interval``: of their mean; None for fewer than two seeds.
    """

    differences: Mapping[int, float]
    mean: float
    interval: Interval | None

    def verdict(self, by: float = 0.0, least: float = 0.0) -> Verdict:
        """Return the verdict on "the first one is better by more than ``by``", as ``better``."""
        if self.interval is None:
            return Verdict.unknown
        if self.interval.low > by:
            return Verdict.holds
        fails = self.interval.high <= by or self.interval.high < least
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


def paired(results: Results, method: str, than: str, column: str) -> Paired:
    """Return how much better ``method`` is in ``column``, over the seeds that both have.

    NoResults if they have no common seed.
    """
    return paired_of(*_filled(results, [method, than], column), _sign(column))


def paired_of(ours: Mapping[int, float], theirs: Mapping[int, float], sign: int = 1) -> Paired:
    """Return the paired differences of two sets of numbers by seed; ``sign`` -1: smaller is better.

    NoResults if they have no common seed.
    """
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        raise NoResults("no seed that both have")
    differences = {seed: sign * (ours[seed] - theirs[seed]) for seed in seeds}
    values = list(differences.values())
    return Paired(differences, average(values), interval(values, "t"))


# ------------------------------------------------------------------ one comparison
def better(
    results: Results,
    method: str,
    than: str,
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


def not_better(results: Results, method: str, than: str, column: str) -> Finding:
    """Judge "``method`` is not better than ``than``": the opposite of ``better``."""
    found = better(results, method, than, column)
    return Finding(found.ours, OPPOSITE.get(found.verdict, found.verdict), found.why)


def best(
    results: Results, method: str, others: Iterable[str], column: str, least: float = 0.0
) -> Finding:
    """Judge "``method`` is better than each of ``others``": all comparisons must hold."""
    return every(
        {told(each): better(results, method, each, column, least=least) for each in others}
    )


def order(results: Results, methods: Sequence[str], column: str, least: float = 0.0) -> Finding:
    """Judge an order of methods, the best one first: each is better than the next one."""
    return every(
        {
            f"{told(one)} before {told(next_one)}": better(
                results, one, next_one, column, least=least
            )
            for one, next_one in pairwise(methods)
        }
    )


def equal(results: Results, method: str, other: str, column: str, within: float) -> Finding:
    """Judge "both are equal up to ``within``".

    Holds: the interval is inside -within to within. Does not hold: it is outside on one side.
    """
    found = paired(results, method, other, column)
    verdict, bounds = Verdict.unknown, found.interval
    if bounds is not None and -within <= bounds.low and bounds.high <= within:
        verdict = Verdict.holds
    elif bounds is not None and (bounds.low > within or bounds.high < -within):
        verdict = Verdict.fails
    why = f"{label(column)}: paired difference {found}; equal means within {within:g}."
    return Finding(str(found), verdict, why)


def at_least(results: Results, method: str, column: str, bound: float) -> Finding:
    """Judge "the mean of ``column`` is at least ``bound``", by the interval of its mean."""
    return _bounded(results, method, column, bound, least=True)


def at_most(results: Results, method: str, column: str, bound: float) -> Finding:
    """Judge "the mean of ``column`` is at most ``bound``", by the interval of its mean."""
    return _bounded(results, method, column, bound, least=False)


def _bounded(results: Results, method: str, column: str, bound: float, least: bool) -> Finding:
    given = list(results.values(method, column).values())
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


def optimum(results: Results, family: Mapping[float, str], column: str) -> Optimum:
    """Return the best x of a ``family`` x -> method.

    A candidate is an x whose paired difference to the best one has an interval that reaches 0.
    NoResults unless all members have runs.
    """
    filled = dict(zip(family, _filled(results, list(family.values()), column)))
    sign = _sign(column)
    means = {x: sign * average(values.values()) for x, values in filled.items()}
    at = max(means, key=lambda x: means[x])
    alike = [
        x
        for x in family
        if x == at or paired_of(filled[at], filled[x], sign).verdict() is not Verdict.holds
    ]
    return Optimum(at, tuple(sorted(alike)))


def optimum_at(
    results: Results, family: Mapping[float, str], column: str, claimed: Iterable[float]
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
    before: Mapping[float, str],
    after: Mapping[float, str],
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


# ------------------------------------------------------------------ numbers without an interval
def fact(holds: bool, ours: str, why: str = "") -> Finding:
    """Judge what has no chance in it, such as a closed form."""
    return Finding(ours, Verdict.holds if holds else Verdict.fails, why)


def larger_each_seed(results: Results, method: str, other: str, column: str) -> Finding:
    """Judge "``method`` has the larger number with every seed"."""
    ours, theirs = (results.values(name, column) for name in (method, other))
    pairs = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
    numbers = ", ".join(f"{name} {mean_of(results, name, column)}" for name in (method, other))
    holds = bool(pairs) and all(a is not None and b is not None and a > b for a, b in pairs)
    return fact(holds, numbers, f"{label(column)}, seed by seed over {len(pairs)} seeds.")


def ratio_at_most(
    results: Results, pairs: Mapping[str, Sequence[str]], column: str, most: float
) -> Finding:
    """Judge "the mean of ``column`` is at most ``most`` times that of another method".

    ``pairs``: name -> (method, the other one); all of them must hold.
    """
    ratios = {}
    for name, (method, other) in pairs.items():
        ours, theirs = results.mean(method, column), results.mean(other, column)
        if ours is None or not theirs:
            raise NoResults(f"{results.entry.name}: {name} has no {column}")
        ratios[name] = ours / theirs
    numbers = ", ".join(f"{name} {ratio:.3g}" for name, ratio in ratios.items())
    return fact(max(ratios.values()) <= most, numbers, f"Shares: {numbers}.")


def parts_agree(
    results: Results, methods: Sequence[str], parts: Sequence[str], column: str, within: float
) -> Finding:
    """Judge "seed 1 has the same number in both ``parts``, the virtual and the wall clock"."""
    gaps = {}
    for name in methods:
        virtual, wall = (results.values(f"{part}/{name}", column).get(1) for part in parts)
        if wall is None or virtual is None:
            raise NoResults(f"{results.entry.name}: {name}: seed 1 is not there on both clocks")
        gaps[name] = wall - virtual
    numbers = ", ".join(f"{name} {signed(gap)}" for name, gap in gaps.items())
    return fact(max(map(abs, gaps.values())) <= within, numbers, f"Wall minus virtual: {numbers}.")


def loses_least(
    results: Results, method: str, others: Sequence[str], parts: Sequence[str], column: str
) -> Finding:
    """Judge "``method`` loses least from one part to the next", by the means over the seeds."""
    one, following = parts
    lost = {
        name: paired(results, f"{one}/{name}", f"{following}/{name}", column).mean
        for name in (method, *others)
    }
    numbers = ", ".join(f"{name} {signed(value)}" for name, value in lost.items())
    return fact(min(lost, key=lambda name: lost[name]) == method, numbers, f"Lost: {numbers}.")


def ahead_by_seed(results: Results, method: str, than: str, column: str, by: float) -> Finding:
    """Judge "``method`` is ahead by more than ``by``" with every seed: two have no interval."""
    gains, finding = _by_seed(results, method, than, column)
    return finding(bool(gains) and min(gains) > by)


def level_by_seed(results: Results, method: str, than: str, column: str, within: float) -> Finding:
    """Judge "``method`` changes ``column`` by at most ``within``" with every seed."""
    gains, finding = _by_seed(results, method, than, column)
    return finding(bool(gains) and max(map(abs, gains)) <= within)


def _by_seed(
    results: Results, method: str, than: str, column: str
) -> tuple[list[float], Callable[[bool], Finding]]:
    """Return the gains by seed, and what makes a finding of them."""
    ours, theirs = (results.values(each, column) for each in (method, than))
    gains = [
        (ours[seed] or 0.0) - (theirs[seed] or 0.0) for seed in sorted(ours.keys() & theirs.keys())
    ]
    numbers = ", ".join(f"{gain:+.3f}" for gain in gains)
    why = f"Accuracy with delay minus without, by seed: {numbers}."
    return gains, lambda holds: fact(holds, numbers, why)


def cannot_run(results: Results) -> Finding:
    """Judge a claim that no run of the project can decide: it is "not run"."""
    raise NoResults(f"{results.entry.name}: needs {results.entry.needs}")


# ------------------------------------------------------------------ several findings
def every(findings: Mapping[str, Finding]) -> Finding:
    """Judge a claim of several statements: it holds if all hold, and not if one does not."""
    return _joined(findings, (Verdict.fails, Verdict.missing, Verdict.unknown, Verdict.holds))


def some(findings: Mapping[str, Finding]) -> Finding:
    """Judge a claim that one statement is enough for, such as one of several readings."""
    return _joined(findings, (Verdict.holds, Verdict.missing, Verdict.unknown, Verdict.fails))


def _joined(findings: Mapping[str, Finding], order: Sequence[Verdict]) -> Finding:
    """Return the first verdict in ``order`` that a finding has, with what all of them say."""
    verdicts = [each.verdict for each in findings.values()]
    verdict = next((each for each in order if each in verdicts), order[-1])
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


def told(which: str) -> str:
    """Return a method's name, with its part if it is not that of "main"."""
    part, method = key_in(which)
    return method if part == MAIN else f"{method} ({part})"


def mean_of(results: Results, which: str, column: str) -> str:
    """Return "0.712 ± 0.004" over the seeds, or how many runs have the number."""
    found = results.spread(which, column)
    if found.mean is None:
        return f"none in {found.of - found.n} of {found.of} runs"
    return number(found.mean) + ("" if found.deviation is None else f" ± {found.deviation:.2g}")


def family_text(results: Results, family: Mapping[float, str], column: str) -> str:
    """Return "1: 2.3, 5: 0.34" of the members' means."""
    return ", ".join(f"{x:g}: {mean_of(results, each, column)}" for x, each in family.items())


# ------------------------------------------------------------------ numbers
def average(values: Iterable[float]) -> float:
    """Return the mean."""
    given = list(values)
    return sum(given) / len(given)


def _sign(column: str) -> int:
    return -1 if column in SMALLER else 1


def _filled(results: Results, methods: Sequence[str], column: str) -> list[dict[int, float]]:
    """Return the numbers of each method by seed, with the worst one where a run has none.

    For a time to target the worst is the longest run of the comparison. NoResults if no run has a
    number.
    """
    raw = [results.values(each, column) for each in methods]
    there = [value for values in raw for value in values.values() if value is not None]
    if column == "time_to_target_s":
        ends = [results.values(each, "emulated_s") for each in methods]
        there = [value for values in ends for value in values.values() if value is not None]
    if not there:
        raise NoResults(f"{results.entry.name}: no run has a {label(column)}")
    worst = max(there) if column in SMALLER else min(there)
    return [
        {seed: worst if value is None else value for seed, value in values.items()}
        for values in raw
    ]
