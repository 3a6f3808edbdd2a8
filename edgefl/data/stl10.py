"""STL-10: photographs of 10 classes, 3 x 96 x 96, 5,000 + 8,000 samples, 100,000 unlabelled.

It reads the binary files. Source: Coates, Ng, Lee 2011.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgefl.data.cache import cached
from edgefl.data.dataset import Dataset, by_channel, checked, file_of
from edgefl.data.download import Download
from edgefl.errors import UserError

FOLDERS = ("stl10_binary", "stl10")
DOWNLOADS = (
    Download(
        "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
        "md5:91f7769df0f17e558f3565bffb0c7dfb",
        "stl10_binary",
    ),
)
SHAPE = (3, 96, 96)
CLASSES = 10


def load(directory: Path) -> Dataset:
    """Read the labelled samples in ``directory/stl10_binary/`` or ``directory/``."""
    files = [
        _file(directory, name)
        for name in ("train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin")
    ]

    def parse(folder: Path) -> Dataset:
        train = _labelled(*files[:2])
        return Dataset(*train, *_labelled(*files[2:]), CLASSES, *by_channel(train[0]))

    return cached("stl10", files, "", parse)


def unlabelled(directory: Path) -> np.ndarray:
    """Return the unlabelled samples (100000, 3, 96, 96), memory-mapped."""
    return _pictures(_file(directory, "unlabeled_X.bin"))


def _file(directory: Path, name: str) -> Path:
    return file_of(directory, FOLDERS, (name,), "stl10")


def _pictures(file: Path) -> np.ndarray:
    """Return images (n, 3, 96, 96). In the files, each channel is stored column by column."""
    size, pixels = file.stat().st_size, int(np.prod(SHAPE))
    if not size or size % pixels:
        raise UserError(
            f"{file}: truncated or no STL-10 file: expected pictures of {pixels} bytes, it holds"
            f" {size} bytes"
        )
    return np.memmap(file, np.uint8, mode="r").reshape(-1, *SHAPE).transpose(0, 1, 3, 2)


def _labelled(pictures: Path, labels: Path) -> tuple[np.ndarray, np.ndarray]:
    # in the files, labels count from 1
    found, numbers = _pictures(pictures), np.fromfile(labels, np.uint8).astype(np.int64) - 1
    if len(found) != len(numbers):
        raise UserError(
            f"{labels}: {len(numbers)} labels for the {len(found)} pictures of {pictures}"
        )
    return np.ascontiguousarray(found), checked(numbers, CLASSES, labels)
