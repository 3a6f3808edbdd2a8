"""LeNet-5: convolutions 6@5x5 and 16@5x5, each pooled, hidden layers of 120 and 84 (LeCun 1998).

Pooling and activation are max pooling and ReLU by default, as is usual today; the paper's average
pooling and tanh are options. Source: LeCun et al. 1998.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from edgefl.compiled.network import Convolution, Linear, Network, Pooling, image_shape
from edgefl.config.section import Section

if TYPE_CHECKING:
    from torch import nn

FULL_SIZE = 32  # the paper's input; smaller images (28 x 28) are padded by 2
SMALLEST = 12  # with that padding, one pixel remains after the second pooling


class Options(Section):
    """``activation`` after each layer and ``pool`` after each convolution."""

    activation: Literal["relu", "tanh"] = "relu"
    """Activation after each hidden layer; the paper uses `"tanh"`."""
    pool: Literal["max", "average", "stride"] = "max"
    """Pooling after each convolution; the paper uses `"average"`, with trainable weights that are
    left out here. `"stride"`: no pooling; the convolutions move by two pixels, so that a step takes
    about a third of the time.
    """


def network(options: Options, shape: tuple[int, ...], classes: int) -> Network | None:
    """The layers; None with tanh or average pooling."""
    plain = options.activation == "relu" and options.pool != "average"
    return _layers(options, shape, classes) if plain else None


def build(options: Options, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a new LeNet-5 for samples of ``shape`` (channels, height, width).

    UserError if they are smaller than 12 x 12.
    """
    from torch import nn  # here, so that listing the models does not import torch

    from edgefl.models.layers import sequential

    return sequential(
        _layers(options, shape, classes),
        nn.ReLU if options.activation == "relu" else nn.Tanh,
        nn.AvgPool2d if options.pool == "average" else nn.MaxPool2d,
    )


def _layers(options: Options, shape: tuple[int, ...], classes: int) -> Network:
    channels, height, width = image_shape("lenet5", shape, SMALLEST)
    border = 2 if min(height, width) < FULL_SIZE else 0
    strided = options.pool == "stride"
    stride = (2, 2) if strided else (1, 1)
    pool = () if strided else (Pooling((2, 2)),)
    features = 16 * _halved_twice(height, border, strided) * _halved_twice(width, border, strided)
    return Network(
        (channels, height, width),
        (
            Convolution(channels, 6, (5, 5), stride, (border,) * 4, relu=True, name="conv1"),
            *pool,
            Convolution(6, 16, (5, 5), stride, relu=True, name="conv2"),
            *pool,
            Linear(features, 120, relu=True, name="full1"),
            Linear(120, 84, relu=True, name="full2"),
            Linear(84, classes, name="output"),
        ),
    )


def _halved_twice(side: int, border: int, strided: bool) -> int:
    lost = 3 if strided else 4  # pixels before the halving; of an odd number, a stride rounds up
    return ((side + 2 * border - lost) // 2 - lost) // 2
