"""The learning task of the search: a model so small that training takes no time, and yet in pieces.

Its vectors have a few thousand bytes, so that each transfer takes several pieces.
"""

from __future__ import annotations

import numpy as np
from torch import nn

from edgefl.data.dataset import Dataset, Task

POINTS, FEATURES, CLASSES = 96, 200, 5
HIDDEN = 6  # units of a layer of which syncdrop leaves some out


def build() -> Task:
    """Two clouds of points for each class, and a model of about a thousand parameters."""
    rng = np.random.Generator(np.random.PCG64(1))
    labels = np.arange(POINTS) % CLASSES
    points = rng.normal(labels[:, None], 1.0, (POINTS, FEATURES)).astype(np.float32)
    cut = POINTS - 16
    data = Dataset(points[:cut], labels[:cut], points[cut:], labels[cut:], classes=CLASSES)
    return Task(data, model)


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
