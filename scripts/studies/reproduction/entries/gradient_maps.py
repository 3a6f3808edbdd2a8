"""WKAFL: what decides its margin, and where it pays: pixels, labels per device, staleness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from reproduction import rules
from reproduction.entries._gradient_measures import WEIGHTS
from reproduction.entries.gradients import ABLATIONS, ACCURACY, FOLDER, ONE, RATE, READING, TABLE3
from reproduction.entry import Claim, Entry, LineFigure, MethodPlan, Part, Point, Scale, Tuning
from reproduction.results import NoResults, Results

# ------------------------------------------------------------------ pixels
STANDARD_RATES = (0.005, 0.015, 0.05, 0.15)
STANDARD = replace(
    ONE,
    methods=(
        MethodPlan("wkafl", {RATE: STANDARD_RATES}),
        MethodPlan("twafl", {RATE: STANDARD_RATES}),
        MethodPlan(ABLATIONS[0], tuned_as="wkafl"),
    ),
    overrides=("data.scale='standard'", "stop.emulated_s=11.4", "evaluation.every_s=1.14"),
    small=("stop.emulated_s=2.0", "evaluation.every_s=0.7"),
    tuning=Tuning(share=0.3),
    columns=(ACCURACY, *WEIGHTS),
    title="Standardised pixels, one label per device, 1,000 steps",
)
PIXELS = Entry(
    "seed4-pixels",
    "seed4",
    "ours",
    "WKAFL's clipping and selection on standardised pixels",
    "As seed4-table3 with pixels minus their mean, divided by their deviation, and a fifth of the"
    " time. WKAFL's constants are those for raw pixels.",
    (STANDARD,),
    claims=(
        Claim(
            "On standardised pixels fewer than one gradient in a hundred reaches the bound of 100",
            "not in the paper; its code does not rescale these pixels",
            lambda r: rules.at_most(r, "wkafl", "clipped_share", 0.01),
            cause="the rate decides how long gradients are",
        ),
        Claim(
            "On standardised pixels selection leaves nearly one label: its share is at least .8",
            "not in the paper",
            lambda r: rules.at_least(r, "wkafl", "largest_label", 0.8),
            cause="the column effective",
        ),
        Claim(
            "On standardised pixels selection makes WKAFL less accurate with one label per device",
            "not in the paper, in which selection helps (figure 5)",
            lambda r: rules.better(r, ABLATIONS[0], "wkafl", ACCURACY),
            cause="the column largest_label",
        ),
    ),
    data=("mnist",),
    hours={Scale.small: 0.1, Scale.paper: 0.5},
    notes=f"The same numbers on raw pixels are in {TABLE3}.",
)

# ------------------------------------------------------------------ the map
LABELS = (1, 2, 5, 10)
EDGES: Mapping[int, tuple[int, float]] = {  # P/K at K = 10 -> devices, emulated s of 1,500 steps
    20: (200, 83.0),
    100: (1000, 16.6),
    300: (3000, 5.5),
}
CENTRE = (2, 100)
CLIPPED = {"clip_norm": 100.0, "report_shares": True}


def cell_name(labels: int, ratio: int) -> str:
    return "main" if (labels, ratio) == CENTRE else f"l{labels}-p{ratio}"


def cell(labels: int, ratio: int) -> Part:
    """Return the runs with ``labels`` per device at P/K = ``ratio``, with the centre's rates."""
    edges, seconds = EDGES[ratio]
    grids: Mapping[str, Sequence[float]] = {
        "wkafl": (0.0005, 0.002, 0.008, 0.032),
        "twafl": (0.0005, 0.002, 0.008, 0.032),
        "k-async": (5e-6, 2e-5, 8e-5, 3.2e-4),
    }
    is_centre = (labels, ratio) == CENTRE
    axes = {name: {RATE: grid} if is_centre else {} for name, grid in grids.items()}
    return Part(
        cell_name(labels, ratio),
        FOLDER / "mnist_1000_10.toml",
        (
            MethodPlan("wkafl", axes["wkafl"], {"stage_two_at": 300, "report_shares": True}),
            MethodPlan("twafl", axes["twafl"], CLIPPED, name="twafl-clipped"),
            MethodPlan("k-async", axes["k-async"], {"report_shares": True}),
        ),
        overrides=(
            "data.scale='raw'",
            f"partition.labels={labels}",
            f"edges.count={edges}",
            f"stop.emulated_s={seconds}",
            "stop.versions=100000",
            "evaluation.every_versions=150",
            "evaluation.by_label=true",
        ),
        small=(f"stop.emulated_s={seconds / 15:.2f}", "evaluation.every_versions=50"),
        seeds=(1, 2),
        tuning=Tuning(share=0.5) if is_centre else None,
        settings_of="" if is_centre else "main",
        measures=WEIGHTS,
        columns=(ACCURACY, "staleness_mean", *WEIGHTS),
        title=f"{labels} label{'' if labels == 1 else 's'} per device, P/K = {ratio}",
    )


def gains(results: Results) -> Mapping[str, Mapping[str, Sequence[Point]]]:
    """Return WKAFL's gain in accuracy over P/K, a line per number of labels."""
    panels: dict[str, dict[str, list[Point]]] = {}
    for other in ("twafl-clipped", "k-async"):
        lines = panels.setdefault(f"over {other}", {})
        for labels in LABELS:
            lines[f"{labels} per device"] = [
                point for ratio in EDGES for point in gain(results, other, labels, ratio)
            ]
    return panels


def gain(results: Results, other: str, labels: int, ratio: int) -> list[Point]:
    """Return the gain of a cell with the range of the seeds; [] without runs."""
    part = cell_name(labels, ratio)
    try:
        found = rules.paired(results, (part, "wkafl"), (part, other), ACCURACY)
    except NoResults:
        return []
    values = found.differences.values()
    return [Point(float(ratio), found.mean, min(values), max(values))]


CELLS = tuple(
    cell(labels, ratio)
    for labels, ratio in [CENTRE, *((n, p) for n in LABELS for p in EDGES if (n, p) != CENTRE)]
)
MAP = Entry(
    "seed4-map",
    "seed4",
    "ours",
    "Where selecting gradients pays: labels per device and staleness",
    f"LeNet, 1,500 steps. {READING}",
    CELLS,
    figures=(
        LineFigure(
            "gain",
            "WKAFL's gain in accuracy over TWAFL with the same clipping, and over K-async SGD;"
            " bars: both seeds",
            x="P/K",
            y="gain in accuracy",
            lines=gains,
            log="x",
            zero=True,
        ),
    ),
    data=("mnist",),
    hours={Scale.small: 0.2, Scale.paper: 1.0},
    notes="The learning rates are those that are best with two labels per device at P/K = 100.",
)

ENTRIES = (PIXELS, MAP)
