"""Read labelled texts: a folder per label, CSV with a header, or JSON lines.

CSV and JSON lines can be compressed as .gz or .xz.
"""

from __future__ import annotations

import csv
import gzip
import lzma
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import orjson

from edgefl.errors import UserError, as_user_error
from emulator.plain_text import lines, read_text

TEXT_COLUMNS = ("text", "review", "sentence")
LABEL_COLUMNS = ("label", "sentiment")
FORMS = (".jsonl", ".csv")
PACKINGS = ("", ".gz", ".xz")
KEY_PLACE = 3  # in a JSON array of five: label, rating, name, key, text

# texts, labels, and keys of the texts (for example their films); [] if the keys are not known
Texts = tuple[list[str], np.ndarray, list[str]]


def names(part: str) -> list[str]:
    """Return the possible file names of a part."""
    return [f"{part}{form}{packing}" for form in FORMS for packing in PACKINGS]


def from_folders(root: Path, labels: Mapping[str, int]) -> Texts:
    """Read every ``root/LABEL/*.txt``, in the order of the labels and then of the names."""
    files = [
        (file, label)
        for name, label in labels.items()
        for file in sorted((root / name).glob("*.txt"))
    ]
    texts = []
    for file, _ in files:
        try:
            with as_user_error():
                texts.append(read_text(file))
        except OSError as error:
            raise UserError(f"{file}: cannot be read ({error.strerror})") from error
    return texts, np.array([label for _, label in files], dtype=np.int64), []


def from_file(path: Path, labels: Mapping[str, int], key: str) -> Texts:
    """Read the rows of a file.

    A JSON row is a table with ``text`` and ``label``, or an array from the label to the text. The
    key of a text is in column ``key``, or in the fourth element of an array of five. If a row has
    no key, no keys are returned.
    """
    rows = _json_rows if ".jsonl" in path.suffixes else _csv_rows
    texts, found, keys = [], [], []
    try:
        with opened(path) as file, as_user_error():
            for line, label, text, about in rows(path, file, key):
                name = str(label).strip().lower()
                if name not in labels:
                    raise UserError(
                        f"{path}: line {line}: label {label!r}, expected one of {', '.join(labels)}"
                    )
                texts.append(text)
                found.append(labels[name])
                keys.append(None if about is None else str(about).strip() or None)
    except (OSError, EOFError, lzma.LZMAError, zlib.error, csv.Error) as error:
        raise UserError(f"{path}: truncated or damaged ({error})") from error
    return (
        texts,
        np.array(found, dtype=np.int64),
        [about for about in keys if about is not None] if None not in keys else [],
    )


def opened(path: Path) -> BinaryIO:
    """Open a file for reading bytes, and unpack it if it is compressed."""
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if path.suffix == ".xz":
        return cast(BinaryIO, lzma.open(path, "rb"))
    return open(path, "rb")


def _json_rows(path: Path, file: BinaryIO, key: str) -> Iterator[tuple[int, Any, str, Any]]:
    for line, content in enumerate(lines(file, path), start=1):
        if not content.strip():
            continue
        try:
            row = orjson.loads(content)
        except orjson.JSONDecodeError as error:
            raise UserError(f"{path}: line {line}: is not JSON ({error}): truncated?") from error
        about = None
        if isinstance(row, dict):
            about = row.get(key)
            row = [_column(row, LABEL_COLUMNS), _column(row, TEXT_COLUMNS)]
        if not isinstance(row, list) or len(row) < 2 or not isinstance(row[-1], str):
            raise UserError(
                f"{path}: line {line}: expected a table with text and label, or an array from the"
                " label to the text"
            )
        yield line, row[0], row[-1], row[KEY_PLACE] if len(row) == KEY_PLACE + 2 else about


def _csv_rows(path: Path, file: BinaryIO, key: str) -> Iterator[tuple[int, Any, str, Any]]:
    reader = csv.DictReader(lines(file, path), strict=True)
    columns = reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
    if not set(columns) & set(TEXT_COLUMNS) or not set(columns) & set(LABEL_COLUMNS):
        raise UserError(
            f"{path}: its header has {', '.join(columns) or 'nothing'}; expected"
            f" {' or '.join(TEXT_COLUMNS)}, and {' or '.join(LABEL_COLUMNS)}"
        )
    for row in reader:
        text = _column(row, TEXT_COLUMNS)
        if text is None or _column(row, LABEL_COLUMNS) is None:
            raise UserError(
                f"{path}: line {reader.line_num}: fewer columns than the header: truncated?"
            )
        yield reader.line_num, _column(row, LABEL_COLUMNS), text, row.get(key)


def _column(row: Mapping[str, Any], columns: tuple[str, ...]) -> Any:
    return next((row[column] for column in columns if column in row), None)
