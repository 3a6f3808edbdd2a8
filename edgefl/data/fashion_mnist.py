"""Fashion-MNIST: pictures of clothes, 28 x 28, 60,000 + 10,000 samples, from IDX files (Xiao, Rasul, Vollgraf 2017)."""

from __future__ import annotations

from pathlib import Path

from edgefl.data.dataset import Dataset
from edgefl.data.idx import idx_dataset

FOLDERS = ("fashion-mnist", "fashion_mnist", "FashionMNIST")
MEAN, STD = 72.940, 90.021  # of the training images, in grey levels


def load(directory: Path) -> Dataset:
    """From ``directory/fashion-mnist/`` or ``directory/``, gzipped or not."""
    return idx_dataset(directory, FOLDERS, classes=10, mean=MEAN, std=STD)
