"""From texts to token numbers: a small tokenizer, and a vocabulary that is written down beside
what was made with it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from edgefl.errors import UserError

PADDING, UNKNOWN = 0, 1  # token numbers; the vocabulary's first word is 2
BREAK = re.compile(r"<br\s*/?>")
WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
FILE = "vocabulary.txt"


class TextOptions(BaseModel):
    """``vocabulary``: token numbers, with padding and unknown; ``length``: tokens of a text;
    ``vocabulary_file``: words to use, a line each.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    vocabulary: int = Field(default=10_000, ge=3, le=1 << 24)
    """Token numbers: padding, unknown, and the most frequent words of the training texts."""
    length: int = Field(default=256, ge=1, le=1 << 16)
    """Words of a text that count; shorter ones are padded."""
    vocabulary_file: str | None = None
    """These words instead, a line each; a path in the data directory."""


def words(text: str) -> list[str]:
    """Runs of letters and digits in lower case, with apostrophes inside ("don't"); HTML line
    breaks are spaces, the rest is dropped.
    """
    return WORD.findall(BREAK.sub(" ", text).lower())


def vocabulary(texts: Iterable[str], size: int) -> list[str]:
    """The ``size`` - 2 most frequent words of the training texts, those equally frequent in the
    alphabet's order.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(words(text))
    return [
        word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[: size - 2]
    ]


def encoded(texts: Sequence[str], known: Sequence[str], length: int) -> np.ndarray:
    """Token numbers (n, length) as int32: a text's first ``length`` words, then padding."""
    numbers = {word: number for number, word in enumerate(known, start=UNKNOWN + 1)}
    out = np.full((len(texts), length), PADDING, dtype=np.int32)
    for row, text in enumerate(texts):
        tokens = [numbers.get(word, UNKNOWN) for word in words(text)[:length]]
        out[row, : len(tokens)] = tokens
    return out


def tokenized(
    train: Sequence[str], test: Sequence[str], options: TextOptions, directory: Path, folder: Path
) -> tuple[np.ndarray, np.ndarray, int]:
    """Tokens of both parts and how many numbers there are; the words go to ``folder``, those of
    a vocabulary file come from ``directory``.
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
    """The vocabulary file, if there is to be one, for the cache to look at. UserError if it is
    not there.
    """
    if options.vocabulary_file is None:
        return []
    path = directory / Path(options.vocabulary_file).expanduser()
    if not path.is_file():
        raise UserError(
            f"data.vocabulary_file: no file {path} (a path in it starts from the data directory)"
        )
    return [path]


def from_file(directory: Path, options: TextOptions) -> list[str]:
    """The words of the vocabulary file, at most as many as ``vocabulary`` allows. UserError for
    one that is no word, or there twice.
    """
    (path,) = vocabulary_path(directory, options)
    known = path.read_text(encoding="utf-8", errors="replace").split("\n")[: options.vocabulary - 2]
    known = known[:-1] if known and not known[-1] else known
    for line, word in enumerate(known, start=1):
        if words(word) != [word]:
            raise UserError(
                f"{path}: line {line}: expected one word as the tokenizer makes them, found"
                f" {word[:40]!r}"
            )
    if len(set(known)) < len(known):
        raise UserError(
            f"{path}: the word {next(word for word in known if known.count(word) > 1)!r} is there"
            " twice"
        )
    return known
