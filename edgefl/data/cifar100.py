"""CIFAR-100: photographs of a hundred things, 3 x 32 x 32, 50,000 + 10,000 samples, binary or
python files (Krizhevsky 2009).
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
    std=(68.170, 65.392, 70.418),  # of the training pictures, channel by channel
)


def load(directory: Path) -> Dataset:
    """From one of FOLDERS in ``directory``, or ``directory`` itself; the fine labels."""
    return cifar(KIND, directory)
