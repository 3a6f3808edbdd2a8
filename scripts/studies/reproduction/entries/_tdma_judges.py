"""Judges of the TDMA paper's claims: families over S, curves over rounds, and trends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgefl.results.statistics import interval
from reproduction import rules
from reproduction.entry import Finding, Point, Verdict
from reproduction.results import MAIN, NoResults, Results
from reproduction.rules import Which

LOSS = "late_train_loss"
DEAD = 2.0  # train loss of ten labels above which a model has learned next to nothing; guess: 2.30
BySeed = Mapping[int, float]


def smaller(ours: BySeed, theirs: BySeed, what: str) -> Finding:
    """Judge "``ours`` is smaller than ``theirs``" by the rule of ``rules.better``."""
    found = rules.paired_of(ours, theirs, -1)
    means = (f"{sum(each.values()) / len(each):.4g}" for each in (ours, theirs))
    why = f"{what}: {', '.join(means)}; paired difference {found}."
    return Finding(str(found), found.verdict(), why)


def losses(results: Results, which: Which, column: str = LOSS) -> dict[int, float]:
    """Return seed -> the number; a run without it (it diverged) has the loss of a guess, 2.30."""
    part, method = (MAIN, which) if isinstance(which, str) else which
    values = results.values(method, column, part)
    guess = float(np.log(10.0))
    return {seed: guess if value is None else value for seed, value in values.items()}


def at_version(results: Results, which: Which, version: float) -> dict[int, float]:
    """Return seed -> the train loss of a version: that of the latest evaluation up to it.

    A version after the last evaluation has its loss. NoResults without curves.
    """
    part, method = (MAIN, which) if isinstance(which, str) else which
    curves = results.curve(method, "train_loss", part, x="version")
    if not curves:
        raise NoResults(f"{results.entry.name}: no curves of {method} in {part}")
    found = {}
    for seed, points in curves.items():
        held = [value for at, value in points if at <= version] or [points[0][1]]
        found[seed] = held[-1]
    return found


# ------------------------------------------------------------------ trends over a family
def falls(values: Mapping[float, BySeed], what: str) -> Finding:
    """Judge "the larger x, the smaller the value": Spearman's correlation, seed by seed.

    Holds: the interval of its mean over the seeds is below 0. Does not hold: it is at least 0.
    """
    seeds = sorted(set.intersection(*(set(each) for each in values.values())))
    if len(values) < 3 or not seeds:
        return Finding("", Verdict.unknown, f"{what}: too few sizes to compare.")
    order = sorted(values)
    found = [correlation(order, [values[x][seed] for x in order]) for seed in seeds]
    mean, bounds = sum(found) / len(found), interval(found, "t")
    means = ", ".join(f"{x:g}: {sum(values[x].values()) / len(values[x]):.3g}" for x in order)
    told = f"{mean:+.2f}" + (f" [{bounds.low:+.2f}, {bounds.high:+.2f}]" if bounds else "")
    verdict = Verdict.unknown
    if bounds is not None:
        if bounds.high < 0:
            verdict = Verdict.holds
        elif bounds.low >= 0:
            verdict = Verdict.fails
    return Finding(f"rank correlation {told}", verdict, f"{what}: {means}.")


def correlation(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return Spearman's rank correlation; equal values share their mean rank; 0 if all are equal.

    >>> correlation([1, 5, 10], [3.0, 2.0, 1.0])
    -1.0
    """
    a, b = (_ranks(each) for each in (xs, ys))
    if a.std() == 0 or b.std() == 0:
        return 0.0
    return round(float(np.corrcoef(a, b)[0, 1]), 12)


def _ranks(values: Sequence[float]) -> np.ndarray:
    given = np.asarray(values, dtype=float)
    return np.array([(given < each).sum() + (given == each).sum() / 2 for each in given])


# ------------------------------------------------------------------ of the paper
def alive(results: Results, family: Mapping[float, Which]) -> dict[float, Which]:
    """Return the members whose model has learned something with every seed."""
    return {
        x: each
        for x, each in family.items()
        if max(losses(results, each).values(), default=9) < DEAD
    }


