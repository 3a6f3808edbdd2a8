"""Check the labels of a data set, and the texts that name them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgefl.errors import UserError


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
