"""The files of a run's tables: whole rows only, and in parts when a table has grown.

``RowFile`` stays readable when a write fails: full disk, quota, size limit. ``RotatedFile`` goes on
in a new file when it has grown, and packs the rows before: ``events-000001.jsonl.gz``, ..., then
``events.jsonl``. A part holds the rows before those of the next part; the file without a number has
the latest rows. A part is not packed yet for a while. Each part of a CSV file begins with the names
of its columns.
"""

from __future__ import annotations

import re
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
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


# ---------------------------------------------------------------------- parts
PACKED = ".gz"
GZIP = 16 + zlib.MAX_WBITS  # a gzip header without name and time: equal rows make equal files
CHUNK_BYTES = 1 << 20


def part_path(path: Path, number: int) -> Path:
    """The part with this number, from 1 on, before it is packed."""
    return path.with_name(f"{path.stem}-{number:06d}{path.suffix}")


def part_number(path: Path, name: str) -> int | None:
    """The number of the part of ``path`` that has this name, packed or not; None: it is none."""
    pattern = rf"{re.escape(path.stem)}-(\d{{6,}}){re.escape(path.suffix)}({re.escape(PACKED)})?"
    match = re.fullmatch(pattern, name)
    return int(match[1]) if match else None


def parts(path: Path, disk: Disk | None = None) -> dict[int, Path]:
    """The parts of ``path`` by number, in order; the packed file if a part has both."""
    found = {}
    for name in (disk or OwnDisk()).names(path.parent):  # sorted, so x.jsonl.gz is after x.jsonl
        number = part_number(path, name)
        if number is not None:
            found[number] = path.with_name(name)
    return dict(sorted(found.items()))


def unpacked(part: Path, disk: Disk | None = None) -> bytes:
    """The rows of a part. zlib.error if it is damaged."""
    data = (disk or OwnDisk()).read(part)
    return zlib.decompress(data, GZIP) if part.suffix == PACKED else data


def pack(part: Path, disk: Disk, durable: bool = False) -> None:
    """Compress a part, and replace it. ``durable``: the rows survive a loss of power."""
    packer, rows = zlib.compressobj(wbits=GZIP), disk.view(part)
    chunks = (rows[at : at + CHUNK_BYTES] for at in range(0, len(rows), CHUNK_BYTES))
    packed = [packer.compress(chunk) for chunk in chunks]
    data = b"".join([*packed, packer.flush()])
    disk.replace(part.with_name(f"{part.name}{PACKED}"), data, durable=durable)
    disk.remove(part)


# ---------------------------------------------------------------------- tables with parts
PART_BYTES = 1 << 26  # of rows in a part


Later = Callable[[Callable[[], None]], None]


