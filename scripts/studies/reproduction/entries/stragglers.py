"""FedEcho (arXiv 2511.19966) and the buffered methods it is compared with, in small.

LeNet on Fashion-MNIST, with MNIST's digits as samples without labels, in the emulated time of 500
rounds. ResNet-18 for 500 rounds takes weeks on two cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reproduction import rules
from reproduction.entries._distillation_measures import alpha, checkpoints, long_accuracy
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
from reproduction.results import NoResults, Results

FOLDER = CONFIGS / "fedecho"
ACCURACY, LONG = "convergence_accuracy", "long_accuracy"
TABLE2 = "seed3-table2"
OTHERS = ("fedbuff", "ca2fl", "fedac", "fadas")
BASELINES = {"fedbuff": 52.85, "ca2fl": 55.33, "fedac": 62.06, "fadas": 61.25}  # table 2, Dir(.1)
LOCAL, SERVER, DISTIL = "local_learning_rate", "server_learning_rate", "distil_learning_rate"

# Four settings of each method, of the rates that matter for it. The paper's distillation rate of
# 3e-6 is for a model with 180 times as many weights.
ADAPTIVE = {LOCAL: (0.03, 0.1), SERVER: (1e-3, 3e-3)}
AVERAGING = {LOCAL: (0.003, 0.01, 0.03, 0.1)}
FEDECHO = MethodPlan("fedecho", {LOCAL: (0.01, 0.03), DISTIL: (3e-4, 1e-3)})
FADAS_ADAPTIVE = MethodPlan("fadas-adaptive", ADAPTIVE)
PAIR = (FEDECHO, FADAS_ADAPTIVE)

READING = (
    "LeNet on Fashion-MNIST in place of ResNet-18 on CIFAR-10, with 2,000 of MNIST's digits as"
    " samples without labels; devices, delays, M, concurrency and local training as in the paper;"
    " its 500 rounds are read as the emulated time of 500 rounds, the same for all methods. One"
    " pass over the samples per distillation, in batches of 128: the paper gives neither."
)
MEASURES = {LONG: long_accuracy, "checkpoints": checkpoints, "alpha": alpha}
COLUMNS = (ACCURACY, "final_accuracy", LONG, "versions", "staleness_mean", "updates_discarded")
TIME = "stop.emulated_s=2400.0"  # 500 rounds
SMALL = ("stop.emulated_s=150.0", "evaluation.every_versions=5")

LARGE = Part(
    "main",
    FOLDER / "fmnist_lenet.toml",
    PAIR,
    overrides=(TIME, "stop.versions=100000", "evaluation.every_versions=10"),
    small=SMALL,
    seeds=(1, 2, 3, 4, 5),
    small_seeds=(1,),
    tuning=Tuning(share=0.1),
    measures=MEASURES,
    columns=(*COLUMNS, "alpha", "checkpoints"),
    title="Large delay: FedEcho and FADAS with delay-adaptive steps, five seeds",
)
OTHER = replace(
    LARGE,
    name="others",
    methods=(
        MethodPlan("fedbuff", AVERAGING),
        MethodPlan("ca2fl", AVERAGING),
        MethodPlan("fedac", {LOCAL: (0.01, 0.03), SERVER: (1e-3, 3e-3)}),
        MethodPlan("fadas", ADAPTIVE),
    ),
    seeds=(1, 2, 3),
    columns=COLUMNS,
    title="Large delay: the paper's other methods",
)
MILD = replace(
    LARGE,
    name="mild",
    config=FOLDER / "fmnist_lenet_mild.toml",
    methods=tuple(MethodPlan(each.label) for each in PAIR),
    seeds=(1, 2, 3),
    tuning=None,
    settings_of="main",
    title="Mild delay: FedEcho and FADAS with delay-adaptive steps",
)


def _margin(other: str, published: float) -> Claim:
    return Claim(
        f"FedEcho is more accurate than {other} under large delay",
        f"table 2, Dir(.1): .7539 against .{published * 100:.0f}",
        lambda r: rules.better(r, "fedecho", ("others", other), ACCURACY),
        cause="seed3-map: the margin without the distillation, and over the number of samples",
        needs=("main", "others"),
    )


TABLE_2 = Entry(
    TABLE2,
    "seed3",
    "table 2",
    "FedEcho and the methods it is compared with, in small",
    READING,
    (LARGE, OTHER, MILD),
    claims=(
        *(_margin(name, published) for name, published in BASELINES.items()),
        Claim(
            "FedEcho is more accurate than FADAS with delay-adaptive steps under large delay",
            "not in the paper, which compares with FADAS without them",
            lambda r: rules.better(r, "fedecho", "fadas-adaptive", ACCURACY),
            cause="seed3-map: what the public data give, and what adaptive server steps alone give",
            needs=("main",),
        ),
        Claim(
            "FedEcho is more accurate than FADAS with delay-adaptive steps under mild delay",
            "not in the paper: table 2 has .7969 against .6551 for FADAS without them",
            lambda r: rules.better(r, ("mild", "fedecho"), ("mild", "fadas-adaptive"), ACCURACY),
            cause="seed3-map: the same over the delay and the number of samples",
            needs=("mild",),
        ),
        Claim(
            "FedEcho is level under large and mild delay, within .05",
            "table 2, Dir(.1): .7969 to .7539",
            lambda r: rules.equal(r, ("mild", "fedecho"), "fedecho", ACCURACY, 0.05),
            needs=("main", "mild"),
        ),
        Claim(
            "FedAC and FADAS are more accurate than FedBuff and CA2FL under large delay",
            "table 2, Dir(.1): .6206 and .6125 against .5285 and .5533",
            lambda r: rules.every(
                {
                    f"{one} before {other}": rules.better(
                        r, ("others", one), ("others", other), ACCURACY
                    )
                    for one in ("fedac", "fadas")
                    for other in ("fedbuff", "ca2fl")
                }
            ),
            needs=("others",),
        ),
        Claim(
            "FedEcho keeps what only the slowest devices have seen better than FADAS with"
            " delay-adaptive steps",
            "section 1: the knowledge of stragglers is preserved (no number)",
            lambda r: rules.better(r, "fedecho", "fadas-adaptive", LONG),
            cause="seed3-map: the same over the number of samples without labels",
            needs=("main",),
        ),
        Claim(
            "The server stores at most eight models",
            "section 5.1: at most 8 checkpoints",
            lambda r: rules.at_most(r, "fedecho", "checkpoints", 8.0),
            cause="a slow device keeps its model for as long as it computes; with 25 devices at"
            " work, each very slow one adds a model",
            needs=("main",),
        ),
    ),
    figures=(
        CurveFigure("accuracy", "Test accuracy over emulated time, large and mild delay"),
        CurveFigure("loss", "Test loss of the same runs", column="loss"),
    ),
    data=("fashion_mnist", "mnist"),
    hours={Scale.small: 0.6, Scale.paper: 6.5},
    notes="Every method has the same number of settings to try for a tenth of the time, on a seed"
    " of its own. With mild delay the settings are those of large delay.",
)


# ------------------------------------------------------------------ less skew, CIFAR-10
def pair_part(name: str, config: str, *overrides: str, source: str, title: str) -> Part:
    """Return FedEcho and FADAS with delay-adaptive steps elsewhere, with known settings."""
    return replace(
        LARGE,
        name=name,
        config=FOLDER / config,
        methods=tuple(MethodPlan(each.label) for each in PAIR),
        overrides=(*LARGE.overrides, *overrides),
        seeds=(1, 2, 3),
        tuning=None,
        settings_of=source,
        title=title,
    )


DIR_03 = Entry(
    "seed3-table2-dir03",
    "seed3",
    "table 2, Dir(.3)",
    "FedEcho with less skewed labels, in small",
    READING,
    (
        pair_part(
            "main",
            "fmnist_lenet.toml",
            "partition.alpha=0.3",
            source=f"{TABLE2}/main",
            title="Large delay, Dirichlet .3",
        ),
        pair_part(
            "mild",
            "fmnist_lenet_mild.toml",
            "partition.alpha=0.3",
            source=f"{TABLE2}/main",
            title="Mild delay, Dirichlet .3",
        ),
    ),
    claims=(
        Claim(
            "With less skewed labels FedEcho is more accurate than FADAS with delay-adaptive steps",
            "table 2, Dir(.3): .8411 against .7543 (FADAS), mild .8374 against .7485",
            lambda r: rules.every(
                {
                    part: rules.better(r, (part, "fedecho"), (part, "fadas-adaptive"), ACCURACY)
                    for part in ("main", "mild")
                }
            ),
            cause="seed3-map: the same over the delay and the number of samples",
        ),
    ),
    data=("fashion_mnist", "mnist"),
    hours={Scale.small: 0.1, Scale.paper: 2.9},
    uses=(TABLE2,),
)
CIFAR_10 = Entry(
    "seed3-cifar10",
    "seed3",
    "table 2",
    "FedEcho on CIFAR-10, in small",
    "LeNet in place of ResNet-18; 2,000 training images that no device has as samples without"
    " labels, so they are of the same domain.",
    (replace(LARGE, config=FOLDER / "cifar10_lenet.toml", title="Large delay, five seeds"),),
    claims=(
        Claim(
            "On CIFAR-10 FedEcho is more accurate than FADAS with delay-adaptive steps",
            "table 2 has .7539 against .6125 for FADAS without them",
            lambda r: rules.better(r, "fedecho", "fadas-adaptive", ACCURACY),
            cause="seed3-map: the same over the delay and the number of samples",
        ),
    ),
    figures=(CurveFigure("accuracy", "Test accuracy over emulated time"),),
    data=("cifar10",),
    hours={Scale.small: 0.3, Scale.paper: 3.5},
)


# ------------------------------------------------------------------ what cannot run here
def resnet(name: str, configs: Sequence[str], source: str, published: str, hours: float) -> Entry:
    """Return the paper's own table: ResNet-18, all methods, each setting a part."""
    methods = ("fedecho", *OTHERS)
    return Entry(
        name,
        "seed3",
        source,
        "FedEcho with ResNet-18",
        "The paper's own setting.",
        tuple(
            Part(
                "main" if number == 0 else config,
                FOLDER / f"{config}.toml",
                tuple(MethodPlan(method) for method in methods),
                scales=(Scale.paper,),
                title=f"{config}.toml",
            )
            for number, config in enumerate(configs)
        ),
        claims=(
            Claim(
                f"FedEcho with ResNet-18 is the most accurate ({source})",
                published,
                lambda r: rules.best(r, "fedecho", OTHERS, "final_accuracy"),
                needs=("main",),
            ),
        ),
        data=("cifar10", "cifar100"),
        hours={Scale.paper: hours},
        needs=f"CIFAR-10 and CIFAR-100, and a GPU: about {hours:,.0f} CPU-hours without one",
    )


