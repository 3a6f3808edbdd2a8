"""configs/comparison: the papers' twelve pairs of model and data, with their numbers.

Each config is also started on a few samples.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from idx_files import idx_bytes
from paths import CONFIGS
from picture_files import LABELS, PICTURES, records, write_binary10, write_tiny
from text_files import write_jsonl

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.setup.plan import options
from edgefl.clocks.virtual.run import run_virtual
from edgefl.config.experiment import Stop
from edgefl.loading.file import load
from edgefl.results.read import read_csv

FOLDER = CONFIGS / "comparison"
METHODS = [
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
]
USUAL = (1e-4,) * 5
# arXiv 2507.06031, tables 3 and 4: eta_i, target accuracy, eta of lambda, sigma, iota, gamma,
# upsilon
PAPER = {
    ("lenet5", "fashion_mnist"): (0.005, 0.70, USUAL),
    ("lenet5", "cifar10"): (0.03, 0.30, (1e-3, 1e-3, 0.1, 0.1, 1e-3)),
    ("lenet5", "cifar100"): (0.03, 0.13, USUAL),
    ("cnn", "cifar10"): (0.028, 0.40, (1e-3, 1e-3, 1e-4, 0.1, 1e-3)),
    ("cnn", "cifar100"): (0.013, 0.15, (1e-5,) * 5),
    ("resnet20", "cifar100"): (0.03, 0.25, USUAL),
    ("resnet20", "tiny_imagenet"): (0.03, 0.12, USUAL),
    ("alexnet", "cifar10"): (0.03, 0.40, USUAL),
    ("alexnet", "cifar100"): (0.03, 0.12, USUAL),
    ("vgg11", "cifar10"): (0.03, 0.45, USUAL),
    ("vgg11", "cifar100"): (0.03, 0.12, USUAL),
    ("textcnn", "imdb"): (0.001, 0.85, USUAL),
}
PATHS = sorted(FOLDER.glob("*.toml"))
STRUCTURED = (
    "fedasmu",
    "moon",
    "syncdrop",
)  # the first; the one that wants features, the one that wants hidden units


def test_every_pair_of_the_papers_has_its_file() -> None:
    assert sorted((given.model.name, given.data.name) for given in map(load, PATHS)) == sorted(
        PAPER
    )


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_the_numbers_are_those_of_the_papers(path: Path) -> None:
    """m = 100, m' = 10, tau = 99 of a staleness that counts from 1, T = 10 s."""
    given = load(path)
    rate, target, controls = PAPER[given.model.name, given.data.name]
    assert (
        given.training.learning_rate,
        given.evaluation.target_accuracy,
        len(given.edges.ids()),
    ) == (rate, target, 100)
    assert [entry.strategy for entry in given.strategies] == METHODS
    assert given.stop == Stop(emulated_s=2600.0), "equal time, not equal numbers of updates"
    for entry in given.strategies:
        _, chosen = options(entry, FOLDER)
        if entry.strategy in ("fedasmu", "fedssmu"):
            assert (
                tuple(
                    getattr(chosen, f"eta_{name}")
                    for name in ("lambda", "sigma", "iota", "gamma", "upsilon")
                )
                == controls
                and chosen.tau == 99
            )
        elif hasattr(chosen, "dispatch"):
            assert (chosen.dispatch, chosen.period_s, chosen.concurrency, chosen.max_staleness) == (
                "periodic",
                10.0,
                10,
                98,
            )
        if entry.strategy == "fedsa":
            assert chosen.second_stage_at == 100
        if hasattr(chosen, "clients_per_round"):
            assert chosen.clients_per_round == 10


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a few full-sized samples of every set, in the published format."""
    root = tmp_path_factory.mktemp("data")
    write_binary10(root / "cifar-10-batches-bin")
    (root / "cifar-100-binary").mkdir()
    for name, rows in (("train", slice(0, 10)), ("test", slice(10, 12))):
        (root / "cifar-100-binary" / f"{name}.bin").write_bytes(
            records(PICTURES[rows], LABELS[rows], LABELS[rows])
        )
    write_tiny(root / "tiny-imagenet-200")
    write_jsonl(root / "imdb")
    (root / "fashion-mnist").mkdir()
    for part in ("train", "t10k"):
        for kind, array in (
            ("images-idx3", PICTURES[:10, 0, :28, :28]),
            ("labels-idx1", LABELS[:10].astype(np.uint8)),
        ):
            (root / "fashion-mnist" / f"{part}-{kind}-ubyte").write_bytes(
                idx_bytes(np.ascontiguousarray(array))
            )
    return root


SMALL = (
    "edges.count=2",
    "training.epochs=1",
    "stop.versions=1",
    "evaluation.every_versions=1",
    "strategies.fedbuff.buffer_size=1",
    "strategies.port.least_updates=1",
)


@pytest.mark.rest
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_each_config_starts_and_makes_a_first_model(
    path: Path, files: Path, tmp_path: Path
) -> None:
    """Run the strategies that depend on the model's structure; one config runs all strategies."""
    given = load(path, [*SMALL, f"data.dir={files}"]).by_seed()[0]
    learned = learning(given, path.parent)
    for index, entry in enumerate(given.strategies):
        if entry.strategy in STRUCTURED or path.stem == "lenet_fmnist":
            summary = run_virtual(learned, index, tmp_path / entry.name)
            assert summary["versions"] == 1 and summary["updates_applied"] >= 1
            assert [row["version"] for row in read_csv(tmp_path / entry.name / "metrics.csv")] == [
                "0",
                "1",
            ]
