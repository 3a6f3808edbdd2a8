"""Read tables of texts: JSON lines, a JSON array, CSV, or tab-separated values.

Files can be compressed as .gz or .xz.
"""

from __future__ import annotations

import csv
import io
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson

from edgefl.data.text_files import opened
from edgefl.errors import UserError, nearest

Row = Mapping[str, Any]


def table(path: Path, columns: Sequence[str], header: Sequence[str] | None = None) -> list[Row]:
    """Return the rows of a file, each with at least ``columns``.

    ``header``: the columns of a CSV without a first line of names; a first line whose first cell is
    no number is skipped. UserError for a column that is missing, or a file that is damaged.
    """
    try:
        with opened(path) as file:
            rows = list(_reader(path)(path, file, header))
    except (OSError, EOFError, lzma.LZMAError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: truncated or damaged ({error})") from error
    if not rows:
        raise UserError(f"{path}: no samples")
    for number, row in enumerate(rows, start=1):
        for column in columns:
            if row.get(column) is None:
                near = nearest(column, [str(name) for name in row if name is not None])
                raise UserError(f"{path}: row {number} has no column {column!r}{near}")
    return rows


def numbered(values: Sequence[Any]) -> np.ndarray:
    """Return numbers (n,) of the values, in their order: 0 for the smallest."""
    return np.unique([str(value) for value in values], return_inverse=True)[1].astype(np.int64)


def file_in(directory: Path, folders: Sequence[str], names: Sequence[str], what: str) -> Path:
    """Return the first file with one of ``names`` in ``directory/FOLDER/`` or ``directory/``.

    UserError if there is none; ``what`` says what the file is and who publishes it.
    """
    places = [*(directory / folder for folder in folders), directory]
    for place in places:
        for name in names:
            if (place / name).is_file():
                return place / name
    raise UserError(
        f"no file {' or '.join(names)} in {places[0].absolute()} or {directory.absolute()}: {what};"
        " [data] dir or $EDGEFL_DATA says where it is"
    )


def _reader(path: Path) -> Callable[..., Iterator[Row]]:
    forms = path.suffixes
    if ".csv" in forms:
        return _csv_rows
    if ".txt" in forms or ".tsv" in forms:
        return _tab_rows
    return _array_rows if ".json" in forms else _json_rows


def _json_rows(path: Path, file: BinaryIO, _: Any) -> Iterator[Row]:
    for line, raw in enumerate(file, start=1):
        if raw.strip():
            yield _json(path, raw, f"line {line}")


def _array_rows(path: Path, file: BinaryIO, _: Any) -> Iterator[Row]:
    try:
        found = orjson.loads(file.read())
    except orjson.JSONDecodeError as error:
        raise UserError(f"{path}: is not JSON ({error}): truncated?") from error
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise UserError(f"{path}: expected an array of tables")
    yield from found


def _json(path: Path, raw: bytes, where: str) -> Row:
    try:
        row = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise UserError(f"{path}: {where}: is not JSON ({error}): truncated?") from error
    if not isinstance(row, dict):
        raise UserError(f"{path}: {where}: expected a table")
    return row


def _csv_rows(path: Path, file: BinaryIO, header: Sequence[str] | None) -> Iterator[Row]:
    rows = csv.reader(io.TextIOWrapper(file, encoding="utf-8-sig", newline=""), strict=True)
    names = header or next(rows, None)
    for number, row in enumerate(rows):
        if not row or (header and number == 0 and not row[0].strip().lstrip("-").isdigit()):
            continue
        yield dict(zip(names or (), row))


def _tab_rows(path: Path, file: BinaryIO, header: Sequence[str] | None) -> Iterator[Row]:
    """Quotes are literal; the first line names the columns."""
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    rows = csv.reader(text, delimiter="\t", quoting=csv.QUOTE_NONE)
    names = header or next(rows, None)
    for row in rows:
        if row:
            yield dict(zip(names or (), row))
