"""A task: data, model and loss together.

A user's own ``task = "my_task.py:build"`` returns one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgefl.compiled.network import Network
from edgefl.data.dataset import Dataset

if TYPE_CHECKING:
    import torch
    from torch import nn


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy of a batch of logits."""
    from torch.nn import (
        functional,  # here, so that processes that need only the data do not import torch
    )

    return functional.cross_entropy(outputs, targets)


def right_answers(outputs: torch.Tensor, targets: torch.Tensor) -> Any:
    """Return how many samples of the batch have their largest output at the target."""
    return (outputs.argmax(dim=1) == targets).sum()


@dataclass(frozen=True, slots=True)
class Task:
    """The data, the model, the loss and the metric of an experiment.

    ``model()`` builds a new module; ``loss(outputs, targets)`` returns the mean of a batch,
    ``metric(outputs, targets)`` its sum. ``terms(targets)``: of how many terms the loss is the
    mean.
    """

    dataset: Dataset
    model: Callable[[], nn.Module]
    loss: Callable[[Any, Any], Any] = cross_entropy
    metric: Callable[[Any, Any], Any] = right_answers
    terms: Callable[[Any], int] = len
    network: Network | None = None  # the same model, if it is known without torch

    @property
    def classifies(self) -> bool:
        """Whether loss and metric are cross-entropy and right answers, known of each sample."""
        usual = self.loss is cross_entropy and self.metric is right_answers
        return usual and self.terms is len
