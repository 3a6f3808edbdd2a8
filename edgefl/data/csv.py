"""CSV: your own table of numbers with a label in each row, in one file or two.

Features are numbers, or texts that become one input per value (``one_hot``). Rows of pixels are
pictures with ``shape``. Needs no extra.
"""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from edgefl.data.cache import cached
from edgefl.data.dataset import Dataset, OwnClasses, by_channel, class_names, class_numbers, spelled
from edgefl.data.text_tables import DAMAGE, file_in, numbered, opened
from edgefl.errors import UserError, as_user_error, nearest
from emulator.plain_text import lines

WHAT = "data.train and data.test name files in the data directory"
TABS = (".tsv", ".tab")


class Options(OwnClasses):
    """The files, and the columns in them."""

    train: str = Field("train.csv", min_length=1)
    """File with the training rows, in the data directory, also with `.gz` or `.xz`. Its first line
    has the names of the columns.
    """
    test: str | None = Field(None, min_length=1)
    """File with the test rows, which has the same columns; none: `test_share` of the rows in
    `train`.
    """
    label: str = "label"
    """Column of the label: any text or number."""
    features: tuple[str, ...] = Field((), strict=False)
    """Columns of the inputs, in this order; none: all but those of `label`, `key` and `ignore`."""
    ignore: tuple[str, ...] = Field((), strict=False)
    """Columns that are not used, such as an id."""
    one_hot: tuple[str, ...] = Field((), strict=False)
    """Features whose values are texts or categories: each value in the training rows is an input of
    its own, 1 in the rows that have it and 0 in the others.
    """
    key: str | None = None
    """Column by which `partition.name = "natural"` divides the training rows, such as a patient;
    none: no such column.
    """
    shape: tuple[int, int, int] | None = Field(None, strict=False, examples=[[1, 28, 28]])
    """`[channels, height, width]` of pictures whose pixels are the features of a row, row by row;
    none: the model gets the features as so many channels of one pixel.
    """
    separator: str = Field("", max_length=1)
    """Character between two columns. Default: a tab in files `.tsv`, else a comma."""


@dataclass(slots=True)
class Rows:
    """The rows of a file: numbers (n, number of numeric features), and the texts of columns."""

    path: Path
    numbers: np.ndarray
    texts: Mapping[str, list[str]]
    at: list[int]  # the line of each row


def load(directory: Path, options: Options) -> Dataset:
    """Read the files that the options name in ``directory``.

    Numbers are standardised per feature, pictures per channel, by the training rows.
    """
    names = [str(Path(name).expanduser()) for name in (options.train, options.test) if name]
    paths = [file_in(directory, (), [name], WHAT) for name in names]
    return cached("csv", paths, options.model_dump_json(), lambda folder: _parsed(paths, options))


def _parsed(paths: Sequence[Path], options: Options) -> Dataset:
    features = _features(paths[0], options)
    parts = [_rows(path, features, options) for path in paths]
    known = class_names(parts[0].texts[options.label], options.classes)
    of = "data.classes" if options.classes else "the training rows"
    labels = [class_numbers(part.texts[options.label], known, part.path, of) for part in parts]
    trains = options.trains(labels[0]) if len(parts) == 1 else np.ones(len(labels[0]), bool)
    if not 0 < trains.sum() < len(trains) + len(parts) - 1:
        raise UserError(f"{paths[0]}: too few rows for a training and a test part")
    values = {
        name: sorted({text for text, mine in zip(parts[0].texts[name], trains) if mine})
        for name in options.one_hot
    }
    inputs = [_inputs(part, features, values) for part in parts]
    keys = {} if options.key is None else {options.key: numbered(parts[0].texts[options.key])}
    test = (inputs[0][~trains], labels[0][~trains]) if len(parts) == 1 else (inputs[1], labels[1])
    return _dataset(
        (inputs[0][trains], labels[0][trains], *test),
        len(known),
        {name: column[trains] for name, column in keys.items()},
        options,
    )


def _dataset(
    arrays: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    classes: int,
    columns: Mapping[str, np.ndarray],
    options: Options,
) -> Dataset:
    train_x, train_y, test_x, test_y = arrays
    count = train_x.shape[1]
    shape = options.shape or (count, 1, 1)
    if np.prod(shape) != count or min(shape) < 1:
        raise UserError(f"data.shape: {list(shape)} has {np.prod(shape)} pixels, a row {count}")
    train_x, test_x = train_x.reshape(-1, *shape), test_x.reshape(-1, *shape)
    both = (train_x, test_x)
    if options.shape and all(((x >= 0) & (x <= 255) & (x == np.floor(x))).all() for x in both):
        train_x, test_x = (x.astype(np.uint8) for x in both)
        mean, std = by_channel(train_x)
    else:
        wide = train_x.astype(np.float64)
        mean = tuple(map(float, wide.mean(axis=(0, 2, 3))))
        # a feature that is constant in the training rows stays as it is, minus its value
        std = tuple(float(each) or 1.0 for each in wide.std(axis=(0, 2, 3)))
    return Dataset(train_x, train_y, test_x, test_y, classes, mean, std, columns=columns)


