"""EMNIST: handwritten letters and digits, 28 x 28, 62 or 10 classes, IDX files (Cohen 2017).

The split ByClass has 62 classes, the split MNIST 10. Source: Cohen et al. 2017.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from edgefl.config.section import Section
from edgefl.data.cache import cached
from edgefl.data.dataset import Dataset, by_channel, file_of
from edgefl.data.download import Download
from edgefl.data.idx import pair

FOLDERS = ("emnist", "gzip", "EMNIST")
DOWNLOADS = (
    Download(
        "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
        "md5:58c8d27c78d21e728a6bc7b3cc06412e",
        "gzip",
    ),
)
CLASSES = {"byclass": 62, "mnist": 10}


class Options(Section):
    """``split``: "byclass", 697,932 + 116,323 samples (digits, capitals, small letters), or
    "mnist", 60,000 + 10,000 digits.
    """

    split: Literal["byclass", "mnist"] = "byclass"
    """Which part of EMNIST to use: `"byclass"`: 62 classes of digits, capitals and small letters,
    697,932 + 116,323 samples; `"mnist"`: 10 classes of digits, 60,000 + 10,000 samples.
    """


def load(directory: Path, options: Options) -> Dataset:
    """Read ``directory/emnist/``, ``directory/gzip/`` or ``directory/``, gzipped or not."""
    stems = [
        f"emnist-{options.split}-{part}-{kind}-ubyte"
        for part in ("train", "test")
        for kind in ("images-idx3", "labels-idx1")
    ]
    files = [file_of(directory, FOLDERS, (stem, f"{stem}.gz"), "emnist") for stem in stems]
    classes = CLASSES[options.split]

    def parse(folder: Path) -> Dataset:
        train, train_y = pair(files[0], files[1], classes)
        test, test_y = pair(files[2], files[3], classes)
        train, test = _upright(train), _upright(test)
        return Dataset(train, train_y, test, test_y, classes, *by_channel(train))

    return cached("emnist", files, options.split, parse)


def _upright(pictures: np.ndarray) -> np.ndarray:
    """Swap rows and columns, which are swapped in the files."""
    return np.ascontiguousarray(pictures.transpose(0, 1, 3, 2))
