"""The base class of all parts of the experiment file."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of every part of the file: immutable, no unknown keys, no silent conversion.

    For example, "2" is not accepted as 2.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
