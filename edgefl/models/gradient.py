"""Compute the gradient of the mean loss of some samples at a flat vector of weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from edgefl.models.workspace import Workspace
from edgefl.vectors import aligned_copy


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
