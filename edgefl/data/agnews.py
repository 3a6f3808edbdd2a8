"""AG News: titles and first lines of news in four classes, 120,000 + 7,600 texts (Zhang 2015).

Source: Zhang, Zhao, LeCun 2015 (arXiv 1509.01626).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgefl.data.dataset import Dataset, checked
from edgefl.data.encoded_sets import Sentences, labelled
from edgefl.data.encoding import TokenOptions
from edgefl.data.text_tables import file_in, table
from edgefl.errors import UserError

FOLDERS = ("agnews", "ag_news", "ag_news_csv")
COLUMNS = ("class", "title", "description")
CLASSES = 4
WHAT = "a file of ag_news_csv (Zhang, Zhao, LeCun 2015)"

Options = TokenOptions


def load(directory: Path, options: TokenOptions) -> Dataset:
    """Read train.csv and test.csv in ``directory/agnews/`` or ``directory/``.

    A row has the class (1 to 4), the title and the description.
    """
    paths = [
        file_in(directory, FOLDERS, [f"{part}.csv{end}" for end in ("", ".gz", ".xz")], WHAT)
        for part in ("train", "test")
    ]

    def read() -> tuple[Sentences, Sentences, int]:
        train, test = (_part(path) for path in paths)
        return train, test, CLASSES

    return labelled("agnews", paths, options, read)


def _part(path: Path) -> Sentences:
    rows = table(path, COLUMNS, COLUMNS, labels=COLUMNS[:1])
    try:
        labels = np.array([int(row["class"]) for row in rows], dtype=np.int64) - 1
    except ValueError as error:
        raise UserError(f"{path}: a class is no number ({error}): expected 1 to 4") from error
    texts = [f"{row['title']} {row['description']}" for row in rows]
    return Sentences(texts, None, checked(labels, CLASSES, path))
