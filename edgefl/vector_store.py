"""Vectors of many devices in one sparse file without a name: the system keeps in memory what is
used, and frees all at the end.
"""

from __future__ import annotations

import os
from tempfile import TemporaryFile, gettempdir

import numpy as np

from edgefl.errors import UserError
from edgefl.vectors import ALIGNMENT

FLOAT = np.dtype(np.float32).itemsize


class VectorStore:
    """One float32 vector of ``size`` elements a name; names that never come take no room on the
    disk. ``instead``: another way out, if it is full.
    """

    def __init__(self, size: int, instead: str = "") -> None:
        self.size, self.instead = size, instead
        # every row starts at the alignment that vector maths needs
        self._stride = -(-max(size, 1) * FLOAT // ALIGNMENT) * ALIGNMENT // FLOAT
        # it has no name: nothing is left behind, whatever happens
        self._file = TemporaryFile(prefix="edgefl-")  # noqa: SIM115  # open as long as this object lives
        self._rows: np.ndarray = np.empty((0, self._stride), np.float32)
        self._number: dict[str, int] = {}

    def __len__(self) -> int:
        """Vectors kept."""
        return len(self._number)

    def row(self, name: str) -> np.ndarray:
        """The vector of ``name``, of zeros the first time; what is written into it is kept.
        UserError if the disk has no room for it.
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
            # later, a write into the hole of a full disk would kill the process
            os.posix_fallocate(self._file.fileno(), number * length, length)
        except OSError as error:
            needed = f"{length / 1e6:.0f} MB for another device's vector ({number} are there)"
            ways = "set TMPDIR" + (f", or {self.instead}" if self.instead else "")
            raise UserError(
                f"{gettempdir()}: no room for {needed}: {ways} ({error.strerror})"
            ) from error
        self._number[name] = number
