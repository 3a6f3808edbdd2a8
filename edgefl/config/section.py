"""What every part of the experiment file has in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of every part of the file: immutable, no unknown keys, no silent conversions ("2" is
    not 2).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
