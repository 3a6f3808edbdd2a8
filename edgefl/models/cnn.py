"""FedASMU's CNN: convolutions 64@2x2 and 32@2x2 with ReLU, one linear layer (arXiv 2312.05770).

It has no padding and no pooling, so almost all weights are in the last layer.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from torch import nn


class Options(BaseModel):
    """``norm``: normalisation after each convolution; the paper's has none."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    norm: Literal["none", "batch", "group"] = "none"
    """Normalisation after each convolution; `"group"` has no running statistics. The paper uses
    none.
    """


def build(options: Options, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a new CNN for samples of ``shape`` (channels, height, width)."""
    from torch import nn  # here, so that listing the models does not import torch

    from edgefl.models.layers import image_shape, norm

    channels, height, width = image_shape("cnn", shape)
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 64, 2),
            norm1=norm(options.norm, 64),
            act1=nn.ReLU(),
            conv2=nn.Conv2d(64, 32, 2),
            norm2=norm(options.norm, 32),
            act2=nn.ReLU(),
            flatten=nn.Flatten(),
            output=nn.Linear(32 * (height - 2) * (width - 2), classes),
        )
    )
