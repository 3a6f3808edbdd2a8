"""WKAFL's CNN for EMNIST: convolutions 32@5x5 and 64@5x5, each pooled, one hidden layer of 512.

Source: arXiv 2203.01214, section 6.1.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefl.compiled.network import Convolution, Linear, Network, Pooling, image_shape
from edgefl.config.section import Section

if TYPE_CHECKING:
    from torch import nn

SMALLEST = 16  # one pixel remains after the second pooling


class Options(Section):
    """No options."""


def network(options: Options, shape: tuple[int, ...], classes: int) -> Network:
    """The layers. UserError if the samples are smaller than 16 x 16."""
    channels, height, width = image_shape("emnist_cnn", shape, SMALLEST)
    sides = [((side - 4) // 2 - 4) // 2 for side in (height, width)]
    return Network(
        (channels, height, width),
        (
            Convolution(channels, 32, (5, 5), relu=True, name="conv1"),
            Pooling((2, 2)),
            Convolution(32, 64, (5, 5), relu=True, name="conv2"),
            Pooling((2, 2)),
            Linear(64 * sides[0] * sides[1], 512, relu=True, name="full"),
            Linear(512, classes, name="output"),
        ),
    )


def build(options: Options, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a new CNN for samples of ``shape`` (channels, height, width)."""
    from edgefl.models.layers import sequential  # here, so that listing the models imports no torch

    return sequential(network(options, shape, classes))
