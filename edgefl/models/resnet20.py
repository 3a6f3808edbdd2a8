"""ResNet-20 for small images: 3 stages of 3 residual blocks, 16, 32 and 64 channels (He 2016).

Source: He et al. 2016, arXiv 1512.03385, section 4.2.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Literal

from edgefl.compiled.network import image_shape
from edgefl.config.section import Section

if TYPE_CHECKING:
    from torch import nn

STAGES = (16, 32, 64)
BLOCKS = 3


class Options(Section):
    """``norm``: "batch" as in the paper, or "group", which keeps no running statistics."""

    norm: Literal["batch", "group"] = "batch"
    """Normalisation after each convolution: `"batch"`, as in the paper, or `"group"`, which has no
    running statistics.
    """


def build(options: Options, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a new ResNet-20 for samples of ``shape`` (channels, height, width), of any size."""
    from torch import nn  # here, so that listing the models does not import torch

    from edgefl.models.layers import GlobalAverage, Residual, conv3x3, norm

    channels, _, _ = image_shape("resnet20", shape)
    parts: OrderedDict[str, nn.Module] = OrderedDict(
        conv=conv3x3(channels, STAGES[0], options.norm),
        norm=norm(options.norm, STAGES[0]),
        act=nn.ReLU(),
    )
    width = STAGES[0]
    for stage, outputs in enumerate(STAGES, start=1):
        for block in range(1, BLOCKS + 1):
            parts[f"stage{stage}_block{block}"] = Residual(
                width, outputs, 1 if outputs == width else 2, options.norm
            )
            width = outputs
    return nn.Sequential(parts | {"pool": GlobalAverage(), "output": nn.Linear(width, classes)})
