"""Checks of a data set that a user's own file returns, so that a mistake in it is one line."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgefl.data.dataset import Dataset
from edgefl.errors import UserError


def check(name: str, found: Any) -> None:
    """UserError if ``found``, which the file ``name`` returned, is no usable ``Dataset``."""
    if not isinstance(found, Dataset):
        raise UserError(
            f"data {name!r} returned {type(found).__name__}, expected edgefl.api.Dataset"
        )
    if not all(std > 0 for std in found.std):
        raise UserError(f"data {name!r}: std is {found.std}, expected numbers above 0")
    for part, samples, labels in (
        ("train", found.train_x, found.train_y),
        ("test", found.test_x, found.test_y),
    ):
        if not all(isinstance(array, np.ndarray) for array in (samples, labels)):
            raise UserError(
                f"data {name!r}: {part}_x is {type(samples).__name__}, {part}_y"
                f" {type(labels).__name__}, expected numpy arrays"
            )
        if len(samples) != len(labels):
            raise UserError(
                f"data {name!r}: {len(samples)} samples in {part}_x and {len(labels)} labels in"
                f" {part}_y, expected as many"
            )
        if not (np.issubdtype(samples.dtype, np.number) or samples.dtype == np.bool_):
            raise UserError(
                f"data {name!r}: {part}_x is of the type {samples.dtype}, expected numbers: uint8"
                " or float32"
            )
        if labels.ndim != 1:
            raise UserError(
                f"data {name!r}: {part}_y has the shape {labels.shape}, expected one whole number"
                f" for each sample, {labels.shape[:1]}"
            )
        if samples.shape[1:] != found.train_x.shape[1:]:
            raise UserError(
                f"data {name!r}: samples of shape {samples.shape[1:]} in {part}_x, expected"
                f" {found.train_x.shape[1:]} as in train_x"
            )
        _check_range(name, f"labels in {part}_y", labels, found.classes, "classes")
        if found.vocabulary:
            _check_range(name, f"tokens in {part}_x", samples, found.vocabulary, "vocabulary")
    for column, numbers in found.columns.items():
        if len(numbers) != len(found.train_y):
            raise UserError(
                f"data {name!r}: {len(numbers)} numbers in the column {column!r}, expected one for"
                f" each of the {len(found.train_y)} training samples"
            )


def _check_range(name: str, what: str, numbers: np.ndarray, most: int, key: str) -> None:
    if not np.issubdtype(numbers.dtype, np.integer):
        raise UserError(f"data {name!r}: {what} are {numbers.dtype}, expected whole numbers")
    if not numbers.size:  # with data.source = "local" one side may have no samples of a part
        return
    least, largest = int(numbers.min()), int(numbers.max())
    if least < 0 or largest >= most:
        raise UserError(
            f"data {name!r}: {what} are {least} to {largest}, expected 0 to {most - 1}"
            f" ({key} = {most})"
        )
