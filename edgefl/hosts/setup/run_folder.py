"""The folder of an experiment while a command writes to it.

Only one command writes at a time, and what earlier runs have left is moved aside.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from edgefl.disk import OwnDisk, free_name
from edgefl.errors import UserError
from edgefl.hosts.setup.origin import origin_of
from edgefl.hosts.setup.rundir import clear, holds_results, unfinished, writable
from edgefl.record.files import EXPERIMENT

ENDS_S = 10.0  # patience with processes of a killed command, which end by themselves
POLL_S = 0.1


class RunFolder:
    """The folder DIR/NAME, which holds the runs of an experiment.

    A new run gets a folder without results of other runs: they would be compared with its own. So
    the old folder is moved to DIR/NAME.1, as a whole, or to the next free number. With
    ``overwrite`` finished runs are deleted; a folder with a run that can go on is moved all the
    same. If the new run does not begin, the old folder is moved back.

    The lock is a system lock (flock) on the folder. The system releases it when the last process
    that holds ``fd`` ends, for whatever reason.
    """

    def __init__(
        self,
        folder: Path,
        text: str = "",
        resume: bool = False,
        overwrite: bool = False,
        base: Path | None = None,
    ) -> None:
        """``text``: experiment.toml; "": none is written. ``resume``: go on with the runs there.

        ``base``: the folder of the config, which the run needs where it is.
        """
        self.folder, self.text, self.resume, self.overwrite = folder, text, resume, overwrite
        self.base = base
        self.fd: int | None = None
        self._made: list[Path] = []  # folders that ``claim`` has made, outer ones first
        self._moved: tuple[Path, Path] | None = None  # the old folder: from, to
        self.begun = False  # what is in the folder is of these runs

    def refuse_if_in_use(self) -> None:
        """Raise UserError if another command writes to the folder now."""
        if self.folder.is_dir():
            _unlock(self._lock())

    def claim(self) -> None:
        """Lock the folder until ``release``, and move what earlier runs have left there.

        UserError if another command writes to the folder, or if it cannot be written.
        """
        if self.resume:
            self.lock(ENDS_S)
            return
        with writable(self.folder, "made"):
            if self.folder.is_dir():
                self.lock()
                keeps = unfinished if self.overwrite else holds_results
                if keeps(self.folder):
                    try:
                        self._move_aside()
                    finally:
                        self.release()
            if self.fd is None:
                self._make()
                self.lock()

    def lock(self, patience_s: float = 0.0) -> None:
        """Only lock the folder, which must exist. UserError if another command writes to it."""
        self.fd = self._lock(patience_s)

    def begin(self, but: Path | None = None) -> list[str]:
        """Delete what is left of earlier runs, and write experiment.toml.

        Call it when no check can fail any more. From now on the runs can be resumed. ``but``: a
        directory that is being written. Returns messages for the user.
        """
        self.begun = True
        if self.resume:
            return []
        told = [] if self._moved is None else [self._told_of_move()]
        replaced = clear(self.folder, but)
        if replaced and self.overwrite:
            told.append(f"{self.folder}: replaced the earlier runs: {', '.join(replaced)}")
        self.write()
        return told

    def write(self) -> None:
        """Write experiment.toml."""
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

    def undo(self) -> list[str]:
        """Remove experiment.toml if there is no run, and empty folders that ``claim`` has made.

        If no run has begun, the old folder is moved back. Returns messages for the user.
        """
        with suppress(OSError):
            if [path.name for path in self.folder.iterdir()] == [EXPERIMENT]:
                (self.folder / EXPERIMENT).unlink()
        for folder in reversed(self._made):
            with suppress(OSError):
                folder.rmdir()
        if self._moved is None or self.begun:
            return []
        place, aside = self._moved
        if os.path.lexists(place):  # something was written there: both are kept
            return [self._told_of_move()]
        aside.rename(place)
        self._moved = None
        return []

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

    def _move_aside(self) -> None:
        place = self.folder.resolve()  # a symbolic link stays where it is
        for needed in (self.base, Path.cwd()):
            if needed is not None and needed.resolve().is_relative_to(place):
                expected = "another --out" if self.overwrite else "--overwrite, or another --out"
                raise UserError(
                    f"{self.folder}: holds an earlier run, and is not moved aside, because"
                    f" {needed} is needed where it is: expected {expected}"
                )
        aside = free_name(place)
        place.rename(aside)
        self._moved = place, aside

    def _told_of_move(self) -> str:
        assert self._moved is not None
        aside = self._moved[1]
        told, goes_on = self._told(aside), unfinished(aside)
        what = "an unfinished run" if goes_on else "an earlier run"
        moved = f"{self.folder} held {what}: moved to {told}"
        if not goes_on:
            return moved
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
