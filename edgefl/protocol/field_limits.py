"""Types of the fields of messages, each with its limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True, slots=True)
class Limit:
    """The largest value of an int, or the largest length of a str, bytes, list or dict."""

    most: int


Id = Annotated[str, Limit(64)]
Text = Annotated[str, Limit(2000)]
Digest = Annotated[str, Limit(64)]
Count = Annotated[int, Limit(2**62)]
MaybeCount = Annotated[int | None, Limit(2**62)]  # None: not known
Offset = Annotated[int, Limit(2**40)]