def not_here(results: Results) -> Finding:
    """Judge a claim that no run of the project can decide: it is "not run"."""
    raise NoResults(f"{results.entry.name}: needs {results.entry.needs}")


RESNETS = (
    resnet(
        "seed3-table2-resnet",
        ("cifar10", "cifar10_dir03", "cifar10_mild", "cifar10_mild_dir03"),
        "table 2",
        "large delay, Dir(.1): .7539 against .6206 (FedAC), .6125, .5533, .5285",
        15_000.0,
    ),
    resnet(
        "seed3-table3",
        ("cifar100", "cifar100_dir01", "cifar100_mild", "cifar100_mild_dir01"),
        "table 3",
        "large delay, Dir(.03): .5374 against .5009 (FedAC), .4822, .3732, .3058",
        30_000.0,
    ),
)
TEXTS = tuple(
    Entry(
        f"seed3-table{table}",
        "seed3",
        f"table {table}",
        title,
        "The paper's own setting.",
        (),
        claims=(
            Claim(
                f"FedEcho is the best in table {table}",
                published,
                not_here,
            ),
        ),
        hours={Scale.paper: hours},
        needs=needs,
    )
    for table, title, published, hours, needs in (
        (
            4,
            "FedEcho with BERT-base on MRPC",
            ".7730 against .7319 (FedAC), .7214, .7147, .6838",
            400.0,
            "BERT-base, MRPC with its validation part, and a GPU: about 400 CPU-hours without one",
        ),
        (
            5,
            "FedEcho with Qwen2.5-1.5B on MathInstruct",
            "GSM8K: .5262 against .5216 (FedAC), .5208, .5170, .4640",
            10_000.0,
            "Qwen2.5-1.5B-Instruct, MathInstruct, GSM8K, and a GPU with 40 GB",
        ),
    )
)

ENTRIES = (TABLE_2, DIR_03, CIFAR_10, *RESNETS, *TEXTS)
