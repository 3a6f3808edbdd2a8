"""All writes of record, journal and checkpoints go through a ``Disk``.

``OwnDisk`` is the file system of this machine. Tests and the search for faults put a simulated one
in its place. All methods raise OSError as the system does.
"""

from __future__ import annotations

import errno
import mmap
import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

PART = ".part"  # the end of the name of a file that is not whole yet
FULL = (errno.ENOSPC, errno.EDQUOT)  # errors that end when there is room again
Done = TypeVar("Done")


def free_name(path: Path, suffixes: str = "") -> Path:
    """Return NAME.1 beside ``path``, or the next number that is free; ``suffixes`` stay the end."""
    stem, number = path.name.removesuffix(suffixes), 1
    while os.path.lexists(free := path.with_name(f"{stem}.{number}{suffixes}")):
        number += 1
    return free


class DiskFile(Protocol):
    """A file to which bytes are appended."""

    path: Path

    def write(self, data: bytes | memoryview) -> int:
        """Append the first bytes of ``data``. Returns how many: it may be fewer than all."""

    def sync(self) -> None:
        """Return when all that was written survives a loss of power (fsync).

        Another thread may write meanwhile. What it writes may be included or not.
        """

    def truncate(self, size_bytes: int) -> None:
        """Drop all bytes after ``size_bytes``; the next write goes there."""

    def close(self) -> None:
        """Close the file; a second call does nothing."""


class Disk(Protocol):
    """A file system."""

    def append(self, path: Path, keep_bytes: int = 0, private: bool = False) -> DiskFile:
        """Open a file for appending, create it if it is missing.

        ``keep_bytes``: what stays of an existing file; a shorter file keeps all. ``private``: only
        its owner may read it.
        """

    def read(self, path: Path) -> bytes:
        """The content of a file; FileNotFoundError if it is missing."""

    def view(self, path: Path) -> memoryview:
        """The content of a file, of which only what is used is read; FileNotFoundError too.

        The file must not be cut while the view is in use.
        """

    def size(self, path: Path) -> int:
        """The size of a file in bytes; FileNotFoundError if it is missing."""

    def exists(self, path: Path) -> bool:
        """Whether there is a file or folder of this name."""

    def names(self, folder: Path) -> list[str]:
        """The sorted names in a folder; [] if it is missing."""

    def make_folder(self, folder: Path) -> None:
        """Make a folder and those above it, if they are missing."""

    def replace(
        self, path: Path, data: bytes, *, durable: bool = False, private: bool = False
    ) -> None:
        """Make ``data`` the content of a file: readers see the old content or the new one.

        ``durable``: return when the new content survives a loss of power. If it fails, the old
        content stays.
        """

    def rename(self, path: Path, to: Path) -> None:
        """Give a file another name; an existing file of that name is replaced."""

    def remove(self, path: Path) -> None:
        """Delete a file, if there is one."""

    def sync_folder(self, folder: Path) -> None:
        """Return when the names in this folder survive a loss of power."""


class OwnFile:
    """A file of this machine."""

    def __init__(self, path: Path, keep_bytes: int, private: bool) -> None:
        mode = 0o600 if private else 0o666
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        self.path = path
        self._fd = os.open(path, flags if keep_bytes else flags | os.O_TRUNC, mode)
        # also closes a file whose run was given up without an end
        self._closed = weakref.finalize(self, os.close, self._fd)
        if private:
            os.chmod(path, mode)  # an existing file would keep its own mode
        if 0 < keep_bytes < os.fstat(self._fd).st_size:
            os.ftruncate(self._fd, keep_bytes)

    def write(self, data: bytes | memoryview) -> int:
        return os.write(self._fd, data)

    def sync(self) -> None:
        os.fsync(self._fd)

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._fd, size_bytes)

    def close(self) -> None:
        self._fd = -1
        self._closed()


