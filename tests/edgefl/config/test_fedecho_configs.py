"""configs/fedecho has the paper's settings, one case per statement.

The statements are in section 5 and appendix A.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from paths import CONFIGS

from edgefl.config.experiment import Experiment
from edgefl.loading.file import load

FOLDER = CONFIGS / "fedecho"
PAPER = [path for path in sorted(FOLDER.glob("*.toml")) if path.stem != "wallclock"]


def loaded(name: str) -> Experiment:
    return load(FOLDER / f"{name}.toml")


def options(given: Experiment) -> dict[str, dict[str, Any]]:
    return {entry.name: entry.options() for entry in given.strategies}


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_what_all_settings_have_in_common(path: Path) -> None:
    """ "total number of clients of 50, the concurrency is set to 25, and the buffer size M = 5 ...
     two local training epochs per communication
    round with a mini-batch size of 50 ... SGD with weight decay 1e-4"; "three different seeds".
    """
    given = load(path)
    assert len(given.edges.ids()) == 50 and len(given.seeds or ()) == 3
    assert (
        given.training.epochs,
        given.training.batch_size,
        given.training.weight_decay,
        given.training.momentum,
    ) == (2, 50, 1e-4, 0.0)
    assert all(
        (each["concurrency"], each["buffer_size"]) == (25, 5) for each in options(given).values()
    )
    assert given.devices.spread == "classes" and given.devices.gamma == 1.0
    assert given.unlabelled is not None and given.unlabelled.size == (
        5000 if path.stem in ("ablation_samples", "fmnist_lenet_ablations") else 2000
    )


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


def test_samples_without_labels() -> None:
    """ "For CIFAR-10 ... CIFAR-100, STL10"; "for CIFAR-100 ... CIFAR-10, STL10"."""
    sources = {
        name: loaded(name).unlabelled
        for name in (
            "cifar10",
            "cifar10_stl10",
            "cifar100",
            "cifar100_stl10",
            "fmnist_lenet",
            "cifar10_lenet",
        )
    }
    assert [each.data for each in sources.values() if each] == [
        "cifar100",
        "stl10",
        "cifar10",
        "stl10",
        "mnist",
        "held_out",
    ]


def test_ablations_of_tables_6_7_and_11() -> None:
    assert [
        each.get("unlabelled_samples", 5000)
        for each in options(loaded("ablation_samples")).values()
    ] == [500, 1000, 2000, 5000]
    assert [each.get("alpha") for each in options(loaded("ablation_alpha")).values()] == [
        0.0,
        1.0,
        0.5,
        None,
    ]
    assert [each["clip_norm"] for each in options(loaded("ablation_clip")).values()] == [
        1.0,
        5.0,
        1e30,
    ]


def test_the_small_ablations_differ_in_one_thing_each() -> None:
    given = options(loaded("fmnist_lenet_ablations"))
    plain = given.pop("fedecho")
    differs = {
        name: {key: each.get(key) for key in {**plain, **each} if each.get(key) != plain.get(key)}
        for name, each in given.items()
    }
    assert differs == {
        "alpha-0": {"alpha": 0.0},
        "alpha-half": {"alpha": 0.5},
        "alpha-1": {"alpha": 1.0},
        "clip-1": {"clip_norm": 1.0},
        "clip-none": {"clip_norm": 1e30},
        "samples-500": {"unlabelled_samples": 500},
        "samples-1000": {"unlabelled_samples": 1000},
        "samples-5000": {"unlabelled_samples": None},
    }
