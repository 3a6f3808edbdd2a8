"""What the codec makes of a graph of objects, and the errors of both directions.

``tree["objects"]`` is a flat list, so that no depth is too deep: a list refers to another object of
the list by its number, ``[3]``. One entry is ``[kind, extra, items, attributes]``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

FORMAT = 1  # of the tree


class CannotEncode(Exception):
    """An object that no checkpoint can hold. The message begins with the path to it."""


class CannotDecode(Exception):
    """A tree that is damaged, of another version, or that names what it must not name."""


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """A graph of objects: ``tree`` is plain JSON, ``arrays`` are contiguous, by name."""

    tree: dict[str, Any]
    arrays: dict[str, np.ndarray]

    @property
    def array_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())