class OwnDisk:
    """The file system of this machine."""

    def append(self, path: Path, keep_bytes: int = 0, private: bool = False) -> OwnFile:
        return OwnFile(path, keep_bytes, private)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def view(self, path: Path) -> memoryview:
        with path.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return memoryview(b"")  # an empty file cannot be mapped
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def exists(self, path: Path) -> bool:
        return path.exists()

    def names(self, folder: Path) -> list[str]:
        try:
            return sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make_folder(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    def replace(
        self, path: Path, data: bytes, *, durable: bool = False, private: bool = False
    ) -> None:
        part = path.with_name(f"{path.name}{PART}")
        try:
            file = self.append(part, private=private)
            try:
                write_all(file, data)
                if durable:
                    file.sync()
            finally:
                file.close()
            os.replace(part, path)
        except OSError as error:
            with suppress(OSError):
                self.remove(part)
            error.filename = str(path)  # the user knows this one
            raise
        if durable:
            self.sync_folder(path.parent)

    def rename(self, path: Path, to: Path) -> None:
        os.replace(path, to)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync_folder(self, folder: Path) -> None:
        if not hasattr(os, "O_DIRECTORY"):
            return  # Windows: its file systems log the names themselves
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


LOOK_S = 0.5  # how often it tries again


class WaitForRoom:
    """What a run does while its disk is full: it waits, tells the user, and goes on.

    Several threads may wait at once.

    ``say`` gets lines for the user. ``now_s`` and ``sleep`` are the host's clock. ``given_up``
    tells whether the run must end: then the write fails. ``waited`` gets the file and the seconds,
    once there is room again.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        now_s: Callable[[], float],
        sleep: Callable[[float], None],
        given_up: Callable[[], bool],
        waited: Callable[[Path, float], None] = lambda path, waited_s: None,
    ) -> None:
        self.say = say
        self.now_s = now_s
        self.sleep = sleep
        self.given_up = given_up
        self.waited = waited
        self._since_s: dict[Path, float] = {}  # by the file that waits

    def wait(self, path: Path, error: OSError) -> bool:
        """Wait a while, until there may be room. False: the run must end."""
        if path not in self._since_s:
            self._since_s[path] = self.now_s()
            self.say(
                f"{path}: cannot be written ({error.strerror}): the run waits until there is room"
            )
        if self.given_up():
            return False
        self.sleep(LOOK_S)
        return True

    def over(self, path: Path) -> None:
        """The write that waited was done."""
        waited_s = self.now_s() - self._since_s.pop(path)
        self.say(f"{path}: there is room again after {waited_s:.1f} s: the run goes on")
        self.waited(path, waited_s)


class PatientDisk:
    """A disk whose writes wait for room while it is full.

    Once ``room`` gives up, the error is raised. Other errors are raised at once.
    """

    def __init__(self, disk: Disk, room: WaitForRoom) -> None:
        self.disk, self.room = disk, room
        self.read, self.view, self.size, self.exists, self.names = (
            disk.read,
            disk.view,
            disk.size,
            disk.exists,
            disk.names,
        )
        self.remove, self.sync_folder = disk.remove, disk.sync_folder

    def append(self, path: Path, keep_bytes: int = 0, private: bool = False) -> DiskFile:
        file = self._patient(path, lambda: self.disk.append(path, keep_bytes, private))
        return _PatientFile(file, self._patient)

    def make_folder(self, folder: Path) -> None:
        self._patient(folder, lambda: self.disk.make_folder(folder))

    def replace(
        self, path: Path, data: bytes, *, durable: bool = False, private: bool = False
    ) -> None:
        self._patient(path, lambda: self.disk.replace(path, data, durable=durable, private=private))

    def rename(self, path: Path, to: Path) -> None:
        self._patient(to, lambda: self.disk.rename(path, to))

    def _patient(self, path: Path, work: Callable[[], Done]) -> Done:
        waited = False
        while True:
            try:
                done = work()
            except OSError as error:
                if error.errno not in FULL or not self.room.wait(path, error):
                    raise
                waited = True
            else:
                if waited:
                    self.room.over(path)
                return done


class _PatientFile:
    def __init__(self, file: DiskFile, patient: Callable[[Path, Callable[[], int]], int]) -> None:
        self.path, self.file, self.patient = file.path, file, patient
        # after a failed sync the system may forget what it could not write: it is not repeated
        self.sync, self.truncate, self.close = file.sync, file.truncate, file.close

    def write(self, data: bytes | memoryview) -> int:
        return self.patient(self.path, lambda: self.file.write(data))


def write_all(file: DiskFile, data: bytes | memoryview) -> None:
    """Append all of ``data``; if that fails, a part of it may be in the file."""
    rest = memoryview(data)
    while len(rest):
        rest = rest[file.write(rest) :]
