"""FedEcho: its ablations, what decides its margin, and where it pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from reproduction import rules
from reproduction.entries.stragglers import ACCURACY, COLUMNS, FOLDER, LARGE, READING, TABLE2
from reproduction.entry import Claim, CurveFigure, Entry, LineFigure, MethodPlan, Part, Point, Scale
from reproduction.results import NoResults, Results

# ------------------------------------------------------------------ ablations
VARIANTS = (
    "fedecho",
    "alpha-0",
    "alpha-half",
    "alpha-1",
    "samples-500",
    "samples-1000",
    "samples-5000",
    "clip-1",
    "clip-none",
)
ABLATIONS = Entry(
    "seed3-ablations",
    "seed3",
    "tables 6, 7 and 11",
    "FedEcho's weight of KL, number of samples, and clipping, in small",
    READING,
    (
        replace(
            LARGE,
            config=FOLDER / "fmnist_lenet_ablations.toml",
            methods=tuple(MethodPlan(name, tuned_as="fedecho") for name in VARIANTS),
            seeds=(1, 2, 3),
            tuning=None,
            settings_of=f"{TABLE2}/main",
            columns=(*COLUMNS[:4], "alpha"),
            title="Variants that differ from fedecho in one value",
        ),
    ),
    claims=(
        Claim(
            "More samples without labels give more accuracy: 500, 1000, 2000, 5000",
            "table 6: .6186, .6791, .7539, .7703",
            lambda r: rules.order(
                r, ["samples-5000", "fedecho", "samples-1000", "samples-500"], ACCURACY
            ),
        ),
        Claim(
            "Cross-entropy alone is worse than KL alone, a fixed half, and the entropy's weight",
            "table 7: .7101 against .7486, .7492 and .7539",
            lambda r: rules.every(
                {
                    other: rules.better(r, other, "alpha-0", ACCURACY)
                    for other in ("alpha-1", "alpha-half", "fedecho")
                }
            ),
        ),
        Claim(
            "The entropy's weight is better than any fixed one",
            "table 7: .7539 against .7492 (half), .7486 (KL), deviations .025 to .031",
            lambda r: rules.best(r, "fedecho", ["alpha-half", "alpha-1", "alpha-0"], ACCURACY),
            cause="the column alpha: how far the entropy moves the weight from a half",
        ),
        Claim(
            "Clipping at 5 is better than at 1 and than none",
            "table 11: .7539 against .7438 and .7414, deviations .021 to .029",
            lambda r: rules.best(r, "fedecho", ["clip-1", "clip-none"], ACCURACY),
            cause="Adam's steps do not depend on the scale of the gradient: clipping all of them"
            " alike changes nothing",
        ),
    ),
    figures=(CurveFigure("accuracy", "Test accuracy of the variants over emulated time"),),
    data=("fashion_mnist", "mnist"),
    hours={Scale.small: 0.3, Scale.paper: 8.5},
    uses=(TABLE2,),
)

# ------------------------------------------------------------------ the map
SAMPLES = (100, 500, 2000)
DELAYS: Mapping[str, tuple[str, ...]] = {  # all make about five rounds in 25 emulated s
    "main": (),  # large
    "mild": ("devices.long='mild'",),
    "none": ("devices.spread='uniform'", "devices.samples_per_s=100.0"),
}
SECONDS = 400.0  # about 80 rounds
FADAS, PLAIN, HELD_OUT = "fadas-adaptive", "no-distillation", "held-out"


def echo(samples: int) -> MethodPlan:
    """Return FedEcho with a part of the samples without labels."""
    options = {"unlabelled_samples": samples}
    return MethodPlan("fedecho", options=options, name=f"fedecho-{samples}", tuned_as="fedecho")


def map_part(name: str, *overrides: str, methods: Sequence[MethodPlan], title: str) -> Part:
    """Return runs with the settings of seed3-table2."""
    return replace(
        LARGE,
        name=name,
        methods=tuple(methods),
        overrides=(*LARGE.overrides, f"stop.emulated_s={SECONDS}", *overrides),
        small=(f"stop.emulated_s={SECONDS / 4}", "evaluation.every_versions=5"),
        seeds=(1, 2),
        tuning=None,
        settings_of=f"{TABLE2}/main",
        columns=COLUMNS[:4],
        title=title,
    )


# FedBuff without a weight for staleness is FedEcho without its distillation, at its local rate
COMPARED = (
    *(echo(samples) for samples in SAMPLES),
    MethodPlan(FADAS),
    MethodPlan("fedbuff", name=PLAIN, tuned_as="fedecho"),
)
TITLES = {"main": "Large delay", "mild": "Mild delay", "none": "All devices alike"}
CELLS = (
    *(
        map_part(name, *changes, methods=COMPARED, title=TITLES[name])
        for name, changes in DELAYS.items()
    ),
    map_part(
        HELD_OUT,
        "unlabelled.data='held_out'",
        methods=[echo(2000)],
        title="Large delay, samples of the same domain: training images that no device has",
    ),
)


def gains(results: Results) -> Mapping[str, Mapping[str, Sequence[Point]]]:
    """Return FedEcho's gain in accuracy over the number of samples, a line per delay."""
    return {
        f"over {title}": {
            TITLES[part].lower(): [
                point for samples in SAMPLES for point in gain(results, part, other, samples)
            ]
            for part in DELAYS
        }
        for other, title in ((FADAS, "FADAS, delay-adaptive"), (PLAIN, "no distillation"))
    }


