"""Rules and drawings of the paper on TDMA: families over S, the linear bound, and its map.

A family is S -> method. ``plain`` is the family without delay and ``delayed`` that with it: where
no delay is free, both have the same method.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import rankdata

from emulator.tdma.closed_form import Tdma
from reproduction import rules
from reproduction.entry import Entry, Finding, Point, Scale, Verdict
from reproduction.results import NoResults, Results, key_in
from reproduction.rules import average

LOSS = "late_train_loss"
GUESS = math.log(10.0)  # the loss of a guess among ten labels, 2.30
NO_TREND = 0.1  # rank correlation below which there is no trend
DEAD = 2.0  # train loss above which a model has learned next to nothing
BASE_ETA = 0.01  # of the map: the step of server_learning_rate = 1
MAP_DEVICES, MNIST_DEVICES, MNIST_COMPUTES = 20, 100, 50
BySeed = Mapping[int, float]
Family = Mapping[float, str]
Panels = dict[str, dict[str, list[Point]]]


# ------------------------------------------------------------------ rounds, against the closed form
def models_as_printed(results: Results, printed: Family, small_slots: int) -> Finding:
    """Compare the numbers of models with table I, S -> number; at another T with the closed form.

    ``small_slots``: T at the small scale.
    """
    wanted = {
        size: count
        if results.scale is Scale.paper
        else Tdma(20, int(size), 1, 4).models_by(small_slots)
        for size, count in printed.items()
    }
    found = {size: results.mean(f"tdma-s{size:g}", "models") for size in wanted}
    numbers = ", ".join(f"S = {size:g}: {rules.number(count)}" for size, count in found.items())
    why = f"Expected {', '.join(map(str, wanted.values()))}."
    return rules.fact(found == wanted, numbers, why)


def delay_is_free(
    results: Results, plain: Family, delayed: Family, ages: Mapping[float, int]
) -> Finding:
    """Compare the models with and without delay, and the delayed staleness with d* = ``ages``."""
    same = all(
        results.mean(plain[size], "models") == results.mean(delayed[size], "models")
        for size in delayed
    )
    found = {size: results.mean(method, "staleness") for size, method in delayed.items()}
    numbers = ", ".join(f"S = {size:g}: {rules.number(age)}" for size, age in found.items())
    why = f"Models with and without delay {'are' if same else 'are not'} equally many."
    return rules.fact(same and found == ages, f"staleness {numbers}", why)


def staleness_is_unavoidable(results: Results, shapes: Mapping[str, Sequence[int]]) -> Finding:
    """Compare the staleness with delay at S = 1 with d*. ``shapes``: part -> (tau_comp, r)."""
    wanted = {
        part: Tdma(MNIST_DEVICES, 1, transfer, computes).d_star
        for part, (computes, transfer) in shapes.items()
    }
    found = {part: results.mean(f"{part}/idfl-s1", "staleness") for part in wanted}
    numbers = ", ".join(
        f"tau_comp = {shapes[part][0]}, r = {shapes[part][1]}: {rules.number(age)}"
        for part, age in found.items()
    )
    return rules.fact(found == wanted, numbers, f"d* is {', '.join(map(str, wanted.values()))}.")


def smaller_per_round(results: Results, method: str, computes: Sequence[int]) -> Finding:
    """Judge "r = 5 can have the lower loss than r = 1 after equally many rounds"."""
    results, findings = rules.shared(results, len(computes)), {}
    for tau in computes:
        rounds = results.mean(f"{tau}-5/{method}", "versions") or 0.0
        (ours, at), (theirs, then) = (
            near_version(results, f"{tau}-{r}/{method}", rounds) for r in (5, 1)
        )
        matters = rules.effect_of(LOSS, theirs.values())
        found = rules.paired_of(results, ours, theirs, matters, -1)
        means = ", ".join(f"{average(each.values()):.4g}" for each in (ours, theirs))
        findings[f"tau_comp = {tau}"] = found.found(
            f"loss after {at:.0f} and {then:.0f} rounds, r = 5 and r = 1: {means}; paired"
            f" difference {found}",
        )
    return rules.some(findings)


# ------------------------------------------------------------------ families over S
def losses(results: Results, which: str, column: str = LOSS) -> dict[int, float]:
    """Return seed -> the number; a run without it (it diverged) has the loss of a guess."""
    values = results.values(which, column)
    return {seed: GUESS if value is None else value for seed, value in values.items()}


def near_version(results: Results, which: str, version: float) -> tuple[dict[int, float], float]:
    """Return seed -> the train loss of the evaluation nearest to a version, and its mean version.

    The result files have CURVE_POINTS evaluations of a run, so it can be some rounds off. NoResults
    without curves.
    """
    curves = results.curve(which, "train_loss", x="version")
    if not curves:
        part, method = key_in(which)
        raise NoResults(f"{results.entry.name}: no curves of {method} in {part}")
    nearest = {
        seed: min(points, key=lambda point: abs(point[0] - version))
        for seed, points in curves.items()
    }
    losses = {seed: loss for seed, (_, loss) in nearest.items()}
    return losses, average(at for at, _ in nearest.values())


def trend_falls(results: Results, values: Mapping[float, BySeed], what: str) -> Finding:
    """Judge "the larger x, the smaller the value": Spearman's correlation, seed by seed.

    A mean correlation within NO_TREND of 0 is no trend.
    """
    seeds = sorted(set.intersection(*(set(each) for each in values.values()))) if values else []
    if len(values) < 3 or not seeds:
        return Finding("", Verdict.unknown, f"{what}: too few sizes to compare.")
    order = sorted(values)
    falls = {seed: -correlation(order, [values[x][seed] for x in order]) for seed in seeds}
    found = rules.paired_of(results, falls, dict.fromkeys(seeds, 0.0), NO_TREND)
    if found.interval is not None:
        found = replace(found, interval=found.interval.within(-1.0, 1.0))
    means = ", ".join(f"{x:g}: {average(values[x].values()):.3g}" for x in order)
    told = f"{-found.mean:+.2f}"
    if found.interval is not None:
        told += f" [{-found.interval.high:+.2f}, {-found.interval.low:+.2f}]"
    return found.found(f"{what}: {means}", f"rank correlation {told}")


def correlation(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return Spearman's rank correlation; equal values share their mean rank; 0 if all are equal.

    >>> correlation([1, 5, 10], [3.0, 2.0, 1.0])
    -1.0
    """
    a, b = rankdata(xs), rankdata(ys)
    if a.std() == 0 or b.std() == 0:
        return 0.0
    return round(float(np.corrcoef(a, b)[0, 1]), 12)


