"""What there is to learn: data, model and loss together. A user's own ``task =
"my_task.py:build"`` returns one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgefl.data.dataset import Dataset

if TYPE_CHECKING:
    import torch
    from torch import nn


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of a batch of logits."""
    from torch.nn import (
        functional,  # here, so that who only needs the data does without torch
    )

    return functional.cross_entropy(outputs, targets)


def right_answers(outputs: torch.Tensor, targets: torch.Tensor) -> Any:
    """How many samples of the batch have their largest output at the target."""
    return (outputs.argmax(dim=1) == targets).sum()


@dataclass(frozen=True, slots=True)
class Task:
    """``model()`` builds a fresh module; ``loss(outputs, targets)`` is a batch's mean,
    ``metric(outputs, targets)`` a batch's sum.
    """

    dataset: Dataset
    model: Callable[[], nn.Module]
    loss: Callable[[Any, Any], Any] = cross_entropy
    metric: Callable[[Any, Any], Any] = right_answers
