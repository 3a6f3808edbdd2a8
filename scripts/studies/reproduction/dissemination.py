"""Rules and drawings of the papers on timely dissemination: merging fresh models, and its gain.

A gain is the accuracy with merging minus that without, each side with the best of its weights: in
the linear regime a merge acts like a smaller weight alpha, and a smaller weight costs nothing.

Why it does: if local steps move the model by the same small vector d, wherever it is, then
FedAsync's model moves by v = alpha (d - G v) per update, with G updates between a task's start and
its end. A device that merges with weight beta after the share m of its task delivers
v = alpha c (d - G v), c = 1 - beta m: the same as alpha c without a merge. A gain must come from
noise, or from curvature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from reproduction import rules
from reproduction.entry import Finding, Point
from reproduction.results import NoResults, Results
from reproduction.rules import average

ACCURACY, RATE = "convergence_accuracy", "training.learning_rate"


# ------------------------------------------------------------------ rules
def column_falls(results: Results, method: str, before: str, after: str) -> Finding:
    """Judge "the number ``after`` is smaller than ``before``" of the same runs, by seed."""
    first, then = (_there(results, method, column) for column in (before, after))
    matters = rules.effect_of(before, first.values())
    found = rules.paired_of(results, then, first, matters, -1)
    told = f"{average(first.values()):.3g} -> {average(then.values()):.3g}"
    why = f"{rules.label(before)} minus {rules.label(after)} of {method}: {found}"
    return found.found(why, told)


def fresh_models_at_most(results: Results, method: str, most: float) -> Finding:
    """Judge "fresh models are at most the share ``most`` of what is sent down"."""
    shares = [
        extra / down
        for row in results.runs(method)
        if (down := row.numbers["down_MB"]) and (extra := row.numbers["extra_down_MB"]) is not None
    ]
    if not shares:
        raise NoResults(f"{results.entry.name}: no run of {method} says what it sent down")
    return rules.fact(
        max(shares) <= most,
        f"{100 * average(shares):.0f} % of the downlink",
        f"Fresh models are {100 * min(shares):.0f} to {100 * max(shares):.0f} % of what {method}"
        " sends down.",
    )


def advantage_grows(
    results: Results, method: str, than: str, column: str, parts: Sequence[str]
) -> Finding:
    """Judge "the advantage of ``method`` grows from part to part": paired differences by seed."""
    which = [f"{part}/{name}" for part in parts for name in (method, than)]
    results.refuse_mixed(which, column)
    gains = {
        part: rules.paired(results, f"{part}/{method}", f"{part}/{than}", column).differences
        for part in parts
    }
    findings = {}
    for one, following in pairwise(parts):
        found = rules.paired_of(results, gains[following], gains[one], rules.POINT)
        first, then = (average(gains[part].values()) for part in (one, following))
        findings[f"{one} to {following}"] = found.found(
            f"{rules.label(column)}: {method} against {than}, {first:.3g} in {one} and"
            f" {then:.3g} in {following}; change {found}",
        )
    return rules.every(findings)


def like_a_smaller_alpha(
    results: Results, merged: str, same: str, less: str, alphas: Sequence[float], until_s: float
) -> Finding:
    """Judge "early, ``merged`` follows FedAsync with the smaller alpha, not with the same one".

    ``alphas``: of ``same`` and ``less``. The distance is the mean one of the test losses, without
    the first model's.
    """
    ends = [points[-1][0] for points in results.curve(same).values()]
    if not ends:
        raise NoResults(f"{results.entry.name}: no curves of {same}")
    end_s = min(until_s, *ends)
    to_same, to_less = (distance(results, merged, each, 1.0, end_s) for each in (same, less))
    matters = rules.effect_of("final_loss", to_same.values())
    found = rules.paired_of(results, to_less, to_same, matters, -1)
    means = [average(each.values()) for each in (to_same, to_less)]
    told = f"loss {means[0]:.3g} from alpha = {alphas[0]:g}, {means[1]:.3g} from {alphas[1]:g}"
    why = f"Mean distance of the test losses up to {end_s:g} s; paired difference {found}"
    return found.found(why, told)


def distance(
    results: Results, one: str, other: str, begin_s: float, end_s: float
) -> Mapping[int, float]:
    """Return seed -> the mean distance of two methods' test losses over a time.

    NoResults if a seed has no evaluation there that both share.
    """
    ours, theirs = results.curve(one, "loss"), results.curve(other, "loss")
    found = {}
    for seed in ours.keys() & theirs.keys():
        there = dict(theirs[seed])
        gaps = [
            abs(loss - there[t]) for t, loss in ours[seed] if begin_s <= t <= end_s and t in there
        ]
        if not gaps:
            raise NoResults(f"{results.entry.name}: no losses from {begin_s:g} to {end_s:g} s")
        found[seed] = average(gaps)
    return found


def gains_somewhere(results: Results, parts: Sequence[str]) -> Finding:
    """Judge "in at least one of ``parts`` merging gains": they share the 5 % of wrong verdicts."""
    one, findings = rules.shared(results, len(parts)), {}
    for part in parts:
        try:
            found = gain(one, part)
        except NoResults as error:
            findings[part] = rules.not_run(error)
        else:
            findings[part] = found.found(f"Gain {found}", f"{found.mean:+.3f}")
    return rules.some(findings)


def gain_rises(results: Results, one: str, other: str) -> Finding:
    """Judge "the gain is larger in part ``other`` than in part ``one``"."""
    _refuse_mixed(results, one, other)
    first, then = gain(results, one), gain(results, other)
    found = rules.paired_of(results, then.differences, first.differences, rules.POINT)
    why = f"Gain in {one} {first}; in {other} {then}; change {found}"
    return found.found(why, f"{first.mean:+.3f} -> {then.mean:+.3f}")


def learns_at_larger_steps(
    results: Results, method: str, than: str, parts: Sequence[str], within: float
) -> Finding:
    """Judge "somewhere ``method`` learns at a larger learning rate than ``than``", by their tuning.

    A rate learns if the best score with it is at most ``within`` below the best score of both.
    NoResults if it learns at none in the parts that were tuned, and some were not.
    """
    largest: dict[str, tuple[float, float]] = {}
    for part in parts:
        rows = [results.tried(f"{part}/{name}") for name in (method, than)]
        if len({row.rule for its in rows for row in its}) > 1:
            raise NoResults(
                f"{results.entry.name}: {part} was tuned under two versions of the rule"
            )
        scores = [
            [(float(row.setting[RATE]), row.numbers[ACCURACY] or 0.0) for row in its]
            for its in rows
        ]
        if all(scores):
            least = max(score for its in scores for _, score in its) - within
            ours, theirs = (
                max((rate for rate, score in its if score >= least), default=0.0) for its in scores
            )
            largest[part] = ours, theirs
    left = [part for part in parts if part not in largest]
    if left and not any(ours > theirs for ours, theirs in largest.values()):
        raise NoResults(f"{results.entry.name}: not tuned: {', '.join(left)}")
    told = {part: f"{part} {ours:g} to {theirs:g}" for part, (ours, theirs) in largest.items()}
    larger = [told[part] for part, (ours, theirs) in largest.items() if ours > theirs]
    every = ", ".join(told.values())
    why = f"Largest learning rates that learn, with and without merging: {every}."
    return rules.fact(bool(larger), ", ".join(larger) or "nowhere", why)


# ------------------------------------------------------------------ gains
def gain(results: Results, part: str, other: str = "") -> rules.Paired:
    """Return the gain in a part; ``other``: the part without merging, if it is another one."""
    _refuse_mixed(results, part, other or part)
    theirs = best_weight(results, other or part, "without")
    return rules.paired_of(results, best_weight(results, part, "with"), theirs, rules.POINT)


def best_weight(results: Results, part: str, kind: str) -> Mapping[int, float]:
    """Return seed -> accuracy of the weight that is best with the first seed, without that seed.

    ``kind``: "with" merging, or "without"; a method is "KIND" or "KIND-WEIGHT".
    """
    found = [
        each
        for name in _names(results, part)
        if name.partition("-")[0] == kind and (each := _there(results, f"{part}/{name}", ACCURACY))
    ]
    if not found:
        raise NoResults(f"{results.entry.name}: no accuracies in {part}")
    first = min(set.intersection(*(set(each) for each in found)), default=None)
    if first is None:
        raise NoResults(f"{results.entry.name}: no seed that all weights have in {part}")
    best = max(found, key=lambda each: each[first])
    return {seed: value for seed, value in best.items() if seed != first}


def _names(results: Results, part: str) -> list[str]:
    return [method.shown for method in results.entry.part(part).methods]


def _refuse_mixed(results: Results, *parts: str) -> None:
    """Raise NoResults if the accuracies of the parts are of two versions of the rule."""
    found = [f"{part}/{name}" for part in parts for name in _names(results, part)]
    results.refuse_mixed([which for which in found if results.has(which)], ACCURACY)


def best_gains(results: Results, *rows: Mapping[str, Any]) -> dict[str, dict[str, list[Point]]]:
    """Return lines of gains: a point for each row whose ``part`` has runs.

    ``other``: the part without merging, if it is another one. ``x``: without it, the median
    staleness without merging.
    """
    panels: dict[str, dict[str, list[Point]]] = {}
    for row in rows:
        points = panels.setdefault(row["panel"], {}).setdefault(row["line"], [])
        part = row["part"]
        x = row.get("x")
        if x is None and results.has(f"{part}/without"):
            x = results.mean(f"{part}/without", "staleness_median")
        if x is None or not results.has(f"{part}/with"):
            continue
        each = gain(results, part, row.get("other", ""))
        bounds = each.interval
        low, high = (None, None) if bounds is None else (bounds.low, bounds.high)
        points.append(Point(x, each.mean, low, high))
    return panels


def _there(results: Results, which: str, column: str) -> dict[int, float]:
    """Return seed -> the number, of the seeds that have it."""
    values = results.values(which, column)
    return {seed: value for seed, value in values.items() if value is not None}


RULES = (
    column_falls,
    fresh_models_at_most,
    advantage_grows,
    like_a_smaller_alpha,
    gains_somewhere,
    gain_rises,
    learns_at_larger_steps,
)
