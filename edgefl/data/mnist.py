"""MNIST: handwritten digits, 28 x 28, 60,000 + 10,000 samples, IDX files (LeCun et al.).

Source: LeCun, Cortes, Burges.
"""

from __future__ import annotations

from pathlib import Path

from edgefl.data.dataset import Dataset
from edgefl.data.download import Download
from edgefl.data.idx import idx_dataset

FOLDERS = ("mnist", "MNIST")
MEAN, STD = 33.318, 78.567  # of the training images, in grey levels
# a mirror, because the authors' page now needs a password
PUBLISHED = "https://ossci-datasets.s3.amazonaws.com/mnist/"
DOWNLOADS = (
    Download(PUBLISHED + "train-images-idx3-ubyte.gz", "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    Download(PUBLISHED + "train-labels-idx1-ubyte.gz", "md5:d53e105ee54ea40749a09fcbcd1e9432"),
    Download(PUBLISHED + "t10k-images-idx3-ubyte.gz", "md5:9fb629c4189551a2d022fa330f9573f3"),
    Download(PUBLISHED + "t10k-labels-idx1-ubyte.gz", "md5:ec29112dd5afa0611ce80d1b7f02629c"),
)


def load(directory: Path) -> Dataset:
    """Read ``directory/mnist/`` or ``directory/``, gzipped or not."""
    return idx_dataset(directory, "mnist", FOLDERS, classes=10, mean=MEAN, std=STD)