def _features(path: Path, options: Options) -> list[str]:
    """Return the columns of the inputs. UserError for a name that is not in the header."""
    with _reading(path) as text:
        names = _header(path, csv.reader(text, delimiter=_separator(path, options)))
    wanted = {
        "label": (options.label,),
        "key": (options.key,) if options.key else (),
        "features": options.features,
        "ignore": options.ignore,
        "one_hot": options.one_hot,
    }
    for key, columns in wanted.items():
        for column in columns:
            if column not in names:
                near = nearest(column, names)
                raise UserError(f"data.{key}: {path} has no column {column!r}{near}")
    used = {*wanted["label"], *wanted["key"], *options.ignore}
    found = list(options.features) or [name for name in names if name not in used]
    both = next((name for name in found if name in used), None)
    if both is not None:
        raise UserError(f"data.features: {both!r} is also the label, the key or ignored")
    strange = next((name for name in options.one_hot if name not in found), None)
    if strange is not None or not found:
        said = f"{strange!r} is no feature" if found else f"{path} has no column left"
        raise UserError(f"data.{'one_hot' if found else 'features'}: {said}")
    return found


def _rows(path: Path, features: Sequence[str], options: Options) -> Rows:
    """Read a file. UserError, with the line and the column, for what is missing or no number."""
    plain = [name for name in features if name not in options.one_hot]
    texts: dict[str, list[str]] = {
        name: [] for name in (options.label, options.key, *options.one_hot) if name is not None
    }
    numbers, at = array("f"), []
    with _reading(path) as text:
        rows = csv.reader(text, delimiter=_separator(path, options), strict=True)
        names = _header(path, rows)
        missing = next((name for name in (*features, *texts) if name not in names), None)
        if missing is not None:
            raise UserError(f"{path}: no column {missing!r}{nearest(missing, names)}")
        places = [names.index(name) for name in plain]
        others = {name: names.index(name) for name in texts}
        for row in rows:
            if not any(cell.strip() for cell in row):
                continue
            line = rows.line_num
            if len(row) != len(names):
                raise UserError(
                    f"{path}: line {line}: {len(row)} columns, expected {len(names)} as in the"
                    " header"
                )
            try:
                numbers.extend(map(float, [row[place] for place in places]))
            except (ValueError, OverflowError):
                raise _no_number(path, line, row, dict(zip(plain, places))) from None
            for name, place in others.items():
                texts[name].append(row[place].strip())
                if not row[place].strip():
                    raise UserError(f"{path}: line {line}, column {name!r}: no value")
            at.append(line)
    found = np.frombuffer(numbers, np.float32).reshape(len(at), len(plain))
    bad = np.argwhere(~np.isfinite(found))
    if len(bad):
        row, column = bad[0]
        raise UserError(
            f"{path}: line {at[row]}, column {plain[column]!r}: expected a finite number, found"
            f" {found[row, column]}"
        )
    if not at:
        raise UserError(f"{path}: no samples")
    for name in texts:
        texts[name] = spelled(texts[name], f"{path}: column {name!r}")
    return Rows(path, found, texts, at)


def _no_number(path: Path, line: int, row: Sequence[str], places: Mapping[str, int]) -> UserError:
    for name, place in places.items():
        try:
            float(row[place])
        except ValueError:
            text = row[place].strip()
            said = f"found {text[:40]!r}: data.one_hot or data.ignore may have it"
            return UserError(
                f"{path}: line {line}, column {name!r}: expected a number,"
                f" {said if text else 'found nothing'}"
            )
    raise AssertionError("all are numbers")


def _inputs(part: Rows, features: Sequence[str], values: Mapping[str, list[str]]) -> np.ndarray:
    """Return inputs (n, count) as float32, in the order of the features."""
    plain = iter(part.numbers.T)
    columns: list[Any] = []
    for name in features:
        if name not in values:
            columns.append(next(plain)[:, None])
            continue
        texts = part.texts[name]
        strange = next((row for row, text in enumerate(texts) if text not in values[name]), None)
        if strange is not None:
            raise UserError(
                f"{part.path}: line {part.at[strange]}, column {name!r}: {texts[strange]!r} is in"
                " no training row"
            )
        columns.append(np.array(texts)[:, None] == np.array(values[name]))
    return np.hstack(columns).astype(np.float32)


def _header(path: Path, rows: Any) -> list[str]:
    names = [name.strip() for name in next(rows, ())]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{path}: line 1: two columns are named {twice!r}")
    if not names or all(name.replace(".", "").lstrip("-").isdecimal() for name in names):
        raise UserError(f"{path}: line 1: expected the names of the columns, found {names[:4]}")
    if len(names) == 1:
        raise UserError(
            f"{path}: line 1: a single column, {names[0][:60]!r}: data.separator may be another"
        )
    return names


def _separator(path: Path, options: Options) -> str:
    return options.separator or ("\t" if {*path.suffixes} & {*TABS} else ",")


@contextmanager
def _reading(path: Path) -> Iterator[Any]:
    """Open a file for reading; what is wrong with its bytes is a UserError."""
    try:
        with opened(path) as file, as_user_error():
            yield lines(file, path)
    except DAMAGE as error:
        raise UserError(f"{path}: truncated or damaged ({error})") from error
