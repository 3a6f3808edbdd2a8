"""UCI handwritten digits: 8 x 8, 1,797 samples, included in scikit-learn (Alpaydin, Kaynak)."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from edgefl.data.dataset import Dataset, stratified
from edgefl.errors import needs
from edgefl.streams import Streams

MEAN, STD = 4.884, 6.017  # of all pixels, whose values are 0 to 16
TRAIN_SHARE = 0.8


def load(directory: Path) -> Dataset:
    """Return the data with a fixed 80/20 split of every class; ``directory`` is not used."""
    with needs("lab", "data set 'digits'"):
        table = _table()
    images, labels = table[:, :-1].astype(np.uint8).reshape(-1, 1, 8, 8), table[:, -1]
    train = stratified(labels, TRAIN_SHARE, Streams(0).rng("digits split"))
    return Dataset(
        images[train],
        labels[train],
        images[~train],
        labels[~train],
        int(labels.max()) + 1,
        (MEAN,),
        (STD,),
        pixel_max=16.0,
    )


def _table() -> np.ndarray:
    """Return int64 [n, 65]: the pixels of each picture, row by row, then its label.

    scikit-learn is only asked where it is installed: its import takes a second, the file 50 ms.
    """
    found = find_spec("sklearn")
    if found is None:
        raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")
    for folder in found.submodule_search_locations or ():
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            return np.loadtxt(file, dtype=np.int64, delimiter=",")
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return np.column_stack([bunch.data, bunch.target]).astype(np.int64)
