"""Numbers on this host, each protected by a lock file, for names that no other process may use.

The kernel releases a lock when the process of its owner ends, also when it is killed.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from emulator.errors import BadValue

LOCKS = Path("/run")


@dataclass(frozen=True, slots=True)
class Claims:
    """The numbers 0 to ``count`` - 1 of one ``kind``, such as "kernel" or "lab".

    ``clear`` removes everything that the owner of a number made; it is also called when nothing is
    left.
    """

    kind: str
    count: int
    clear: Callable[[int], None]

    def lock_file(self, number: int) -> Path:
        return LOCKS / f"emulator-{self.kind}-{number}.lock"

    @contextmanager
    def claimed(self) -> Iterator[int]:
        """Claim a number that no other process has; at the end, clear it.

        First clear what killed processes have left. BadValue if all numbers are in use.
        """
        self.sweep()
        number, lock = self._claim()
        try:
            yield number
        finally:
            self._give_back(number, lock)

    def sweep(self) -> list[int]:
        """Clear what killed processes have left; return their numbers."""
        left = []
        for number in range(self.count):
            lock = _lock(self.lock_file(number))
            if lock is not None:
                self._give_back(number, lock)
                left.append(number)
        return left

    def _claim(self) -> tuple[int, int]:
        for number in range(self.count):
            lock = _lock(self.lock_file(number), create=True)
            if lock is not None:
                return number, lock
        raise BadValue(f"{self.kind}: {self.count} at once is the maximum on this host")

    def _give_back(self, number: int, lock: int) -> None:
        try:
            self.clear(number)
            # Last, so that the next call tries again if something is left.
            self.lock_file(number).unlink(missing_ok=True)
        finally:
            os.close(lock)


def _lock(file: Path, create: bool = False) -> int | None:
    """Lock the file and return its descriptor; None if it is missing or a live process has it."""
    try:
        lock = os.open(file, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Between open and lock the last owner may have removed the file; then the lock protects
        # nothing.
        if os.stat(file).st_ino == os.fstat(lock).st_ino:
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return None
