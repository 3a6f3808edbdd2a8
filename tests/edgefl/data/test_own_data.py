"""A mistake in a user's own data set, model, partition or task is one line with its place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgefl.data import dataset as datasets
from edgefl.data import shards
from edgefl.data.cache import cached
from edgefl.data.dataset import Dataset, check_finite
from edgefl.data.edge_data import check
from edgefl.errors import UserError

X, Y = np.zeros((6, 1, 2, 2), np.uint8), np.arange(6) % 3
TEXTS = np.full((6, 4), 5, np.int32)


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        ((X, Y), "returned tuple, expected edgefl.api.Dataset"),
        (Dataset(X, Y.tolist(), X, Y, 3), "train_y list, expected numpy arrays"),
        (Dataset(X, Y[1:], X, Y, 3), "6 samples in train_x and 5 labels in train_y"),
        (Dataset(X, Y, X[:0], Y, 3), "0 samples in test_x and 6 labels in test_y"),
        (Dataset(X, Y[:, None], X, Y, 3), r"train_y has the shape \(6, 1\), expected .*\(6,\)"),
        (Dataset(X.astype(object), Y, X, Y, 3), "train_x is of the type object, expected numbers"),
        (Dataset(X, Y, X[:, :, :1], Y, 3), r"shape \(1, 1, 2\) in test_x, expected \(1, 2, 2\)"),
        (Dataset(X, Y, X, Y, 3, std=(0.0,)), r"std is \(0.0,\), expected numbers above 0"),
        (Dataset(X, Y, X, Y, 2), r"labels in train_y are 0 to 2, expected 0 to 1 \(classes = 2"),
        (Dataset(X, Y * 1.0, X, Y, 3), "labels in train_y are float64, expected whole numbers"),
        (
            Dataset(TEXTS, Y, TEXTS, Y, 3, vocabulary=5),
            r"tokens in train_x are 5 to 5, expected 0 to 4 \(vocabulary = 5",
        ),
        (
            Dataset(X, Y, X, Y, 3, columns={"author": Y[1:]}),
            r"'author' has the shape \(5,\), expected one value for each .*, \(6,\)",
        ),
        (Dataset(X, Y, X, Y, 3, columns={"user": [*"aabbcc"]}), "'user' is list, expected a numpy"),
        (Dataset(X, Y, X, Y, 3, mean=(0.1, 0.1, 0.1)), "mean has 3 numbers, expected 1$"),
        (
            Dataset(X.repeat(3, axis=1), Y, X.repeat(3, axis=1), Y, 3, std=(1.0, 2.0)),
            "std has 2 numbers, expected 1, or 3, one for each channel",
        ),
        (Dataset(X, Y, X, Y, 3, mean=None), "mean is None, expected numbers"),
        (Dataset(X, Y, X, Y, 3, std=("1",)), r"std is \('1',\), expected numbers"),
        (Dataset(X, Y, X, Y, 3.0), "classes is 3.0, expected a whole number"),
        (Dataset(X, Y, X, Y, "3"), "classes is '3', expected a whole number"),
        (
            Dataset(TEXTS, Y, TEXTS, Y, 3, vocabulary=6.0),
            "vocabulary is 6.0, expected a whole number",
        ),
    ],
)
def test_a_wrong_data_set_is_one_line(found: object, complaint: str) -> None:
    with pytest.raises(UserError, match=f"data 'own.py:load'.*{complaint}"):
        check("own.py:load", found)


def test_a_good_data_set_passes_also_without_training_samples() -> None:
    check("own.py:load", Dataset(X[:0], Y[:0], X, Y, 3))
    check("own.py:load", Dataset(TEXTS, Y, TEXTS, Y, 3, vocabulary=6))


def test_one_number_is_the_mean_of_all_channels() -> None:
    found = Dataset(X, Y, X, Y, 3, mean=0.5, std=np.float32(2.0))
    check("own.py:load", found)
    assert found.digest() == Dataset(X, Y, X, Y, 3, mean=(0.5,), std=(2.0,)).digest()
    rgb = X.repeat(3, axis=1)
    check("own.py:load", Dataset(rgb, Y, rgb, Y, 3, mean=0.5, std=(1.0, 2.0, np.float32(3.0))))


F = np.zeros((6, 1, 2, 2), np.float32)


def spoilt(value: float, kind: type = np.float32) -> np.ndarray:
    array = F.astype(kind)
    array[4, 0, 1, 1] = value
    return array


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        (Dataset(spoilt(np.nan), Y, F, Y, 3), r"data 'd': train_x\[4\] is not finite"),
        (Dataset(F, Y, spoilt(-np.inf), Y, 3), r"data 'd': test_x\[4\] is not finite"),
        (Dataset(spoilt(1e39, np.float64), Y, F, Y, 3), r"train_x\[4\].*too large for float32"),
        (Dataset(F, np.array([0, 1, np.nan]), F, Y, 3), r"data 'd': train_y\[2\] is not finite"),
        (
            Dataset(F, Y, F, Y, 3, columns={"age": np.array([1, np.nan])}),
            "number 1 of the column 'age'",
        ),
        (Dataset(F, Y, F, Y, 3, std=(0.0,)), r"std is \(0.0,\).*no std of 0"),
        (Dataset(F, Y, F, Y, 3, mean=(np.nan,)), r"mean is \(nan,\)"),
    ],
)
def test_numbers_that_are_not_finite_are_refused_with_their_sample(
    found: Dataset, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=complaint):
        check_finite(found, "'d'")
    monkeypatch.setattr(datasets, "PART", 4)  # sample by sample, as for a large data set
    with pytest.raises(UserError, match=complaint):
        check_finite(found, "'d'")


def test_a_shard_and_the_cache_refuse_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEFL_CACHE", str(tmp_path / "cache"))
    found = Dataset(spoilt(np.nan), Y, F, Y, 3)
    with pytest.raises(UserError, match=r"data 'leaf': train_x\[4\] is not finite"):
        cached("leaf", [], "", lambda folder: found)
    shards.write(tmp_path / "shards", "d", found, {"a": np.array([3, 4])}, {"standard": "0"})
    with pytest.raises(UserError, match=r"a.safetensors: x\[1\] is not finite"):
        shards.read(tmp_path / "shards", "d", ["a"], wants_test=False)
