"""ResNet-18 for 32 x 32 images: 4 stages of 2 residual blocks, 11 million weights (He 2016).

The stages have 64, 128, 256 and 512 channels. Unlike in the form for large images, the first
convolution is 3 x 3 with stride 1, and no pooling follows it. Source: He et al. 2016 (arXiv
1512.03385), table 1, shortcuts of option B.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Literal

from edgefl.compiled.network import image_shape
from edgefl.config.section import Section

if TYPE_CHECKING:
    from torch import nn

STAGES = (64, 128, 256, 512)
BLOCKS = 2


class Options(Section):
    """``norm``: "batch" as in the paper, or "group", which keeps no running statistics."""

    norm: Literal["batch", "group"] = "batch"
    """Normalisation after each convolution: `"batch"`, as in the paper, or `"group"`, which has no
    running statistics.
    """


def build(options: Options, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a new ResNet-18 for samples of ``shape`` (channels, height, width), of any size."""
    from torch import nn  # here, so that listing the models does not import torch

    from edgefl.models.layers import GlobalAverage, Residual, conv3x3, norm

    channels, _, _ = image_shape("resnet18", shape)
    parts: OrderedDict[str, nn.Module] = OrderedDict(
        conv=conv3x3(channels, STAGES[0], options.norm),
        norm=norm(options.norm, STAGES[0]),
        act=nn.ReLU(),
    )
    width = STAGES[0]
    for stage, outputs in enumerate(STAGES, start=1):
        for block in range(1, BLOCKS + 1):
            parts[f"stage{stage}_block{block}"] = Residual(
                width, outputs, 2 if block == 1 and stage > 1 else 1, options.norm, projected=True
            )
            width = outputs
    return nn.Sequential(parts | {"pool": GlobalAverage(), "output": nn.Linear(width, classes)})
