"""The points of examples/my_task.py with a small network that has all that algorithms need.

It has hidden units and a normalisation.
"""

from __future__ import annotations

import numpy as np
from torch import nn

from edgefl.data.dataset import Dataset, Task


def build() -> Task:
    labels = np.arange(240) % 2
    points = (
        np.random.Generator(np.random.PCG64(1))
        .normal(labels[:, None] * 2.0, 1.0, (240, 2))
        .astype(np.float32)
    )
    dataset = Dataset(points[:200], labels[:200], points[200:], labels[200:], classes=2)
    return Task(
        dataset,
        lambda: nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2)),
    )
