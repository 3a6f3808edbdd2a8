"""FedASMU's CNN: convolutions 64@2x2 and 32@2x2 with ReLU, one linear layer (arXiv 2312.05770).

It has no padding and no pooling, so almost all weights are in the last layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from edgefl.compiled.network import Convolution, Linear, Network, image_shape
from edgefl.config.section import Section

if TYPE_CHECKING:
    from torch import nn


class Options(Section):
    """``norm``: normalisation after each convolution; the paper's has none."""

    norm: Literal["none", "batch", "group"] = "none"
    """Normalisation after each convolution; `"group"` has no running statistics. The paper uses
    none.
    """


def network(options: Options, shape: tuple[int, ...], classes: int) -> Network | None:
    """The layers; None with normalisation."""
    return _layers(shape, classes) if options.norm == "none" else None


def build(options: Options, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a new CNN for samples of ``shape`` (channels, height, width)."""
    from edgefl.models.layers import sequential  # here, so that listing the models imports no torch

    return sequential(_layers(shape, classes), kind=options.norm)


def _layers(shape: tuple[int, ...], classes: int) -> Network:
    channels, height, width = image_shape("cnn", shape)
    return Network(
        (channels, height, width),
        (
            Convolution(channels, 64, (2, 2), relu=True, name="conv1"),
            Convolution(64, 32, (2, 2), relu=True, name="conv2"),
            Linear(32 * (height - 2) * (width - 2), classes, name="output"),
        ),
    )
