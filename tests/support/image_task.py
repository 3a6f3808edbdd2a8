"""A task of small images whose model torch trains in channels-last order."""

import numpy as np
from torch import nn

from edgefl.api import Dataset, Task


def build():
    labels = np.arange(120) % 2
    random = np.random.Generator(np.random.PCG64(1))
    images = random.normal(labels[:, None, None, None], 1.0, (120, 3, 16, 16)).astype(np.float32)
    data = Dataset(images[:100], labels[:100], images[100:], labels[100:], classes=2)
    return Task(data, model)


def model():
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 5), nn.BatchNorm2d(8), nn.Tanh(), nn.AvgPool2d(2)),
        *(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 2)),
    )
