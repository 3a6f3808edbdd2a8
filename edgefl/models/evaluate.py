"""Loss and accuracy of a flat vector on a data set."""

from __future__ import annotations

from typing import Callable

import numpy as np
import torch

from edgefl.data.task import right_answers
from edgefl.models.workspace import Workspace


def evaluate(
    workspace: Workspace,
    weights: np.ndarray,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    loss: Callable,
    batch: int = 1000,
    metric: Callable = right_answers,
) -> tuple[float, float]:
    """(mean loss, mean metric: by default the accuracy) in evaluation mode; leaves ``weights`` and the workspace as they were."""
    total_loss = total_metric = 0.0
    with workspace.inference(weights) as model:
        for start in range(0, len(inputs), batch):
            part = targets[start : start + batch]
            outputs = model(inputs[start : start + batch])
            total_loss += float(loss(outputs, part)) * len(part)
            total_metric += float(metric(outputs, part))
    return total_loss / len(inputs), total_metric / len(inputs)
