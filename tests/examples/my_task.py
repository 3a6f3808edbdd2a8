"""Your own task: 240 points around two centres, and a linear model. ``loss`` and ``metric`` have
defaults.
"""

import numpy as np
from torch import nn

from edgefl.api import Dataset, Task


def build():
    labels = np.arange(240) % 2
    random = np.random.Generator(np.random.PCG64(1))
    points = random.normal(labels[:, None] * 2.0, 1.0, (240, 2)).astype(np.float32)
    data = Dataset(points[:200], labels[:200], points[200:], labels[200:], classes=2)
    return Task(data, lambda: nn.Linear(2, 2))
