"""VGG-11 for 32 x 32 images: eight 3 x 3 convolutions in five pooled stages, one linear layer.

As is usual for small images, the two hidden layers of 4096 are left out. Source: Simonyan,
Zisserman 2015, column A.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Literal

from edgefl.compiled.network import image_shape
from edgefl.config.section import Section

if TYPE_CHECKING:
    from torch import nn

STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))


class Options(Section):
    """``norm``: normalisation after each convolution; "none" is the paper's, which learns slowly
    at first.
    """

    norm: Literal["none", "batch", "group"] = "batch"
    """Normalisation after each convolution. `"none"`, as in the paper, learns slowly at first;
    `"group"` has no running statistics.
    """


def build(options: Options, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a new VGG-11 for samples of ``shape`` (channels, height, width).

    Samples smaller than 32 x 32 are padded with zeros.
    """
    from torch import nn  # here, so that listing the models does not import torch

    from edgefl.models.layers import bordered, conv3x3, norm

    channels, height, width = image_shape("vgg11", shape)
    border, height, width = bordered(height, width)
    parts: OrderedDict[str, nn.Module] = OrderedDict(border=border)
    for stage, filters in enumerate(STAGES, start=1):
        for number, outputs in enumerate(filters, start=1):
            parts[f"conv{stage}_{number}"] = conv3x3(channels, outputs, options.norm)
            parts[f"norm{stage}_{number}"] = norm(options.norm, outputs)
            parts[f"act{stage}_{number}"] = nn.ReLU()
            channels = outputs
        parts[f"pool{stage}"] = nn.MaxPool2d(2)
    features = channels * (height >> len(STAGES)) * (width >> len(STAGES))
    return nn.Sequential(parts | {"flatten": nn.Flatten(), "output": nn.Linear(features, classes)})
