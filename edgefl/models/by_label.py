"""The accuracy of each label, and the labels of each edge.

They show whether the global model learns labels that only some edges have.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefl.record.files import EDGES
from emulator.compute import Device, Drawn

if TYPE_CHECKING:
    import torch


class RightByLabel:
    """A metric that also counts the right answers of each label.

    Use one object for one pass over the test samples.
    """

    def __init__(self, metric: Callable[[Any, Any], Any], classes: int) -> None:
        self.metric = metric
        self.right, self.all = np.zeros(classes, np.int64), np.zeros(classes, np.int64)

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> Any:
        right = targets[outputs.argmax(dim=1) == targets]
        import torch

        for counts, labels in ((self.right, right), (self.all, targets)):
            counts += torch.bincount(labels, minlength=len(counts)).numpy(force=True)
        return self.metric(outputs, targets)

    @property
    def shares(self) -> list[float]:
        """The share of right answers for each label; nan for a label without samples."""
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
    """Write edges.csv: one row per edge, with its runtime class and its samples of each label.

    The runtime class is empty if devices have none.
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
