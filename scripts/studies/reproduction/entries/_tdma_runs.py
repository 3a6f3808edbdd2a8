"""Runs of the TDMA paper: table I, MNIST under three readings, CIFAR-10, and S = 1 with other r."""

from __future__ import annotations

from collections.abc import Mapping

from emulator.tdma.closed_form import Tdma
from reproduction import rules
from reproduction.entries import _tdma_judges as judges
from reproduction.entries import _tdma_measures as measures
from reproduction.entries._tdma_shared import (
    CHEAP,
    CIFAR_SIZES,
    FOLDER,
    MARKERS,
    MNIST_SIZES,
    READINGS,
    SLOT_S,
    delayed,
    methods,
    plain,
    seconds,
)
from reproduction.entry import (
    Claim,
    Entry,
    Finding,
    LineFigure,
    Measure,
    MethodPlan,
    Part,
    Point,
    Scale,
)
from reproduction.results import MAIN, Results

MEASURES: Mapping[str, Measure] = {
    "mean_loss": measures.mean_loss,
    "roughness": measures.roughness,
    "staleness": measures.staleness,
    "curvature": measures.curvature,
}
COLUMNS = (judges.LOSS, "final_accuracy", *MEASURES)
READING = {
    "A": "Reading A: equations 5, 7 and 11 as printed. A turn is one gradient; the five local steps"
    " are only time.",
    "B": "Reading B: a turn is five local steps of eta each, and the changes are averaged.",
    "B-unit": "Reading B with pixels from 0 to 1. The paper does not say how pixels are scaled.",
}
MNIST_PLAIN, MNIST_DELAYED = plain(MNIST_SIZES), delayed(MNIST_SIZES)
CIFAR_PLAIN, CIFAR_DELAYED = plain(CIFAR_SIZES), delayed(CIFAR_SIZES, "cifar10")

# ------------------------------------------------------------------ table I
PRINTED = {1: 49_999, 2: 33_333, 5: 16_667, 10: 9_091, 20: 4_001}
SLOTS = {Scale.small: 5_000, Scale.paper: 100_000}
D_STAR = {1: 2, 2: 2, 5: 1, 10: 1, 20: 0}  # of CIFAR-10's setting


def table_1(results: Results) -> Finding:
    """Compare the numbers of models with table I; at another T with the closed form."""
    wanted = {
        size: PRINTED[size]
        if results.scale is Scale.paper
        else Tdma(20, size, 1, 4).models_by(SLOTS[results.scale])
        for size in CIFAR_SIZES
    }
    found = {size: results.mean(f"tdma-s{size}", "models") for size in wanted}
    said = ", ".join(f"S = {size}: {rules.number(count)}" for size, count in found.items())
    return rules.fact(found == wanted, said, f"Expected {', '.join(map(str, wanted.values()))}.")


def free_delay(results: Results) -> Finding:
    """Compare the models with and without delay, and the delayed staleness with d*."""
    counts, ages = [], {}
    for size, label in CIFAR_DELAYED.items():
        counts.append((results.mean(CIFAR_PLAIN[size], "models"), results.mean(label, "models")))
        ages[int(size)] = results.mean(label, "staleness")
    said = ", ".join(f"S = {size}: {rules.number(age)}" for size, age in ages.items())
    same = all(one == two for one, two in counts)
    why = f"Models with and without delay {'are' if same else 'are not'} equally many."
    return rules.fact(same and ages == D_STAR, f"staleness {said}", why)


TABLE_1 = Entry(
    "seed1-table1",
    "seed1",
    "table I",
    "Global models by slot 100,000, N = 20, tau_comp = 4, r = 1",
    "Only the slots: nothing is trained.",
    (
        Part(
            MAIN,
            FOLDER / "rounds.toml",
            methods(CIFAR_SIZES, "cifar10"),
            small=(seconds(SLOTS[Scale.small]),),
            seeds=(1,),
            measures={"models": measures.models, "staleness": measures.staleness},
            columns=("models", "staleness"),
        ),
    ),
    claims=(
        Claim(
            "The number of global models for S = 1, 2, 5, 10, 20 is as printed",
            f"table I: {', '.join(map(str, PRINTED.values()))}",
            table_1,
        ),
        Claim(
            "Intentional delay costs no round, and updates are d* rounds old",
            "proposition 1; d* = 2, 2, 1 for S = 1, 2, 5",
            free_delay,
        ),
    ),
    hours={Scale.small: 0.01, Scale.paper: 0.1},
)


