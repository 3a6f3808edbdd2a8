"""The names on this host that runs of kernel mode use, each protected by a lock file.

The kernel releases a lock when the process of its owner ends.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from emulator.errors import BadValue
from emulator.kernel.commands import NAMESPACES, Argv, Place, remove

LOCKS = Path("/run")
_LOCK = "emulator-kernel-{}.lock"
_NAMESPACES = Path("/var/run/netns")
_INTERFACES = Path("/sys/class/net")
_STEP_S = 20.0


def execute(argv: Argv) -> str:
    """Run one command and return its output. BadValue, in one line, if it fails."""
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=_STEP_S,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadValue(f"kernel mode: {' '.join(argv)}: {error}") from None
    if done.returncode:
        complaint = " ".join((done.stderr or done.stdout).split()) or f"status {done.returncode}"
        raise BadValue(f"kernel mode: {' '.join(argv)}: {complaint}")
    return done.stdout


@contextmanager
def claimed() -> Iterator[Place]:
    """Claim a place that no other run has; at the end, remove everything that was made there.

    First remove what runs that were killed have left.
    """
    sweep()
    place, lock = _claim()
    try:
        yield place
    finally:
        _give_back(place, lock)


def sweep() -> list[Place]:
    """Remove what killed runs have left; return their places."""
    left = []
    for place in map(Place, range(NAMESPACES)):
        lock = _lock(lock_file(place))
        if lock is not None:
            _give_back(place, lock)
            left.append(place)
    return left


def clear(place: Place) -> None:
    """End all processes of the namespace and remove it with its interfaces, if they exist."""
    namespace = (_NAMESPACES / place.namespace).exists()
    if namespace:
        end_processes(place, signal.SIGKILL)
    *links, netns = remove(place)
    for end, step in zip((place.host, place.own), links):
        # A run that was killed between two steps may have left this interface on the host.
        if (_INTERFACES / end.name).exists():
            execute(step)
    if namespace:
        execute(netns)


def end_processes(place: Place, number: int) -> int:
    """Send a signal to every process in the namespace; return how many there were."""
    pids = [int(word) for word in execute(["ip", "netns", "pids", place.namespace]).split()]
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
    return len(pids)


def _claim() -> tuple[Place, int]:
    for place in map(Place, range(NAMESPACES)):
        lock = _lock(lock_file(place), create=True)
        if lock is not None:
            return place, lock
    raise BadValue(f"kernel mode: {NAMESPACES} runs at once is the maximum on this host")


def lock_file(place: Place) -> Path:
    return LOCKS / _LOCK.format(place.number)


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


def _give_back(place: Place, lock: int) -> None:
    try:
        clear(place)
        # Last, so that the next run tries again if something is left.
        lock_file(place).unlink(missing_ok=True)
    finally:
        os.close(lock)
