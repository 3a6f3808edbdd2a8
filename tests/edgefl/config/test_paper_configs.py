"""The configs of papers have their values: WKAFL, FedEcho on pictures and texts, TDMA-FL.

Sources: arXiv 2203.01214, table II and the authors' code; FedEcho's section 5 and appendix A; each
test names its statement.
"""

from __future__ import annotations

from typing import Any

import pytest
from paths import CONFIGS

from edgefl.clocks.setup.network import devices
from edgefl.clocks.setup.plan import slots_of_model, timetable
from edgefl.config.experiment import Experiment
from edgefl.config.file import load
from edgefl.strategies.base.slotted import SlottedOptions
from edgefl.vectors import Layout, LayoutEntry
from emulator.tdma.closed_form import Tdma

# ---------------------------------------------------------------------- wkafl
WKAFL = CONFIGS / "wkafl"
STUDIES = sorted(
    path.stem
    for path in WKAFL.glob("*.toml")
    if path.stem.split("_")[0] in ("mnist", "emnist", "cifar")
    and not path.stem.startswith("mnist_raw")
)
METHODS = {
    "wkafl",
    "wkafl-no-selection",
    "wkafl-no-staleness",
    "wkafl-no-noniid",
    "k-async",
    "twafl",
    "sasgd",
    "gsgm",
}
CODE = {
    "emnist": (
        4,
        5000,
        {"clip_norm": 100, "norm_ratio": 10, "similarity_weight": 10, "staleness_damping": 0.1},
    ),
    "cifar": (
        8,
        10_000,
        {"clip_norm": 70, "norm_ratio": 5, "similarity_weight": 50, "staleness_damping": 0.01},
    ),
}


def of(name: str) -> Experiment:
    return load(WKAFL / f"{name}.toml")


@pytest.mark.parametrize("name", STUDIES)
def test_a_config_is_what_its_name_says(name: str) -> None:
    data, edges, gradients, *labels = name.split("_")
    given = of(name)
    assert given.name == "wkafl-" + name.replace("_", "-") and len(given.edges.ids()) == int(edges)
    assert {entry.options()["buffer_size"] for entry in given.strategies} == {int(gradients)}
    assert given.partition.model_extra["labels"] == (
        int(labels[0].removesuffix("labels")) if labels else 1
    )
    more = {"twafl-clipped"} if data == "emnist" else set()
    assert {entry.name for entry in given.strategies} == METHODS | more
    scale = "raw" if data == "emnist" else "standard"
    assert given.data.scale == scale, "the authors' code rescales CIFAR-10 alone"
    assert (
        given.devices.spread == "exponential"
        and given.devices.samples_per_s == given.training.batch_size
    ), "a batch a second: a draw by lot"
    if data in CODE:
        batch, versions, values = CODE[data]
        assert (given.training.batch_size, given.stop.versions) == (batch, versions)
        told = [entry.options() for entry in given.strategies if entry.name.startswith("wkafl")]
        assert all(options[key] == value for options in told for key, value in values.items())


@pytest.mark.parametrize(
    ("name", "edges", "gradients", "batch", "versions", "values"),
    [
        ("celeba", 2000, 15, 4, 5000, (500, 5, 20, 0.05, 1000)),
        ("femnist", 3000, 20, 16, 10_000, (100, 10, 10, 0.1, 5000)),
    ],
)
def test_the_natural_data_sets_have_the_code_s_values(
    name: str, edges: int, gradients: int, batch: int, versions: int, values: tuple[float, ...]
) -> None:
    given = of(name)
    assert (len(given.edges.ids()), given.training.batch_size) == (edges, batch)
    assert given.stop.versions == versions and given.partition.name == "natural"
    keys = (
        "clip_norm",
        "norm_ratio",
        "similarity_weight",
        "staleness_damping",
        "stage_two_at",
    )
    for entry in given.strategies:
        options = entry.options()
        assert options["buffer_size"] == gradients
        if entry.name.startswith("wkafl"):
            assert tuple(options[key] for key in keys) == values


# ---------------------------------------------------------------------- fedecho
FEDECHO = CONFIGS / "fedecho"


def loaded(name: str) -> Experiment:
    return load(FEDECHO / f"{name}.toml")


def options(given: Experiment) -> dict[str, dict[str, Any]]:
    return {entry.name: entry.options() for entry in given.strategies}


