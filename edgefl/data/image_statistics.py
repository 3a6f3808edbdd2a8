"""Mean and standard deviation of a data set's pixels, computed to be equal on all machines."""

from __future__ import annotations

import numpy as np

BLOCK = 4096


def by_channel(pictures: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and standard deviation of each channel.

    ``pictures``: (n, channels, height, width) as uint8. Values are counted first, and the counts
    evaluated in float64.
    """
    counts = np.zeros((pictures.shape[1], 256), dtype=np.int64)
    for start in range(0, len(pictures), BLOCK):
        block = pictures[start : start + BLOCK]
        counts += [
            np.bincount(block[:, channel].reshape(-1), minlength=256)
            for channel in range(pictures.shape[1])
        ]
    levels, total = np.arange(256, dtype=np.float64), counts.sum(axis=1)
    mean = (counts * levels).sum(axis=1) / total
    deviation = np.sqrt((counts * (levels - mean[:, None]) ** 2).sum(axis=1) / total)
    return tuple(round(float(value), 3) for value in mean), tuple(
        max(round(float(value), 3), 0.001) for value in deviation
    )
