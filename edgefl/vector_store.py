"""Vectors of many devices in one sparse temporary file.

The file has no name. The system caches its used parts in memory and frees everything at the end.
"""

from __future__ import annotations

import os
from tempfile import TemporaryFile, gettempdir
from typing import Any

import numpy as np

from edgefl.errors import TEMPORARY, UserError, written
from edgefl.vectors import ALIGNMENT

FLOAT = np.dtype(np.float32).itemsize


class VectorStore:
    """One float32 vector of ``size`` elements per name; unused names take no space on the disk.

    ``instead``: what else the user can do if the disk is full, for the error message.
    """

    def __init__(self, size: int, instead: str = "") -> None:
        self._open(size, instead)

    def _open(self, size: int, instead: str) -> None:
        self.size, self.instead = size, instead
        # every row has the alignment that vector operations need
        self._stride = -(-max(size, 1) * FLOAT // ALIGNMENT) * ALIGNMENT // FLOAT
        # a file without a name is always removed, even after a crash
        with written("a temporary file", TEMPORARY):
            self._file = TemporaryFile(prefix="edgefl-")  # noqa: SIM115  # open as long as this object exists
        self._rows: np.ndarray = np.empty((0, self._stride), np.float32)
        self._number: dict[str, int] = {}

    def __len__(self) -> int:
        """Number of stored vectors."""
        return len(self._number)

    def state(self) -> dict[str, Any]:
        """Return all vectors, as views, for a checkpoint."""
        rows = {name: self.row(name) for name in self._number}
        return {"size": self.size, "instead": self.instead, "rows": rows}

    def restore(self, state: dict[str, Any]) -> None:
        """Store the vectors of ``state`` in a new file. UserError if the disk has no space."""
        self._open(state["size"], state["instead"])
        for name, row in state["rows"].items():
            self.row(name)[:] = row

    def row(self, name: str) -> np.ndarray:
        """Return the vector of ``name`` as a writable view; zeros the first time.

        UserError if the disk has no space for it.
        """
        if name not in self._number:
            self._add(name)
        return self._rows[self._number[name], : self.size]

    def _add(self, name: str) -> None:
        number, length = len(self._number), self._stride * FLOAT
        if number >= len(self._rows):
            rows = max(16, 2 * number)
            self._file.truncate(rows * length)
            self._rows = np.memmap(self._file, np.float32, "r+", shape=(rows, self._stride)).view(
                np.ndarray
            )
        try:
            # without this, writing into a hole of the file on a full disk would kill the process
            os.posix_fallocate(self._file.fileno(), number * length, length)
        except OSError as error:
            needed = f"{length / 1e6:.0f} MB for another device's vector ({number} are stored)"
            ways = "set TMPDIR" + (f", or {self.instead}" if self.instead else "")
            raise UserError(
                f"{gettempdir()}: no room for {needed}: {ways} ({error.strerror})"
            ) from error
        self._number[name] = number
