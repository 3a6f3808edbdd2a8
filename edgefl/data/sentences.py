"""Sentences: your own labelled texts, single or in pairs, from JSON lines or CSV files.

For pretrained text models. A row has a text, perhaps a second one, and a label.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgefl.data.dataset import Dataset
from edgefl.data.encoded_sets import OwnFiles, Sentences, labelled
from edgefl.data.text_tables import Row, numbered, table
from edgefl.errors import UserError


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
        names = sorted({row[options.label] for row in train}, key=_order)
        number = {name: position for position, name in enumerate(names)}
        for place, row in enumerate(test, start=1):
            if row[options.label] not in number:
                raise UserError(
                    f"{paths[1]}: row {place}: label {row[options.label]!r}, expected one of the"
                    f" training rows: {', '.join(map(str, names[:20]))}"
                )
        parts = [_part(rows, options, number) for rows in (train, test)]
        return parts[0], parts[1], len(names)

    return labelled("sentences", paths, options, read)


def _part(rows: Sequence[Row], options: Options, number: dict[object, int]) -> Sentences:
    return Sentences(
        [str(row[options.text]) for row in rows],
        None if options.pair is None else [str(row[options.pair]) for row in rows],
        np.array([number[row[options.label]] for row in rows], dtype=np.int64),
        {} if options.key is None else {options.key: numbered([row[options.key] for row in rows])},
    )


def _order(label: object) -> tuple[bool, float, str]:
    """Numbers in their order, then texts."""
    text = str(label)
    is_number = text.lstrip("-").isdigit()
    return not is_number, float(text) if is_number else 0.0, text
