"""The pages of docs/results, from the result files alone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from reproduction.entry import Entry


def write(folder: Path, entries: Iterable[Entry]) -> list[Path]:
    """Write the pages; return their paths."""
    return []