def at_once(work: Callable[[], None]) -> None:
    work()


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a table goes on in a new file, and which parts stay.

    ``keep``: so many parts of each table; None: all. ``later``: calls what it gets, one after the
    other, maybe in another thread. ``durable``: packed parts survive a loss of power, and so do
    rows before a ``sync``.
    """

    part_bytes: int = PART_BYTES
    keep: int | None = None
    later: Later = at_once
    durable: bool = False


class RotatedFile:
    """A RowFile with parts. ``head``: begins each of them; None: the first row of the file does."""

    def __init__(
        self,
        path: Path,
        disk: Disk,
        rotation: Rotation,
        sizes: Mapping[str, int] | None = None,
        head: bytes | None = b"",
    ) -> None:
        """``sizes``: go on as the file and its parts were, see ``sizes``; else begin anew."""
        self.path, self.disk, self.rotation = path, disk, rotation
        known = sizes or {}
        self.part = last_part(path, known)
        self._held: int | None = None  # a run may go on after this part
        self._full: deque[RowFile] = deque()  # parts that need a last sync
        keep_bytes = known.get(path.name, 0)
        self._undo_rotations(keep_bytes)
        self.head = disk.read(path).partition(b"\n")[0] + b"\n" if head is None else head
        self._file = RowFile(path, disk, keep_bytes)
        if not keep_bytes:
            self._file.write(self.head)

    @property
    def size_bytes(self) -> int:
        """The size that the latest part has after a flush."""
        return self._file.size_bytes

    def sizes(self) -> dict[str, int]:
        """The bytes of the latest part by its name, and the name of the last one before it."""
        before = {part_path(self.path, self.part).name: 0} if self.part else {}
        return {self.path.name: self.size_bytes, **before}

    def hold(self, sizes: Mapping[str, int] | None) -> None:
        """Keep the parts that a run needs to go on at ``sizes``; None: none is needed any more."""
        self._held = None if sizes is None else last_part(self.path, sizes)
        self.rotation.later(partial(self._remove, self.deleted()))

    def deleted(self) -> int:
        """How many parts ``keep`` has removed."""
        if self.rotation.keep is None:
            return 0
        surplus = max(self.part - self.rotation.keep, 0)
        return surplus if self._held is None else min(surplus, self._held)

    def write(self, row: bytes) -> None:
        before = self._file.size_bytes
        if before + len(row) > self.rotation.part_bytes and before > len(self.head):
            self._rotate()
        self._file.write(row)

    def write_all(self, rows: Sequence[bytes]) -> None:
        """Write these rows, as ``write`` does each."""
        if self.size_bytes + sum(map(len, rows)) > self.rotation.part_bytes:
            for row in rows:
                self.write(row)
        else:
            self._file.write_all(rows)

    def flush(self) -> None:
        self._file.flush()

    def sync(self) -> None:
        """Return when all flushed rows survive a loss of power. Another thread may do this."""
        latest = self._file  # a rotation meanwhile puts it among the full ones, or has done so
        while self._full:
            part = self._full.popleft()
            part.sync()
            part.close()
        latest.sync()

    def close(self) -> None:
        for file in (*self._full, self._file):
            file.close()

    def _rotate(self) -> None:
        if self.rotation.durable:
            self._file.flush()
            self._full.append(self._file)
        else:
            self._file.close()
        self.part += 1
        part = part_path(self.path, self.part)
        try:
            self.disk.rename(self.path, part)
            self._file = RowFile(self.path, self.disk)
        except OSError as error:
            raise not_written(self.path, error) from error
        self._file.write(self.head)
        self.rotation.later(partial(self._pack, part, self.deleted()))

    def _pack(self, part: Path, last: int) -> None:
        """Pack a part, and remove those up to number ``last``."""
        with suppress(OSError):  # it stays unpacked, and can be read all the same
            self._remove(last)
            pack(part, self.disk, self.rotation.durable)

    def _remove(self, last: int) -> None:
        with suppress(OSError):  # the next call removes it
            for number, path in parts(self.path, self.disk).items():
                if number <= last:
                    self.disk.remove(path)

    def _undo_rotations(self, keep_bytes: int) -> None:
        """Make the rows that are to stay the latest part, and remove later parts."""
        found = parts(self.path, self.disk)
        if keep_bytes and self.part + 1 in found:
            rows = unpacked(found[self.part + 1], self.disk)[:keep_bytes]
            self.disk.replace(self.path, rows, durable=self.rotation.durable)
        for number, path in found.items():
            if number > self.part:
                self.disk.remove(path)
                self.disk.remove(path.with_name(path.name.removesuffix(PACKED)))
            elif path.suffix != PACKED:
                self.rotation.later(partial(self._pack, path, 0))


def last_part(path: Path, sizes: Mapping[str, int]) -> int:
    """The number of the last part of ``path`` that ``sizes`` name; 0: it has no part."""
    numbers = [number for name in sizes if (number := part_number(path, name)) is not None]
    return max(numbers, default=0)


def remove_all(path: Path, disk: Disk) -> None:
    """Remove a table and its parts, if there are any."""
    for part in (path, *parts(path, disk).values()):
        disk.remove(part)
        disk.remove(part.with_name(part.name.removesuffix(PACKED)))


def lost_rows(directory: Path, disk: Disk, sizes: Mapping[str, int]) -> str:
    """Say which file has lost rows that it had at ``sizes``; "": none."""
    for name, size_bytes in sizes.items():
        if any(part_number(directory / table, name) is not None for table in sizes):
            continue  # a part is not written any more
        path = directory / name
        last, found = last_part(path, sizes), parts(path, disk)
        later = found.get(last + 1)
        if later is None and max(found, default=0) > last:
            return f"{part_path(path, last + 1)}: was deleted"
        if later is not None:  # the rows are in a part now
            try:
                found_bytes = len(unpacked(later, disk))
            except zlib.error:
                return f"{later}: is damaged"
        else:
            found_bytes = disk.size(path) if disk.exists(path) else 0
        if found_bytes < size_bytes:
            return f"{path}: has {found_bytes} bytes, {size_bytes} were expected"
    return ""
