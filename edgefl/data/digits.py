"""UCI handwritten digits: 8 x 8, 1,797 samples, included in scikit-learn (Alpaydin, Kaynak)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgefl.data.dataset import Dataset
from edgefl.errors import needs
from edgefl.streams import Streams

MEAN, STD = 4.884, 6.017  # of all pixels, whose values are 0 to 16
TRAIN_SHARE = 0.8


def load(directory: Path) -> Dataset:
    """Return the data with a fixed 80/20 split of every class; ``directory`` is not used."""
    with needs("lab", "data set 'digits'"):
        from sklearn.datasets import load_digits  # here: the import takes almost a second

    bunch = load_digits()
    images, labels = bunch.images.astype(np.uint8)[:, None], bunch.target.astype(np.int64)
    train = np.zeros(len(labels), dtype=bool)
    rng = Streams(0).rng("digits split")
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        train[members[: round(TRAIN_SHARE * len(members))]] = True
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
