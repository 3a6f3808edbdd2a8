"""CIFAR-10: photographs of 10 classes, 3 x 32 x 32, 50,000 + 10,000 samples (Krizhevsky 2009).

It reads the binary files or the Python files.
"""

from __future__ import annotations

from pathlib import Path

from edgefl.data.cifar import Kind, cifar
from edgefl.data.dataset import Dataset
from edgefl.data.download import Download

FOLDERS = ("cifar10", "cifar-10-batches-bin", "cifar-10-batches-py")
DOWNLOADS = (
    Download(
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "md5:c32a1d4ab5d03f1284b67883e8d87530",
        "cifar-10-batches-bin",
    ),
)
KIND = Kind(
    name="cifar10",
    folders=FOLDERS,
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    label_bytes=1,
    labels_key="labels",
    classes=10,
    mean=(125.307, 122.950, 113.865),
    std=(62.993, 62.089, 66.705),  # of each channel of the training images
)


def load(directory: Path) -> Dataset:
    """Read one of FOLDERS in ``directory``, or ``directory`` itself."""
    return cifar(KIND, directory)
