"""Unpack archives that somebody else has made: a host's results, a published data set.

``tarfile``'s own filters could be escaped in older versions of Python (CVE-2025-4517), so they are
not used: only regular files and folders are written, below the folder that is given, and each entry
is checked before. Archives of other things are refused as a whole.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any, cast

MOST_HEADER = 1 << 20  # bytes that tarfile reads at once: the head of an entry
MOST_NAME = 1024  # characters
OPENERS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
DAMAGE = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError),
    *(NotImplementedError, RuntimeError, RecursionError, OverflowError, MemoryError),
)


class BadArchive(ValueError):
    """An archive that is damaged or has what must not be unpacked. The message names the entry."""


def unpack(archive: Path, into: Path, most_bytes: int, most_entries: int) -> None:
    """Unpack a tar (plain, gzip, bzip2, xz) or a zip into the folder ``into``, which is empty.

    BadArchive if it is damaged, has more than ``most_entries`` entries or ``most_bytes`` unpacked
    bytes, or an entry that is neither a file nor a folder, leads outside, or comes twice. What was
    unpacked until then stays. OSError if a file cannot be written.
    """
    try:
        with ExitStack() as stack:
            entries = _zip_entries if zipfile.is_zipfile(archive) else _tar_entries
            _write(entries(archive, most_bytes, stack), into, most_bytes, most_entries)
    except BadArchive:
        raise
    except (*DAMAGE, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the system, not of gzip or bz2
        raise BadArchive(f"is damaged ({error or type(error).__name__})") from error


# name, declared bytes, content (None: a folder)
Entry = tuple[str, int, IO[bytes] | None]


def _write(entries: Iterator[Entry], into: Path, most_bytes: int, most_entries: int) -> None:
    known: dict[PurePosixPath, bool] = {}  # whether it is a file
    total = 0
    for count, (name, size, content) in enumerate(entries, 1):
        if count > most_entries:
            raise BadArchive(f"has more than {most_entries} entries")
        total += size
        if total > most_bytes:
            raise BadArchive(f"{name!r}: has more than {most_bytes >> 20} MiB with what is before")
        path = _checked(name)
        if path in known and (content is not None or known[path]):
            raise BadArchive(f"{name!r}: comes twice")
        if any(known.get(parent) for parent in path.parents):
            raise BadArchive(f"{name!r}: is below a file")
        known |= dict.fromkeys((*path.parents, path), False)
        known[path] = content is not None
        place = into / path
        if content is None:
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        with content, open(place, "xb") as file:
            shutil.copyfileobj(content, file)
            if file.tell() != size:
                raise BadArchive(f"{name!r}: has {file.tell()} bytes, {size} were expected")


def _checked(name: str) -> PurePosixPath:
    """The path of an entry, below the folder; BadArchive if it is not."""
    path = PurePosixPath(name)
    if len(name) > MOST_NAME or not name.isprintable():
        raise BadArchive(f"{name[:60]!r}: is no name of a file")
    if "\\" in name or PureWindowsPath(name).drive:
        raise BadArchive(f"{name!r}: has a drive or a backslash")
    if path.is_absolute() or ".." in path.parts:
        raise BadArchive(f"{name!r}: leads outside")
    return path


def _tar_entries(archive: Path, most_bytes: int, stack: ExitStack) -> Iterator[Entry]:
    with open(archive, "rb") as file:
        head = file.read(max(map(len, OPENERS)))
    opener: Any = next((each for start, each in OPENERS.items() if head.startswith(start)), open)
    file = stack.enter_context(opener(archive, "rb"))
    # the heads of entries need room, too
    bound = 2 * most_bytes + (1 << 26)
    bounded = cast(IO[bytes], _Bounded(file, bound))
    packed = stack.enter_context(tarfile.TarFile(fileobj=bounded))
    while (member := packed.next()) is not None:
        packed.members.clear()  # type: ignore[attr-defined]  # else it keeps all of them; not in typeshed
        if member.sparse is not None or not (member.isreg() or member.isdir()):
            raise BadArchive(f"{member.name!r}: is neither a file nor a folder")
        yield member.name, member.size, packed.extractfile(member) if member.isreg() else None
    bounded.seek(bound)  # to the end of what is compressed, where its checksum is


def _zip_entries(archive: Path, most_bytes: int, stack: ExitStack) -> Iterator[Entry]:
    packed = stack.enter_context(zipfile.ZipFile(archive))
    for entry in packed.infolist():
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise BadArchive(f"{entry.filename!r}: is neither a file nor a folder")
        yield entry.filename, entry.file_size, None if entry.is_dir() else packed.open(entry)


class _Bounded(io.RawIOBase):
    """A file that is read at most to byte ``most``, and only in small pieces.

    A few compressed bytes can become a head of gigabytes, which tarfile would hold in memory.
    """

    def __init__(self, file: IO[bytes], most: int) -> None:
        self._file, self._most = file, most

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MOST_HEADER:
            raise BadArchive(f"has the head of an entry with {size} bytes")
        return self._file.read(size)

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        if position > self._most:
            raise BadArchive(f"has more than {self._most >> 20} MiB")
        return self._file.seek(position, whence)

    def tell(self) -> int:
        return self._file.tell()
