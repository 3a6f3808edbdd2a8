"""TextCNN: an embedding, convolutions over 3, 4 and 5 words, the maximum of each filter over the
text, dropout, one layer (Kim 2014, arXiv 1408.5882).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field

from edgefl.errors import UserError

if TYPE_CHECKING:
    from torch import nn


class Options(BaseModel):
    """``embedding``: numbers per word; ``filters`` of each of the ``windows`` (words);
    ``dropout`` before the last layer.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    embedding: int = Field(default=128, ge=1)
    """Numbers per word."""
    filters: int = Field(default=100, ge=1)
    """Of each window."""
    # TOML's arrays are lists
    windows: tuple[Annotated[int, Field(ge=1)], ...] = Field((3, 4, 5), min_length=1, strict=False)
    """How many words each kind of filter sees."""
    dropout: float = Field(default=0.5, ge=0, lt=1)
    """Before the last layer."""


def build(options: Options, shape: tuple[int, ...], classes: int) -> nn.Module:
    """A fresh TextCNN for texts of ``shape`` (vocabulary, length). UserError for pictures, or
    texts shorter than the widest window.
    """
    from torch import nn  # here, so that listing the models stays light

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
