"""WKAFL's CNN for CelebA: 10@4x4, pooled (16,000 numbers of an 84 x 84 picture), one layer of
100 (arXiv 2203.01214 and its code).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from edgefl.errors import UserError

if TYPE_CHECKING:
    from torch import nn

SMALLEST = 5  # the pooling leaves one pixel


class Options(BaseModel):
    """None."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def build(options: Options, shape: tuple[int, ...], classes: int) -> nn.Module:
    """A fresh CNN for samples of ``shape`` (channels, height, width). UserError if they are
    smaller than 5 x 5.
    """
    from torch import nn  # here, so that listing the models stays light

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
