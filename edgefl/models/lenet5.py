"""LeNet-5: convolutions 6@5x5 and 16@5x5, each pooled, hidden layers of 120 and 84 (LeCun 1998).

Pooling and activation are max pooling and ReLU by default, as is usual today; the paper's average
pooling and tanh are options. Source: LeCun et al. 1998.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from edgefl.errors import UserError

if TYPE_CHECKING:
    from torch import nn

FULL_SIZE = 32  # the paper's input; smaller images (28 x 28) are padded by 2
SMALLEST = 12  # with that padding, one pixel remains after the second pooling


class Options(BaseModel):
    """``activation`` after each layer and ``pool`` after each convolution."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    activation: Literal["relu", "tanh"] = "relu"
    """Activation after each hidden layer; the paper uses `"tanh"`."""
    pool: Literal["max", "average"] = "max"
    """Pooling after each convolution; the paper uses `"average"`, with trainable weights that are
    left out here.
    """


def build(options: Options, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a new LeNet-5 for samples of ``shape`` (channels, height, width).

    UserError if they are smaller than 12 x 12.
    """
    from torch import nn  # here, so that listing the models does not import torch

    from edgefl.models.layers import image_shape

    channels, height, width = image_shape("lenet5", shape)
    if min(height, width) < SMALLEST:
        raise UserError(
            f"model lenet5 needs images of at least {SMALLEST} x {SMALLEST}, these are {height} x"
            f" {width}; model mlp takes any size"
        )
    border = 2 if min(height, width) < FULL_SIZE else 0
    activation = nn.ReLU if options.activation == "relu" else nn.Tanh
    pool = nn.MaxPool2d if options.pool == "max" else nn.AvgPool2d
    features = 16 * _pooled_twice(height, border) * _pooled_twice(width, border)
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 6, 5, padding=border),
            act1=activation(),
            pool1=pool(2),
            conv2=nn.Conv2d(6, 16, 5),
            act2=activation(),
            pool2=pool(2),
            flatten=nn.Flatten(),
            full1=nn.Linear(features, 120),
            act3=activation(),
            full2=nn.Linear(120, 84),
            act4=activation(),
            output=nn.Linear(84, classes),
        )
    )


def _pooled_twice(side: int, border: int) -> int:
    return ((side + 2 * border - 4) // 2 - 4) // 2
