"""CIFAR-100: photographs of 100 classes, 3 x 32 x 32, 50,000 + 10,000 samples (Krizhevsky 2009).

It reads the binary files or the Python files.
"""

from __future__ import annotations

from pathlib import Path

from edgefl.data.cifar import Kind, cifar
from edgefl.data.dataset import Dataset
from edgefl.data.download import Download

FOLDERS = ("cifar100", "cifar-100-binary", "cifar-100-python")
DOWNLOADS = (
    Download(
        "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
        "md5:03b5dce01913d631647c71ecec9e9cb8",
        "cifar-100-binary",
    ),
)
KIND = Kind(
    name="cifar100",
    folders=FOLDERS,
    train=("train",),
    test="test",
    label_bytes=2,
    labels_key="fine_labels",
    classes=100,
    mean=(129.304, 124.070, 112.434),
    std=(68.170, 65.392, 70.418),  # of each channel of the training images
)


def load(directory: Path) -> Dataset:
    """Read one of FOLDERS in ``directory``, or ``directory`` itself, with the fine labels."""
    return cifar(KIND, directory)
