"""Scores of a model besides the accuracy: F1 and perplexity."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

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
