"""WKAFL (arXiv 2203.01214): K-asynchronous gradients, their weights, and what selecting them gains.

EMNIST's MNIST split is replaced by MNIST, with the same model, pixels, batches and devices. All
methods of a part have the same emulated time. Those with the same K make about as many steps in it,
except GSGM, whose used devices wait for the end of the round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from reproduction import rules
from reproduction.entries._gradient_measures import WEIGHTS
from reproduction.entry import (
    CONFIGS,
    Claim,
    CurveFigure,
    Entry,
    Finding,
    MethodPlan,
    Part,
    Scale,
    Tuning,
)
from reproduction.results import Results
from reproduction.rules import Which

FOLDER = CONFIGS / "wkafl"
ACCURACY, STABILITY, SPEED = "convergence_accuracy", "stability", "time_to_target_s"
RATE = "server_learning_rate"
TABLE3 = "seed4-table3"
TARGET = "evaluation.target_accuracy=0.85"

# Equal numbers of rates, about a factor of three apart. Clipped gradients are a tenth as long, so
# WKAFL and TWAFL with its clipping have larger rates. The paper's rates of WKAFL, TWAFL and SASGD
# are among them. GSGM's steps of a round belong to one model: together they are one step of P/K
# times the rate.
RATES: Mapping[str, Sequence[float]] = {
    "wkafl": (0.0005, 0.0015, 0.005, 0.015),
    "twafl-clipped": (0.0005, 0.0015, 0.005, 0.015),
    "twafl": (1.5e-5, 5e-5, 1.5e-4, 5e-4),
    "k-async": (5e-6, 1.5e-5, 5e-5, 1.5e-4),
    "sasgd": (1.5e-4, 5e-4, 1.5e-3, 5e-3),
    "gsgm": (5e-7, 2e-6, 6e-6, 2e-5),
}
METHODS = tuple(RATES)
ABLATIONS = ("wkafl-no-selection", "wkafl-no-staleness", "wkafl-no-noniid")

READING = (
    "MNIST in place of EMNIST's digits; raw pixels (0 to 255), CNN 32-64-512, batches of 4 and"
    " WKAFL's values as in the authors' code; a batch takes an exponential time, so that the first"
    " K of P devices are a random draw; the paper's 5,000 iterations are read as the emulated time"
    " in which a method with K gradients per step makes them, the same for all methods."
)
TUNING_NOTE = (
    "Every method has the same number of learning rates to try, on a seed of its own. With one"
    " label per device the tuning runs have a fifth of the budget (1,000 steps): each device is"
    " used once in a hundred steps and the loss first rises, so that after a tenth a rate that is"
    " good in the end has learned little. With ten labels a tenth is enough. The ablations take"
    " WKAFL's rate."
)
COLUMNS = (ACCURACY, STABILITY, SPEED, "versions", *WEIGHTS)


def tuned(*names: str) -> tuple[MethodPlan, ...]:
    """Return methods whose learning rate is tuned."""
    return tuple(MethodPlan(name, {RATE: RATES[name]}) for name in names)


def as_given(*names: str) -> tuple[MethodPlan, ...]:
    """Return methods with the settings of an earlier part, or those of the config."""
    return tuple(MethodPlan(name) for name in names)


ONE = Part(
    "main",
    FOLDER / "mnist_raw_1000_10.toml",
    (*tuned(*METHODS), *(MethodPlan(name, tuned_as="wkafl") for name in ABLATIONS)),
    overrides=(TARGET,),
    small=("stop.emulated_s=2.0", "evaluation.every_s=0.18"),
    small_seeds=(1,),
    tuning=Tuning(share=0.2),
    measures=WEIGHTS,
    columns=COLUMNS,
    title="One label per device, P/K = 1000/10",
)
TEN = replace(
    ONE,
    name="ten",
    methods=tuned(*METHODS),
    overrides=(TARGET, "partition.labels=10"),
    tuning=Tuning(share=0.1, overrides=("evaluation.every_s=1.14",)),
    title="Ten labels per device, P/K = 1000/10",
)
STEPS = replace(
    ONE,
    name="steps",
    methods=as_given("gsgm"),
    overrides=(
        TARGET,
        "stop.emulated_s=600.0",
        "stop.versions=5000",
        "evaluation.every_s=600.0",
        "evaluation.every_versions=250",
    ),
    small=("stop.versions=160", "evaluation.every_versions=15"),
    tuning=None,
    settings_of="main",
    title="One label: GSGM to 5,000 steps, in about seven times the time of the others",
)


# ------------------------------------------------------------------ judges
def wins(other: Which, column: str = ACCURACY, part: str = "main") -> Callable[[Results], Finding]:
    """Return a judge of "WKAFL is better than ``other`` in ``column``"."""
    return lambda results: rules.better(results, (part, "wkafl"), other, column)


def wins_all(
    others: Sequence[Which], column: str = ACCURACY, part: str = "main"
) -> Callable[[Results], Finding]:
    """Return a judge of "WKAFL is better than each of ``others`` in ``column``"."""
    return lambda results: rules.best(results, (part, "wkafl"), others, column)


CLIPPING = (
    "the row twafl-clipped of the same table: TWAFL with WKAFL's clipping and without its other"
    " parts"
)
MARGINS = (
    Claim(
        "WKAFL is more accurate than TWAFL with one label per device",
        "tables II and III: .9734 against .9620 at P/K = 100, .9728 against .9572 at 300",
        wins("twafl"),
        cause=CLIPPING,
        needs=("main",),
    ),
    Claim(
        "WKAFL is more accurate than SASGD with one label per device",
        "tables II and III: .9734 against .9319 at P/K = 100, .9728 against .8553 at 300",
        wins("sasgd"),
        cause=CLIPPING,
        needs=("main",),
    ),
    Claim(
        "WKAFL is more accurate than GSGM with one label per device, both after 5,000 steps",
        "table III: .9728 against .9057 at P/K = 300",
        wins(("steps", "gsgm")),
        cause="the column effective: how many gradients a step of each method uses",
        needs=("main", "steps"),
    ),
    Claim(
        "WKAFL is the most accurate with ten labels per device",
        "table III: WKAFL .9658, TWAFL .9623, GSGM .9075, SASGD .8619 at P/K = 300",
        wins_all([("ten", name) for name in ("twafl", "sasgd", "gsgm")], part="ten"),
        cause=CLIPPING,
        needs=("ten",),
    ),
)
STEADINESS = (
    Claim(
        "WKAFL is steadier than TWAFL with one label per device",
        "table III: deviation of the last ten accuracies .0060 against .0107 at P/K = 300",
        wins("twafl", STABILITY),
        cause=CLIPPING,
        needs=("main",),
    ),
    Claim(
        "WKAFL is steadier than SASGD with one label per device",
        "table III: .0060 against .0834 at P/K = 300, the 92.8 % of the abstract",
        wins("sasgd", STABILITY),
        cause=CLIPPING,
        needs=("main",),
    ),
    Claim(
        "GSGM is the steadiest with one label per device",
        "table III: GSGM .0032, WKAFL .0060, TWAFL .0107, SASGD .0834",
        lambda r: rules.best(r, ("steps", "gsgm"), ["wkafl", "twafl", "sasgd"], STABILITY),
        cause="the column versions: how far GSGM has come when it ends",
        needs=("main", "steps"),
    ),
    Claim(
        "Training is steadier with more labels per device",
        "table III: from one to ten labels WKAFL .0060 to .0036, TWAFL .0107 to .0060",
        lambda r: rules.every(
            {name: rules.better(r, ("ten", name), name, STABILITY) for name in ("wkafl", "twafl")}
        ),
        cause="the column largest_label of both tables",
        needs=("main", "ten"),
    ),
)
SPEEDS = (
    Claim(
        "WKAFL learns fastest with one label per device: less time to 85 %",
        "figures 7a and 9a (curves, no numbers)",
        wins_all(["twafl", "sasgd"], SPEED),
        cause=CLIPPING,
        needs=("main",),
    ),
)
OURS = (
    Claim(
        "TWAFL with WKAFL's clipping is as accurate as WKAFL, within .01",
        "not in the paper: what is left of WKAFL's margin without the clipping",
        lambda r: rules.equal(r, "wkafl", "twafl-clipped", ACCURACY, 0.01),
        cause="the other parts of WKAFL: the ablations of seed4-fig5",
        needs=("main",),
    ),
    Claim(
        "Clipping alone raises TWAFL's accuracy with one label per device",
        "not in the paper",
        lambda r: rules.better(r, "twafl-clipped", "twafl", ACCURACY),
        cause="the column clipped_share",
        needs=("main",),
    ),
    Claim(
        "At least half of WKAFL's gradients are longer than the bound of 100, on raw pixels",
        "not in the paper",
        lambda r: rules.at_least(r, "wkafl", "clipped_share", 0.5),
        cause="the rate decides how long gradients are: the column clipped_share of other rates",
        needs=("main",),
    ),
    Claim(
        "Selecting gradients that agree raises the share of one label in a step",
        "not in the paper, which says that the selected gradients represent all data better",
        lambda r: rules.fact(*larger(r, "wkafl", "wkafl-no-selection", "largest_label")),
        cause="the column effective",
        needs=("main",),
    ),
)


def larger(results: Results, one: str, other: str, column: str) -> tuple[bool, str, str]:
    """Return whether ``one`` has the larger number with every seed, and the means as text."""
    ours, theirs = (results.values(name, column) for name in (one, other))
    pairs = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
    told = ", ".join(f"{name} {rules.mean_of(results, name, column)}" for name in (one, other))
    holds = bool(pairs) and all(a is not None and b is not None and a > b for a, b in pairs)
    return holds, told, f"{rules.label(column)}, seed by seed over {len(pairs)} seeds."


CURVES = (
    CurveFigure("accuracy", "Test accuracy over emulated time, one and ten labels per device"),
    CurveFigure("loss", "Test loss of the same runs", column="loss", log="y"),
)
TABLE_3 = Entry(
    TABLE3,
    "seed4",
    "tables II and III, figures 7a and 9",
    "WKAFL and the methods it is compared with, on digits",
    READING,
    (ONE, TEN, STEPS),
    claims=(*MARGINS, *STEADINESS, *SPEEDS, *OURS),
    figures=CURVES,
    data=("mnist",),
    hours={Scale.small: 0.5, Scale.paper: 6.5},
    notes=TUNING_NOTE,
)

FIG_5 = Entry(
    "seed4-fig5",
    "seed4",
    "figure 5",
    "WKAFL without each of its parts, on digits",
    "As seed4-table3, in place of CelebA and EMNIST ByClass.",
    (),
    claims=(
        Claim(
            "WKAFL is more accurate than without any of its parts",
            "figure 5 (curves on CelebA and EMNIST ByClass, no numbers)",
            lambda r: rules.best(r.of(TABLE3), "wkafl", ABLATIONS, ACCURACY),
            cause="seed4-table3: the columns effective and largest_label of the ablations",
        ),
        Claim(
            "Without the handling of staleness WKAFL is worst",
            "figure 5",
            lambda r: rules.every(
                {
                    other: rules.better(r.of(TABLE3), other, "wkafl-no-staleness", ACCURACY)
                    for other in ("wkafl", "wkafl-no-selection", "wkafl-no-noniid")
                }
            ),
            cause="seed4-table3: the column tau_ave",
        ),
        Claim(
            "With selection training is steadier than without",
            "figure 5, section 6.2",
            lambda r: rules.better(r.of(TABLE3), "wkafl", "wkafl-no-selection", STABILITY),
            cause="seed4-table3: the column effective",
        ),
    ),
    data=("mnist",),
    hours={Scale.small: 0.0, Scale.paper: 0.0},
    uses=(TABLE3,),
)


ENTRIES = (TABLE_3, FIG_5)
