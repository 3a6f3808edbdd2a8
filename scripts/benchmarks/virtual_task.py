"""The tasks of virtual runs: LeNet-5 on synthetic data of Fashion-MNIST's shape, and a tiny one."""

from __future__ import annotations

import numpy as np

from edgefl.data.dataset import Dataset, Task
from edgefl.models import lenet5, mlp

TRAIN, SMALL_TRAIN, TINY_TRAIN = 60_000, 3_000, 200_000
TEST = 100  # few, because evaluation is not measured
CLASSES = 10


def build() -> Task:
    return noisy_patterns(TRAIN)


def build_small() -> Task:
    return noisy_patterns(SMALL_TRAIN)


def build_tiny() -> Task:
    """Return a sample or two for each of 100,000 devices, and a model that costs nothing."""
    dataset = patterns(TINY_TRAIN, 4)
    return Task(dataset, lambda: mlp.build(mlp.Options(hidden=[8]), dataset.shape, dataset.classes))


def noisy_patterns(train: int) -> Task:
    dataset = patterns(train, 28)
    return Task(dataset, lambda: lenet5.build(lenet5.Options(), dataset.shape, dataset.classes))


def patterns(train: int, side: int) -> Dataset:
    """Return ten weak patterns under noise, in pictures of side x side pixels."""
    rng = np.random.Generator(np.random.PCG64(1))
    weak = rng.integers(0, 60, (CLASSES, 1, side, side), dtype=np.uint8)
    labels = rng.integers(0, CLASSES, train + TEST)
    noise = rng.integers(0, 190, (train + TEST, 1, side, side), dtype=np.uint8)
    samples = weak[labels] + noise
    return Dataset(
        samples[:train],
        labels[:train],
        samples[train:],
        labels[train:],
        classes=CLASSES,
        mean=(125.0,),
        std=(57.0,),
    )
