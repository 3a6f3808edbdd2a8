"""MRPC: pairs of sentences, paraphrases or not, 4,076 + 1,725 pairs (Dolan, Brockett 2005).

Of the 4,076 pairs of the training file, 408 evenly spaced ones are the validation part; GLUE, too,
keeps 408 of them, but the list is not in the corpus. Source: Dolan and Brockett 2005.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from edgefl.data.dataset import Dataset
from edgefl.data.encoded_sets import Sentences, evenly, labelled
from edgefl.data.encoding import TokenOptions
from edgefl.data.text_tables import Row, file_in, table
from edgefl.errors import UserError

FOLDERS = ("mrpc", "MRPC")
QUALITY, FIRST, SECOND = "Quality", "#1 String", "#2 String"
VALIDATION = 408  # pairs
WHAT = "a file of the Microsoft Research Paraphrase Corpus (microsoft.com/download, id 52398)"


class Options(TokenOptions):
    """``test``: the part that the model is tested on. Training is always on the same pairs."""

    test: Literal["test", "validation"] = "test"
    """Part for testing. The other one is the unlabelled part: `unlabelled.data = "mrpc"` takes its
    pairs. FedEcho tests on `"validation"`.
    """


def load(directory: Path, options: Options) -> Dataset:
    """Read ``directory/mrpc/`` or ``directory/``: msr_paraphrase_train.txt and _test.txt.

    Files may be gzipped.
    """
    train_file, test_file = (
        file_in(directory, FOLDERS, [f"{name}.txt", f"{name}.txt.gz"], WHAT)
        for name in ("msr_paraphrase_train", "msr_paraphrase_test")
    )

    def read() -> tuple[Sentences, Sentences, int]:
        rows = table(train_file, (FIRST, SECOND), labels=[QUALITY])
        held = evenly(len(rows), min(VALIDATION, len(rows) // 2))
        train = [row for row, away in zip(rows, held) if not away]
        if options.test == "test":
            test = table(test_file, (FIRST, SECOND), labels=[QUALITY])
        else:
            test = [row for row, away in zip(rows, held) if away]
        return _part(train, train_file), _part(test, test_file), 2

    return labelled("mrpc", [train_file, test_file], options, read)


def unlabelled(directory: Path, options: Options) -> np.ndarray:
    """Return the part that is not for testing: (n, 2, length)."""
    other: Literal["test", "validation"] = "validation" if options.test == "test" else "test"
    return load(directory, options.model_copy(update={"test": other})).test_x


def _part(rows: list[Row], path: Path) -> Sentences:
    wrong = next((row[QUALITY] for row in rows if row[QUALITY] not in ("0", "1")), None)
    if wrong is not None:
        raise UserError(f"{path}: {QUALITY} {wrong!r}, expected 0 or 1")
    labels = np.array([int(row[QUALITY]) for row in rows], dtype=np.int64)
    return Sentences([row[FIRST] for row in rows], [row[SECOND] for row in rows], labels)
