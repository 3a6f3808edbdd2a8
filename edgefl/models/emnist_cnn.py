"""WKAFL's CNN for EMNIST: convolutions 32@5x5 and 64@5x5, each pooled, one hidden layer of 512.

Source: arXiv 2203.01214, section 6.1.1.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from edgefl.errors import UserError

if TYPE_CHECKING:
    from torch import nn

SMALLEST = 16  # one pixel remains after the second pooling


class Options(BaseModel):
    """No options."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def build(options: Options, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a new CNN for samples of ``shape`` (channels, height, width).

    UserError if they are smaller than 16 x 16.
    """
    from torch import nn  # here, so that listing the models does not import torch

    from edgefl.models.layers import image_shape

    channels, height, width = image_shape("emnist_cnn", shape)
    if min(height, width) < SMALLEST:
        raise UserError(
            f"model emnist_cnn needs images of at least {SMALLEST} x {SMALLEST}, these are {height}"
            f" x {width}; model mlp takes any size"
        )
    sides = [((side - 4) // 2 - 4) // 2 for side in (height, width)]
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 32, 5),
            act1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(32, 64, 5),
            act2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            full=nn.Linear(64 * sides[0] * sides[1], 512),
            act3=nn.ReLU(),
            output=nn.Linear(512, classes),
        )
    )
