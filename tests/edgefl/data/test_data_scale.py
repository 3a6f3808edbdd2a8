"""data.scale: the pixel values that a model gets, for every source of data and on both sides of a
run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import experiment
from idx_files import IMAGES, write_set

from edgefl.clocks.setup.learning import learning
from edgefl.commands import data as command
from edgefl.data import edge_data as material
from edgefl.data.dataset import Dataset
from edgefl.errors import UserError
from edgefl.loading.file import load

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


# ------------------------------------------------------------------ the sets
def test_raw_unit_and_standard_of_grey_pictures(tmp_path: Path) -> None:
    write_set(tmp_path / "mnist", zipped=True)
    grey = IMAGES[:, None].astype(np.float32)
    assert (pixels(tmp_path, "mnist", "raw") == grey).all()
    assert pixels(tmp_path, "mnist", "unit") == pytest.approx(grey / 255)
    assert pixels(tmp_path, "mnist", "standard") == pytest.approx((grey - 33.318) / 78.567)


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
