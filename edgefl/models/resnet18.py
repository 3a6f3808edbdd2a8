"""ResNet-18 for 32 x 32 images: 4 stages of 2 residual blocks, 11 million weights (He 2016).

The stages have 64, 128, 256 and 512 channels. Unlike in the form for large images, the first
convolution is 3 x 3 with stride 1, and no pooling follows it. Source: He et al. 2016 (arXiv
1512.03385), table 1, shortcuts of option B.
"""

from __future__ import annotations

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
    from edgefl.models.layers import residual_network  # here, so that listings import no torch

    channels, _, _ = image_shape("resnet18", shape)
    return residual_network(channels, STAGES, BLOCKS, options.norm, True, classes)
