"""LEAF's JSON files: images, or texts for next-character models, with the user of each sample.

Source: Caldas et al. 2018, arXiv 1812.01097.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from pydantic import Field

from edgefl.config.section import Section
from edgefl.data import words
from edgefl.data.cache import cached
from edgefl.data.dataset import Dataset, checked
from edgefl.errors import UserError, as_user_error
from emulator.plain_text import read_text

FOLDERS = ("leaf",)


class Options(Section):
    """``path``: the folder of the files; ``shape``: of images that are not square and grey."""

    path: str = "leaf"
    """Folder with `train/*.json` and `test/*.json`, in the data directory."""
    # not strict: TOML gives lists
    shape: tuple[int, int, int] | None = Field(default=None, strict=False)
    """Shape of the images, `[channels, height, width]`, in pixels; none: they are square and grey.
    Not used for texts.
    """


Part = tuple[list[str], list[Any], list[Any]]  # for each sample: its user, x, y


def load(directory: Path, options: Options) -> Dataset:
    """Read ``directory/PATH/``.

    The column ``user`` has the users of the training samples, numbered in the order of their names.
    """
    root = directory / Path(options.path).expanduser()
    files = [sorted((root / part).glob("*.json")) for part in ("train", "test")]
    for part, found in zip(("train", "test"), files):
        if not found:
            raise UserError(
                f"no file {root / part}/*.json: data.path names the folder with LEAF's train and"
                " test files, as its preprocess.sh leaves them"
            )
    return cached(
        "leaf",
        [*files[0], *files[1]],
        options.model_dump_json(),
        lambda folder: _parsed(files, root, options, folder),
    )


def _parsed(files: Sequence[Sequence[Path]], root: Path, options: Options, folder: Path) -> Dataset:
    train, test = (_joined([_read(path) for path in part]) for part in files)
    for part, found in (("train", train), ("test", test)):
        if not found[1]:
            raise UserError(f"{root / part}: no user has a sample")
    numbers = {user: number for number, user in enumerate(sorted(set(train[0])))}
    columns = {"user": np.array([numbers[user] for user in train[0]], dtype=np.int64)}
    if isinstance(train[1][0], str):
        return _texts(train, test, folder, root, columns)
    (train_x, train_y), (test_x, test_y) = (
        _pictures(part, options.shape, root) for part in (train, test)
    )
    classes = int(max(train_y.max(), test_y.max())) + 1
    labels = [checked(found, classes, root) for found in (train_y, test_y)]
    return Dataset(
        train_x,
        labels[0],
        test_x,
        labels[1],
        classes,
        (float(train_x.mean()),),
        (max(float(train_x.std()), 1e-6),),
        columns=columns,
        pixel_max=1.0 if train_x.max() <= 1 else 255.0,  # the files do not contain it
    )


def _read(path: Path) -> Part:
    """Read a file: {"users": [...], "num_samples": [...], "user_data": {user: {"x": [...], "y":
    [...]}}}.
    """
    try:
        with as_user_error():
            text = read_text(path)
        content = orjson.loads(text)
        users, counts, data = (
            list(content["users"]),
            list(content["num_samples"]),
            dict(content["user_data"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path}: expected LEAF's JSON with users, num_samples and user_data ({error!r})"
        ) from error
    if len(counts) != len(users):
        raise UserError(
            f"{path}: {len(users)} users and {len(counts)} num_samples, expected as many"
        )
    gone = next((user for user in users if not isinstance(data.get(user), dict)), None)
    if gone is not None:
        raise UserError(f"{path}: user {gone!r} is among its users, and has no user_data")
    known = set(users)
    extra = next((user for user in data if user not in known), None)
    if extra is not None:
        raise UserError(f"{path}: user {extra!r} has user_data, and is not among its users")
    found: Part = ([], [], [])
    for user, count in zip(users, counts):
        x, y = data[user].get("x", []), data[user].get("y", [])
        if not len(x) == len(y) == count:
            raise UserError(
                f"{path}: user {user!r} has {len(x)} x and {len(y)} y, expected num_samples {count}"
                " of each"
            )
        _check_samples(path, user, x, y)
        found[0].extend([user] * count)
        found[1].extend(x)
        found[2].extend(y)
    return found


def _check_samples(path: Path, user: str, x: list[Any], y: list[Any]) -> None:
    """UserError for a label that is missing or no whole number, or a pixel that is null."""
    for number, (sample, label) in enumerate(zip(x, y), start=1):
        if not isinstance(label, str) and (not isinstance(label, int | float) or label % 1):
            raise UserError(
                f"{path}: user {user!r}: y {number} is {str(label)[:60]!r}, expected a whole number"
                " or a character"
            )
        if isinstance(sample, list) and None in sample:
            raise UserError(f"{path}: user {user!r}: x {number} has null, expected numbers")


def _joined(parts: Sequence[Part]) -> Part:
    users, x, y = ([sample for part in parts for sample in part[index]] for index in range(3))
    return users, x, y


def _pictures(
    part: Part, shape: tuple[int, int, int] | None, root: Path
) -> tuple[np.ndarray, np.ndarray]:
    """Return images (n, channels, height, width) as float32, and labels (n,)."""
    try:
        x, y = np.array(part[1], dtype=np.float32), np.array(part[2], dtype=np.int64)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{root}: expected rows of pixels of one length, or texts, with their labels ({error})"
        ) from error
    pixels = x[0].size if len(x) else 0
    side = math.isqrt(pixels)
    made = shape or (1, side, side)
    if not pixels or math.prod(made) != pixels:
        raise UserError(
            f"{root}: samples of {pixels} numbers are no pictures of {made}: data.shape ="
            " [channels, height, width]"
        )
    return x.reshape(-1, *made), y


def _texts(
    train: Part, test: Part, folder: Path, root: Path, columns: dict[str, np.ndarray]
) -> Dataset:
    """Return a data set of texts x of one length, with y the character that follows each.

    The alphabet has all characters of the training part and the labels of the test part.
    """
    lengths = {len(text) for text in (*train[1], *test[1])}
    if len(lengths) > 1 or any(len(character) != 1 for character in (*train[2], *test[2])):
        raise UserError(
            f"{root}: expected texts x of one length and single characters y, found texts of"
            f" {min(lengths)} to {max(lengths)} characters"
        )
    known = words.alphabet([*train[1], *train[2], *test[2]])
    words.write_characters(known, folder)
    arrays = []
    for _, x, y in (train, test):
        rows = words.character_tokens("".join(x), known).reshape(len(x), -1)
        arrays += [rows, words.character_tokens("".join(y), known).astype(np.int64) - words.FIRST]
    train_x, train_y, test_x, test_y = arrays
    vocabulary = len(known) + words.FIRST
    return Dataset(
        train_x, train_y, test_x, test_y, len(known), vocabulary=vocabulary, columns=columns
    )