def gain(results: Results, part: str, other: str, samples: int) -> list[Point]:
    """Return a point with the range of the seeds; [] without runs."""
    try:
        found = rules.paired(results, (part, f"fedecho-{samples}"), (part, other), ACCURACY)
    except NoResults:
        return []
    values = found.differences.values()
    return [Point(float(samples), found.mean, min(values), max(values))]


MAP = Entry(
    "seed3-map",
    "seed3",
    "ours",
    "Where distilling pays: delay, and samples without labels",
    f"80 rounds. {READING}",
    CELLS,
    claims=(
        Claim(
            "Under large delay the distillation gives FedEcho's margin: without it accuracy falls",
            "not in the paper, which has no such ablation",
            lambda r: rules.better(r, "fedecho-2000", PLAIN, ACCURACY),
            needs=("main",),
        ),
        Claim(
            "Under large delay adaptive server steps alone, without public data, gain as much as"
            " the distillation, within .03",
            "not in the paper",
            lambda r: rules.equal(r, "fedecho-2000", FADAS, ACCURACY, 0.03),
            cause="fedecho-100, fedecho-500 and held-out in this map: what the public data give",
            needs=("main",),
        ),
        Claim(
            "With 100 samples without labels FedEcho is less accurate than with 2,000",
            "table 6 has .6186 with 500 and .7539 with 2,000",
            lambda r: rules.better(r, "fedecho-2000", "fedecho-100", ACCURACY),
            needs=("main",),
        ),
        Claim(
            "Samples of the same domain are better than those of another one",
            "table 2 compares CIFAR-100, STL-10 and synthetic images: .7539, .7781, .7493",
            lambda r: rules.better(r, (HELD_OUT, "fedecho-2000"), "fedecho-2000", "final_accuracy"),
            needs=("main", HELD_OUT),
        ),
    ),
    figures=(
        LineFigure(
            "gain",
            "FedEcho's gain in accuracy over the number of samples without labels; bars: both"
            " seeds",
            x="samples without labels",
            y="gain in accuracy",
            lines=gains,
            log="x",
            zero=True,
        ),
    ),
    data=("fashion_mnist", "mnist"),
    hours={Scale.small: 0.3, Scale.paper: 1.0},
    uses=(TABLE2,),
    notes="The settings are those of seed3-table2. no-distillation is FedBuff without a weight for"
    " staleness, at FedEcho's local rate: FedEcho without its distillation.",
)

ENTRIES = (ABLATIONS, MAP)