def alive(results: Results, family: Family) -> dict[float, str]:
    """Return the members whose model has learned something with every seed that counts."""
    seeds = rules.seeds_at_look(results, list(family.values()), LOSS)
    return {
        x: each
        for x, each in family.items()
        if max(losses(results, each)[seed] for seed in seeds) < DEAD
    }


def steadier(results: Results, family: Family) -> Finding:
    """Judge "the loss fluctuates less as S grows", over the S whose models learn."""
    living = alive(results, family)
    if not living:
        return Finding("", Verdict.unknown, "No S learns.")
    found = trend_falls(
        results,
        {x: losses(results, each, "roughness") for x, each in living.items()},
        "mean |change| of the train loss in 1,000 slots by S, second half",
    )
    dead = ", ".join(f"{x:g}" for x in family if x not in living)
    left = f" Left out, not learning: S = {dead}." if dead else ""
    return replace(found, why=found.why + left)


def faster_per_round(results: Results, family: Family) -> Finding:
    """Judge "counted in rounds, a larger S learns faster": the loss after some rounds falls.

    The rounds are those that every S has, up to the distance of the evaluations that were kept.
    """
    versions = [results.mean(method, "versions") for method in family.values()]
    rounds = min(each for each in versions if each is not None)
    near = {x: near_version(results, each, rounds) for x, each in family.items()}
    used = ", ".join(f"{at:.0f}" for _, (_, at) in sorted(near.items()))
    what = f"train loss by S after about {rounds:g} rounds (evaluations at {used})"
    return trend_falls(results, {x: its for x, (its, _) in near.items()}, what)


def delay_gains(results: Results, plain: Family, delayed: Family) -> Finding:
    """Judge "delay lowers the loss", for every S that has a delay."""
    return rules.every(
        {
            f"S = {x:g}": rules.better(results, delayed[x], plain[x], LOSS)
            for x in plain
            if delayed[x] != plain[x]
        }
    )


def delay_gain_falls(results: Results, plain: Family, delayed: Family) -> Finding:
    """Judge "delay lowers the loss most at small S"; an S without a delay is left out."""
    values = {
        x: rules.paired(results, delayed[x], plain[x], LOSS).differences
        for x in plain
        if delayed[x] != plain[x]
    }
    return trend_falls(results, values, "reduction of the late train loss by S")


# ------------------------------------------------------------------ the linear bound
def linear_bound(age: float) -> float:
    """Return the largest stable step times curvature for updates of an age in rounds.

    w <- w - kappa lambda w_old is stable for kappa lambda < 2 sin(pi / (2 (2 d + 1))), d the age.
    """
    return 2.0 * math.sin(math.pi / (2.0 * (2.0 * age + 1.0)))


