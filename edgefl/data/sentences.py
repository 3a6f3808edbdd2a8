"""Sentences: your own labelled texts, single or in pairs, from JSON lines or CSV files.

For pretrained text models. A row has a text, perhaps a second one, and a label.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgefl.data.dataset import Dataset, class_names, class_numbers
from edgefl.data.encoded_sets import OwnFiles, Sentences, labelled
from edgefl.data.text_tables import Row, numbered, table


class Options(OwnFiles):
    """Names of the columns."""

    text: str = "text"
    """Column of the text."""
    pair: str | None = None
    """Column of the second text; none: single texts."""
    label: str = "label"
    """Column of the label: any text or number."""
    key: str | None = None
    """Column by which `partition.name = "natural"` divides the training rows, such as an author;
    none: no such column.
    """


def load(directory: Path, options: Options) -> Dataset:
    """Read the files that the options name in ``directory``. Labels are numbered in their order."""
    paths = options.paths(directory)

    def read() -> tuple[Sentences, Sentences, int]:
        wanted = [name for name in (options.text, options.pair) if name is not None]
        labels = [name for name in (options.label, options.key) if name is not None]
        train, test = (table(path, wanted, labels=labels) for path in paths)
        number = class_names([row[options.label] for row in train])
        parts = [_part(rows, options, number, path) for rows, path in zip((train, test), paths)]
        return parts[0], parts[1], len(number)

    return labelled("sentences", paths, options, read)


def _part(rows: Sequence[Row], options: Options, number: dict[Any, int], path: Path) -> Sentences:
    return Sentences(
        [str(row[options.text]) for row in rows],
        None if options.pair is None else [str(row[options.pair]) for row in rows],
        class_numbers([row[options.label] for row in rows], number, path),
        {} if options.key is None else {options.key: numbered([row[options.key] for row in rows])},
    )
