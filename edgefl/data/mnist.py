"""MNIST: handwritten digits, 28 x 28, 60,000 + 10,000 samples, from IDX files (LeCun, Cortes, Burges)."""

from __future__ import annotations

from pathlib import Path

from edgefl.data.dataset import Dataset
from edgefl.data.idx import idx_dataset

FOLDERS = ("mnist", "MNIST")
MEAN, STD = 33.318, 78.567  # of the training images, in grey levels


def load(directory: Path) -> Dataset:
    """From ``directory/mnist/`` or ``directory/``, gzipped or not."""
    return idx_dataset(directory, FOLDERS, classes=10, mean=MEAN, std=STD)
