"""Your own data set, from my_data.npz in the data directory: images x (n, channels, height, width)
as uint8, labels y (n,).
"""

import numpy as np

from edgefl.api import Dataset


def load(directory):
    with np.load(directory / "my_data.npz") as file:
        x, y = file["x"], file["y"].astype(np.int64)
    cut = len(y) * 4 // 5
    mean, std = float(x[:cut].mean()), float(x[:cut].std())
    return Dataset(
        x[:cut], y[:cut], x[cut:], y[cut:], classes=int(y.max()) + 1, mean=(mean,), std=(std,)
    )
