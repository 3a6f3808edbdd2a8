"""The TDMA papers' CNN (Song, Hong): convolutions 10@5x5 and 20@5x5, each pooled, one linear layer.

Each convolution has 2x2 max pooling and ReLU, or a stride of two instead of the pooling. ReLU comes
after the pooling, where it sees a quarter of the elements; the results are the same bytes as in the
other order. The papers do not give the sizes: they are ours.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from edgefl.errors import UserError

if TYPE_CHECKING:
    from torch import nn

SMALLEST = 16  # one pixel remains after both convolutions and poolings


class Options(BaseModel):
    """What halves the image after each convolution."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    pool: Literal["max", "stride"] = "max"
    """`"max"`: 2x2 max pooling. `"stride"`: the convolutions themselves move by two pixels, so that
    a step takes a third of the time.
    """


def build(options: Options, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a new CNN for samples of ``shape`` (channels, height, width).

    UserError if they are smaller than 16 x 16.
    """
    from torch import nn  # here, so that listing the models does not import torch

    from edgefl.models.layers import image_shape

    channels, height, width = image_shape("tdma_cnn", shape)
    if min(height, width) < SMALLEST:
        raise UserError(
            f"model tdma_cnn needs images of at least {SMALLEST} x {SMALLEST}, these are {height} x"
            f" {width}; model mlp takes any size"
        )
    pooled = options.pool == "max"
    stride, lost = (1, 4) if pooled else (2, 3)
    left = [((side - lost) // 2 - lost) // 2 for side in (height, width)]
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 10, 5, stride),
            pool1=nn.MaxPool2d(2) if pooled else nn.Identity(),
            act1=nn.ReLU(),
            conv2=nn.Conv2d(10, 20, 5, stride),
            pool2=nn.MaxPool2d(2) if pooled else nn.Identity(),
            act2=nn.ReLU(),
            flatten=nn.Flatten(),
            output=nn.Linear(20 * left[0] * left[1], classes),
        )
    )
