"""data.scale: the pixel values that a model gets, for every source of data and on both sides of a
run.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import experiment
from idx_files import IMAGES, LABELS, idx_bytes, write_set

from edgefl.clocks.setup.learning import learning
from edgefl.commands import data as command
from edgefl.data import edge_data as material
from edgefl.data.dataset import Dataset
from edgefl.errors import UserError
from edgefl.loading.file import load, shared_digest

SCALES = ("raw", "unit", "standard")
SHARES = """
name = "scales"
[data]
scale = "raw"
[edges]
names = ["a", "b", "c"]
[stop]
versions = 2
[[strategies]]
strategy = "fedavg"
clients_per_round = 2
"""


def given(folder: Path, name: str, scale: str, **options: Any) -> Any:
    return experiment(data={"name": name, "dir": str(folder), "scale": scale, **options})


def pixels(folder: Path, name: str, scale: str, **options: Any) -> np.ndarray:
    """The training samples as a model gets them."""
    found = material.dataset(given(folder, name, scale, **options), None)
    return found.train()[0][:].numpy()


def write_emnist(folder: Path) -> None:
    folder.mkdir()
    upright = IMAGES.transpose(0, 2, 1)
    for part in ("train", "test"):
        for kind, array in (("images-idx3", upright), ("labels-idx1", LABELS)):
            path = folder / f"emnist-mnist-{part}-{kind}-ubyte.gz"
            path.write_bytes(gzip.compress(idx_bytes(array)))


def write_leaf(folder: Path, brightest: float) -> None:
    x = [[0.0, brightest / 4, brightest / 2, brightest]]
    content = {"users": ["u"], "num_samples": [1], "user_data": {"u": {"x": x, "y": [1]}}}
    for part in ("train", "test"):
        (folder / "leaf" / part).mkdir(parents=True)
        (folder / "leaf" / part / "all.json").write_text(json.dumps(content))


# ------------------------------------------------------------------ the sets
def test_raw_unit_and_standard_of_grey_pictures(tmp_path: Path) -> None:
    write_set(tmp_path / "mnist", zipped=True)
    grey = IMAGES[:, None].astype(np.float32)
    assert (pixels(tmp_path, "mnist", "raw") == grey).all()
    assert pixels(tmp_path, "mnist", "unit") == pytest.approx(grey / 255)
    assert pixels(tmp_path, "mnist", "standard") == pytest.approx((grey - 33.318) / 78.567)


def test_of_a_set_with_options_and_a_cache(tmp_path: Path) -> None:
    write_emnist(tmp_path / "emnist")
    for _ in range(2):  # parsed, then from the cache
        found = pixels(tmp_path, "emnist", "raw", split="mnist")
        assert (found == IMAGES[:, None]).all()
        found = pixels(tmp_path, "emnist", "unit", split="mnist")
        assert found == pytest.approx(IMAGES[:, None] / 255)


def test_digits_count_to_16(tmp_path: Path) -> None:
    raw, unit = (pixels(tmp_path, "digits", scale) for scale in ("raw", "unit"))
    assert (raw.min(), raw.max(), unit.max()) == (0, 16, 1)


@pytest.mark.parametrize("brightest", [1.0, 255.0])
def test_leaf_s_numbers_tell_how_far_they_go(tmp_path: Path, brightest: float) -> None:
    write_leaf(tmp_path, brightest)
    for _ in range(2):
        assert pixels(tmp_path, "leaf", "raw").max() == brightest
        assert pixels(tmp_path, "leaf", "unit").reshape(-1) == pytest.approx([0, 0.25, 0.5, 1])


def test_numbers_whose_largest_is_unknown_have_no_unit() -> None:
    x = np.ones((1, 1, 2, 2), np.float32)
    found = Dataset(x, np.zeros(1), x, np.zeros(1), 2)
    assert found.scaled("raw").train()[0].max() == 1
    with pytest.raises(UserError, match=r'data.scale = "unit": .*Dataset.pixel_max'):
        found.scaled("unit")


@pytest.mark.parametrize("scale", ["raw", "unit"])
def test_texts_have_no_pixels(scale: str) -> None:
    x = np.ones((1, 3), np.int32)
    found = Dataset(x, np.zeros(1), x, np.zeros(1), 2, vocabulary=5)
    with pytest.raises(UserError, match='data.scale: expected "standard" for texts, found'):
        found.scaled(scale)


# ------------------------------------------------------------------ both sides of a run
def test_another_scale_is_other_data(tmp_path: Path) -> None:
    """What Hello and Join compare: the shared part of the config, and the data."""
    write_set(tmp_path / "mnist", zipped=True)
    runs = [given(tmp_path, "mnist", scale) for scale in SCALES]
    assert len({shared_digest(run, run.strategies[0]) for run in runs}) == 3
    assert len({learning(run, None).data_digest() for run in runs}) == 3


def test_shard_files_serve_every_scale(tmp_path: Path) -> None:
    """The files have the original pixels, even if the config that wrote them has another scale."""
    config = tmp_path / "scales.toml"
    config.write_text(SHARES)
    command.shard(config, tmp_path / "cut")
    digests = set()
    for scale in SCALES:
        changes = [f"data.scale={scale}"]
        sharded = [*changes, "data.source=shard", f"data.dir={tmp_path / 'cut'}"]
        whole, cut = (learning(load(config, each), tmp_path) for each in (changes, sharded))
        for edge, rows in whole.shards.items():
            assert (cut.train[0][cut.shards[edge]] == whole.train[0][rows]).all()
        assert (cut.test[0] == whole.test[0]).all()
        alone = learning(load(config, sharded), tmp_path, ["b"])
        assert alone.data_digest() == cut.data_digest()
        digests.add(cut.data_digest())
    assert len(digests) == 3


def test_edges_own_sets_are_scaled(tmp_path: Path) -> None:
    for folder in ("mnist", "a", "b", "c"):
        write_set(tmp_path / folder, zipped=False)
    run = given(tmp_path, "mnist", "raw", source="local")
    whole, alone = learning(run, None), learning(run, None, ["b"])
    assert float(whole.train[0].max()) == float(alone.train[0].max()) == IMAGES.max()
    assert alone.data_digest() == whole.data_digest()
    other = given(tmp_path, "mnist", "unit", source="local")
    assert learning(other, None).data_digest() != whole.data_digest()


def test_the_servers_samples_without_labels_are_scaled_too() -> None:
    run = experiment(data={"scale": "unit"}, unlabelled={"size": 20})
    rows = learning(run, None).unlabelled
    assert rows is not None and 0 <= float(rows.min()) < float(rows.max()) <= 1


def test_a_task_of_ones_own_has_its_own_scale(tmp_path: Path) -> None:
    with pytest.raises(UserError, match='data.scale: expected "standard" with a task of one\'s'):
        learning(experiment(task="my_task.py:build", data={"scale": "raw"}), tmp_path)
