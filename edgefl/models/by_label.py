"""Accuracy label by label, and which edges hold which labels: whether the global model knows
what only some of them have.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgefl.record.files import EDGES
from emulator.compute import Device, Drawn


class RightByLabel:
    """A metric that also counts the right answers of each label: use it for one pass over the
    test samples.
    """

    def __init__(self, metric: Callable[[Any, Any], Any], classes: int) -> None:
        self.metric = metric
        self.right, self.all = np.zeros(classes, np.int64), np.zeros(classes, np.int64)

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> Any:
        right = targets[outputs.argmax(dim=1) == targets]
        self.right += torch.bincount(right, minlength=len(self.right)).numpy()
        self.all += torch.bincount(targets, minlength=len(self.all)).numpy()
        return self.metric(outputs, targets)

    @property
    def shares(self) -> list[float]:
        """Of each label's samples, how many were right; nan for a label without any."""
        return [
            int(right) / int(count) if count else float("nan")
            for right, count in zip(self.right, self.all)
        ]


def write_edges(
    directory: Path,
    shards: Mapping[str, np.ndarray],
    labels: np.ndarray,
    classes: int,
    devices: Mapping[str, Device],
) -> None:
    """edges.csv: a row an edge, with its runtime class, if devices have such, and how many
    samples of each label it holds.
    """
    with (directory / EDGES).open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["edge", "runtime", *(f"label_{label}" for label in range(classes))])
        for edge, indices in shards.items():
            device = devices[edge]
            runtime = device.runtime.name if isinstance(device, Drawn) else ""
            rows.writerow(
                [edge, runtime, *np.bincount(labels[indices], minlength=classes).tolist()]
            )
