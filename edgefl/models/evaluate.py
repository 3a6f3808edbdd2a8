"""Evaluate a flat vector of weights on a data set: loss, accuracy, and the gradient of the loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from edgefl.data.task import right_answers
from edgefl.models.workspace import Workspace, channels_last
from edgefl.vectors import aligned_copy

if TYPE_CHECKING:
    from edgefl.compiled.step import CompiledStep

BATCH = (
    125  # activations stay in a core's cache: with 1000, evaluation takes up to 1.8 times as long
)


def evaluate(
    workspace: Workspace,
    weights: np.ndarray,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    loss: Callable,
    batch: int = BATCH,
    metric: Callable = right_answers,
    terms: Callable = len,
    step: CompiledStep | None = None,
) -> tuple[float, float]:
    """Return (mean loss, mean metric) in evaluation mode; the default metric is the accuracy.

    ``terms(targets)``: of how many terms the loss of a batch is the mean, such as its tokens.
    ``weights`` and the workspace do not change. ``step``: computes the outputs in place of torch.
    """
    total_loss = total_metric = 0.0
    counted, fast = 0, True
    with workspace.inference(weights) if step is None else nullcontext(workspace.model) as model:
        for start in range(0, len(inputs), batch):
            part, rows = targets[start : start + batch], inputs[start : start + batch]
            if step is None:
                outputs, fast = _outputs(model, rows, fast)
            else:
                outputs = torch.from_numpy(step.outputs(weights, rows.contiguous().numpy()))
            count = terms(part)
            if count:
                total_loss += float(loss(outputs, part)) * count
            counted += count
            total_metric += float(metric(outputs, part))
    mean_loss = total_loss / counted if counted else math.nan  # texts of which no token counts
    return mean_loss, total_metric / len(inputs)


def by_sample(
    workspace: Workspace,
    weights: np.ndarray,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    index: np.ndarray,
    batch: int = BATCH,
) -> tuple[np.ndarray, np.ndarray]:
    """Return (cross-entropy, whether the answer is right) of each sample at ``index``.

    float64 and bool, in evaluation mode.
    """
    losses, right, fast = np.empty(len(index)), np.empty(len(index), bool), True
    with workspace.inference(weights) as model:
        for start in range(0, len(index), batch):
            rows = torch.from_numpy(index[start : start + batch]).to(workspace.device)
            part = targets.index_select(0, rows)
            outputs, fast = _outputs(model, inputs.index_select(0, rows), fast)
            each = nn.functional.cross_entropy(outputs.double(), part, reduction="none")
            losses[start : start + batch] = each.numpy(force=True)
            right[start : start + batch] = (outputs.argmax(dim=1) == part).numpy(force=True)
    return losses, right


def _outputs(model: nn.Module, inputs: torch.Tensor, fast: bool) -> tuple[torch.Tensor, bool]:
    """Return the outputs of a batch, and whether the next one is to be in channels-last order.

    Convolutions are 1.7 times as fast in this order, but a model's own code may need torch's, such
    as ``x.view(len(x), -1)``.
    """
    if fast:
        with suppress(RuntimeError):  # if the order is not the cause, it comes again
            return model(channels_last(inputs)), True
    return model(inputs), False


def gradient(
    workspace: Workspace,
    weights: np.ndarray,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> tuple[np.ndarray, float]:
    """Return (gradient of the trainable elements, loss) in evaluation mode.

    So there is no dropout, and normalisation buffers do not change.
    """
    with workspace.frozen(workspace.placed(weights)) as model:
        workspace.gradient.zero_()
        value = loss(model(workspace.arranged(inputs)), targets)
        value.backward()
        return aligned_copy(workspace.gradient.numpy(force=True)), value.item()
