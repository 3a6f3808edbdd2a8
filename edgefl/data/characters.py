"""Samples of next-character models: windows of characters, each with the next character.

Source: Caldas et al. 2018, LEAF.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from edgefl.data.words import FILE

# token number of the first character; 0 is padding, 1 is a character that is not in the alphabet
FIRST = 2


def alphabet(texts: Iterable[str]) -> list[str]:
    """Return all characters of the texts, sorted."""
    return sorted(set().union(*texts))


def write(known: Sequence[str], folder: Path) -> None:
    """Write the characters of the token numbers to a file, one per line, escaped as in Python."""
    (folder / FILE).write_text(
        "".join(f"{character.encode('unicode_escape').decode()}\n" for character in known),
        encoding="utf-8",
    )


def tokens(text: str, known: Sequence[str]) -> np.ndarray:
    """Return the token numbers (length of the text,) as int32."""
    numbers = {character: number for number, character in enumerate(known, start=FIRST)}
    return np.array([numbers.get(character, FIRST - 1) for character in text], dtype=np.int32)


def windows(text: np.ndarray, length: int, stride: int) -> tuple[np.ndarray, np.ndarray]:
    """Return windows (n, length) of token numbers, ``stride`` apart, and the next characters (n,).

    A next character is its place in the alphabet, from 0.
    """
    starts = np.arange(0, len(text) - length, stride)
    if not len(starts):
        return np.zeros((0, length), np.int32), np.zeros(0, np.int64)
    return text[starts[:, None] + np.arange(length)], text[starts + length].astype(np.int64) - FIRST
