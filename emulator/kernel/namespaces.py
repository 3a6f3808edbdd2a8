"""Commands of ip and tc, processes in namespaces, and the places of runs of kernel mode."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from emulator.errors import BadValue
from emulator.kernel.claims import Claims
from emulator.kernel.commands import NAMESPACES, Argv, Place, remove

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
