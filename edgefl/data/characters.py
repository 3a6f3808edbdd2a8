"""Texts as windows of characters, each with the character that follows: what next-character
models learn from (Caldas et al. 2018, LEAF).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from edgefl.data.words import FILE

# token number of the first character; 0 is padding, 1 any character that is not in the alphabet
FIRST = 2


def alphabet(texts: Iterable[str]) -> list[str]:
    """All their characters, sorted."""
    return sorted(set().union(*texts))


def write(known: Sequence[str], folder: Path) -> None:
    """The characters behind the token numbers, escaped as in Python, a line each."""
    (folder / FILE).write_text(
        "".join(f"{character.encode('unicode_escape').decode()}\n" for character in known),
        encoding="utf-8",
    )


def tokens(text: str, known: Sequence[str]) -> np.ndarray:
    """Token numbers (length of the text,) as int32."""
    numbers = {character: number for number, character in enumerate(known, start=FIRST)}
    return np.array([numbers.get(character, FIRST - 1) for character in text], dtype=np.int32)


def windows(text: np.ndarray, length: int, stride: int) -> tuple[np.ndarray, np.ndarray]:
    """Windows (n, length) of token numbers, ``stride`` apart, and (n,) which character of the
    alphabet follows each.
    """
    starts = np.arange(0, len(text) - length, stride)
    if not len(starts):
        return np.zeros((0, length), np.int32), np.zeros(0, np.int64)
    return text[starts[:, None] + np.arange(length)], text[starts + length].astype(np.int64) - FIRST