# ------------------------------------------------------------------ MNIST and CIFAR-10
def over_slots(
    results: Results, families: Mapping[str, Mapping[float, str]]
) -> dict[str, dict[str, list[Point]]]:
    """Return the curves of figs. 3 and 4 (a) and (d): panel -> S -> points."""
    return {
        panel: judges.curves(results, {f"S = {x:g}": label for x, label in each.items()}, SLOT_S)
        for panel, each in families.items()
    }


def loss_figure(families: Mapping[str, Mapping[float, str]]) -> LineFigure:
    """Return the figure of the train loss over slots, without and with delay."""
    return LineFigure(
        "loss",
        "Loss over all devices' data; mean and range of the seeds",
        x="slots",
        y="train loss",
        lines=lambda results: over_slots(results, families),
        log="y",
    )


def mnist(letter: str, config: str, small_slots: int, hours: tuple[float, float]) -> Entry:
    """Return the entry with all runs of a reading on MNIST, for figs. 3, 4 and 5."""
    return Entry(
        READINGS[letter],
        "seed1",
        "runs of figs. 3 to 5, MNIST",
        f"MNIST, S from 1 to 100, without and with delay, reading {letter}",
        READING[letter],
        (
            Part(
                MAIN,
                FOLDER / config,
                methods(MNIST_SIZES),
                overrides=(CHEAP, MARKERS),
                small=(seconds(small_slots),),
                measures=MEASURES,
                columns=COLUMNS,
            ),
        ),
        figures=(loss_figure({"without delay": MNIST_PLAIN, "with delay": MNIST_DELAYED}),),
        data=("mnist",),
        hours=dict(zip(Scale, hours)),
        notes="At S = 50 and 100 no delay is free (alpha = 0): one run stands for both.",
    )


MNIST = (
    mnist("A", "mnist.toml", 5_000, (0.25, 2.1)),
    mnist("B", "mnist_five_steps.toml", 10_000, (2.1, 11.0)),
    mnist("B-unit", "mnist_five_steps_unit.toml", 10_000, (2.1, 11.0)),
)

CIFAR = Entry(
    "seed1-cifar10",
    "seed1",
    "figs. 3 to 5, CIFAR-10",
    "CIFAR-10, N = 20, S from 1 to 20, without and with delay",
    f"{READING['A']} The step size, 0.004, is ours: the paper gives none.",
    (
        Part(
            MAIN,
            FOLDER / "cifar10.toml",
            methods(CIFAR_SIZES, "cifar10"),
            overrides=(CHEAP, "evaluation.every_s=200"),
            small=(seconds(10_000), "evaluation.every_s=50"),
            measures=MEASURES,
            columns=COLUMNS,
        ),
    ),
    claims=(
        Claim(
            "Without delay the loss is lowest at S = 5 or 10",
            "fig. 3 (d): S = 5; the text on fig. 4 says S = 10",
            lambda r: rules.optimum_at(r, CIFAR_PLAIN, judges.LOSS, (5.0, 10.0)),
        ),
        Claim(
            "With intentional delay the loss is lowest at S = 5",
            "fig. 4 (d): from S = 10 to S = 5",
            lambda r: rules.optimum_at(r, CIFAR_DELAYED, judges.LOSS, (5.0,)),
        ),
        Claim(
            "Intentional delay lowers the loss at S = 1, 2 and 5",
            "fig. 5 (b)",
            lambda r: judges.gains(r, CIFAR_PLAIN, CIFAR_DELAYED),
        ),
        Claim(
            "The smaller S, the more intentional delay lowers the loss",
            "fig. 5 (b)",
            lambda r: judges.gain_falls(r, CIFAR_PLAIN, CIFAR_DELAYED),
        ),
    ),
    figures=(loss_figure({"without delay": CIFAR_PLAIN, "with delay": CIFAR_DELAYED}),),
    data=("cifar10",),
    hours={Scale.small: 0.5, Scale.paper: 4.0},
    notes="At S = 10 and 20 no delay is free (alpha = 0): one run stands for both.",
)

