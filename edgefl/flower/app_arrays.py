"""The arrays of a Flower app as one flat float32 vector, and back.

Arrays of whole numbers and the running statistics of torch's normalisations are buffers: they are
behind the trainable arrays, and strategies that add changes take their mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgefl.errors import UserError
from edgefl.vectors import Layout, LayoutEntry, aligned

RUNNING = ("running_mean", "running_var")  # how the names of such statistics end in torch
EMPTY = "_empty"  # the key that Flower gives to a record without arrays


@dataclass(frozen=True, slots=True)
class AppArrays:
    """Names, shapes and types of an app's arrays, in the app's order, and their layout."""

    names: tuple[str, ...]
    types: tuple[np.dtype[Any], ...]
    layout: Layout

    @classmethod
    def of(cls, record: Any) -> AppArrays:
        """Describe an ArrayRecord. UserError if it has no arrays, or one that is no number."""
        arrays = _arrays(record)
        if not arrays:
            raise UserError("its first model has no arrays")
        strange = next((name for name, each in arrays.items() if each.dtype.kind not in "fiub"), "")
        if strange:
            raise UserError(
                f"its array {strange!r} holds {arrays[strange].dtype}, expected numbers"
            )
        entries, offset = [], 0
        for kind in ("parameter", "buffer"):
            for name, array in arrays.items():
                trainable = array.dtype.kind == "f" and not name.endswith(RUNNING)
                if trainable == (kind == "parameter"):
                    module = name.rpartition(".")[0]
                    entries.append(LayoutEntry(name, array.shape, offset, kind, module))
                    offset += array.size
        types = tuple(array.dtype for array in arrays.values())
        return cls(tuple(arrays), types, Layout(tuple(entries)))

    def record(self, vector: np.ndarray) -> Any:
        """Return the ArrayRecord of a flat vector, each array in its own type."""
        from flwr.app import Array, ArrayRecord

        found = {}
        for name, kind in zip(self.names, self.types):
            array = self.layout.view(vector, name)
            whole = kind.kind in "iub"
            found[name] = Array(np.asarray(np.rint(array) if whole else array, kind, order="C"))
        return ArrayRecord(found)

    def vector(self, record: Any) -> np.ndarray:
        """Return the flat vector of an ArrayRecord. UserError if its arrays have other shapes."""
        arrays, vector = _arrays(record), aligned(self.layout.size)
        if set(arrays) != set(self.names):
            differs = sorted(set(arrays) ^ set(self.names))[0]
            more = "more arrays" if differs in arrays else "fewer arrays"
            raise UserError(f"returned {more} than the model has: {differs!r}")
        for entry in self.layout.entries:
            array = arrays[entry.name]
            if array.shape != entry.shape:
                raise UserError(
                    f"returned the array {entry.name!r} of shape {array.shape}, expected"
                    f" {entry.shape}"
                )
            self.layout.view(vector, entry.name)[...] = array
        return vector


def _arrays(record: Any) -> dict[str, np.ndarray]:
    return {name: array.numpy() for name, array in record.items() if name != EMPTY}
