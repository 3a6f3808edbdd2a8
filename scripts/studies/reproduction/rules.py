"""The rule by which a claim holds, does not hold, or cannot be told; docs/results/rule.md says why.

Differences are paired by seed: two methods with one seed share data, devices and initial model. The
interval of their mean is Student's, at the confidence of the entry's looks. A run without the
number (a loss that is not finite, a target that was never reached) counts with the worst number of
the comparison; for a time to target that is the end of the run. A seed in which neither run has it
says nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import stdev

from edgefl.config.experiment import Evaluation
from edgefl.config.file import load
from edgefl.results.statistics import Interval, interval, seeds_needed, spread
from reproduction.entry import MOST_SEEDS, Finding, Verdict
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

# The smallest effect that matters: of an accuracy, or the share of the compared method's number.
POINT, SHARE, OF_WIGGLE = 0.01, 0.05, 0.2
POINTS = frozenset(
    {
        "final_accuracy",
        "convergence_accuracy",
        "best_accuracy",
        "long_accuracy",
        "above_majority",
        "f1",
    }
)
WIGGLES = frozenset({"stability", "roughness"})

OPPOSITE = {
    Verdict.holds: Verdict.fails,
    Verdict.fails: Verdict.holds,
    Verdict.equal: Verdict.holds,
}
MOST_SHOWN = 3  # numbers of a claim of several statements; ``why`` has all
MOST_COUNT = 1e7  # a larger number has four digits, too


def verdict_of(bounds: Interval | None, effect: float) -> Verdict:
    """Return the verdict on "the mean is above 0", by its interval.

    Equal: the interval is within ``effect`` of 0. Holds: it is above 0. Does not hold: it is below
    ``effect``, so there is no advantage that matters.
    """
    if bounds is None:
        return Verdict.unknown
    if -effect <= bounds.low and bounds.high <= effect:
        return Verdict.equal
    if bounds.low > 0:
        return Verdict.holds
    return Verdict.fails if bounds.high < effect else Verdict.unknown


def at_look(
    results: Results, by_seed: Mapping[int, float]
) -> tuple[dict[int, float], Interval | None]:
    """Return the numbers of the seeds that count at the latest look, and their mean's interval.

    Before the first look there is none, and all count.
    """
    look = results.look(len(by_seed))
    counted = {seed: by_seed[seed] for seed in sorted(by_seed)[: look or None]}
    found = interval(list(counted.values()), "t", results.confidence) if look else None
    return counted, found


@dataclass(frozen=True, slots=True)
class Paired:
    """The differences of two methods, seed by seed; positive: the first one is better.

    ``interval``: of their mean; None if too few seeds count. ``effect``: the smallest difference
    that matters. ``confidence``: with which further seeds will be judged. ``ties``: seeds in which
    neither has the number. ``at_least``, ``at_most``: some true differences may be larger, or
    smaller, than told, because a run ended before it reached its target. ``to_tell``: the
    difference that decides, if it is not ``effect`` or the observed one.
    """

    differences: Mapping[int, float]
    interval: Interval | None
    effect: float
    confidence: float
    ties: int = 0
    at_least: bool = False
    at_most: bool = False
    to_tell: float | None = None

    @property
    def mean(self) -> float:
        return average(self.differences.values()) if self.differences else 0.0

    @property
    def verdict(self) -> Verdict:
        """The verdict on "the first one is better", by the bounds that can be trusted."""
        bounds = self.interval
        if bounds is None or not (self.at_least or self.at_most):
            return verdict_of(bounds, self.effect)
        if bounds.low > 0 and not self.at_most:
            return Verdict.holds
        return Verdict.fails if bounds.high < self.effect and not self.at_least else Verdict.unknown

    @property
    def size(self) -> float:
        """The difference that further seeds have to tell."""
        return max(self.effect, abs(self.mean)) if self.to_tell is None else self.to_tell

    @property
    def needed(self) -> int:
        """The seeds that 80 % power needs; MOST_SEEDS + 1: more than that; 0: it is not known yet.

        At ``size``.
        """
        if self.interval is None or len(self.differences) < 3:
            return 0
        deviation = stdev(self.differences.values())
        if deviation == 0.0:
            return 2
        seeds = seeds_needed(self.size / deviation, self.confidence)
        return min(seeds or MOST_SEEDS + 1, MOST_SEEDS + 1)

    def found(self, why: str, ours: str = "", verdict: Verdict | None = None) -> Finding:
        """Return a finding about this difference; an undecided one says what would decide it.

        ``ours``: our numbers, if the difference is not what is shown. ``verdict``: on the claim, if
        it is not "the first one is better".
        """
        ours, verdict = ours or str(self), verdict or self.verdict
        if verdict is not Verdict.unknown:
            return Finding(ours, verdict, f"{why}.", effects=self._in_effects())
        needed = self.needed
        if self.ties:
            of = self.ties + len(self.differences)
            why += f"; in {self.ties} of {of} seeds neither run has it"
        if needed > MOST_SEEDS and self.interval is not None:
            most = max(abs(self.interval.low), abs(self.interval.high))
            ours += f", smaller than {number(most)}"
            size = self.effect if self.to_tell is None else self.to_tell
            why += f"; over {MOST_SEEDS} seeds are needed to tell {number(size)}"
        elif needed:
            why += f"; {needed} seeds tell {number(self.size)} with 80 % power"
        return Finding(ours, verdict, f"{why}.", needed, self._in_effects())

    def _in_effects(self) -> tuple[float, ...]:
        """Return the mean, the lower and the upper bound, as multiples of ``effect``."""
        if self.interval is None or self.effect == 0.0:
            return ()
        sizes = self.mean, self.interval.low, self.interval.high
        return tuple(size / self.effect for size in sizes)

    def __str__(self) -> str:
        """Return "+0.031 [+0.012, +0.050] over 3 seeds"."""
        bounds = (
            ""
            if self.interval is None
            else f" [{signed(self.interval.low)}, {signed(self.interval.high)}]"
        )
        seeds = len(self.differences)
        return f"{signed(self.mean)}{bounds} over {seeds} seed{'' if seeds == 1 else 's'}"


def paired(
    results: Results, method: str, than: str, column: str, effect: float | None = None
) -> Paired:
    """Return how much better ``method`` is in ``column``, over the seeds that both have.

    ``effect``: the smallest one that matters, an accuracy or a share of the number of ``than``;
    None: that of the column. Of a time to target it is at least the time between two evaluations.
    NoResults if they have no common seed.
    """
    seeds = seeds_at_look(results, (method, than), column)
    raw = [_of_seeds(results.values(each, column), seeds) for each in (method, than)]
    ours, theirs = _filled(results, [method, than], column, seeds)
    none = [{seed for seed, value in each.items() if value is None} for each in raw]
    matters = effect_of(column, theirs.values(), effect)
    if column == "time_to_target_s":  # what happens between two evaluations is not seen
        matters = max(matters, *(_step_s(results, each) for each in (method, than)))
    found = paired_of(results, ours, theirs, matters, _sign(column), none[0] & none[1])
    if column != "time_to_target_s":
        return found
    counted = found.differences.keys()
    return replace(
        found,
        at_least=not counted.isdisjoint(none[1] - none[0]),
        at_most=not counted.isdisjoint(none[0] - none[1]),
    )


def paired_of(
    results: Results,
    ours: Mapping[int, float],
    theirs: Mapping[int, float],
    effect: float,
    sign: int = 1,
    ties: Collection[int] = (),
) -> Paired:
    """Return the paired differences of two sets of numbers by seed; ``sign`` -1: smaller is better.

    ``ties``: seeds that say nothing; if they are half or more, nothing can be told. NoResults if
    they have no common seed.
    """
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        raise NoResults("no seed that both have")
    differences = {seed: sign * (ours[seed] - theirs[seed]) for seed in seeds}
    counted, bounds = at_look(results, differences)
    tied = [seed for seed in counted if seed in ties]
    if tied:
        counted = {seed: value for seed, value in counted.items() if seed not in ties}
        few = bounds is None or len(counted) <= len(tied)
        bounds = None if few else interval(list(counted.values()), "t", results.confidence)
    return Paired(counted, bounds, effect, results.further_confidence, len(tied))


def effect_of(column: str, reference: Iterable[float], effect: float | None = None) -> float:
    """Return the smallest effect that matters in the unit of ``column``, as ``paired``."""
    if column in POINTS:
        return POINT if effect is None else effect
    usual = OF_WIGGLE if column in WIGGLES else SHARE
    return (usual if effect is None else effect) * abs(average(reference))


# ------------------------------------------------------------------ one comparison
def better(
    results: Results, method: str, than: str, column: str, effect: float | None = None
) -> Finding:
    """Judge "``method`` is better than ``than`` in ``column``", as ``verdict_of``."""
    found = paired(results, method, than, column, effect)
    return found.found(_numbers(results, (method, than), column, found))


def not_better(
    results: Results, method: str, than: str, column: str, effect: float | None = None
) -> Finding:
    """Judge "``method`` is not better than ``than``": the opposite of ``better``."""
    found = paired(results, method, than, column, effect)
    opposite = OPPOSITE.get(found.verdict, found.verdict)
    return found.found(_numbers(results, (method, than), column, found), verdict=opposite)


def best(
    results: Results,
    method: str,
    others: Iterable[str],
    column: str,
    effect: float | None = None,
) -> Finding:
    """Judge "``method`` is better than each of ``others``": all comparisons must hold."""
    pairs = {told(each): (method, each) for each in others}
    return _all_better(results, pairs, column, effect)


def order(
    results: Results, methods: Sequence[str], column: str, effect: float | None = None
) -> Finding:
    """Judge an order of methods, the best one first: each is better than the next one."""
    pairs = {f"{told(one)} before {told(other)}": (one, other) for one, other in pairwise(methods)}
    return _all_better(results, pairs, column, effect)


def _all_better(
    results: Results, pairs: Mapping[str, tuple[str, str]], column: str, effect: float | None
) -> Finding:
    """Judge "the first of each pair is better". A pair without runs is "not run" by itself."""
    findings = {}
    for name, (one, other) in pairs.items():
        try:
            findings[name] = better(results, one, other, column, effect)
        except NoResults as error:
            findings[name] = not_run(error)
    return every(findings)


def equal(results: Results, method: str, other: str, column: str, within: float) -> Finding:
    """Judge "both are equal up to ``within``".

    Holds: the interval is inside -within to within. Does not hold: it is outside on one side.
    """
    found = paired(results, method, other, column, within)
    found = replace(found, to_tell=abs(found.effect - abs(found.mean)))
    verdict, bounds = Verdict.unknown, found.interval
    if found.verdict is Verdict.equal:
        verdict = Verdict.holds
    elif bounds is not None and (
        (bounds.low > found.effect and not found.at_most)
        or (bounds.high < -found.effect and not found.at_least)
    ):
        verdict = Verdict.fails
    return found.found(_numbers(results, (method, other), column, found), verdict=verdict)


def _numbers(results: Results, methods: Sequence[str], column: str, found: Paired) -> str:
    seeds = seeds_at_look(results, methods, column)
    numbers = ", ".join(f"{told(each)} {mean_of(results, each, column, seeds)}" for each in methods)
    return (
        f"{label(column)}: {numbers}; paired difference {found}; what matters:"
        f" {number(found.effect)}"
    )


def at_least(results: Results, method: str, column: str, bound: float) -> Finding:
    """Judge "the mean of ``column`` is at least ``bound``", by the interval of its mean."""
    return _bounded(results, method, column, bound, least=True)


def at_most(results: Results, method: str, column: str, bound: float) -> Finding:
    """Judge "the mean of ``column`` is at most ``bound``", by the interval of its mean."""
    return _bounded(results, method, column, bound, least=False)


def _bounded(results: Results, method: str, column: str, bound: float, least: bool) -> Finding:
    results.refuse_mixed((method,), column)
    seeds = seeds_at_look(results, (method,), column)
    given = _of_seeds(results.values(method, column), seeds)
    ours = mean_of(results, method, column, seeds)
    there = {seed: value for seed, value in given.items() if value is not None}
    if len(there) < len(given):
        lacking = f"{len(given) - len(there)} of {len(given)} runs have no {label(column)}."
        return Finding(ours, Verdict.unknown, lacking)
    counted, bounds = at_look(results, there)
    if bounds is None:
        return Finding(ours, Verdict.unknown, f"Too few seeds: {len(counted)}.")
    above, below = bounds.low >= bound, bounds.high < bound
    if not least:
        above, below = bounds.high <= bound, bounds.low > bound
    verdict = Verdict.holds if above else Verdict.fails if below else Verdict.unknown
    why = f"{label(column)}: mean in [{number(bounds.low)}, {number(bounds.high)}]"
    return Finding(ours, verdict, f"{why}, claimed at {'least' if least else 'most'} {bound:g}.")


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

    A candidate is an x than which the best one is not better by the rule. The seeds are those that
    all members have. NoResults unless all members have runs.
    """
    methods = list(family.values())
    seeds = seeds_at_look(results, methods, column)
    filled = dict(zip(family, _filled(results, methods, column, seeds)))
    sign = _sign(column)
    means = {x: sign * average(values.values()) for x, values in filled.items()}
    at = max(means, key=lambda x: means[x])
    alike = [
        x
        for x in family
        if x == at
        or paired_of(
            results, filled[at], filled[x], effect_of(column, filled[x].values()), sign
        ).verdict
        is not Verdict.holds
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


def not_run(error: NoResults) -> Finding:
    """Return the finding about a claim without the runs that it needs."""
    return Finding("", Verdict.missing, f"{error}.")


def cannot_run(results: Results) -> Finding:
    """Judge a claim that no run of the project can decide: it is "not run"."""
    raise NoResults(f"{results.entry.name}: needs {results.entry.needs}")


# ------------------------------------------------------------------ several findings
def every(findings: Mapping[str, Finding]) -> Finding:
    """Judge a claim of several statements: it holds if all hold, and not if one does not."""
    order = Verdict.fails, Verdict.missing, Verdict.unknown, Verdict.equal, Verdict.holds
    return _joined(findings, order)


def some(findings: Mapping[str, Finding]) -> Finding:
    """Judge a claim that one statement is enough for, such as one of several readings.

    Its effect is the largest one; what few other statements say is told, too.
    """
    order = Verdict.holds, Verdict.missing, Verdict.unknown, Verdict.equal, Verdict.fails
    found = _joined(findings, order)
    alike = [each.effects for each in findings.values() if each.verdict is found.verdict]
    found = replace(found, effects=max(alike, default=()))
    if not found.ours or len(findings) > MOST_SHOWN:
        return found
    others = [
        f"{name}: {each.verdict}"
        for name, each in findings.items()
        if each.verdict is not found.verdict
    ]
    return replace(found, ours="; ".join([found.ours, *others]))


def _joined(findings: Mapping[str, Finding], order: Sequence[Verdict]) -> Finding:
    """Return the first verdict in ``order`` that a finding has, with what all of them say.

    Only the numbers of those that have this verdict are ``ours``, of MOST_SHOWN at most; their
    smallest effect is that of the claim, and so is the smallest number of seeds that decides one.
    """
    verdicts = [each.verdict for each in findings.values()]
    verdict = next((each for each in order if each in verdicts), order[-1])
    saying = [name for name, each in findings.items() if each.ours and each.verdict is verdict]
    ours = "; ".join(f"{name} {findings[name].ours}" for name in saying[:MOST_SHOWN])
    if len(saying) > MOST_SHOWN:
        ours += f"; and {len(saying) - MOST_SHOWN} more"
    why = " ".join(f"{name}: {each.verdict}. {each.why}".strip() for name, each in findings.items())
    alike = [each for each in findings.values() if each.verdict is verdict]
    needed = min((each.needed for each in alike), default=0)
    effects = min((each.effects for each in alike if each.effects), default=())
    return Finding(ours, verdict, why, needed, effects)


# ------------------------------------------------------------------ texts
def signed(value: float) -> str:
    """Return "+0.031" or "-12.4": three digits."""
    return ("+" if value >= 0 else "") + digits(value, 3)


def number(value: float | None) -> str:
    """Return "0.712": four digits, "49,999" for a whole number, "none" for None."""
    if value is None:
        return "none"
    whole = float(value).is_integer() and abs(value) < MOST_COUNT
    return f"{value:,.0f}" if whole else digits(value, 4)


def digits(value: float, count: int) -> str:
    """Return ``value`` with so many digits; a large number as "73,740,000", without an exponent."""
    text = f"{value:.{count}g}"
    return f"{float(text):,.0f}" if abs(float(text)) >= 10 ** (count - 1) else text


def label(column: str) -> str:
    """Return a column's name as words."""
    return column.removesuffix("_s").replace("_", " ") + (" (s)" if column.endswith("_s") else "")


def told(which: str) -> str:
    """Return a method's name, with its part if it is not that of "main"."""
    part, method = key_in(which)
    return method if part == MAIN else f"{method} ({part})"


def mean_of(results: Results, which: str, column: str, seeds: Collection[int] | None = None) -> str:
    """Return "0.712 ± 0.004" over the seeds, or how many runs have the number.

    ``seeds``: None: all that there are.
    """
    values = results.values(which, column)
    found = spread(list((values if seeds is None else _of_seeds(values, seeds)).values()))
    if found.mean is None:
        return f"none in {found.of - found.n} of {found.of} runs"
    deviation = "" if found.deviation is None else f" ± {digits(found.deviation, 2)}"
    return number(found.mean) + deviation


def family_text(results: Results, family: Mapping[float, str], column: str) -> str:
    """Return "1: 2.3, 5: 0.34" of the members' means, over the seeds that count."""
    seeds = seeds_at_look(results, list(family.values()), column)
    return ", ".join(
        f"{x:g}: {mean_of(results, each, column, seeds)}" for x, each in family.items()
    )


# ------------------------------------------------------------------ numbers
def _step_s(results: Results, which: str) -> float:
    """Return the emulated time between two evaluations of a method's runs, the longest of them."""
    part, _ = key_in(which)
    one = results.entry.part(part)
    times = _evaluation(one.config, one.overrides_at(results.scale))
    steps = [
        times.every_versions * end_s / versions
        for row in results.runs(which)
        if (versions := row.numbers["versions"]) and (end_s := row.numbers["emulated_s"])
    ]
    return min((each for each in (times.every_s, max(steps, default=0.0)) if each), default=0.0)


@cache
def _evaluation(config: Path, overrides: tuple[str, ...]) -> Evaluation:
    return load(config, overrides).evaluation


def shared(results: Results, statements: int) -> Results:
    """Return the results for one of several statements that share the 5 %: one is enough."""
    return replace(results, among=results.among * statements)


def average(values: Iterable[float]) -> float:
    """Return the mean."""
    given = list(values)
    return sum(given) / len(given)


def _sign(column: str) -> int:
    return -1 if column in SMALLER else 1


def seeds_at_look(results: Results, methods: Sequence[str], column: str) -> list[int]:
    """Return the common seeds that count at the latest look; before the first one, all of them.

    NoResults if there is none.
    """
    common = set.intersection(*(set(results.values(each, column)) for each in methods))
    if not common:
        raise NoResults("no seed that both have")
    return sorted(common)[: results.look(len(common)) or None]


def _of_seeds(
    values: Mapping[int, float | None], seeds: Collection[int]
) -> dict[int, float | None]:
    return {seed: value for seed, value in values.items() if seed in seeds}


def _filled(
    results: Results, methods: Sequence[str], column: str, seeds: Collection[int] | None = None
) -> list[dict[int, float]]:
    """Return the numbers of each method by seed, with the worst one where a run has none.

    For a time to target the worst is the longest run of the comparison. ``seeds``: those that
    count; None: all. NoResults if no run has a number, or if the numbers are of two versions of
    the rule.
    """
    results.refuse_mixed(methods, column)

    def values_of(which: str, column: str) -> dict[int, float | None]:
        values = results.values(which, column)
        return values if seeds is None else _of_seeds(values, seeds)

    raw = [values_of(each, column) for each in methods]
    there = [value for values in raw for value in values.values() if value is not None]
    if column == "time_to_target_s":
        ends = [values_of(each, "emulated_s") for each in methods]
        there = [value for values in ends for value in values.values() if value is not None]
    if not there:
        raise NoResults(f"{results.entry.name}: no run has a {label(column)}")
    worst = max(there) if column in SMALLER else min(there)
    return [
        {seed: worst if value is None else value for seed, value in values.items()}
        for values in raw
    ]