def bound_predicts(
    results: Results, runs: str, plain: Family, delayed: Family, pixels: str, step: float
) -> Finding:
    """Judge "an S learns exactly if eta H lambda is below the linear bound", for four of five S.

    ``runs``: the entry of a reading. ``pixels``: the parts with its curvature begin with it.
    ``step``: eta H. The curvature lambda is the largest one along training.
    """
    curvatures = [
        value
        for part in results.entry.parts
        for method in part.methods
        if part.name.startswith(pixels)
        for value in results.values(f"{part.name}/{method.shown}", "curvature").values()
        if value is not None
    ]
    if not curvatures:
        raise NoResults(f"no curvature with {pixels} pixels")
    step *= max(curvatures)
    found, wrong = 0, []
    for size, age, learns in _cases(results.of(runs), plain, delayed):
        found += 1
        if learns != (step < linear_bound(age)):
            wrong.append(
                f"S = {size:g} with updates {age} rounds old (bound {linear_bound(age):.3g},"
                f" {'learns' if learns else 'does not'})"
            )
    why = f"Curvature {max(curvatures):.3g}, so eta H lambda = {step:.3g}."
    why += f" Wrong: {', '.join(wrong)}." if wrong else ""
    right = found - len(wrong)
    return rules.fact(right >= 0.8 * found, f"right for {right} of {found}", why)


def _cases(runs: Results, plain: Family, delayed: Family) -> Iterator[tuple[float, int, bool]]:
    """Yield (S, age of its updates in rounds, whether all runs learn), without and with delay."""
    for family in (plain, delayed):
        living = alive(runs, family)
        for size, label in family.items():
            shape = Tdma(MNIST_DEVICES, int(size), 1, MNIST_COMPUTES)
            if family is plain:
                yield size, shape.groups - 1, size in living
            elif label != plain[size]:  # else no delay is free: counted already
                yield size, shape.groups - 1 - shape.auto_delay, size in living


# ------------------------------------------------------------------ the map
@dataclass(frozen=True, slots=True)
class Cell:
    """An S and tau_comp, with all steps. ``kinds``: tdma, and idfl where a delay is free."""

    size: int
    computes: int
    kinds: tuple[str, ...]
    factors: tuple[float, ...]

    @property
    def age(self) -> int:
        """The age of updates in rounds, without delay."""
        return Tdma(MAP_DEVICES, self.size, 1, self.computes).groups - 1

    @property
    def least(self) -> int:
        """The age of updates in rounds, with delay."""
        return self.age - Tdma(MAP_DEVICES, self.size, 1, self.computes).auto_delay

    def method(self, kind: str, factor: float) -> str:
        """Return the method of a step. ``kind``: tdma or idfl."""
        return f"tau-{self.computes}/{kind}-s{self.size}-x{factor:g}"

    def loss(self, results: Results, kind: str, factor: float) -> float:
        """Return the mean late train loss. NoResults without runs."""
        return average(losses(results, self.method(kind, factor)).values())

    def best(self, results: Results, kind: str) -> float:
        """Return the step eta with the lowest late loss."""
        return BASE_ETA * min(self.factors, key=lambda factor: self.loss(results, kind, factor))


def cells(entry: Entry) -> list[Cell]:
    """Return the cells of a map by its parts "tau-C" and methods "KIND-sS-xFACTOR"."""
    found = []
    for part in entry.parts:
        kinds: dict[int, dict[str, None]] = {}
        factors: dict[float, None] = {}
        for method in part.methods:
            kind, size, factor = re.fullmatch(r"(\w+)-s(\d+)-x(.+)", method.shown).groups()
            kinds.setdefault(int(size), {})[kind] = None
            factors[float(factor)] = None
        computes = int(part.name.removeprefix("tau-"))
        found += [Cell(size, computes, tuple(its), tuple(factors)) for size, its in kinds.items()]
    return found


def map_curvature(results: Results) -> float:
    """Return the mean curvature of the models that the smallest step has reached."""
    values = [
        value
        for cell in cells(results.entry)
        for value in results.values(cell.method("tdma", min(cell.factors)), "curvature").values()
        if value is not None
    ]
    if not values:
        raise NoResults(f"{results.entry.name}: no curvature")
    return average(values)


def bounds(results: Results) -> Iterator[tuple[Cell, str, int, float]]:
    """Yield (cell, kind, age of its updates, largest stable step eta by the linear bound)."""
    flattest = map_curvature(results)
    for cell in cells(results.entry):
        for kind in cell.kinds:
            age = cell.age if kind == "tdma" else cell.least
            yield cell, kind, age, linear_bound(age) / flattest


def best_step_is_wider(results: Results) -> Finding:
    """Judge "with delay the best step is at least as large, and its loss lower"."""
    findings = {}
    for cell in cells(results.entry):
        if "idfl" in cell.kinds:
            plain, delayed = cell.best(results, "tdma"), cell.best(results, "idfl")
            before, after = (
                cell.loss(results, kind, eta / BASE_ETA)
                for kind, eta in (("tdma", plain), ("idfl", delayed))
            )
            findings[f"S = {cell.size}, tau_comp = {cell.computes}"] = rules.fact(
                delayed >= plain and after <= before,
                f"{plain:g} -> {delayed:g}, loss {before:.3g} -> {after:.3g}",
            )
    return rules.every(findings)


