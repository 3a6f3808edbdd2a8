"""Next-character LSTM: an embedding of 8, two LSTM layers of 256, one linear layer (LEAF 2018).

The linear layer reads the state at the last character. Source: Caldas et al. 2018, LEAF.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from pydantic import Field

from edgefl.config.section import Section
from edgefl.errors import UserError

if TYPE_CHECKING:
    from torch import nn


class Options(Section):
    """``embedding``: numbers per character; ``hidden``: units of each of the ``layers``."""

    embedding: int = Field(default=8, ge=1)
    """Size of the embedding: numbers per character."""
    hidden: int = Field(default=256, ge=1)
    """Number of units of each LSTM layer."""
    layers: int = Field(default=2, ge=1)
    """Number of LSTM layers."""


def build(options: Options, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a new LSTM for texts of ``shape`` (vocabulary, length). UserError for images."""
    from torch import nn  # here, so that listing the models does not import torch

    from edgefl.models.layers import LastState

    if len(shape) != 2:
        raise UserError(
            "model char_lstm takes texts (vocabulary, length), these samples have the shape"
            f" {shape}; model cnn takes pictures"
        )
    return nn.Sequential(
        OrderedDict(
            embedding=nn.Embedding(shape[0], options.embedding),
            features=LastState(options.embedding, options.hidden, options.layers),
            output=nn.Linear(options.hidden, classes),
        )
    )
