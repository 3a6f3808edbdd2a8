"""Files that stay readable when a write fails: full disk, quota, size limit."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from edgefl.disk import Disk, DiskFile, OwnDisk
from edgefl.errors import UserError

KEPT_BYTES = 1 << 16  # rows are buffered up to this size


def not_written(place: Path | str, error: OSError) -> UserError:
    return UserError(
        f"{place}: cannot be written ({error.strerror}): the run ends; its files hold all rows that"
        " were written before"
    )


class RowFile:
    """A file to which whole rows are appended.

    If a write fails, the file is truncated to the last whole row and UserError is raised once.
    Later rows are dropped.
    """

    def __init__(self, path: Path, disk: Disk, keep_bytes: int = 0, private: bool = False) -> None:
        """Create the file, or keep ``keep_bytes`` of it; ``private``: only its owner may read it.

        OSError if that is not possible.
        """
        self.path = path
        self._file: DiskFile | None = disk.append(path, keep_bytes, private)
        self._rows: list[bytes] = []  # buffered
        self._size = min(keep_bytes, disk.size(path)) if keep_bytes else 0  # in the file
        self.size_bytes = self._size
        """The size that the file has after a flush."""
        self.failed = False  # rows were lost, and later ones are dropped
        """The size that the file has after a flush."""
        self._failed = False

    def write(self, row: bytes | memoryview) -> None:
        """Append ``row``; a large row is written at once and not copied."""
        if len(row) >= KEPT_BYTES:
            self.flush()
            self._append([row])
            return
        self._rows.append(bytes(row))
        self.size_bytes += len(row)
        if self.size_bytes - self._size >= KEPT_BYTES:
            self.flush()

    def write_all(self, rows: Sequence[bytes]) -> None:
        """Append these rows."""
        self._rows += rows
        self.size_bytes += sum(map(len, rows))
        if self.size_bytes - self._size >= KEPT_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand all rows to the operating system."""
        if self._rows:
            rows, self._rows, self.size_bytes = self._rows, [], self._size
            self._append(rows)

    def sync(self) -> None:
        """Return when all flushed rows survive a loss of power. UserError if that fails."""
        if self._file is not None:
            try:
                self._file.sync()
            except OSError as error:
                raise not_written(self.path, error) from error

    def close(self) -> None:
        try:
            self.flush()
        finally:
            if self._file is not None:
                self._file.close()
            self._file = None

    def _append(self, rows: Sequence[bytes | memoryview]) -> None:
        if self.failed or self._file is None:
            return
        data = memoryview(rows[0] if len(rows) == 1 else b"".join(rows))
        written = 0
        try:
            while written < len(data):
                written += self._file.write(data[written:])
        except OSError as error:
            self.failed = True
            self._cut_back(self._file, rows, written)
            raise not_written(self.path, error) from error
        self._size = self.size_bytes = self._size + written

    def _cut_back(self, file: DiskFile, rows: Sequence[bytes | memoryview], written: int) -> None:
        whole = 0
        for row in rows:
            if whole + len(row) > written:
                break
            whole += len(row)
        with suppress(OSError):  # a device file cannot be truncated
            file.truncate(self._size + whole)


class TakesRows(Protocol):
    def write(self, row: bytes) -> None:
        """Append a row."""


class TextRows:
    """Adapter from ``csv.writer``, which writes each row in one call, to a RowFile."""

    def __init__(self, file: TakesRows) -> None:
        self.file = file

    def write(self, text: str) -> None:
        self.file.write(text.encode())


def write_whole(path: Path, data: bytes, disk: Disk | None = None, durable: bool = False) -> None:
    """Replace the file by ``data``; if that fails, leave it unchanged and raise UserError.

    ``durable``: return when it survives a loss of power.
    """
    try:
        (disk or OwnDisk()).replace(path, data, durable=durable)
    except OSError as error:
        raise not_written(path, error) from error