def best_step_is_at_the_bound(results: Results, within: float) -> Finding:
    """Judge "the best step is within a factor of the linear bound"."""
    ratios = {
        f"S = {cell.size}, d = {age}": cell.best(results, kind) / eta
        for cell, kind, age, eta in bounds(results)
    }
    inside = sum(1 / within <= ratio <= within for ratio in ratios.values())
    said = ", ".join(f"{name}: {ratio:.2g}" for name, ratio in ratios.items())
    return rules.fact(
        inside == len(ratios),
        f"{inside} of {len(ratios)}",
        f"Curvature {map_curvature(results):.3g}. Best step divided by the bound: {said}.",
    )


def little_below_the_bound(results: Results, most: float) -> Finding:
    """Judge "with steps below the bound for undelayed updates, delay changes little"."""
    gains = {
        f"S = {cell.size}, tau_comp = {cell.computes}, eta = {factor * BASE_ETA:g}": _gain(
            results, cell, factor
        )
        for cell, kind, _, eta in bounds(results)
        for factor in cell.factors
        if kind == "tdma" and "idfl" in cell.kinds and factor * BASE_ETA < eta
    }
    if not gains:
        raise NoResults("no step below the bound")
    largest = max(gains, key=lambda name: abs(gains[name]))
    return rules.fact(
        abs(gains[largest]) <= most,
        f"at most {abs(gains[largest]):.3g}",
        f"{len(gains)} pairs of runs; the largest change is at {largest}.",
    )


def _gain(results: Results, cell: Cell, factor: float) -> float:
    """Return the train loss without delay minus that with delay."""
    return cell.loss(results, "tdma", factor) - cell.loss(results, "idfl", factor)


# ------------------------------------------------------------------ drawings
def curvature_along_training(
    results: Results, lengths: Sequence[int], updates: Sequence[Sequence[int]]
) -> Panels:
    """Return the curvature over slots, a panel per kind of pixels, and what the bound allows.

    The parts are "PIXELS-LENGTH". ``updates``: (H, d), the local steps and the age of updates.
    """
    panels: Panels = {}
    for pixels in dict.fromkeys(part.name.partition("-")[0] for part in results.entry.parts):
        lines: dict[str, list[Point]] = {}
        for method in [each.shown for each in results.entry.parts[0].methods]:
            for slots in lengths:
                which = f"{pixels}-{slots}/{method}"
                found = results.values(which, "curvature").values() if results.has(which) else ()
                values = [value for value in found if value is not None]
                if values:
                    point = Point(slots, average(values), min(values), max(values))
                    lines.setdefault(method, []).append(point)
        for steps, age in updates if lines else ():
            most = linear_bound(age) / (BASE_ETA * steps)
            ends = [Point(lengths[0], most), Point(lengths[-1], most)]
            lines[f"bound, H = {steps}, d = {age}"] = ends
        panels[f"{pixels} pixels"] = lines
    return panels


def delay_gain_by_step(results: Results) -> Panels:
    """Return the gain of delay over the step, a panel per S, with the bound as a line."""
    panels: Panels = {}
    for cell, kind, age, eta in bounds(results):
        lines = panels.setdefault(f"S = {cell.size}", {})
        if kind == "idfl":
            lines[f"tau_comp = {cell.computes}, d = {cell.age} to {age}"] = [
                Point(factor * BASE_ETA, _gain(results, cell, factor)) for factor in cell.factors
            ]
        else:
            lines[f"linear bound, d = {age}"] = [Point(eta, 0.0), Point(eta, 1.0)]
    return panels


def best_step_by_age(results: Results) -> Panels:
    """Return the best step over the age of updates, and the linear bound."""
    found: dict[str, dict[int, float]] = {}
    line: dict[int, float] = {}
    for cell, kind, age, eta in bounds(results):
        name = f"S = {cell.size}, {'without' if kind == 'tdma' else 'with'} delay"
        found.setdefault(name, {})[age] = cell.best(results, kind)
        line[age] = eta
    found["linear bound"] = line
    return {
        "": {
            name: [Point(d, eta) for d, eta in sorted(by_age.items())]
            for name, by_age in found.items()
        }
    }


RULES = (
    models_as_printed,
    delay_is_free,
    staleness_is_unavoidable,
    smaller_per_round,
    steadier,
    faster_per_round,
    delay_gains,
    delay_gain_falls,
    bound_predicts,
    best_step_is_wider,
    best_step_is_at_the_bound,
    little_below_the_bound,
)
DRAWINGS = (curvature_along_training, delay_gain_by_step, best_step_by_age)
