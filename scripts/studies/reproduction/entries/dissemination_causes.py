"""Why merging may gain nothing: in the linear regime it acts like a smaller weight alpha.

If local steps move the model by the same small vector d, wherever it is, then FedAsync's model
moves by v = alpha (d - G v) per update, with G updates between a task's start and its end. A device
that merges with weight beta after the share m of its task delivers v = alpha c (d - G v), c = 1 -
beta m: the same as alpha c without a merge. A gain must come from noise, or from curvature.
"""

from __future__ import annotations

from collections.abc import Mapping

from reproduction import rules
from reproduction.entries._dissemination import (
    ACCURACY,
    BATCH,
    FMNIST,
    ONE_POINT,
)
from reproduction.entry import Claim, CurveFigure, Entry, Finding, MethodPlan, Scale
from reproduction.results import NoResults, Results

ALPHA, A = 0.6, 0.5
POINT, EPOCHS = 2, 5
SHARE = POINT / EPOCHS  # m
# Median beta of mu_beta = 100 up to version 1,600: 0.86 at version 100, 0.67 at 1,600
BETA = 0.75
SMALLER = round(ALPHA * (1 - BETA * SHARE), 2)
EARLY_S = 20_000.0  # the loss falls from 2.3 to 1.1

SAME, LESS, MERGED = "fedasync", "fedasync-smaller", "fedasmu-da"
METHODS = (
    MethodPlan(SAME, options={"alpha": ALPHA, "a": A, "mu": 0.0}),
    MethodPlan(SAME, options={"alpha": SMALLER, "a": A, "mu": 0.0}, name=LESS),
    MethodPlan(
        MERGED,
        options={
            "alpha": ALPHA,
            "a": A,
            "mu_beta": 100.0,
            "selector": "fixed",
            "refresh_point": POINT,
        },
    ),
)


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
        found[seed] = sum(gaps) / len(gaps)
    return found


def like_a_smaller_alpha(results: Results) -> Finding:
    """Judge "early, the merging run follows FedAsync with alpha c, not with alpha"."""
    ends = [points[-1][0] for points in results.curve(SAME).values()]
    if not ends:
        raise NoResults(f"{results.entry.name}: no curves of {SAME}")
    end_s = min(EARLY_S, *ends)
    to_same, to_less = (distance(results, MERGED, each, 1.0, end_s) for each in (SAME, LESS))
    found = rules.paired_of(to_less, to_same, -1)
    means = [sum(each.values()) / len(each) for each in (to_same, to_less)]
    return Finding(
        f"loss {means[0]:.3g} from alpha = {ALPHA:g}, {means[1]:.3g} from {SMALLER:g}",
        found.verdict(),
        f"Mean distance of the test losses up to {end_s:g} s; paired difference {found}.",
    )


LINEAR = Entry(
    "seed0-linear",
    "seed0",
    "ours",
    "Does a merge act like a smaller alpha?",
    f"{BATCH.text} Two thirds of that budget. FedASMU-DA with alpha = {ALPHA:g}, asking after"
    f" {POINT} of {EPOCHS} steps with a beta of about {BETA:g}, against FedAsync with"
    f" alpha = {ALPHA:g} and with alpha (1 - beta m) = {SMALLER:g}.",
    (BATCH.part("main", METHODS, share=2 / 3),),
    claims=(
        Claim(
            "Early, a merge acts like a smaller alpha: the losses are those of FedAsync with alpha"
            " (1 - beta m)",
            "ours: the linear regime",
            like_a_smaller_alpha,
        ),
        Claim(
            "Late, merging gains more than a smaller alpha",
            "ours: the argument does not cover noise and curvature",
            lambda r: rules.better(r, MERGED, LESS, ACCURACY, least=ONE_POINT),
        ),
        Claim(
            "Late, merging makes the accuracy steadier than a smaller alpha (stability)",
            "ours: the argument does not cover noise",
            lambda r: rules.better(r, MERGED, LESS, "stability"),
        ),
    ),
    figures=(
        CurveFigure("loss", "Test loss over emulated time, with and without merging", "loss"),
    ),
    data=FMNIST,
    hours={Scale.small: 0.03, Scale.paper: 0.45},
    notes="The weights of eqs. 10 and 11 fall with the version, so beta is not constant; the"
    " smaller alpha fits its median in the first third.",
)
ENTRIES = (LINEAR,)
