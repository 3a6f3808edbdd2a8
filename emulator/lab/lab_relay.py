"""The relay of a lab: one process that delays and drops the frames of all its links.

It is separate, so that nothing else of the lab makes frames late, and it has real-time priority
where the system allows this. It ends when its standard input ends, also if its owner was killed.

    python -m emulator.lab.lab_relay SOCKET    (links on standard input, one line of JSON)

Requests to SOCKET are one line of JSON each: {"link", "up", "down"} changes a link, {} asks for
counts. The answer is one line: the counts of all links.
"""

from __future__ import annotations

import gc
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from emulator.clock import precise_timers
from emulator.errors import BadValue
from emulator.fidelity import Quantiles, spread_ms
from emulator.host import REAL_TIME, real_time_priority
from emulator.kernel.commands import KernelWay
from emulator.kernel.relay import Relay, RelayedLink
from emulator.units import FOREVER, NS_PER_S

ANSWER_S = 10.0
_MOST_BYTES = 1 << 16


class RelayProcess:
    """The owner's side: it starts the process, and ends it. BadValue if it cannot start."""

    def __init__(self, links: Sequence[RelayedLink], control: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "emulator.lab.lab_relay", str(control)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=own_environment(),
            start_new_session=True,  # Ctrl-C is for the program, which may still need its links
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(list(links)) + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().decode().strip()
        if answer != "ready":
            self.end()
            raise BadValue(f"lab: the relay did not start: {answer or 'see the messages above'}")

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        """End the process, which removes its taps."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def own_environment() -> dict[str, str]:
    """An environment in which a new Python finds this package."""
    here = str(Path(__file__).resolve().parents[2])
    paths = [here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def ask(control: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Send a request to the relay of a lab; return its counts. BadValue if it does not answer."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(ANSWER_S)
            sock.connect(str(control))
            sock.sendall(json.dumps(request).encode() + b"\n")
            answer = b"".join(iter(lambda: sock.recv(_MOST_BYTES), b""))
            found: dict[str, Any] = json.loads(answer)
            return found
    except (OSError, ValueError) as error:
        raise BadValue(f"lab: the relay does not answer: {error}") from None


class _Server:
    """The loop of the process."""

    def __init__(self, links: Sequence[RelayedLink], control: Path, stack: ExitStack) -> None:
        self._relay = Relay(links, stack, time.monotonic_ns())
        self._listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        self._listener.bind(str(control))
        self._listener.listen()
        # How long a frame may have waited until the relay read it, and after it was due.
        self._turns = Quantiles()
        self._facts = {
            "timer_slack_1ns": precise_timers(),
            "real_time_priority": real_time_priority() == REAL_TIME,
        }

    def run(self) -> None:
        """Carry frames until standard input ends."""
        while True:
            ready = self._wait()
            now = time.monotonic_ns()
            self._relay.turn(ready, now)
            if ready:
                self._turns.add(time.monotonic_ns() - now)
            if 0 in ready and not os.read(0, _MOST_BYTES):
                return
            if self._listener.fileno() in ready:
                self._answer()

    def _wait(self) -> list[int]:
        due_ns = self._relay.next_ns()
        wait_s = None
        if due_ns < FOREVER:
            wait_s = max(0.0, (due_ns - time.monotonic_ns()) / NS_PER_S)
        files = [0, self._listener.fileno(), *self._relay.taps]
        return select.select(files, [], [], wait_s)[0]

    def _answer(self) -> None:
        peer, _ = self._listener.accept()
        with peer:
            peer.settimeout(0.05)
            try:
                request = json.loads(peer.recv(_MOST_BYTES))
                if "link" in request:
                    ways = (KernelWay(**request[key]) for key in ("up", "down"))
                    self._relay.change(request["link"], *ways)
                peer.sendall(json.dumps(self._counts()).encode())
            except (OSError, ValueError, KeyError, TypeError):
                return  # the peer sees that there is no answer

    def _counts(self) -> dict[str, object]:
        return self._facts | {
            "turn_ms": spread_ms(self._turns),
            "strain": self._relay.strain(),
            "links": self._relay.summary(),
        }


def main(control: str) -> None:
    """Read the links, make their taps, say "ready" (or why not), and carry frames."""
    links = msgspec.json.decode(sys.stdin.buffer.readline(), type=list[RelayedLink])
    with ExitStack() as stack:
        try:
            server = _Server(links, Path(control), stack)
        except (BadValue, OSError) as error:
            print(error, flush=True)
            return
        gc.freeze()
        print("ready", flush=True)
        server.run()


if __name__ == "__main__":
    main(sys.argv[1])
