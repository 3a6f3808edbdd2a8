"""Commands of ip and tc, processes in namespaces, and the places of runs of kernel mode.

A place is a number on this host that a lock file protects, for names that no other process may use.
The kernel releases a lock when the process of its owner ends, also when it is killed.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from emulator.errors import BadValue
from emulator.kernel.commands import NAMESPACES, Argv, Place, remove

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


NAMESPACE_FILES = Path("/var/run/netns")
INTERFACE_FILES = Path("/sys/class/net")
_STEP_S = 20.0


def execute(argv: Argv, text: str | None = None) -> str:
    """Run one command and return its output. BadValue, in one line, if it fails.

    ``text`` is its standard input.
    """
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=_STEP_S,
            start_new_session=True,
            **({"stdin": subprocess.DEVNULL} if text is None else {"input": text}),
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
    with CLAIMS.claimed() as number:
        yield Place(number)


def clear(place: Place) -> None:
    """End all processes of the namespace and remove it with its interfaces, if they exist."""
    namespace = (NAMESPACE_FILES / place.namespace).exists()
    if namespace:
        end_processes(place.namespace, signal.SIGKILL)
    *links, netns = remove(place)
    for end, step in zip((place.host, place.own), links):
        # A run that was killed between two steps may have left this interface on the host.
        if (INTERFACE_FILES / end.name).exists():
            execute(step)
    if namespace:
        execute(netns)


def end_processes(namespace: str, number: int) -> int:
    """Send a signal to every process in the namespace; return how many there were."""
    pids = [int(word) for word in execute(["ip", "netns", "pids", namespace]).split()]
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
    return len(pids)


CLAIMS = Claims("kernel", NAMESPACES, lambda number: clear(Place(number)))
