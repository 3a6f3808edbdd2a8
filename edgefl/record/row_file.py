"""Files that stay readable when a write fails: full disk, quota, size limit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

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

    def __init__(self, path: Path, private: bool = False) -> None:
        """Create or empty the file; ``private``: only its owner may read it."""
        mode = 0o600 if private else 0o666
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        if private:
            os.fchmod(self._fd, mode)  # an existing file would keep its own mode
        self._rows: list[bytes] = []  # buffered
        self._waiting = self._size = 0  # bytes buffered, and bytes in the file
        self._failed = False

    def write(self, row: bytes | memoryview) -> None:
        """Append ``row``; a large row is written at once and not copied."""
        if len(row) >= KEPT_BYTES:
            self.flush()
            self._append([row])
            return
        self._rows.append(bytes(row))
        self._waiting += len(row)
        if self._waiting >= KEPT_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand all rows to the operating system."""
        if self._rows:
            rows, self._rows, self._waiting = self._rows, [], 0
            self._append(rows)

    def close(self) -> None:
        try:
            self.flush()
        finally:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1

    def _append(self, rows: Sequence[bytes | memoryview]) -> None:
        if self._failed:
            return
        data = memoryview(rows[0] if len(rows) == 1 else b"".join(rows))
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError as error:
            self._failed = True
            self._cut_back(rows, written)
            raise not_written(self.path, error) from error
        self._size += written

    def _cut_back(self, rows: Sequence[bytes | memoryview], written: int) -> None:
        whole = 0
        for row in rows:
            if whole + len(row) > written:
                break
            whole += len(row)
        with suppress(OSError):  # a device file cannot be truncated
            os.ftruncate(self._fd, self._size + whole)


class TextRows:
    """Adapter from ``csv.writer``, which writes each row in one call, to a RowFile."""

    def __init__(self, file: RowFile) -> None:
        self.file = file

    def write(self, text: str) -> None:
        self.file.write(text.encode())


def write_whole(path: Path, data: bytes) -> None:
    """Replace the file by ``data``; if that fails, leave it unchanged and raise UserError."""
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise not_written(path, error) from error
