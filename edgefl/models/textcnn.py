"""TextCNN: word embedding, convolutions over 3, 4 and 5 words, maximum over the text (Kim 2014).

Dropout and one linear layer follow. Source: Kim 2014, arXiv 1408.5882.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from edgefl.config.section import Section
from edgefl.errors import UserError

if TYPE_CHECKING:
    from torch import nn


class Options(Section):
    """``embedding``: numbers per word; ``filters`` of each of the ``windows`` (words);
    ``dropout`` before the last layer.
    """

    embedding: int = Field(default=128, ge=1)
    """Size of the embedding: numbers per word."""
    filters: int = Field(default=100, ge=1)
    """Number of filters for each window."""
    # not strict: TOML gives lists
    windows: tuple[Annotated[int, Field(ge=1, le=1000)], ...] = Field(
        (3, 4, 5), min_length=1, max_length=32, strict=False
    )
    """Widths of the convolutions in words; at most the length of the texts."""
    dropout: float = Field(default=0.5, ge=0, lt=1)
    """Probability of dropout before the last layer."""


def build(options: Options, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a new TextCNN for texts of ``shape`` (vocabulary, length).

    UserError for images, or for texts shorter than the widest window.
    """
    from torch import nn  # here, so that listing the models does not import torch

    from edgefl.models.layers import Embedded, MaxOverTime

    if len(shape) != 2:
        raise UserError(
            f"model textcnn takes texts (vocabulary, length), these samples have the shape {shape};"
            " model cnn takes pictures"
        )
    vocabulary, length = shape
    if length < max(options.windows):
        raise UserError(
            f"model textcnn: windows: expected at most the texts' length ({length}), found"
            f" {max(options.windows)}"
        )
    return nn.Sequential(
        OrderedDict(
            embedding=Embedded(vocabulary, options.embedding),
            features=MaxOverTime(options.embedding, options.filters, options.windows),
            dropout=nn.Dropout(options.dropout),
            output=nn.Linear(options.filters * len(options.windows), classes),
        )
    )
