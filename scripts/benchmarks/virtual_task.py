"""The task of virtual.py: LeNet-5 on synthetic data of Fashion-MNIST's shape.

Also a strategy whose devices merge fresher models during training.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgefl.data.dataset import Dataset
from edgefl.data.task import Task
from edgefl.models import lenet5
from edgefl.strategies.base.decisions import Decision, SendFresh
from edgefl.strategies.base.events import FreshRequested
from edgefl.strategies.base.local_rule import LocalRule
from edgefl.strategies.fedbuff import FedBuff

TRAIN, SMALL_TRAIN, TEST = (
    60_000,
    3_000,
    100,
)  # few test samples, because evaluation is not measured
CLASSES = 10


def build() -> Task:
    return noisy_patterns(TRAIN)


def build_small() -> Task:
    return noisy_patterns(SMALL_TRAIN)


def noisy_patterns(train: int) -> Task:
    """Return data of ten weak patterns under noise."""
    rng = np.random.Generator(np.random.PCG64(1))
    patterns = rng.integers(0, 60, (CLASSES, 1, 28, 28), dtype=np.uint8)
    labels = rng.integers(0, CLASSES, train + TEST)
    samples = patterns[labels] + rng.integers(0, 190, (train + TEST, 1, 28, 28), dtype=np.uint8)
    dataset = Dataset(
        samples[:train],
        labels[:train],
        samples[train:],
        labels[train:],
        classes=CLASSES,
        mean=(125.0,),
        std=(57.0,),
    )
    return Task(dataset, lambda: lenet5.build(lenet5.Options(), dataset.shape, dataset.classes))


class Halfway(LocalRule):
    """A rule that asks in the middle of the run and takes the mean of its and the fresher model."""

    def checkpoint(self, run: Any) -> int:
        return run.steps // 2

    def merge(self, run: Any, fresh: np.ndarray, version: int) -> None:
        own = run.weights.numpy()
        own += fresh
        own *= np.float32(0.5)


class Merging(FedBuff):
    """FedBuff that answers requests with the newest model, if it is newer."""

    rule = Halfway

    def fresh_requested(self, event: FreshRequested, now: int) -> list[Decision]:
        return [
            SendFresh(
                event.edge, event.task, self.weights if self.version > event.base_version else None
            )
        ]
