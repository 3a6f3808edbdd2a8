"""Fashion-MNIST: images of clothes, 28 x 28, 60,000 + 10,000 samples, IDX files (Xiao 2017).

Source: Xiao, Rasul, Vollgraf 2017.
"""

from __future__ import annotations

from pathlib import Path

from edgefl.data.dataset import Dataset
from edgefl.data.download import Download
from edgefl.data.idx import idx_dataset

FOLDERS = ("fashion-mnist", "fashion_mnist", "FashionMNIST")
MEAN, STD = 72.940, 90.021  # of the training images, in grey levels
PUBLISHED = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
DOWNLOADS = (
    Download(PUBLISHED + "train-images-idx3-ubyte.gz", "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
    Download(PUBLISHED + "train-labels-idx1-ubyte.gz", "md5:25c81989df183df01b3e8a0aad5dffbe"),
    Download(PUBLISHED + "t10k-images-idx3-ubyte.gz", "md5:bef4ecab320f06d8554ea6380940ec79"),
    Download(PUBLISHED + "t10k-labels-idx1-ubyte.gz", "md5:bb300cfdad3c16e7a12a480ee83cd310"),
)


def load(directory: Path) -> Dataset:
    """Read ``directory/fashion-mnist/`` or ``directory/``, gzipped or not."""
    return idx_dataset(directory, "fashion_mnist", FOLDERS, classes=10, mean=MEAN, std=STD)