def steadier(results: Results, family: Mapping[float, Which]) -> Finding:
    """Judge "the loss fluctuates less as S grows", over the S whose models learn."""
    living = alive(results, family)
    values = {x: losses(results, each, "roughness") for x, each in living.items()}
    if not values:
        return Finding("", Verdict.unknown, "No S learns.")
    found = falls(values, "mean |change| of the train loss in 1,000 slots by S, second half")
    left = ", ".join(f"{x:g}" for x in family if x not in living)
    return Finding(
        found.ours,
        found.verdict,
        found.why + (f" Left out, not learning: S = {left}." if left else ""),
    )


def faster_per_round(results: Results, family: Mapping[float, Which], rounds: float) -> Finding:
    """Judge "counted in rounds, a larger S learns faster": the loss after some rounds falls."""
    values = {x: at_version(results, each, rounds) for x, each in family.items()}
    return falls(values, f"train loss after {rounds:g} rounds by S")


def gain_falls(
    results: Results, plain: Mapping[float, Which], delayed: Mapping[float, Which]
) -> Finding:
    """Judge "delay lowers the loss most at small S"; an S without a delay is left out."""
    values = {
        x: rules.paired(results, delayed[x], plain[x], LOSS).differences
        for x in plain
        if delayed[x] != plain[x]
    }
    return falls(values, "reduction of the late train loss by S")


def gains(
    results: Results, plain: Mapping[float, Which], delayed: Mapping[float, Which]
) -> Finding:
    """Judge "delay lowers the loss", for every S that has a delay."""
    return rules.every(
        {
            f"S = {x:g}": rules.better(results, delayed[x], plain[x], LOSS)
            for x in plain
            if delayed[x] != plain[x]
        }
    )


def one_for_all(
    findings: Mapping[str, Mapping[str, Finding]], missing: Sequence[str] = ()
) -> Finding:
    """Judge "one reading gives all statements": reading -> statement -> finding.

    Holds: all statements of one reading hold. Does not hold: in each reading one fails.
    ``missing``: readings without runs.
    """
    verdict = rules.some({name: rules.every(each) for name, each in findings.items()}).verdict
    if missing and verdict is not Verdict.holds:
        verdict = Verdict.unknown
    counts, why = [], []
    for name, each in findings.items():
        held = sum(one.verdict is Verdict.holds for one in each.values())
        counts.append(f"{name}: {held} of {len(each)}")
        against = [short for short, one in each.items() if one.verdict is Verdict.fails]
        not_told = [
            short
            for short, one in each.items()
            if one.verdict not in (Verdict.fails, Verdict.holds)
        ]
        said = [f"against it: {', '.join(against)}"] if against else []
        said += [f"not told: {', '.join(not_told)}"] if not_told else []
        why += [f"Reading {name}, {'; '.join(said)}."] if said else []
    why += [f"Not run: reading {', '.join(missing)}."] if missing else []
    return Finding("; ".join(counts), verdict, " ".join(why))


# ------------------------------------------------------------------ figures
def curves(
    results: Results, methods: Mapping[str, Which], slot_s: float = 1.0, x: str = "emulated_s"
) -> dict[str, list[Point]]:
    """Return line -> the mean train loss over slots (or versions), with the seeds' range.

    ``methods``: line -> method; those without runs are left out.
    """
    found: dict[str, list[Point]] = {}
    for name, which in methods.items():
        part, method = (MAIN, which) if isinstance(which, str) else which
        if not results.has(method, part):
            continue
        by_x: dict[float, list[float]] = {}
        for points in results.curve(method, "train_loss", part, x=x).values():
            for at, value in points:
                by_x.setdefault(at / slot_s if x == "emulated_s" else at, []).append(value)
        found[name] = [
            Point(at, sum(ys) / len(ys), min(ys), max(ys)) for at, ys in sorted(by_x.items())
        ]
    return found


def over_sizes(
    results: Results, families: Mapping[str, Mapping[float, Which]], column: str = LOSS
) -> dict[str, list[Point]]:
    """Return line -> the column over S, mean and range of the seeds, of every S that has runs."""
    found: dict[str, list[Point]] = {}
    for name, family in families.items():
        for x, which in family.items():
            part, method = (MAIN, which) if isinstance(which, str) else which
            if results.has(method, part):
                values = list(losses(results, which, column).values())
                point = Point(x, sum(values) / len(values), min(values), max(values))
                found.setdefault(name, []).append(point)
    return found
