"""Check the labels of a data set, number the texts that name them, and split samples by them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from edgefl.config.section import Section
from edgefl.errors import UserError
from edgefl.streams import Streams

NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


class OwnClasses(Section):
    """Options of data sets of the user's own files, whose labels are names."""

    classes: tuple[str, ...] = Field((), strict=False)
    """Names of the classes, in the order of their numbers; none: those of the training samples,
    numbers in their order before texts. Edges with files of their own (`data.source = "local"`)
    need it if some of them lack a class.
    """
    test_share: float = Field(0.2, gt=0, lt=1)
    """Share of each class that is for testing, if there are no test samples apart."""
    split_seed: int = Field(0, ge=0)
    """Seed of that split. It does not depend on the seed of the run."""

    def trains(self, labels: np.ndarray) -> np.ndarray:
        """Return a mask (n,) of the samples for training, by ``test_share``."""
        rng = Streams(self.split_seed).rng("train and test")
        return stratified(labels, 1 - self.test_share, rng)


def stratified(labels: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return a mask (n,) with a random ``share`` of each class."""
    chosen = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        chosen[members[: round(share * len(members))]] = True
    return chosen


def class_names(labels: Sequence[Any], chosen: Sequence[str] = ()) -> dict[Any, int]:
    """Return name -> number of the classes: ``chosen``, or those of ``labels`` in their order.

    UserError if a name is chosen twice.
    """
    names = chosen or sorted(set(labels), key=_order)
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise UserError(f"data.classes: two classes are named {twice!r}")
    return {name: number for number, name in enumerate(names)}


def class_numbers(
    labels: Sequence[Any], known: Mapping[Any, int], where: object, of: str = "the training rows"
) -> np.ndarray:
    """Return the numbers (n,) of the labels of rows. UserError for a name that is not ``known``.

    ``where``: the file; ``of``: where the known names are from, for the message. Rows count from 1.
    """
    for row, label in enumerate(labels, start=1):
        if label not in known:
            valid = ", ".join(map(str, [*known][:20]))
            raise UserError(f"{where}: row {row}: label {label!r}, expected one of {of}: {valid}")
    return np.array([known[label] for label in labels], dtype=np.int64)


def _order(label: object) -> tuple[bool, float, str]:
    """Numbers in their order, then texts."""
    text = str(label)
    is_number = NUMBER.fullmatch(text) is not None
    return not is_number, float(text) if is_number else 0.0, text


def checked(labels: np.ndarray, classes: int, where: Path | str) -> np.ndarray:
    """Return ``labels`` as int64. UserError unless all are 0 to ``classes`` - 1, or if empty."""
    if not len(labels):
        raise UserError(f"{where}: no samples")
    worst = labels.min() if labels.min() < 0 else labels.max()
    if not 0 <= worst < classes:
        raise UserError(f"{where}: label {worst}, expected 0 to {classes - 1}")
    return labels.astype(np.int64)


def spelled(values: Sequence[Any], where: str) -> list[Any]:
    """Return the labels of a table's rows, without white space around them.

    UserError if one is missing, or is neither text nor number, or if two of them differ only in
    case, in white space, or as a number does from its text: they would be classes of their own.
    ``where``: the file and the column, for the message. Rows count from 1.
    """
    found = [value.strip() if isinstance(value, str) else value for value in values]
    first: dict[str, tuple[int, Any]] = {}  # how a label is compared -> the first such row
    for row, value in enumerate(found, start=1):
        if value is None or value == "":
            raise UserError(f"{where}: row {row} has no value: expected a text or a number")
        if not isinstance(value, str | int | float):
            raise UserError(
                f"{where}: row {row}: expected a text or a number, found {str(value)[:60]!r}"
            )
        before, other = first.setdefault(_compared(value), (row, value))
        if (type(other), other) != (type(value), value):
            raise UserError(
                f"{where}: {other!r} (row {before}) and {value!r} (row {row}) are nearly equal:"
                " expected one spelling for each label"
            )
    return found


def _compared(label: str | float) -> str:
    text = " ".join(str(label).split())
    if len(text) == 1:  # the labels may be letters, small and capital ones
        return text
    whole, point, zeros = text.partition(".")
    is_whole = bool(point) and whole.lstrip("-").isdecimal() and not zeros.strip("0")
    return whole if is_whole else text.casefold()
