"""Read tables of texts: JSON lines, a JSON array, CSV, or tab-separated values.

Files can be compressed as .gz or .xz.
"""

from __future__ import annotations

import csv
import lzma
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson

from edgefl.data.labels import spelled
from edgefl.data.text_files import opened
from edgefl.errors import UserError, as_user_error, nearest
from emulator.plain_text import decoded, lines

Row = dict[str, Any]


def table(
    path: Path,
    columns: Sequence[str],
    header: Sequence[str] | None = None,
    labels: Sequence[str] = (),
) -> list[Row]:
    """Return the rows of a file, each with at least ``columns`` and ``labels``.

    ``header``: the columns of a CSV without a first line of names; a first line whose first cell is
    no number is skipped. ``labels``: columns whose values name classes or groups; white space
    around them is removed. UserError for a column that is missing, a label that is missing or
    nearly equal to another one (``edgefl.data.labels.spelled``), or a file that is damaged.
    """
    try:
        with opened(path) as file, as_user_error():
            rows = list(_reader(path)(path, file, header))
    except (OSError, EOFError, lzma.LZMAError, zlib.error, csv.Error) as error:
        raise UserError(f"{path}: truncated or damaged ({error})") from error
    if not rows:
        raise UserError(f"{path}: no samples")
    for number, row in enumerate(rows, start=1):
        for column in (*columns, *labels):
            if row.get(column, row) is row:
                near = nearest(column, [str(name) for name in row if name is not None])
                raise UserError(f"{path}: row {number} has no column {column!r}{near}")
        for column in columns:
            if row[column] is None:
                raise UserError(f"{path}: row {number}: {column!r} is null, expected a text")
    for column in labels:
        values = spelled([row[column] for row in rows], f"{path}: column {column!r}")
        for row, value in zip(rows, values):
            row[column] = value
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
    for line, text in enumerate(lines(file, path), start=1):
        if text.strip():
            yield _json(path, text, f"line {line}")


def _array_rows(path: Path, file: BinaryIO, _: Any) -> Iterator[Row]:
    try:
        found = orjson.loads(decoded(file.read(), path))
    except orjson.JSONDecodeError as error:
        raise UserError(f"{path}: is not JSON ({error}): truncated?") from error
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise UserError(f"{path}: expected an array of tables")
    yield from found


def _json(path: Path, text: str, where: str) -> Row:
    try:
        row = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise UserError(f"{path}: {where}: is not JSON ({error}): truncated?") from error
    if not isinstance(row, dict):
        raise UserError(f"{path}: {where}: expected a table")
    return row


def _csv_rows(path: Path, file: BinaryIO, header: Sequence[str] | None) -> Iterator[Row]:
    rows = csv.reader(lines(file, path), strict=True)
    names = header or [name.strip() for name in next(rows, ())]
    for number, row in enumerate(rows):
        if not any(cell.strip() for cell in row) or (
            header and number == 0 and not row[0].strip().lstrip("-").isdigit()
        ):
            continue
        yield dict(zip(names, row))


def _tab_rows(path: Path, file: BinaryIO, header: Sequence[str] | None) -> Iterator[Row]:
    """Quotes are literal; the first line names the columns."""
    rows = csv.reader(lines(file, path), delimiter="\t", quoting=csv.QUOTE_NONE)
    names = header or [name.strip() for name in next(rows, ())]
    for row in rows:
        if any(cell.strip() for cell in row):
            yield dict(zip(names, row))
