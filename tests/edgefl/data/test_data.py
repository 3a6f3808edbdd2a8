from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from idx_files import IMAGES, LABELS, idx_bytes, write_set

from edgefl.data import digits, mnist
from edgefl.data.dataset import Dataset
from edgefl.data.idx import read
from edgefl.data.partition import dirichlet, iid
from edgefl.errors import UserError


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("folder", [".", "mnist", "MNIST"])
def test_idx_files_are_read_from_both_places_in_both_forms(
    tmp_path: Path, zipped: bool, folder: str
) -> None:
    write_set(tmp_path / folder, zipped)
    found = mnist.load(tmp_path)
    assert (
        found.train_x.shape == (6, 1, 2, 2)
        and found.train_x.dtype == np.uint8
        and found.shape == (1, 2, 2)
    )
    assert (found.test_x[:, 0] == IMAGES).all() and (found.test_y == LABELS).all()
    assert found.train_y.dtype == np.int64 and found.classes == 10


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (idx_bytes(IMAGES), "magic 00000801"),
        (b"\x00\x00\x09\x01" + idx_bytes(LABELS)[4:], "it begins with 00000901"),
        (b"", "expected an IDX file"),
        (idx_bytes(LABELS)[:6], "expected an IDX file"),
        (idx_bytes(LABELS)[:-1], "promises 6 bytes, it holds only 5"),
        (idx_bytes(LABELS) + b"x", "promises 6 bytes, it holds more"),
        (struct.pack(">HBBI", 0, 8, 1, 0), "promises 0 bytes"),
        (struct.pack(">HBBI", 0, 8, 1, 0xFFFFFFFF), "promises 4294967295 bytes, expected 1 to"),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_a_wrong_file_is_named(
    tmp_path: Path, content: bytes, complaint: str, zipped: bool
) -> None:
    path = tmp_path / ("labels.gz" if zipped else "labels")
    path.write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(UserError) as caught:
        read(path, 1)
    assert str(path) in str(caught.value) and complaint in str(caught.value)


def test_images_and_labels_must_fit_together(tmp_path: Path) -> None:
    write_set(tmp_path, zipped=False)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(LABELS[:5]))
    with pytest.raises(UserError, match="5 labels for the 6 images"):
        mnist.load(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(LABELS + 5))
    with pytest.raises(UserError, match="label 14, expected 0 to 9"):
        mnist.load(tmp_path)


def test_digits_are_split_once_and_for_all() -> None:
    found, again = digits.load(Path()), digits.load(Path())
    assert (
        found.train_x.shape == (1438, 1, 8, 8)
        and found.test_x.shape == (359, 1, 8, 8)
        and found.classes == 10
    )
    shares = np.bincount(found.train_y) / (np.bincount(found.train_y) + np.bincount(found.test_y))
    assert np.abs(shares - 0.8).max() < 0.01
    assert found.digest() == again.digest()
    inputs, targets = found.train()
    assert (
        abs(float(inputs.mean())) < 0.02
        and abs(float(inputs.std()) - 1) < 0.02
        and len(targets) == 1438
    )


def test_tensors_are_normalised_by_channel_and_the_digest_sees_everything() -> None:
    x = np.array([[[[0]], [[10]]], [[[2]], [[30]]]], dtype=np.uint8)
    y = np.array([0, 1])
    data = Dataset(x, y, x, y, 2, (1.0, 20.0), (1.0, 10.0))
    inputs, targets = data.test()
    assert inputs.tolist() == [[[[-1.0]], [[-1.0]]], [[[1.0]], [[1.0]]]] and targets.tolist() == [
        0,
        1,
    ]
    others = [
        Dataset(x[::-1], y, x, y, 2, (1.0, 20.0), (1.0, 10.0)),
        Dataset(x, y, x, y[::-1], 2, (1.0, 20.0), (1.0, 10.0)),
        Dataset(x.reshape(2, 1, 2, 1), y, x, y, 2, (1.0, 20.0), (1.0, 10.0)),
        Dataset(x, y, x, y, 2, (1.0, 20.0), (1.0, 11.0)),
    ]
    assert len({data.digest(), *(other.digest() for other in others)}) == 5


@settings(max_examples=60, deadline=None)
@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=200),
    edges=st.integers(1, 20),
    alpha=st.sampled_from([1e-6, 0.05, 0.5, 10.0, 1e6]),
    minimum=st.integers(1, 4),
    seed=st.integers(0, 2**32),
)
def test_every_sample_is_used_exactly_once(
    labels: list[int], edges: int, alpha: float, minimum: int, seed: int
) -> None:
    array = np.array(labels)
    skewed, equal = (
        dirichlet.Options(alpha=alpha, min_samples=minimum),
        dirichlet.Options(alpha=alpha, min_samples=minimum, equal=True),
    )
    for partitioner, options, least in (
        (iid, iid.Options(), 1),
        (dirichlet, skewed, minimum),
        (dirichlet, equal, minimum),
    ):
        if len(labels) < edges * least:
            with pytest.raises(UserError, match=f"{edges} edges"):
                partitioner.split(array, edges, options, np.random.default_rng(seed))
            continue
        parts = partitioner.split(array, edges, options, np.random.default_rng(seed))
        assert len(parts) == edges and min(map(len, parts)) >= least
        assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
        assert all((np.diff(part) > 0).all() for part in parts)
        again = partitioner.split(array, edges, options, np.random.default_rng(seed))
        assert all((a == b).all() for a, b in zip(parts, again))


def test_small_alpha_skews_labels_and_large_alpha_does_not() -> None:
    labels = np.repeat(np.arange(10), 500)

    def largest_share(alpha: float) -> float:
        parts = dirichlet.split(
            labels, 10, dirichlet.Options(alpha=alpha), np.random.default_rng(1)
        )
        return float(
            np.mean([np.bincount(labels[part], minlength=10).max() / len(part) for part in parts])
        )

    assert largest_share(1e6) < 0.11 < 0.5 < largest_share(0.05)
