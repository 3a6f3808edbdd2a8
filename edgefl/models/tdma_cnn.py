"""The TDMA papers' CNN (Song, Hong): convolutions 10@5x5 and 20@5x5, each pooled, one linear layer.

Each convolution has 2x2 max pooling and ReLU, or a stride of two instead of the pooling. ReLU comes
after the pooling, where it sees a quarter of the elements; the results are the same bytes as in the
other order. The papers do not give the sizes: they are ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from edgefl.compiled.network import Convolution, Layer, Linear, Network, Pooling, image_shape
from edgefl.config.section import Section

if TYPE_CHECKING:
    from torch import nn

SMALLEST = 16  # one pixel remains after both convolutions and poolings


class Options(Section):
    """What halves the image after each convolution."""

    pool: Literal["max", "stride"] = "max"
    """`"max"`: 2x2 max pooling. `"stride"`: the convolutions themselves move by two pixels, so that
    a step takes a third of the time.
    """


def network(options: Options, shape: tuple[int, ...], classes: int) -> Network:
    """The layers. UserError if the samples are smaller than 16 x 16."""
    channels, height, width = image_shape("tdma_cnn", shape, SMALLEST)
    pooled = options.pool == "max"
    stride, lost = (1, 4) if pooled else (2, 3)
    left = [((side - lost) // 2 - lost) // 2 for side in (height, width)]
    layers: list[Layer] = []
    for number, (inputs, outputs) in enumerate([(channels, 10), (10, 20)], start=1):
        name = f"conv{number}"
        layers.append(
            Convolution(inputs, outputs, (5, 5), (stride, stride), relu=not pooled, name=name)
        )
        if pooled:
            layers.append(Pooling((2, 2), relu=True))
    output = Linear(20 * left[0] * left[1], classes, name="output")
    return Network((channels, height, width), (*layers, output))


def build(options: Options, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a new CNN for samples of ``shape`` (channels, height, width)."""
    from edgefl.models.layers import sequential  # here, so that listing the models imports no torch

    return sequential(network(options, shape, classes))
