"""The configs of WKAFL's experiments have the values of the paper's code.

Source: arXiv 2203.01214, table II.
"""

from __future__ import annotations

import pytest
from paths import CONFIGS

from edgefl.config.experiment import Experiment
from edgefl.loading.file import load

FOLDER = CONFIGS / "wkafl"
RAW = "mnist_raw_1000_10"
OTHERS = {"zeno", "wallclock", "mnist_raw_zeno", "celeba", "femnist"}
STUDIES = sorted(
    path.stem
    for path in FOLDER.glob("*.toml")
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
    return load(FOLDER / f"{name}.toml")


def test_all_points_of_the_paper_are_there() -> None:
    points = {
        "emnist": ("1000_10", "3000_20", "3000_10"),
        "cifar": ("1000_20", "3000_20", "3000_10"),
    }
    plain = {f"{data}_{point}" for data, those in points.items() for point in those}
    harder = {
        f"{base}_{labels}labels"
        for base in ("emnist_3000_10", "cifar_3000_20")
        for labels in (5, 10)
    }
    assert set(STUDIES) == plain | harder | {"mnist_1000_10"}
    assert {path.stem for path in FOLDER.glob("*.toml")} == {*STUDIES, RAW, *OTHERS}


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


def test_the_study_s_config() -> None:
    given = of("mnist_1000_10")
    assert (given.data.name, given.model.name, given.stop.versions, given.by_seed()[-1].seed) == (
        "mnist",
        "lenet5",
        1500,
        3,
    )


def test_emnist_s_set_up_on_mnist_differs_in_the_data_and_the_end_alone() -> None:
    """All methods get the same time. The rates of the methods that the paper does not tune with
    WKAFL's clipping differ: those of its code diverge without it.
    """
    given, paper = of(RAW), of("emnist_1000_10")
    for part in ("partition", "model", "training", "edges", "links", "devices"):
        assert getattr(given, part) == getattr(paper, part), part
    assert (given.data.name, given.data.scale, given.evaluation.by_label) == ("mnist", "raw", True)
    assert given.stop.emulated_s == 57.0 and given.stop.versions == 100_000
    ours = {entry.name: entry.options() for entry in given.strategies}
    theirs = {entry.name: entry.options() for entry in paper.strategies}
    assert ours.keys() == theirs.keys()
    for name, options in ours.items():
        assert options.pop("report_shares") is True
        changed = {key for key in options if options[key] != theirs[name].get(key)}
        ours_alone = {"server_learning_rate"} if name in ("k-async", "gsgm") else {"stage_two_at"}
        assert changed <= ours_alone


def test_zeno_s_config_has_the_values_of_table_iv() -> None:
    given = of("zeno")
    (zeno,) = given.strategies
    assert len(given.edges.ids()) == 100 and given.stop.versions == 1500
    assert {key: zeno.options()[key] for key in ("gamma", "rho", "epsilon", "refresh_every")} == {
        "gamma": 0.1,
        "rho": 0.02,
        "epsilon": 0.1,
        "refresh_every": 2,
    }
    assert zeno.options()["server_labels"] == 10, "L_num"
    assert given.data.scale == "raw"


def test_zeno_on_mnist_has_the_four_points_of_figure_11() -> None:
    given, paper = of("mnist_raw_zeno"), of("zeno").strategies[0].options()
    points = {
        (entry.options()["refresh_every"], entry.options()["server_labels"])
        for entry in given.strategies
    }
    assert points == {(2, 10), (2, 1), (5, 10), (5, 1)} and len(given.edges.ids()) == 100
    for entry in given.strategies:
        options = entry.options()
        assert {key for key in paper if options[key] != paper[key]} <= {
            "refresh_every",
            "server_labels",
        }


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


def test_the_wall_clock_s_config_takes_times_that_a_host_can_keep() -> None:
    given = of("wallclock")
    assert (
        len(given.edges.ids()) == 100
        and given.devices.spread == "uniform"
        and given.stop.emulated_s == 60
    )
    assert all(entry.options()["buffer_size"] == 10 for entry in given.strategies)
