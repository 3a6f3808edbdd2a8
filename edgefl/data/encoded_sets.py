"""Data sets of encoded texts: from rows of text to a cached ``Dataset``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from edgefl.data import encoding
from edgefl.data.cache import cached
from edgefl.data.dataset import Dataset
from edgefl.data.encoding import TokenOptions
from edgefl.data.text_tables import file_in
from edgefl.errors import UserError


class OwnFiles(TokenOptions):
    """The user's own files in the data directory."""

    train: str = Field("train.jsonl", min_length=1)
    """File with the training rows, in the data directory: `.jsonl`, `.json`, `.csv` or `.tsv`, also
    with `.gz` or `.xz`.
    """
    test: str = Field("test.jsonl", min_length=1)
    """File with the test rows."""

    def paths(self, directory: Path) -> list[Path]:
        """Return the two files. UserError if one is missing."""
        what = "data.train and data.test name files in the data directory"
        names = (str(Path(name).expanduser()) for name in (self.train, self.test))
        return [file_in(directory, (), [name], what) for name in names]


@dataclass(frozen=True, slots=True)
class Sentences:
    """Rows of one part of a labelled set.

    ``others``: the second sentences of pairs. ``labels`` (n,): from 0. ``columns``: for the natural
    partition.
    """

    texts: Sequence[str]
    others: Sequence[str] | None
    labels: np.ndarray
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prompts:
    """Rows of one part of a set of prompts with answers. ``labels`` (n,) are for partitions."""

    prompts: Sequence[str]
    answers: Sequence[str]
    labels: np.ndarray


def labelled(
    name: str,
    sources: Sequence[Path],
    options: TokenOptions,
    read: Callable[[], tuple[Sentences, Sentences, int]],
) -> Dataset:
    """Return the encoded training and test part, and the number of classes, that ``read`` gives."""

    def parse(folder: Path) -> Dataset:
        train, test, classes = read()
        tokenizer = _tokenizer(options, folder)
        train_x, test_x = (
            encoding.sentences(tokenizer, part.texts, part.others, options.length)
            for part in (train, test)
        )
        return Dataset(
            train_x,
            train.labels,
            test_x,
            test.labels,
            classes,
            vocabulary=encoding.size(tokenizer),
            columns=train.columns,
            tokens="labels",
            tokenizer=encoding.vocabulary_digest(tokenizer),
        )

    return _cached(name, sources, options, parse)


def answered(
    name: str,
    sources: Sequence[Path],
    options: TokenOptions,
    chat: bool,
    read: Callable[[], tuple[Prompts, Prompts]],
) -> Dataset:
    """Return the encoded training and test part that ``read`` gives, for causal models.

    UserError if no prompt leaves room for an answer.
    """

    def parse(folder: Path) -> Dataset:
        tokenizer = _tokenizer(options, folder)
        parts = []
        for which, part in zip(("training", "test"), read()):
            texts, kept = encoding.prompts(
                tokenizer, part.prompts, part.answers, options.length, chat
            )
            if not len(kept):
                raise UserError(
                    f"data.length: no prompt of the {which} part leaves room for an answer in"
                    f" {options.length} tokens: expected a larger length"
                )
            parts += [texts, part.labels[kept]]
        return Dataset(
            parts[0],
            parts[1],
            parts[2],
            parts[3],
            int(parts[1].max()) + 1,
            vocabulary=encoding.size(tokenizer),
            tokens="next",
            tokenizer=encoding.vocabulary_digest(tokenizer),
        )

    return _cached(name, sources, options, parse)


def _tokenizer(options: TokenOptions, folder: Path) -> Any:
    tokenizer = encoding.tokenizer_at(Path(options.tokenizer or ""))
    encoding.write_vocabulary(tokenizer, folder)
    return tokenizer


def _cached(
    name: str, sources: Sequence[Path], options: TokenOptions, parse: Callable[[Path], Dataset]
) -> Dataset:
    files = [*sources, *encoding.sources(options)]
    return cached(name, files, options.model_dump_json(), parse)


def evenly(rows: int, share: int) -> np.ndarray:
    """Return a mask (rows,) with ``share`` evenly spaced rows."""
    mask = np.zeros(rows, bool)
    mask[np.arange(share) * rows // share] = True
    return mask
