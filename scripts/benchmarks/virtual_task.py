"""The tasks of virtual runs: LeNet-5 on synthetic data of Fashion-MNIST's shape, and a tiny one.

Also strategies whose devices merge fresher models during training, or get one each second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgefl.data.dataset import Dataset, Task
from edgefl.models import lenet5, mlp
from edgefl.strategies.base.events_and_decisions import (
    Decision,
    FreshRequested,
    SendFresh,
    SetAlarm,
)
from edgefl.strategies.base.strategy import LocalRule
from edgefl.strategies.fedasync import FedAsync
from edgefl.strategies.fedbuff import FedBuff
from emulator.units import NS_PER_S

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


class Hears(LocalRule):
    def pushed(
        self, run: Any, model: np.ndarray, version: int, numbers: Mapping[str, float]
    ) -> None:
        """Ignore it."""


class PushEachSecond(FedAsync):
    """FedAsync; each second the current model is pushed to all devices in training."""

    rule = Hears

    def started(self, now: int) -> list[Decision]:
        return [*super().started(now), SetAlarm("push", now + NS_PER_S)]

    def rang(self, name: str, now: int) -> list[Decision]:
        if name != "push":
            return super().rang(name, now)
        return [SetAlarm("push", now + NS_PER_S), *self.push(sorted(self.running))]
