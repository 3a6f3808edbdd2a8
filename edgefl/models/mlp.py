"""Multi-layer perceptron: flatten, fully connected layers with ReLU, one output per class."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from edgefl.compiled.network import Linear, Network, image_shape
from edgefl.config.section import Section

if TYPE_CHECKING:
    from torch import nn


class Options(Section):
    """``hidden``: width of each hidden layer; empty for softmax regression."""

    # not strict: TOML gives lists
    hidden: tuple[Annotated[int, Field(gt=0, le=65_536)], ...] = Field(
        (64,), strict=False, max_length=32
    )
    """Number of units of each hidden layer; `[]`: softmax regression. At most 32 layers of
    65,536 units each, because an edge builds what a coordinator names.
    """


def network(options: Options, shape: tuple[int, ...], classes: int) -> Network:
    """The layers, for samples of ``shape`` (channels, height, width)."""
    whole = image_shape("mlp", shape)
    widths = (math.prod(whole), *options.hidden)
    layers = [
        Linear(inputs, outputs, relu=True, name=f"hidden{index}")
        for index, (inputs, outputs) in enumerate(itertools.pairwise(widths), start=1)
    ]
    return Network(whole, (*layers, Linear(widths[-1], classes, name="output")))


def build(options: Options, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a new MLP for samples of ``shape`` (channels, height, width)."""
    from edgefl.models.layers import sequential  # here, so that listing the models imports no torch

    return sequential(network(options, shape, classes))
