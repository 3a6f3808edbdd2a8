"""WKAFL's CNN for CelebA: one convolution 10@4x4, max pooling, one hidden layer of 100.

An 84 x 84 image gives 16,000 features after pooling. Source: arXiv 2203.01214 and its code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefl.compiled.network import Convolution, Linear, Network, Pooling, image_shape
from edgefl.config.section import Section

if TYPE_CHECKING:
    from torch import nn

SMALLEST = 5  # one pixel remains after the pooling


class Options(Section):
    """No options."""


def network(options: Options, shape: tuple[int, ...], classes: int) -> Network:
    """The layers. UserError if the samples are smaller than 5 x 5."""
    channels, height, width = image_shape("celeba_cnn", shape, SMALLEST)
    features = 10 * ((height - 3) // 2) * ((width - 3) // 2)
    return Network(
        (channels, height, width),
        (
            Convolution(channels, 10, (4, 4), relu=True, name="conv"),
            Pooling((2, 2)),
            Linear(features, 100, relu=True, name="full"),
            Linear(100, classes, name="output"),
        ),
    )


def build(options: Options, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a new CNN for samples of ``shape`` (channels, height, width)."""
    from edgefl.models.layers import sequential  # here, so that listing the models imports no torch

    return sequential(network(options, shape, classes))
