"""ResNet-20 for small images: 3 stages of 3 residual blocks, 16, 32 and 64 channels (He 2016).

Source: He et al. 2016, arXiv 1512.03385, section 4.2.
"""

from __future__ import annotations

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
    from edgefl.models.layers import residual_network  # here, so that listings import no torch

    channels, _, _ = image_shape("resnet20", shape)
    return residual_network(channels, STAGES, BLOCKS, options.norm, False, classes)