# ------------------------------------------------------------------ figs. 6 and 7
SHAPES = {  # part -> config, tau_comp, r
    "50-1": ("mnist.toml", 50, 1),
    "50-5": ("mnist_10_5.toml", 50, 5),
    "10-1": ("mnist_10_1.toml", 10, 1),
    "10-5": ("mnist_2_5.toml", 10, 5),
}
PLAIN_1, DELAYED_1 = "tdma-s1", "idfl-s1"


def unavoidable(results: Results) -> Finding:
    """Compare the staleness with delay with d* = 25, 5, 1."""
    wanted = {
        name: Tdma(100, 1, transfer, computes).d_star
        for name, (_, computes, transfer) in SHAPES.items()
    }
    found = {name: results.mean(DELAYED_1, "staleness", name) for name in wanted}
    said = ", ".join(
        f"tau_comp = {SHAPES[name][1]}, r = {SHAPES[name][2]}: {rules.number(age)}"
        for name, age in found.items()
    )
    return rules.fact(found == wanted, said, f"d* is {', '.join(map(str, wanted.values()))}.")


def long_slots_cost(results: Results) -> Finding:
    """Judge "r = 1 has the lower loss over slots", for both tau_comp, without and with delay."""
    return rules.every(
        {
            f"tau_comp = {computes}, {method}": rules.better(
                results, (f"{computes}-1", method), (f"{computes}-5", method), judges.LOSS
            )
            for computes in (50, 10)
            for method in (PLAIN_1, DELAYED_1)
        }
    )


def per_round(results: Results) -> Finding:
    """Judge "r = 5 can have the lower loss after equally many rounds", with delay."""
    findings = {}
    for computes in (50, 10):
        rounds = results.mean(DELAYED_1, "versions", f"{computes}-5") or 0.0
        ours, theirs = (
            judges.at_version(results, (f"{computes}-{r}", DELAYED_1), rounds) for r in (5, 1)
        )
        findings[f"tau_comp = {computes}"] = judges.smaller(
            ours, theirs, f"loss after {rounds:.0f} rounds, r = 5 and r = 1"
        )
    return rules.some(findings)


def other_times(x: str) -> LineFigure:
    """Return fig. 6 (x: emulated_s, as slots) or fig. 7 (x: version, as rounds)."""
    shown = "slots" if x == "emulated_s" else "rounds"

    def lines(results: Results) -> dict[str, dict[str, list[Point]]]:
        return {
            panel: judges.curves(
                results,
                {f"tau = {t}, r = {r}": (name, method) for name, (_, t, r) in SHAPES.items()},
                SLOT_S,
                x,
            )
            for panel, method in (("without delay", PLAIN_1), ("with delay", DELAYED_1))
        }

    title = f"S = 1, other computing and transfer times: loss over {shown}"
    return LineFigure(shown, title, x=shown, y="train loss", lines=lines, log="y")


TIMES = Entry(
    "seed1-fig6",
    "seed1",
    "figs. 6 and 7",
    "S = 1: tau_comp = 50 and 10, r = 1 and 5, without and with delay",
    f"{READING['A']} tau_comp / r is 50, 10, 10 and 2.",
    tuple(
        Part(
            name,
            FOLDER / config,
            (MethodPlan(PLAIN_1), MethodPlan(DELAYED_1)),
            overrides=(CHEAP, MARKERS),
            small=(seconds(5_000),),
            measures=MEASURES,
            columns=COLUMNS,
            title=f"tau_comp = {computes}, r = {transfer}",
        )
        for name, (config, computes, transfer) in SHAPES.items()
    ),
    claims=(
        Claim(
            "With the longest free delay updates are d* = 25, 5, 5 and 1 rounds old",
            "fig. 6, text: tau_comp / r = 50, 10, 2 give alpha = 74, 94, 98",
            unavoidable,
        ),
        Claim(
            "Over slots, the loss with r = 5 is higher than with r = 1", "fig. 6", long_slots_cost
        ),
        Claim(
            "Over rounds, r = 5 with delay can have a lower loss than r = 1 with delay",
            "fig. 7",
            per_round,
        ),
    ),
    figures=(other_times("emulated_s"), other_times("version")),
    data=("mnist",),
    hours={Scale.small: 0.1, Scale.paper: 0.8},
)

ENTRIES = (TABLE_1, *MNIST, CIFAR, TIMES)
