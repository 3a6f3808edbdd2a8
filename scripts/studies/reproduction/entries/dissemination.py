"""Timely dissemination on LeNet and Fashion-MNIST: the main table of the journal paper under both
readings of an epoch, and that of the conference paper.
"""

from __future__ import annotations

from reproduction import rules
from reproduction.entries._dissemination import (
    ACCURACY,
    DA,
    FA,
    FEDASMU,
    FEDASYNC,
    FEDAVG,
    FEDBUFF,
    FEDSSMU,
    FIFTH,
    FMNIST,
    HOURS,
    MERGE_CAUSE,
    NOT_GIVEN,
    ONE_POINT,
    PASS,
    READINGS,
    STEP_CAUSE,
    TIME,
    WEIGHT_CAUSE,
    ZERO,
    Reading,
    falls,
    merging_counts,
    one_more_model,
    weight_follows_staleness,
)
from reproduction.entry import (
    Claim,
    CurveFigure,
    Entry,
    Finding,
    MethodPlan,
    Part,
    Scale,
)
from reproduction.results import Results

ASYNC_BASELINES = ("fedasync", "fedbuff")


# ------------------------------------------------------------------ the main table
def _table(reading: Reading, methods: tuple[MethodPlan, ...], more: tuple[Part, ...]) -> Entry:
    """Return the entry of the journal's table 4 for a reading, with the ablations of fig. 9."""
    name = f"seed0-table4-{reading.key}"
    return Entry(
        name,
        "seed0",
        "table 4, fig. 9",
        f"LeNet on Fashion-MNIST, an epoch is a {_word(reading)}",
        reading.text,
        (reading.part("main", methods, tuned=True, title="Methods"), *more),
        claims=(*MAIN_CLAIMS, *_ablation_claims("ablation" if more else "main")),
        figures=(CurveFigure("accuracy", "Test accuracy over emulated time, LeNet on FMNIST"),),
        data=FMNIST,
        hours=HOURS[name],
        notes=NOT_GIVEN,
    )


def _word(reading: Reading) -> str:
    return "pass over the data" if reading is PASS else "mini-batch"


def _fedssmu_against_fedavg(results: Results) -> Finding:
    return rules.every(
        {
            "accuracy": rules.better(results, "fedssmu", "fedavg", ACCURACY, least=ONE_POINT),
            "time": rules.better(results, "fedssmu", "fedavg", TIME),
        }
    )


MAIN_CLAIMS = (
    Claim(
        "FedASMU is more accurate than FedAsync and FedBuff",
        "table 4: .858 against .839 and .827",
        lambda r: rules.best(r, "fedasmu", ASYNC_BASELINES, ACCURACY, least=ONE_POINT),
        cause=STEP_CAUSE,
        needs=("main",),
    ),
    Claim(
        "FedASMU reaches the target accuracy .70 before FedAsync and FedBuff",
        "table 4: 11,603 s against 15,941 s and 16,953 s",
        lambda r: rules.best(r, "fedasmu", ASYNC_BASELINES, TIME),
        cause=STEP_CAUSE,
        needs=("main",),
    ),
    Claim(
        "FedSSMU is more accurate than FedAvg, and reaches the target before it",
        "table 4: .858 against .780; 13,753 s against 97,692 s",
        _fedssmu_against_fedavg,
        needs=("main",),
    ),
    Claim(
        "Asynchronous methods reach the target before FedAvg",
        "table 4: FedASMU 11,603 s, FedAsync 15,941 s, FedBuff 16,953 s, FedAvg 97,692 s",
        lambda r: rules.every(
            {
                method: rules.better(r, method, "fedavg", TIME)
                for method in ("fedasmu", *ASYNC_BASELINES)
            }
        ),
        needs=("main",),
    ),
    Claim(
        "FedASMU and FedSSMU reach the same accuracy",
        "table 4: both .858",
        lambda r: rules.equal(r, "fedasmu", "fedssmu", ACCURACY, ONE_POINT),
        needs=("main",),
    ),
    Claim(
        "Merging a fresh model reduces the staleness of what arrives",
        "section 4.1, no number",
        lambda r: falls(r, "fedasmu", "staleness_before", "staleness_after"),
        needs=("main",),
    ),
    Claim(
        "Merging is not negligible at mid-run (our condition: the median beta is at least 0.1)",
        "no number; the papers do not give mu_beta",
        lambda r: merging_counts(r, "fedasmu"),
        needs=("main",),
    ),
    Claim(
        "The weight of an update depends on its staleness (ours: on a tenth of xi or more)",
        "eq. 2, no number",
        lambda r: weight_follows_staleness(r, "fedasmu"),
        cause="With lambda = 1 and sigma = 0.5, version and staleness supply 0.01 of xi at"
        " version 2,000 and staleness 5; iota, which was tuned, is larger.",
        needs=("main",),
    ),
    Claim(
        "Fresh models cost at most one more model per task on the downlink",
        "section 6.2.5: acceptable extra costs, no number",
        lambda r: one_more_model(r, "fedasmu"),
        needs=("main",),
    ),
)


