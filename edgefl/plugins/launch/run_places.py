"""The folders of runs on a host: FOLDER/launched/RUN, each with the lock of its agent.

A folder whose lock is free belongs to an agent that was killed; the next agent removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SOCKET = "agent.sock"
LOCK = "agent.lock"
CODE, KEYS = "code", "keys"  # folders in it; edges start in the first one


def run_folder(work: str, run: str) -> str:
    """The folder of a run on a host whose work folder is ``work``."""
    return f"{work}/launched/{run}"


def results_folder(work: str, run: str) -> str:
    """Where a coordinator on another host writes its results, until they are fetched."""
    return f"{work}/results/{run}"


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Make ``folder``, for its owner only, and lock it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _guard(folder.parent):
        folder.mkdir(mode=0o700)
        fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield
    finally:
        os.close(fd)


def clear_stale(parent: Path) -> list[str]:
    """Remove the folders of agents that were killed. Returns their names."""
    if not parent.is_dir():
        return []
    with _guard(parent):
        found = [path for path in sorted(parent.iterdir()) if path.is_dir() and _is_stale(path)]
        for path in found:
            shutil.rmtree(path, ignore_errors=True)
    return [path.name for path in found]


def _is_stale(folder: Path) -> bool:
    try:
        fd = os.open(folder / LOCK, os.O_RDWR)
    except FileNotFoundError:
        return True  # its agent was killed before it could lock it
    except OSError:
        return False  # another user's
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


@contextmanager
def _guard(parent: Path) -> Iterator[None]:
    """One agent at a time makes or clears folders here."""
    fd = os.open(parent, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
