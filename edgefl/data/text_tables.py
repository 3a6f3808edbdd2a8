"""Read texts: tables of them (JSON lines, a JSON array, CSV, or tab-separated values), and labelled
texts (JSON lines, CSV, or a folder per label).

Files can be compressed as .gz or .xz.
"""

from __future__ import annotations

import csv
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import orjson

from edgefl.data.dataset import first_of, spelled
from edgefl.errors import UserError, as_user_error, nearest
from emulator.plain_text import decoded, lines, read_text

Row = dict[str, Any]
DAMAGE = (OSError, EOFError, lzma.LZMAError, zlib.error, csv.Error)
TEXT_COLUMNS = ("text", "review", "sentence")
LABEL_COLUMNS = ("label", "sentiment")
LABELLED = (LABEL_COLUMNS, TEXT_COLUMNS)
EXPECTED = "expected a table with text and label, or an array from the label to the text"
FORMS = (".jsonl", ".csv")
PACKINGS = ("", ".gz", ".xz")
KEY_PLACE = 3  # in a JSON array of five: label, rating, name, key, text

# texts, labels, and keys of the texts (for example their films); [] if the keys are not known
Texts = tuple[list[str], np.ndarray, list[str]]


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
    nearly equal to another one (``edgefl.data.dataset.spelled``), or a file that is damaged.
    """
    try:
        with opened(path) as file, as_user_error():
            rows = list(_reader(path)(path, file, header))
    except DAMAGE as error:
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
    path = first_of(directory, folders, names)
    if path is not None:
        return path
    whole = directory.absolute()
    places = " or ".join(map(str, (*(whole / folder for folder in folders[:1]), whole)))
    raise UserError(
        f"no file {' or '.join(names)} in {places}: {what}; [data] dir or $EDGEFL_DATA says where"
        " it is"
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
            row = _json(path, text, f"line {line}: ")
            if not isinstance(row, dict):
                raise UserError(f"{path}: line {line}: expected a table")
            yield row


def _array_rows(path: Path, file: BinaryIO, _: Any) -> Iterator[Row]:
    found = _json(path, decoded(file.read(), path), "")
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise UserError(f"{path}: expected an array of tables")
    yield from found


def _json(path: Path, text: str, where: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise UserError(f"{path}: {where}is not JSON ({error}): truncated?") from error


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


# ---------------------------------------------------------------------- labelled texts
def names_of(part: str) -> list[str]:
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
    rows = _labelled_json if ".jsonl" in path.suffixes else _labelled_csv
    texts, numbers, keys = [], [], []
    try:
        with opened(path) as file, as_user_error():
            for line, row in rows(path, file, key):
                label, text, about = (_column(row, names) for names in (*LABELLED, (key,)))
                name = str(label).strip().lower()
                if not isinstance(text, str):
                    raise UserError(f"{path}: line {line}: {EXPECTED}")
                if name not in labels:
                    raise UserError(
                        f"{path}: line {line}: label {label!r}, expected one of {', '.join(labels)}"
                    )
                texts.append(text)
                numbers.append(labels[name])
                keys.append("" if about is None else str(about).strip())
    except DAMAGE as error:
        raise UserError(f"{path}: truncated or damaged ({error})") from error
    return texts, np.array(numbers, dtype=np.int64), keys if all(keys) else []


def opened(path: Path) -> BinaryIO:
    """Open a file for reading bytes, and unpack it if it is compressed."""
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if path.suffix == ".xz":
        return cast(BinaryIO, lzma.open(path, "rb"))
    return open(path, "rb")


def _labelled_json(path: Path, file: BinaryIO, key: str) -> Iterator[tuple[int, Row]]:
    for line, content in enumerate(lines(file, path), start=1):
        if content.strip():
            row = _json(path, content, f"line {line}: ")
            if isinstance(row, list) and len(row) > 1:
                about = row[KEY_PLACE] if len(row) == KEY_PLACE + 2 else None
                row = {LABEL_COLUMNS[0]: row[0], TEXT_COLUMNS[0]: row[-1], key: about}
            yield line, row if isinstance(row, dict) else {}


def _labelled_csv(path: Path, file: BinaryIO, key: str) -> Iterator[tuple[int, Row]]:
    reader = csv.DictReader(lines(file, path), strict=True)
    columns = reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
    if not all(set(columns) & set(names) for names in LABELLED):
        raise UserError(
            f"{path}: its header has {', '.join(columns) or 'nothing'}; expected"
            f" {' or '.join(TEXT_COLUMNS)}, and {' or '.join(LABEL_COLUMNS)}"
        )
    for row in reader:
        if None in (_column(row, LABEL_COLUMNS), _column(row, TEXT_COLUMNS)):
            raise UserError(
                f"{path}: line {reader.line_num}: fewer columns than the header: truncated?"
            )
        yield reader.line_num, row


def _column(row: Mapping[str, Any], columns: Sequence[str]) -> Any:
    return next((row[column] for column in columns if column in row), None)