def _ablation_claims(part: str) -> tuple[Claim, ...]:
    """Return the claims of fig. 9, which the papers make on CIFAR-10."""

    def both(one: str, other: str, least: float) -> Claim:
        published = ABLATIONS[one, other]
        return Claim(
            f"{one} is better than {other}",
            published,
            lambda r: rules.every(
                {
                    "accuracy": rules.better(r, (part, one), (part, other), ACCURACY, least=least),
                    "time": rules.better(r, (part, one), (part, other), TIME),
                }
            ),
            cause=MERGE_CAUSE,
            needs=(part,),
        )

    return (
        Claim(
            "fedasmu is more accurate than fedasmu-da: learned weights help",
            "fig. 9 (CIFAR-10): 1.38 to 4.32 points",
            lambda r: rules.better(
                r, (part, "fedasmu"), (part, "fedasmu-da"), ACCURACY, least=ONE_POINT
            ),
            cause=WEIGHT_CAUSE,
            needs=(part,),
        ),
        Claim(
            "fedasmu-fa is more accurate than fedasmu-0: learned weights help without merging",
            "fig. 9 (CIFAR-10): 0.65 to 3.04 points",
            lambda r: rules.better(
                r, (part, "fedasmu-fa"), (part, "fedasmu-0"), ACCURACY, least=ONE_POINT / 2
            ),
            cause=WEIGHT_CAUSE,
            needs=(part,),
        ),
        both("fedasmu", "fedasmu-fa", ONE_POINT),
        both("fedasmu-da", "fedasmu-0", ONE_POINT),
    )


ABLATIONS = {
    ("fedasmu", "fedasmu-fa"): (
        "fig. 9 (CIFAR-10): 1.75 to 4.71 points and 44.8 to 74.0 % faster: merging helps"
    ),
    ("fedasmu-da", "fedasmu-0"): (
        "fig. 9 (CIFAR-10): 1.04 to 3.41 points and 15.7 to 19.5 % faster: merging helps with fixed"
        " weights"
    ),
}
BATCH_TABLE = _table(READINGS[0], (FEDASMU, DA, FA, ZERO, FEDASYNC, FEDBUFF, FEDSSMU, FEDAVG), ())
# A run of this reading costs four times as much, so the ablations get a fifth of the budget. They
# take the tuned values of the whole scheme and of FedAsync.
PASS_TABLE = _table(
    PASS,
    (FEDASMU, FEDASYNC, FEDBUFF, FEDSSMU, FEDAVG),
    (
        PASS.part(
            "ablation",
            (
                MethodPlan("fedasmu"),
                MethodPlan("fedasmu-da", options={"mu_beta": 30.0}, tuned_as="fedasync"),
                MethodPlan("fedasmu-fa", tuned_as="fedasmu"),
                MethodPlan("fedasmu-0", tuned_as="fedasync"),
            ),
            share=FIFTH,
            settings_of="main",
            title="Ablations, a fifth of the budget",
        ),
    ),
)


# ------------------------------------------------------------------ the conference's numbers
def _in_readings(claim: str, published: str, index: int) -> Claim:
    """Return a claim of the conference paper, judged as the journal's claim ``index``."""

    def in_reading(results: Results, reading: Reading) -> Finding:
        return MAIN_CLAIMS[index].judge(results.of(f"seed0-table4-{reading.key}"))

    def judge(results: Results) -> Finding:
        return rules.some(
            {
                f"an epoch is a {_word(reading)}": rules.judged(
                    lambda r, reading=reading: in_reading(r, reading), results
                )
                for reading in READINGS
            }
        )

    return Claim(claim, published, judge)


CONFERENCE = Entry(
    "seed2-table2",
    "seed2",
    "table 2",
    "FedASMU against others, LeNet on Fashion-MNIST",
    "Both readings of an epoch; a statement holds if it holds in one of them. The runs are those of"
    " seed0-table4-batch and seed0-table4-pass.",
    (),
    uses=tuple(f"seed0-table4-{reading.key}" for reading in READINGS),
    claims=(
        _in_readings(
            "FedASMU is more accurate than FedAsync and FedBuff",
            "table 2: .829 against .779 and .767",
            0,
        ),
        _in_readings(
            "FedASMU reaches the target accuracy .70 before FedAsync and FedBuff",
            "table 2: 8,250 s against 12,371 s and 27,179 s",
            1,
        ),
        _in_readings(
            "Asynchronous methods reach the target before FedAvg",
            "table 2: 8,250 s, 12,371 s and 27,179 s against 65,000 s",
            3,
        ),
    ),
    data=FMNIST,
    hours={Scale.small: 0.0, Scale.paper: 0.0},
    notes="The other pairs of model and data are registered as seed0-table4-MODEL-DATA.",
)


ENTRIES = (BATCH_TABLE, PASS_TABLE, CONFERENCE)
