"""Labelled images or texts from the Hugging Face hub or parquet files; needs the extra datasets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from edgefl.data import words
from edgefl.data.cache import cached
from edgefl.data.dataset import Dataset, by_channel, checked
from edgefl.data.words import TextOptions
from edgefl.errors import UserError, nearest, needs
from edgefl_testbed import install_command

INPUTS = ("image", "img", "text", "sentence", "review", "content")
LABELS = ("label", "labels", "fine_label", "sentiment", "target")
FIRST_WITHOUT_CODE = 4  # first version of the library without trust_remote_code
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


class Options(TextOptions):
    """``path``: the data set on the hub, or a folder of parquet files; its ``subset``,
    ``revision``, splits and columns.
    """

    path: str
    """The name of the data set on the hub, or a folder of parquet files in the data directory."""
    subset: str | None = None
    """The subset (configuration) of the data set on the hub; none: its default."""
    revision: str | None = None
    """The revision of the data set on the hub. A commit fixes the content, which can otherwise
    change at any time; none: the latest.
    """
    train: str = "train"
    """Name of the training split, or prefix of its parquet files."""
    test: str = "test"
    """Name of the test split, or prefix of its parquet files."""
    input: str | None = None
    """Column of the images or texts; none: the first of `image`, `img`, `text`, `sentence`,
    `review`, `content`.
    """
    label: str | None = None
    """Column of the labels; none: the first of `label`, `labels`, `fine_label`, `sentiment`,
    `target`.
    """
    classes: int | None = Field(default=None, ge=2)
    """Number of classes; none: from the data set, or the largest label + 1."""


def load(directory: Path, options: Options) -> Dataset:
    """Read the splits; the ``datasets`` library downloads them if it has no copy.

    The library must have version 4 or later, which cannot run code of the hub.
    """
    files = _local(directory, options)

    def parse(folder: Path) -> Dataset:
        train, test = (_split(options, files, name) for name in (options.train, options.test))
        inputs, label = _columns(train, options)
        for part, name in ((train, options.train), (test, options.test)):
            _check_labels(part[label], f"{options.path}, {name}: column {label!r}")
        classes = _classes(train, test, label, options)
        labels = [
            checked(np.array(part[label], dtype=np.int64), classes, f"{options.path}, {name}")
            for part, name in ((train, "train"), (test, "test"))
        ]
        if isinstance(train[0][inputs], str):
            train_x, test_x, vocabulary = words.tokenized(
                list(train[inputs]), list(test[inputs]), options, directory, folder
            )
            return Dataset(train_x, labels[0], test_x, labels[1], classes, vocabulary=vocabulary)
        train_x, test_x = _pictures(train, inputs, options), _pictures(test, inputs, options)
        if train_x.shape[1:] != test_x.shape[1:]:
            raise UserError(
                f"{options.path}: pictures of {train_x.shape[1:]} in training and"
                f" {test_x.shape[1:]} in testing, expected one size"
            )
        return Dataset(train_x, labels[0], test_x, labels[1], classes, *by_channel(train_x))

    sources = [
        *(file for part in files.values() for file in part),
        *words.vocabulary_path(directory, options),
    ]
    return cached("huggingface", sources, options.model_dump_json(), parse)


def _local(directory: Path, options: Options) -> dict[str, list[Path]]:
    """Return the parquet files of each split in the folder ``path``, such as
    train-00000-of-00002.parquet; an empty dict for a name of the hub.
    """
    root = directory / Path(options.path).expanduser()
    if not root.is_dir():
        if options.path.startswith((".", "/", "~")):
            raise UserError(f"data.path: no folder {root}")
        if not HUB_NAME.fullmatch(options.path) or Path(options.path).exists():
            # the library would read a folder of that name instead of the hub's data set
            raise UserError(
                "data.path: expected a name of the hub, or a folder in"
                f" {directory.absolute()}, found {options.path!r}"
            )
        return {}
    found = {name: sorted(root.rglob(f"{name}*.parquet")) for name in (options.train, options.test)}
    empty = next((name for name, files in found.items() if not files), None)
    if empty is not None:
        raise UserError(f"{root}: no file {empty}*.parquet there")
    return found


def _split(options: Options, files: dict[str, list[Path]], name: str) -> Any:
    with needs("datasets", f"data set {options.path!r}"):
        import datasets  # here, because it is optional and slow to import
    if int(datasets.__version__.partition(".")[0]) < FIRST_WITHOUT_CODE:
        raise UserError(
            f"data set {options.path!r}: datasets {datasets.__version__} may run code of the hub:"
            f" {install_command('datasets')}"
        )
    if not files and options.path in datasets.packaged_modules._PACKAGED_DATASETS_MODULES:
        # for "csv" or "imagefolder" the library would read the working directory
        raise UserError(f"data.path: {options.path!r} is no data set of the hub but a kind of file")
    datasets.disable_progress_bars()
    try:
        if files:
            return datasets.load_dataset(
                "parquet", data_files={name: [str(file) for file in files[name]]}, split=name
            )
        return datasets.load_dataset(
            options.path, options.subset, split=name, revision=options.revision
        )
    except (
        Exception
    ) as error:  # the library raises dozens of kinds, from no network to a missing split
        raise UserError(
            f"data set {options.path!r}, split {name!r}: {type(error).__name__}: {error}"
        ) from error


def _columns(split: Any, options: Options) -> tuple[str, str]:
    """Return the columns of inputs and labels: from the options, else the first usual name."""
    found = []
    for key, said, usual in (("input", options.input, INPUTS), ("label", options.label, LABELS)):
        column = said or next((name for name in usual if name in split.column_names), "")
        if column not in split.column_names:
            raise UserError(
                f"data.{key}: {options.path!r} has no column"
                f" {said or ' or '.join(usual)!r}{nearest(column, split.column_names)}"
            )
        found.append(column)
    return found[0], found[1]


def _classes(train: Any, test: Any, label: str, options: Options) -> int:
    named = getattr(train.features[label], "num_classes", None)
    if options.classes is not None:
        return options.classes
    if named is not None:
        return int(named)
    try:
        return int(max(np.max(train[label]), np.max(test[label]))) + 1
    except (TypeError, ValueError) as error:
        raise UserError(
            f"data.label: the column {label!r} of {options.path!r} holds no whole numbers"
        ) from error


def _check_labels(labels: Sequence[Any], where: str) -> None:
    """UserError for a label that is missing or no whole number; rows count from 1."""
    for row, label in enumerate(labels, start=1):
        if not isinstance(label, int):
            raise UserError(
                f"{where}: row {row}: expected a whole number from 0 on, found {str(label)[:60]!r}"
            )


def _pictures(split: Any, column: str, options: Options) -> np.ndarray:
    """Return images (n, channels, height, width); grey images have one channel.

    UserError unless all have the same size.
    """
    rows: list[np.ndarray] = []
    for number, picture in enumerate(split[column]):
        if not hasattr(picture, "convert"):
            raise UserError(
                f"data.input: the column {column!r} of {options.path!r} holds neither texts nor"
                " pictures"
            )
        grey = picture.mode in ("1", "L")
        pixels = np.asarray(picture.convert("L" if grey else "RGB"))
        rows.append(pixels[None] if grey else pixels.transpose(2, 0, 1))
        if rows[-1].shape != rows[0].shape:
            raise UserError(
                f"{options.path}: picture {number} is {rows[-1].shape}, the first one"
                f" {rows[0].shape}: expected one size"
            )
    return np.stack(rows)
