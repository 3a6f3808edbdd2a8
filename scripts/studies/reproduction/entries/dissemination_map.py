"""Where timely dissemination pays: a map on the virtual clock, and its corners over real sockets.

A gain is the accuracy with merging minus that without, each with the best of four weights: in the
linear regime a merge acts like a smaller weight, and a smaller weight costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reproduction import rules
from reproduction.entries._dissemination import ACCURACY, FMNIST, FOLDER, ONE_POINT
from reproduction.entries._dissemination_measures import MEASURES
from reproduction.entry import (
    WALL,
    Claim,
    CurveFigure,
    Entry,
    Finding,
    LineFigure,
    MethodPlan,
    Part,
    Point,
    Scale,
)
from reproduction.results import NoResults, Results

BASE = 10, 0.1  # devices at work (staleness is about one less) and Dirichlet
GRID = ((5, 0.1), (5, 0.5), (5, 10.0), BASE, (30, 0.1), (30, 0.5), (30, 10.0))
POINTS = (1, 2, 4)  # of five epochs; 2 in all other cells
DOWN_S = (0.0, 24.0)  # time of a download; a task takes 40 to 200 s
TASK_S = 120.0  # mean
UPDATES = 400  # of each run
MODEL_MBIT = 1.976
SEEDS = (1, 2, 3)
# FedAsync's weight is alpha (gap + 1)^-a. With a near 0 it hardly falls with staleness (0 is no a).
WEIGHTS: Mapping[str, Mapping[str, float]] = {
    "": {},
    "-less-alpha": {},
    "-more-alpha": {"alpha": 1.0},
    "-flat": {"a": 0.01},
}
WITH = tuple(f"with{weight}" for weight in WEIGHTS)
WITHOUT = tuple(f"without{weight}" for weight in WEIGHTS)
FLAT = "with-flat", "without-flat"
COLUMNS = (ACCURACY, "time_to_target_s", "staleness_median", "beta_mid", "request_share")


# ------------------------------------------------------------------ parts
def cell(at_work: int, drift: float) -> str:
    return f"work{at_work}-dirichlet{drift:g}"


def _part(
    name: str,
    at_work: int,
    drift: float,
    *more: str,
    methods: Sequence[str] = (*WITH, *WITHOUT),
    **options: object,
) -> Part:
    end_s = UPDATES * TASK_S / at_work
    return Part(
        name,
        FOLDER / "map.toml",
        tuple(
            _method(method, {"concurrency": at_work, **(options if method in WITH else {})})
            for method in methods
        ),
        overrides=(
            f"partition.alpha={drift!r}",
            f"stop.emulated_s={end_s!r}",
            f"evaluation.every_s={end_s / 20!r}",
            *more,
        ),
        small=(f"stop.emulated_s={end_s / 20!r}", f"evaluation.every_s={end_s / 200!r}"),
        seeds=SEEDS,
        small_seeds=(1,),
        measures=MEASURES,
        columns=COLUMNS,
    )


def _method(name: str, options: Mapping[str, object]) -> MethodPlan:
    """Return a method of the map; the config has those whose weights are no change of another."""
    kind, _, weight = name.partition("-")
    change = WEIGHTS[f"-{weight}" if weight else ""]
    return MethodPlan(kind if change else name, options={**options, **change}, name=name)


def _down(seconds: float) -> tuple[str, ...]:
    return (f"links.down_mbit_s={MODEL_MBIT / seconds:.4g}",) if seconds else ()


FLATTEST = cell(30, 0.1)
CELLS = tuple(_part(cell(*each), *each) for each in GRID)
REQUESTS = tuple(
    _part(f"point{point}", *BASE, methods=WITH, refresh_point=point)
    for point in POINTS
    if point != 2
)
DOWNLINKS = tuple(_part(f"down{s:g}", *BASE, *_down(s)) for s in DOWN_S if s)


# ------------------------------------------------------------------ gains
def gain(results: Results, part: str, other: str = "") -> rules.Paired:
    """Return the gain in a part; ``other``: the part without merging, if it is another one."""
    ours, theirs = best_weight(results, part, WITH), best_weight(results, other or part, WITHOUT)
    return rules.paired_of(ours, theirs)


def best_weight(results: Results, part: str, methods: Sequence[str]) -> Mapping[int, float]:
    """Return seed -> accuracy of that one of ``methods`` that has the higher mean."""
    found = []
    for method in methods:
        values = results.values(method, ACCURACY, part)
        found.append({seed: value for seed, value in values.items() if value is not None})
    there = [each for each in found if each]
    if not there:
        raise NoResults(f"{results.entry.name}: no accuracies in {part}")
    return max(there, key=lambda each: sum(each.values()) / len(each))


def somewhere(results: Results) -> Finding:
    """Judge "in at least one cell merging gains", a gain below ONE_POINT being none."""
    findings = {}
    for part in CELLS:
        if results.has("with", part.name):
            found = gain(results, part.name)
            findings[part.name] = Finding(
                f"{found.mean:+.3f}", found.verdict(least=ONE_POINT), f"Gain {found}."
            )
    if not findings:
        raise NoResults(f"{results.entry.name}: no cell has runs")
    return rules.some(findings)


def rises(results: Results, one: str, other: str) -> Finding:
    """Judge "the gain is larger in part ``other`` than in part ``one``"."""
    first, then = gain(results, one), gain(results, other)
    found = rules.paired_of(then.differences, first.differences)
    return Finding(
        f"{first.mean:+.3f} -> {then.mean:+.3f}",
        found.verdict(),
        f"Gain in {one} {first}; in {other} {then}; change {found}.",
    )


# ------------------------------------------------------------------ figure
def lines(results: Results) -> Mapping[str, Mapping[str, Sequence[Point]]]:
    """Return the panels of the map, with what has runs."""
    stale = {
        f"Dirichlet {d:g}": _points(
            results,
            [(_staleness(results, cell(*each)), cell(*each), "") for each in GRID if each[1] == d],
        )
        for d in sorted({drift for _, drift in GRID})
    }
    base = cell(*BASE)
    asked = [(p / 5, base if p == 2 else f"point{p}", base) for p in POINTS]
    down = [(s / TASK_S, f"down{s:g}" if s else base, "") for s in DOWN_S]
    return {
        "median staleness": stale,
        "share of the task done at the request": {"Dirichlet 0.1": _points(results, asked)},
        "download, as a share of the mean task": {"Dirichlet 0.1": _points(results, down)},
    }


def _staleness(results: Results, part: str) -> float | None:
    if not results.has("without", part):
        return None
    return results.mean("without", "staleness_median", part)


def _points(results: Results, wanted: Sequence[tuple[float | None, str, str]]) -> Sequence[Point]:
    found = []
    for x, part, other in wanted:
        if x is None or not results.has("with", part):
            continue
        each = gain(results, part, other)
        bounds = each.interval
        low, high = (None, None) if bounds is None else (bounds.low, bounds.high)
        found.append(Point(x, each.mean, low, high))
    return found


MAP = Entry(
    "seed0-map",
    "seed0",
    "ours",
    "Where timely dissemination pays",
    "FedASMU-DA (it merges) against FedASMU-0 (it does not), both with FedAsync's fixed weight;"
    " LeNet with strides on Fashion-MNIST, tasks of 20 steps, 400 updates.",
    (*CELLS, *REQUESTS, *DOWNLINKS),
    claims=(
        Claim(
            "With the best of four weights on both sides, merging gains somewhere, by a point",
            "ours; fig. 9 has 1.04 to 3.41 points",
            somewhere,
            needs=tuple(part.name for part in CELLS),
        ),
        Claim(
            "The gain rises with staleness (from 5 to 30 devices at work, Dirichlet 0.1)",
            "section 4: merging is there to reduce staleness",
            lambda r: rises(r, cell(5, 0.1), cell(30, 0.1)),
            needs=(cell(5, 0.1), cell(30, 0.1)),
        ),
        Claim(
            "The gain rises with drift (from Dirichlet 10 to 0.1, 30 devices at work)",
            "ours: the data of devices differs",
            lambda r: rises(r, cell(30, 10.0), cell(30, 0.1)),
            needs=(cell(30, 10.0), cell(30, 0.1)),
        ),
        Claim(
            "A downlink that takes a fifth of a task reduces the gain",
            "section 6.2.4: the advantages diminish",
            lambda r: rises(r, "down24", cell(*BASE)),
            needs=("down24", cell(*BASE)),
        ),
        Claim(
            "Merging gains where weights do not fall with staleness (30 at work, Dirichlet 0.1)",
            "ours: such a weight is too large, and a merge acts like a smaller one",
            lambda r: rules.better(r, (FLATTEST, FLAT[0]), (FLATTEST, FLAT[1]), ACCURACY),
            needs=(FLATTEST,),
        ),
    ),
    figures=(
        LineFigure(
            "map",
            "Accuracy gained by merging, each side with the best of four weights; bars are 95 %"
            " intervals over the seeds",
            y="accuracy gained",
            lines=lines,
            zero=True,
        ),
    ),
    data=FMNIST,
    hours={Scale.small: 0.2, Scale.paper: 2.0},
    notes="The first runs had two weights, alpha = 0.3 and 0.6 with a = 0.5. The larger one, at the"
    " grid's edge, was better in every cell, on both sides. So the grid has got two larger weights:"
    " alpha = 1, and a weight that does not fall with staleness (a = 0.01). The last claim was"
    " written after a pilot of these with seed 1.",
)

# ------------------------------------------------------------------ corners, over real sockets
CORNERS = {"best": "wallclock_best.toml", "worst": "wallclock_worst.toml"}


def _corner(name: str) -> Part:
    return Part(
        name,
        FOLDER / CORNERS[name],
        (MethodPlan("with"), MethodPlan("without")),
        small=("stop.emulated_s=20.0",),
        seeds=(1, 2),
        small_seeds=(1,),
        measures=MEASURES,
        columns=COLUMNS,
        clock=WALL,
        title=f"The {name} corner, five minutes over real sockets",
    )


CORNER = Entry(
    "seed0-corners",
    "seed0",
    "ours",
    "Timely dissemination over real sockets, where it promises most and least",
    "As seed0-map, ten times faster, on the wall clock: 60 edges, with and without merging.",
    (_corner("best"), _corner("worst")),
    claims=(
        Claim(
            "In the best corner merging is more accurate on the wall clock, too",
            "ours; the order of seed0-map",
            lambda r: rules.better(r, ("best", "with"), ("best", "without"), ACCURACY),
            needs=("best",),
        ),
        Claim(
            "In the worst corner it is not",
            "ours; the order of seed0-map",
            lambda r: rules.better(r, ("worst", "without"), ("worst", "with"), ACCURACY),
            needs=("worst",),
        ),
    ),
    figures=(
        CurveFigure("corners", "Test accuracy over wall-clock seconds, with and without merging"),
    ),
    data=FMNIST,
    hours={Scale.small: 0.05, Scale.paper: 0.9},
    notes="Two seeds show an order, and no more.",
)
ENTRIES = (MAP, CORNER)
