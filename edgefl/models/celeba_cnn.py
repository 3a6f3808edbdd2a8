"""WKAFL's CNN for CelebA: one convolution 10@4x4, max pooling, one hidden layer of 100.

An 84 x 84 image gives 16,000 features after pooling. Source: arXiv 2203.01214 and its code.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from edgefl.errors import UserError

if TYPE_CHECKING:
    from torch import nn

SMALLEST = 5  # one pixel remains after the pooling


class Options(BaseModel):
    """No options."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def build(options: Options, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a new CNN for samples of ``shape`` (channels, height, width).

    UserError if they are smaller than 5 x 5.
    """
    from torch import nn  # here, so that listing the models does not import torch

    from edgefl.models.layers import image_shape

    channels, height, width = image_shape("celeba_cnn", shape)
    if min(height, width) < SMALLEST:
        raise UserError(
            f"model celeba_cnn needs images of at least {SMALLEST} x {SMALLEST}, these are {height}"
            f" x {width}"
        )
    features = 10 * ((height - 3) // 2) * ((width - 3) // 2)
    return nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(channels, 10, 4),
            act1=nn.ReLU(),
            pool=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            full=nn.Linear(features, 100),
            act2=nn.ReLU(),
            output=nn.Linear(100, classes),
        )
    )
