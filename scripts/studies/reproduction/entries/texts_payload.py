"""What travels on slow links when only adapters or the head of a text model are trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from reproduction import rules
from reproduction.entries.texts import (
    ACCURACY,
    ALL_RATES,
    COMMON,
    CONFIG,
    LORA,
    LORA_RATES,
    MAJORITY,
    MEASURES,
    ON_GPU,
    PREPARED,
    SMALL,
    TRAINED,
    WHOLE,
)
from reproduction.entry import Claim, Entry, Finding, LineFigure, MethodPlan, Part, Point, Scale
from reproduction.results import NoResults, Results

UP_KBIT_S = {"nb-iot": 25.0, "dsl": 1000.0, "lte": 7600.0}
KINDS = {  # model.train -> the changes of its rows
    "all": (*WHOLE, ALL_RATES.change),
    "lora": (*LORA, LORA_RATES.change),
    "head": ("model.train='head'", "training.learning_rate=1e-3"),
}
VERSIONS = 8
TARGET = 0.67  # two points above the majority class of the validation part
TOLD = {"all": "every weight", "lora": "adapters", "head": "head"}
PAYLOAD_PART = Part(
    "main",
    CONFIG,
    tuple(
        MethodPlan(
            "fedbuff",
            options={"concurrency": 2, "buffer_size": 2},
            name=f"{link}-{kind}",
            changes=(f"links={{profile='{link}'}}", *changes),
        )
        for link in UP_KBIT_S
        for kind, changes in KINDS.items()
    ),
    overrides=(
        *COMMON,
        "data.length=48",
        "data.test='validation'",  # a quarter of the test part's pairs
        "unlabelled.size=10",  # FedBuff has no use for them
        "devices={spread='uniform', samples_per_s=20.0, slowest_ratio=3.0}",
        "partition={name='iid'}",
        f"stop.versions={VERSIONS}",
        "evaluation.every_versions=2",
        "evaluation.by_label=true",
        f"evaluation.target_accuracy={TARGET}",
    ),
    small=SMALL,
    small_seeds=(1,),
    measures=MEASURES,
    columns=(
        "update_mb",
        "bytes_up",
        "bytes_down",
        "emulated_s",
        "time_to_target_s",
        ACCURACY,
        MAJORITY,
    ),
    title="FedBuff: link and what is trained",
)


def times(results: Results) -> Mapping[str, Mapping[str, Sequence[Point]]]:
    """Return emulated hours over the rate of the uplink, a line per kind of training."""
    return {
        title: {TOLD[kind]: hours(results, kind, column) for kind in KINDS}
        for column, title in (
            ("time_to_target_s", f"to accuracy {TARGET:g}"),
            ("emulated_s", "whole run"),
        )
    }


def hours(results: Results, kind: str, column: str) -> list[Point]:
    """Return a point per link with the seeds' range; none for a link without the number."""
    points = []
    for link, rate in UP_KBIT_S.items():
        if not results.has(f"{link}-{kind}"):
            continue
        values = list(results.values(f"{link}-{kind}", column).values())
        there = [value / 3600 for value in values if value is not None]
        if there and len(there) == len(values):
            points.append(Point(rate, sum(there) / len(there), min(there), max(there)))
    return points


def smaller(column: str, most: float) -> Callable[[Results], Finding]:
    """Judge "with adapters ``column`` is at most ``most`` of the whole model's", on every link."""

    def judge(results: Results) -> Finding:
        shares = {}
        for link in UP_KBIT_S:
            whole, lora = (results.mean(f"{link}-{kind}", column) for kind in TRAINED)
            if lora is None or not whole:
                raise NoResults(f"{results.entry.name}: {link} has no {column}")
            shares[link] = lora / whole
        told = ", ".join(f"{link} {share:.3g}" for link, share in shares.items())
        return rules.fact(max(shares.values()) <= most, told, f"Shares: {told}.")

    return judge


PAYLOAD = Entry(
    "seed3-payload",
    "seed3",
    "ours",
    "What an adapter does on slow links: MiniLM on MRPC behind NB-IoT, DSL and LTE",
    "FedBuff with M = 2, two of ten devices at work, whose speeds differ by a factor of three; each"
    f" has a random tenth of the data. {VERSIONS} versions on every link; tasks as in"
    " seed3-mrpc-minilm, with texts cut to 48 tokens. Tested on the 408 pairs of the validation"
    " part, so that two cores can do it in an hour and a half.",
    (PAYLOAD_PART,),
    claims=(
        Claim(
            "An update with adapters has at most a twentieth of the whole model's bytes",
            "not in the paper",
            smaller("update_mb", 0.05),
        ),
        Claim(
            "With adapters the same number of versions takes at most a tenth of the time",
            "not in the paper",
            smaller("emulated_s", 0.1),
            cause="where links are fast the devices' computing is what is left",
        ),
        *(
            Claim(
                f"On {link} adapters reach accuracy {TARGET:g} sooner than the whole model",
                "not in the paper",
                lambda r, link=link: rules.better(
                    r, f"{link}-lora", f"{link}-all", "time_to_target_s"
                ),
            )
            for link in UP_KBIT_S
        ),
        Claim(
            "The head alone is less accurate than adapters",
            "not in the paper",
            lambda r: rules.better(r, "lte-lora", "lte-head", ACCURACY),
        ),
    ),
    figures=(
        LineFigure(
            "time",
            "Emulated time over the rate of the uplink; bars: the seeds' range",
            x="uplink (kbit/s)",
            y="emulated hours",
            lines=times,
            log="xy",
        ),
    ),
    data=("mrpc",),
    hours={Scale.small: 0.05, Scale.paper: 2.2},
    notes=f"{PREPARED} {ON_GPU}",
)

ENTRIES = (PAYLOAD,)
