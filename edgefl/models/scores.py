"""Scores of a model besides the accuracy: that of each label, F1 and perplexity.

The accuracy of each label, and the labels of each edge, show whether the global model learns labels
that only some edges have.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefl.record.files import EDGES
from emulator.compute import Device, Drawn

if TYPE_CHECKING:
    import torch

POSITIVE = 1  # the label whose F1 counts if there are two: "paraphrase" of MRPC, as in GLUE


class LabelCounts:
    """A metric that also counts how often each label is given, is right, and both.

    Use one object for one pass over the test samples.
    """

    def __init__(self, metric: Callable[[Any, Any], Any], classes: int) -> None:
        self.metric = metric
        # rows: right answers, answers, samples; a column for each label
        self.counts = np.zeros((3, classes), np.int64)

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> Any:
        import torch

        given = outputs.argmax(dim=1)
        for row, labels in enumerate((targets[given == targets], given, targets)):
            counted = torch.bincount(labels, minlength=self.counts.shape[1])
            self.counts[row] += counted.numpy(force=True)
        return self.metric(outputs, targets)

    @property
    def shares(self) -> list[float]:
        """The share of right answers for each label; nan for a label without samples."""
        right, _, samples = self.counts.tolist()
        return [part / whole if whole else math.nan for part, whole in zip(right, samples)]

    @property
    def f1(self) -> float:
        """F1 = 2 right / (answers + samples), of label 1 with two labels, else the mean over the
        labels that occur. 0 where a label is neither given nor right.
        """
        right, answers, samples = self.counts
        whole = answers + samples
        values = np.divide(2.0 * right, whole, out=np.zeros(len(right)), where=whole > 0)
        return float(values[POSITIVE] if len(values) == 2 else values[whole > 0].mean())


def perplexity(loss: float) -> float:
    """Return e to a mean cross-entropy; infinite if that is too large for a float."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


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
