"""The folder of an experiment while a command writes to it.

Only one command writes at a time, and an earlier unfinished run is kept.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from edgefl.errors import UserError
from edgefl.hosts.setup.rundir import unfinished, writable


class RunFolder:
    """The folder DIR/NAME, which holds the runs of the strategies ``names``.

    The lock is a system lock (flock) on the folder. The system releases it when the last process
    that holds ``fd`` ends, for whatever reason.
    """

    def __init__(self, folder: Path, names: Collection[str]) -> None:
        self.folder, self.names = folder, names
        self.fd: int | None = None
        self._made: list[Path] = []  # folders that ``claim`` has made, outer ones first

    def refuse_if_in_use(self) -> None:
        """Raise UserError if another command writes to the folder now."""
        if self.folder.is_dir():
            _unlock(self._lock())

    def claim(self) -> list[str]:
        """Lock the folder until ``release``. Returns messages for the user.

        UserError if another command writes to the folder, or if it cannot be written.
        """
        told = []
        with writable(self.folder, "made"):
            if self.folder.is_dir():
                self.fd = self._lock()
                if unfinished(self.folder, self.names):
                    told.append(self._move_aside())
                    self.release()
            if self.fd is None:
                self._make()
                self.fd = self._lock()
        return told

    def release(self) -> None:
        _unlock(self.fd)
        self.fd = None

    def undo(self) -> None:
        """Remove the folders that ``claim`` has made, if they are empty."""
        for folder in reversed(self._made):
            with suppress(OSError):
                folder.rmdir()

    def _lock(self) -> int | None:
        """Return the descriptor that holds the lock; None if the file system has no locks."""
        fd = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise UserError(
                f"{self.folder}: another run writes to it; wait for its end, or choose --out DIR"
            ) from None
        except OSError:
            os.close(fd)
            return None
        return fd

    def _move_aside(self) -> str:
        place = self.folder.resolve()  # a symbolic link stays where it is
        numbers = range(1, 1_000_000)
        aside = next(
            path
            for number in numbers
            if not os.path.lexists(path := place.with_name(f"{place.name}.{number}"))
        )
        place.rename(aside)
        return f"{self.folder} held an unfinished run: moved to {self._told(aside)}"

    def _told(self, aside: Path) -> Path:
        """The path in the form that the user gave."""
        return self.folder.with_name(aside.name) if not self.folder.is_symlink() else aside

    def _make(self) -> None:
        missing = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
        place = self.folder.resolve() if self.folder.is_symlink() else self.folder
        place.mkdir(parents=True, exist_ok=True)
        self._made = missing[::-1]


def _unlock(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)
