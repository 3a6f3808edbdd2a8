"""What every published format says about itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from emulator.traces.recording import Recording

# lines of the file, its name for messages, direction ("up", "down" or ""), series or None
Convert = Callable[[Iterable[str], str, str, str | None], Recording]


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """A format of rates over time.

    ``directions``: those that a file of it can have, the default first; ("",) if a file is of one
    direction that it does not name. ``known``: whether the first line of a file is of this format.
    ``refused``: a direction that must not be used, and why.
    """

    name: str
    text: str
    directions: tuple[str, ...]
    known: Callable[[str], bool]
    convert: Convert
    refused: tuple[tuple[str, str], ...] = ()
