"""Multi-layer perceptron: flatten, fully connected layers with ReLU, one output per class."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from torch import nn


class Options(BaseModel):
    """``hidden``: width of each hidden layer; empty for softmax regression."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    # not strict: TOML gives lists
    hidden: tuple[Annotated[int, Field(gt=0, le=65_536)], ...] = Field(
        (64,), strict=False, max_length=32
    )
    """Number of units of each hidden layer; `[]`: softmax regression. At most 32 layers of
    65,536 units each, because an edge builds what a coordinator names.
    """


def build(options: Options, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a new MLP for samples of ``shape`` (channels, height, width), with torch's default
    initialisation.
    """
    from torch import nn  # here, so that listing the models does not import torch

    from edgefl.models.layers import image_shape

    channels, height, width = image_shape("mlp", shape)
    widths = (channels * height * width, *options.hidden)
    model = nn.Sequential()
    model.add_module("flatten", nn.Flatten())
    for index, (inputs, outputs) in enumerate(itertools.pairwise(widths), start=1):
        model.add_module(f"hidden{index}", nn.Linear(inputs, outputs))
        model.add_module(f"relu{index}", nn.ReLU())
    model.add_module("output", nn.Linear(widths[-1], classes))
    return model
