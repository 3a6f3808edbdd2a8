"""Read the files of CIFAR-10 and CIFAR-100 (Krizhevsky 2009), in binary or Python form.

The binary form has records of labels and 3 x 32 x 32 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from edgefl.data.cache import cached
from edgefl.data.dataset import Dataset, checked, file_of
from edgefl.errors import UserError
from edgefl.pickles import read_arrays

SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32


@dataclass(frozen=True, slots=True)
class Kind:
    """One of the two data sets.

    ``train`` and ``test`` are file names without ``.bin``. Each image follows ``label_bytes``, of
    which the last is the label.
    """

    name: str
    folders: tuple[str, ...]
    train: tuple[str, ...]
    test: str
    label_bytes: int
    labels_key: str
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


def cifar(kind: Kind, directory: Path) -> Dataset:
    """Read the data set in either form. UserError names the file that is missing or wrong."""
    files = [
        file_of(directory, kind.folders, (f"{stem}.bin", stem), kind.name)
        for stem in (*kind.train, kind.test)
    ]

    def parse(folder: Path) -> Dataset:
        return Dataset(
            *_read(kind, files[:-1]), *_read(kind, files[-1:]), kind.classes, kind.mean, kind.std
        )

    return cached(kind.name, files, "", parse)


def _read(kind: Kind, files: Sequence[Path]) -> tuple[np.ndarray, np.ndarray]:
    """Return images (n, 3, 32, 32) and labels (n,) of some files, in their order."""
    parts = [
        _binary(kind, file) if file.suffix == ".bin" else _python(kind, file) for file in files
    ]
    return np.concatenate([pictures for pictures, _ in parts]), np.concatenate(
        [labels for _, labels in parts]
    )


def _binary(kind: Kind, file: Path) -> tuple[np.ndarray, np.ndarray]:
    size = kind.label_bytes + PIXELS
    try:
        content = np.fromfile(file, dtype=np.uint8)
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from error
    if not len(content) or len(content) % size:
        raise UserError(
            f"{file}: truncated or no {kind.name} file: expected records of {size} bytes, it holds"
            f" {len(content)} bytes"
        )
    records = content.reshape(-1, size)
    return records[:, kind.label_bytes :].reshape(-1, *SHAPE), checked(
        records[:, kind.label_bytes - 1], kind.classes, file
    )


def _python(kind: Kind, file: Path) -> tuple[np.ndarray, np.ndarray]:
    found = read_arrays(file)
    pictures, labels = (
        (found.get(key) for key in ("data", kind.labels_key))
        if isinstance(found, dict)
        else (None, None)
    )
    if not isinstance(pictures, np.ndarray) or not _are_labels(labels):
        raise UserError(
            f"{file}: no {kind.name} file: expected a dict with 'data' and {kind.labels_key!r}"
        )
    if pictures.dtype != np.uint8 or pictures.ndim != 2 or pictures.shape != (len(labels), PIXELS):
        raise UserError(
            f"{file}: 'data' is {pictures.dtype} {pictures.shape}, expected uint8 ({len(labels)},"
            f" {PIXELS}), a row for each label"
        )
    return pictures.reshape(-1, *SHAPE), checked(
        np.array(labels, dtype=np.int64), kind.classes, file
    )


def _are_labels(found: Any) -> TypeGuard[list[int] | np.ndarray]:
    """Accept a flat array, or a list of integers: numpy would search nested lists of any depth."""
    if isinstance(found, np.ndarray):
        return found.ndim == 1 and found.dtype.kind in "iu"
    return isinstance(found, list) and all(
        type(label) is int and abs(label) < 2**31 for label in found
    )
