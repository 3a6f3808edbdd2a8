"""IMDb: negative and positive film reviews, 25,000 + 25,000 texts (Maas 2011).

It reads aclImdb's folders, JSON lines or CSV. Source: Maas et al. 2011.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgefl.data import text_tables, words
from edgefl.data.cache import cached
from edgefl.data.dataset import Dataset, checked, file_of, first_of
from edgefl.data.download import Download
from edgefl.data.words import TextOptions

FOLDERS = ("imdb", "aclImdb", "imdb/aclImdb")
DOWNLOADS = (
    Download(
        "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
        "md5:7c2ac02c03563afcf9b574c7e56c153a",
        "aclImdb",
    ),
)
LABELS = {"neg": 0, "pos": 1}
FILM = "film"
NAMES = LABELS | {"negative": 0, "positive": 1, "0": 0, "1": 1}

Options = TextOptions


def load(directory: Path, options: TextOptions) -> Dataset:
    """Read ``directory/imdb/``, ``directory/aclImdb/`` or ``directory/``: folders such as
    train/neg, or else files such as train.jsonl or train.csv.
    """
    folder_of_reviews = first_of(directory, FOLDERS, ("train/pos",), Path.is_dir)
    root = None if folder_of_reviews is None else folder_of_reviews.parents[1]
    if root is not None:
        sources = [root / part / label for part in ("train", "test") for label in LABELS]
    else:
        sources = [
            file_of(directory, FOLDERS, text_tables.names_of(part), "imdb")
            for part in ("train", "test")
        ]

    def read(part: int) -> text_tables.Texts:
        return (
            text_tables.from_file(sources[part], NAMES, FILM)
            if root is None
            else text_tables.from_folders(root / ("train", "test")[part], LABELS)
        )

    def parse(folder: Path) -> Dataset:
        (train, train_y, films), (test, test_y, _) = read(0), read(1)
        train_x, test_x, vocabulary = words.tokenized(train, test, options, directory, folder)
        labels = [
            checked(found, len(LABELS), sources[index * len(sources) // 2])
            for index, found in enumerate((train_y, test_y))
        ]
        return Dataset(
            train_x,
            labels[0],
            test_x,
            labels[1],
            len(LABELS),
            vocabulary=vocabulary,
            columns=_columns(films),
        )

    return cached(
        "imdb",
        [*sources, *words.vocabulary_path(directory, options)],
        options.model_dump_json(),
        parse,
    )


def _columns(films: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the films as numbers, in the order of their names; empty if they are not known."""
    return {FILM: np.unique(films, return_inverse=True)[1].astype(np.int64)} if films else {}
