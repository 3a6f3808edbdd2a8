"""Timely dissemination in the papers' other settings: registered, and run at the small scale.

The other eleven pairs of model and data of table 4, LeNet on Fashion-MNIST with all baselines, and
the conference paper's sensitivity to hyper-parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

from reproduction import rules
from reproduction.entries._dissemination import ACCURACY, FMNIST, FOLDER, ONE_POINT, PASS, TIME
from reproduction.entries._dissemination_measures import MEASURES
from reproduction.entry import CONFIGS, Claim, CurveFigure, Entry, MethodPlan, Part, Scale
from reproduction.results import MAIN

ALL = (
    "fedasmu",
    "fedssmu",
    "fedasync",
    "fedbuff",
    "port",
    "asofed",
    "fedsa",
    "feddelay",
    "asyncpart",
    "syncdrop",
    "fedavg",
    "fedprox",
    "moon",
    "feddyn",
    "fedlws",
)
FEW = ("fedasmu", "fedasync", "fedssmu", "fedavg")  # at the small scale
MOST_HOURS = 20.0  # of an entry that is run on two cores
BUDGET_S = 60_000.0


@dataclass(frozen=True, slots=True)
class Pair:
    """A model with its data; ``samples_per_s`` of the fastest device: a task of five batches of 32
    takes 40 s. ``published``: accuracy of FedASMU, FedAsync, FedSSMU and FedAvg (table 4).
    ``hours``: CPU-hours at the paper's scale, from the time of one step.
    """

    model: str
    data: str
    config: str
    published: tuple[float, float, float, float]
    hours: float

    @property
    def name(self) -> str:
        return f"seed0-table4-{self.config.replace('_', '-')}"


PAIRS = (
    Pair("LeNet", "fashion_mnist", "lenet_fmnist", (0.858, 0.839, 0.858, 0.780), 2.5),
    Pair("LeNet", "cifar10", "lenet_cifar10", (0.485, 0.483, 0.496, 0.450), 2.5),
    Pair("LeNet", "cifar100", "lenet_cifar100", (0.183, 0.168, 0.220, 0.167), 2.5),
    Pair("CNN", "cifar10", "cnn_cifar10", (0.603, 0.491, 0.628, 0.562), 9.0),
    Pair("CNN", "cifar100", "cnn_cifar100", (0.279, 0.230, 0.293, 0.249), 9.0),
    Pair("ResNet-20", "cifar100", "resnet20_cifar100", (0.359, 0.316, 0.378, 0.298), 30.0),
    Pair(
        "ResNet-20", "tiny_imagenet", "resnet20_tinyimagenet", (0.168, 0.143, 0.193, 0.145), 110.0
    ),
    Pair("AlexNet", "cifar10", "alexnet_cifar10", (0.490, 0.415, 0.496, 0.446), 7.0),
    Pair("AlexNet", "cifar100", "alexnet_cifar100", (0.246, 0.204, 0.255, 0.204), 7.0),
    Pair("VGG-11", "cifar10", "vgg11_cifar10", (0.657, 0.645, 0.612, 0.519), 65.0),
    Pair("VGG-11", "cifar100", "vgg11_cifar100", (0.267, 0.168, 0.268, 0.115), 65.0),
    Pair("TextCNN", "imdb", "textcnn_imdb", (0.882, 0.875, 0.883, 0.874), 15.0),
)


def _part(pair: Pair, name: str, scale: Scale, labels: tuple[str, ...], end_s: float) -> Part:
    return Part(
        name,
        CONFIGS / "comparison" / f"{pair.config}.toml",
        tuple(map(MethodPlan, labels)),
        overrides=(
            "training.batches_per_epoch=1",
            "devices.samples_per_s=4.0",
            f"stop.emulated_s={end_s!r}",
            f"evaluation.every_s={end_s / 60 if scale is Scale.paper else end_s!r}",
        ),
        small_seeds=(1,),
        measures=MEASURES,
        columns=(ACCURACY, TIME, "updates_applied", "staleness_median", "beta_mid", "down_MB"),
        scales=(scale,),
    )


def _claims(pair: Pair) -> tuple[Claim, ...]:
    asmu, fedasync, ssmu, fedavg = (f"{value:.3f}" for value in pair.published)
    return (
        Claim(
            f"FedASMU is more accurate than FedAsync ({pair.model}, {pair.data})",
            f"table 4: {asmu} against {fedasync}",
            lambda r: rules.better(r, "fedasmu", "fedasync", ACCURACY, least=ONE_POINT),
            needs=(MAIN,),
        ),
        Claim(
            f"FedSSMU is more accurate than FedAvg ({pair.model}, {pair.data})",
            f"table 4: {ssmu} against {fedavg}",
            lambda r: rules.better(r, "fedssmu", "fedavg", ACCURACY, least=ONE_POINT),
            needs=(MAIN,),
        ),
    )


def _entry(pair: Pair) -> Entry:
    needs = ""
    if pair.hours > MOST_HOURS:
        needs = f"about {pair.hours:g} CPU-hours; a GPU, or a cluster with --engine ray"
    return Entry(
        pair.name,
        "seed0",
        "table 4",
        f"{pair.model} on {pair.data}, all methods of the papers",
        "An epoch is one mini-batch step; defaults of all methods, nothing is tuned.",
        (
            _part(pair, MAIN, Scale.paper, ALL, BUDGET_S),
            _part(pair, "few", Scale.small, FEW, 300.0),
        ),
        claims=_claims(pair),
        figures=(
            CurveFigure(
                "accuracy", f"Test accuracy over emulated time, {pair.model}", parts=(MAIN,)
            ),
        ),
        data=(pair.data,),
        hours={Scale.small: 0.02, Scale.paper: pair.hours},
        needs=needs,
        notes="The small scale shows only that the methods run.",
    )


# ------------------------------------------------------------------ sensitivity
VARIED = (
    "fedasmu",
    "one-every-5",
    "period-5",
    "period-20",
    "period-40",
    "eta-lambda-1e-3",
    "eta-lambda-1e-2",
    "eta-lambda-1e-1",
    "eta-sigma-1e-3",
    "eta-sigma-1e-2",
    "eta-sigma-1e-1",
    "eta-upsilon-1e-3",
    "eta-upsilon-1e-2",
    "eta-upsilon-1e-1",
)
SENSITIVITY = Entry(
    "seed2-sensitivity",
    "seed2",
    "section Hyper-parameter Fine-tuning",
    "How FedASMU depends on its trigger period and learning rates",
    f"{PASS.text} A fifth of that budget; one value is varied at a time, none is given.",
    (
        PASS.part(
            MAIN,
            tuple(map(MethodPlan, VARIED)),
            config=FOLDER / "fmnist_sensitivity.toml",
            share=0.2,
        ),
    ),
    claims=tuple(
        Claim(
            f"{name} changes the accuracy by at most 0.8 points",
            "0.0 to 0.8 points, with one exception of 2.4",
            lambda r, name=name: rules.equal(r, "fedasmu", name, ACCURACY, 0.008),
        )
        for name in ("period-20", "eta-lambda-1e-2", "eta-sigma-1e-2", "eta-upsilon-1e-2")
    ),
    figures=(CurveFigure("accuracy", "Test accuracy over emulated time, one value varied"),),
    data=FMNIST,
    hours={Scale.small: 0.1, Scale.paper: 2.0},
)
ENTRIES = (*map(_entry, PAIRS), SENSITIVITY)
