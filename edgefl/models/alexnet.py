"""AlexNet for 32 x 32 images: five convolutions and one fully connected layer (Krizhevsky 2014).

The convolutions have 64, 192, 384, 256 and 256 filters, as in the one-column AlexNet (arXiv
1404.5997), with three max poolings. As is usual for small images, the two hidden layers of 4096 are
left out: they would have nine tenths of the weights.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Literal

from edgefl.compiled.network import image_shape
from edgefl.config.section import Section

if TYPE_CHECKING:
    from torch import nn

# filters, side, stride, padding
CONVS = ((64, 11, 4, 5), (192, 5, 1, 2), (384, 3, 1, 1), (256, 3, 1, 1), (256, 3, 1, 1))
POOLED = (1, 2, 5)  # the convolutions that a pooling follows


class Options(Section):
    """``norm``: normalisation after each convolution."""

    norm: Literal["none", "batch", "group"] = "none"
    """Normalisation after each convolution; `"group"` has no running statistics."""


def build(options: Options, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a new AlexNet for samples of ``shape`` (channels, height, width).

    Samples smaller than 32 x 32 are padded with zeros.
    """
    from torch import nn  # here, so that listing the models does not import torch

    from edgefl.models.layers import bordered, norm

    channels, height, width = image_shape("alexnet", shape)
    border, height, width = bordered(height, width)
    parts: OrderedDict[str, nn.Module] = OrderedDict(border=border)
    for number, (filters, side, stride, padding) in enumerate(CONVS, start=1):
        parts[f"conv{number}"] = nn.Conv2d(
            channels, filters, side, stride=stride, padding=padding, bias=options.norm == "none"
        )
        parts[f"norm{number}"] = norm(options.norm, filters)
        parts[f"act{number}"] = nn.ReLU()
        height, width, channels = (
            (height + 2 * padding - side) // stride + 1,
            (width + 2 * padding - side) // stride + 1,
            filters,
        )
        if number in POOLED:
            parts[f"pool{number}"] = nn.MaxPool2d(2)
            height, width = height // 2, width // 2
    return nn.Sequential(
        parts | {"flatten": nn.Flatten(), "output": nn.Linear(channels * height * width, classes)}
    )
