"""The folder of an experiment while a command writes to it.

Only one command writes at a time, and an earlier unfinished run is kept.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from edgefl.disk import OwnDisk
from edgefl.errors import UserError
from edgefl.hosts.setup.origin import origin_of
from edgefl.hosts.setup.rundir import unfinished, writable
from edgefl.record.files import EXPERIMENT

ENDS_S = 10.0  # patience with processes of a killed command, which end by themselves
POLL_S = 0.1


class RunFolder:
    """The folder DIR/NAME, which holds the runs of the strategies ``names``.

    The lock is a system lock (flock) on the folder. The system releases it when the last process
    that holds ``fd`` ends, for whatever reason.
    """

    def __init__(
        self, folder: Path, names: Collection[str], text: str = "", resume: bool = False
    ) -> None:
        """``text``: experiment.toml; "": none is written. ``resume``: go on with the runs there."""
        self.folder, self.names, self.text, self.resume = folder, names, text, resume
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
        told: list[str] = []
        if self.resume:
            self.fd = self._lock(ENDS_S)
            return told
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

    def begin(self) -> None:
        """Write experiment.toml: from now on the runs can be resumed."""
        if self.resume or not self.text:
            return
        with writable(self.folder):
            if not self.folder.exists():  # the removal of earlier runs has left it empty
                self.release()
                self._make()
                self.fd = self._lock()
            OwnDisk().replace(self.folder / EXPERIMENT, self.text.encode())

    def release(self) -> None:
        _unlock(self.fd)
        self.fd = None

    def undo(self) -> None:
        """Remove experiment.toml if there is no run, and empty folders that ``claim`` has made."""
        with suppress(OSError):
            if [path.name for path in self.folder.iterdir()] == [EXPERIMENT]:
                (self.folder / EXPERIMENT).unlink()
        for folder in reversed(self._made):
            with suppress(OSError):
                folder.rmdir()

    def _lock(self, patience_s: float = 0.0) -> int | None:
        """Return the descriptor that holds the lock; None if the file system has no locks."""
        fd, until_s = os.open(self.folder, os.O_RDONLY), time.monotonic() + patience_s
        try:
            while not _locked(fd):
                if time.monotonic() >= until_s:
                    raise BlockingIOError
                time.sleep(POLL_S)
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
        told = self._told(aside)
        moved = f"{self.folder} held an unfinished run: moved to {told}"
        try:
            return f"{moved}; to go on with it: {origin_of(told).resumed_by(told)}"
        except (UserError, OSError):  # an older run, which cannot be resumed
            return moved

    def _told(self, aside: Path) -> Path:
        """The path in the form that the user gave."""
        return self.folder.with_name(aside.name) if not self.folder.is_symlink() else aside

    def _make(self) -> None:
        missing = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
        place = self.folder.resolve() if self.folder.is_symlink() else self.folder
        place.mkdir(parents=True, exist_ok=True)
        self._made = missing[::-1]


def _locked(fd: int) -> bool:
    import fcntl  # the command line imports this file in Windows, too, where only edges run

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unlock(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)