@pytest.mark.parametrize(
    ("family", "buffered", "rounds", "alphas"),
    [("cifar10", 0.01, 500, (0.1, 0.3)), ("cifar100", 0.003, 1000, (0.03, 0.1))],
)
def test_learning_rates_of_tables_8_and_9(
    family: str, buffered: float, rounds: int, alphas: tuple[float, float]
) -> None:
    """eta_l / eta_g: FedBuff, CA2FL 0.01/1 (CIFAR-100: 0.003/1); FedAC, FADAS 0.1/0.0001;
    FedEcho 0.03/1. The same for both delays and both alphas.
    """
    high = f"dir{alphas[1]:.1f}".replace(".", "")
    for name, alpha, long in (
        (family, alphas[0], "large"),
        (f"{family}_{high}", alphas[1], "large"),
        (f"{family}_mild", alphas[0], "mild"),
        (f"{family}_mild_{high}", alphas[1], "mild"),
    ):
        given = loaded(name)
        assert (
            given.partition.options()["alpha"],
            given.devices.long,
            given.stop.versions,
            given.model.name,
        ) == (alpha, long, rounds, "resnet18")
        local = {
            entry: each.get("local_learning_rate", given.training.learning_rate)
            for entry, each in options(given).items()
        }
        assert local == {
            "fedecho": 0.03,
            "fedbuff": buffered,
            "ca2fl": buffered,
            "fedac": 0.1,
            "fadas": 0.1,
        }
        steps = {
            entry: each.get("server_learning_rate", 1.0) for entry, each in options(given).items()
        }
        assert steps == {"fedecho": 1.0, "fedbuff": 1.0, "ca2fl": 1.0, "fedac": 1e-4, "fadas": 1e-4}
        assert options(given)["fedbuff"]["staleness_exponent"] == 0.0


# ---------------------------------------------------------------------- tdma
TDMA = CONFIGS / "tdma"
MNIST, CIFAR = 8_490, 10_790  # parameters of the model
SETTINGS = {  # name -> N, r, tau_comp, steps, elements, slots
    "mnist": (100, 1, 50, 1, MNIST, 50_000),
    "mnist_five_steps": (100, 1, 50, 5, MNIST, 50_000),
    "mnist_2_1": (100, 1, 2, 1, MNIST, 50_000),
    "cifar10": (20, 1, 4, 1, CIFAR, 100_000),
    "rounds": (20, 1, 4, 1, 310, 100_000),
    "map": (20, 1, 4, 1, 1_210, 4_000),
    "wallclock": (12, 1, 8, 1, MNIST, 600),
}
SIZES = {100: {1, 5, 10, 25, 50, None}, 20: {1, 2, 5, 10, None}, 12: {1, 3, None}}
SIZES_OF_THE_MAP = {1, 2, 5}


def layout(size: int) -> Layout:
    return Layout((LayoutEntry("w", (size,), 0, "parameter", ""),))


@pytest.mark.parametrize("name", SETTINGS)
def test_the_settings_are_those_of_the_paper(name: str) -> None:
    edges, transfer, computes, steps, size, slots = SETTINGS[name]
    experiment: Experiment = load(TDMA / f"{name}.toml")
    table = timetable(experiment, layout(size), devices(experiment))
    assert (
        len(experiment.edges.ids()) == edges
        and round((experiment.stop.emulated_s or 0) * 1e9) == slots * table.slot_ns
    )
    assert table.transfer_slots == transfer == slots_of_model(experiment, 4 * size)
    assert {table.compute_slots(edge, 250, steps) for edge in experiment.edges.ids()} == {
        computes
    } and table.known
    options = [entry.options() for entry in experiment.strategies]
    sizes = SIZES_OF_THE_MAP if name == "map" else SIZES[edges]
    assert {each.get("per_round") for each in options} == sizes and {
        each.get("local_steps", SlottedOptions().local_steps) for each in options
    } == {steps}
    assert sum(entry.strategy == "idfl" for entry in experiment.strategies) == len(sizes - {None})


@pytest.mark.parametrize(
    ("per_round", "d_star", "alpha"), [(5, 9, 10), (10, 5, 4), (25, 2, 1), (50, 1, 0)]
)
def test_the_delays_of_the_mnist_setting(per_round: int, d_star: int, alpha: int) -> None:
    """tau_comp = 50, r = 1 (proposition 1, equations 32 and 33)."""
    experiment = load(TDMA / "mnist.toml")
    table = timetable(experiment, layout(MNIST), devices(experiment))
    assert (Tdma(100, per_round, 1, 50).d_star, table.auto_delay(100, per_round, 50)) == (
        d_star,
        alpha,
    )
