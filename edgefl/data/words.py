"""Convert texts to token numbers, of words or of characters, and store the vocabulary with them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from pydantic import Field

from edgefl.config.section import Section
from edgefl.errors import UserError, as_user_error
from emulator.plain_text import read_text

PADDING, UNKNOWN = 0, 1  # token numbers; the vocabulary's first word is 2
BREAK = re.compile(r"<br\s*/?>")
WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
FILE = "vocabulary.txt"


class TextOptions(Section):
    """``vocabulary``: number of token numbers; ``length``: tokens of a text; ``vocabulary_file``:
    the words to use.
    """

    vocabulary: int = Field(default=10_000, ge=3, le=1 << 24)
    """Number of token numbers: padding, unknown, and the most frequent words of the training texts.
    """
    length: int = Field(default=256, ge=1, le=1 << 16)
    """Number of words of a text that are used; shorter texts are padded."""
    vocabulary_file: str | None = None
    """File with the words to use, one per line, in the data directory; none: the most frequent
    words of the training texts.
    """


def words(text: str) -> list[str]:
    """Return the words of a text in lower case: letters and digits, with apostrophes ("don't").

    HTML line breaks count as spaces; other characters are dropped.
    """
    return WORD.findall(BREAK.sub(" ", text).lower())


def vocabulary(texts: Iterable[str], size: int) -> list[str]:
    """Return the ``size`` - 2 most frequent words of the texts; ties are in alphabetical order."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(words(text))
    return [
        word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[: size - 2]
    ]


def encoded(texts: Sequence[str], known: Sequence[str], length: int) -> np.ndarray:
    """Return token numbers (n, length) as int32: the first ``length`` words, then padding."""
    numbers = {word: number for number, word in enumerate(known, start=UNKNOWN + 1)}
    out = np.full((len(texts), length), PADDING, dtype=np.int32)
    for row, text in enumerate(texts):
        tokens = [numbers.get(word, UNKNOWN) for word in words(text)[:length]]
        out[row, : len(tokens)] = tokens
    return out


def tokenized(
    train: Sequence[str], test: Sequence[str], options: TextOptions, directory: Path, folder: Path
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the tokens of both parts and the number of token numbers.

    The words are written to ``folder``; a vocabulary file is read from ``directory``.
    """
    known = (
        vocabulary(train, options.vocabulary)
        if options.vocabulary_file is None
        else from_file(directory, options)
    )
    (folder / FILE).write_text("".join(f"{word}\n" for word in known), encoding="utf-8")
    return (
        encoded(train, known, options.length),
        encoded(test, known, options.length),
        len(known) + 2,
    )


def vocabulary_path(directory: Path, options: TextOptions) -> list[Path]:
    """Return the vocabulary file, if the options have one, as a source for the cache.

    UserError if it does not exist.
    """
    if options.vocabulary_file is None:
        return []
    path = directory / Path(options.vocabulary_file).expanduser()
    if not path.is_file():
        raise UserError(
            f"data.vocabulary_file: no file {path} (the path is relative to the data directory)"
        )
    return [path]


def from_file(directory: Path, options: TextOptions) -> list[str]:
    """Return the words of the vocabulary file, at most as many as ``vocabulary`` allows.

    UserError for a line that is not one word, or a word that occurs twice.
    """
    (path,) = vocabulary_path(directory, options)
    with as_user_error():
        known = read_text(path).rstrip("\n").split("\n")[: options.vocabulary - 2]
    for line, word in enumerate(known, start=1):
        if words(word) != [word]:
            raise UserError(
                f"{path}: line {line}: expected one word as the tokenizer makes them, found"
                f" {word[:40]!r}"
            )
    if len(set(known)) < len(known):
        raise UserError(
            f"{path}: the word {next(word for word in known if known.count(word) > 1)!r} occurs"
            " twice"
        )
    return known


# ---------------------------------------------------------------------- next-character models
# Samples are windows of characters, each with the next character (Caldas et al. 2018, LEAF).
# token number of the first character; 0 is padding, 1 is a character that is not in the alphabet
FIRST = 2


def alphabet(texts: Iterable[str]) -> list[str]:
    """Return all characters of the texts, sorted."""
    return sorted(set().union(*texts))


def write_characters(known: Sequence[str], folder: Path) -> None:
    """Write the characters of the token numbers to a file, one per line, escaped as in Python."""
    (folder / FILE).write_text(
        "".join(f"{character.encode('unicode_escape').decode()}\n" for character in known),
        encoding="utf-8",
    )


def character_tokens(text: str, known: Sequence[str]) -> np.ndarray:
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
