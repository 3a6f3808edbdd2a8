"""The relay of a lab: one process that delays and drops the frames of all its links.

It is used on kernels without netem, and for jitter that keeps order.

    upper tap -> [ line "down" ] -> lower tap
    lower tap -> [ line "up" ] -> upper tap

It is a process of its own, so that nothing else of the lab makes frames late, and it has real-time
priority where the system allows this. It ends when its standard input ends, also if its owner was
killed.

    python -m emulator.lab.relay SOCKET    (links on standard input, one line of JSON)

Requests to SOCKET are one line of JSON each: {"link", "up", "down"} changes a link, {} asks for
counts. The answer is one line: the counts of all links.
"""

from __future__ import annotations

import fcntl
import gc
import heapq
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from emulator.clock import precise_timers
from emulator.delay import Delay, delay_of
from emulator.errors import BadValue
from emulator.fidelity import Quantiles, spread_ms
from emulator.host import REAL_TIME, real_time_priority
from emulator.lab.topology import KernelWay
from emulator.units import FOREVER, NS_PER_S

TURN_FRAMES = 64  # frames read from one tap per turn; a small number, so that due frames leave
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
LATE_MS = 1.0  # 99 % of the frames should be at most this late
HELD_BYTES = 64 * 2**20
"""The maximum in flight in one direction; more is dropped and counted, as in a full queue."""
ANSWER_S = 10.0
_MOST_BYTES = 1 << 16


class DelayLine:
    """One direction: each frame leaves ``delay`` after its arrival, in order, unless it is lost.

    ``uniform`` returns numbers in [0, 1) that decide about loss; it is not called if ``loss`` is 0.
    """

    def __init__(self, delay: Delay, loss: float, uniform: Callable[[], float]) -> None:
        self._delay = delay
        self._loss = loss
        self._uniform = uniform
        self._frames: deque[tuple[int, bytes]] = deque()
        self._held_bytes = 0
        self.lateness = Quantiles()
        self.lost = 0
        self.overflowed = 0
        self.unwritten = 0

    def put(self, frame: bytes, now: int) -> None:
        """Add a frame that left the shaper at ``now``."""
        if self._loss and self._uniform() < self._loss:
            self.lost += 1
        elif self._held_bytes + len(frame) > HELD_BYTES:
            self.overflowed += 1
        else:
            due_ns = self._delay.arrival(now)
            if self._frames:  # after a change, a shorter delay overtakes nothing
                due_ns = max(due_ns, self._frames[-1][0])
            self._frames.append((due_ns, frame))
            self._held_bytes += len(frame)

    def change(self, delay: Delay, loss: float) -> None:
        """Give frames that come from now on another delay and loss; order is kept."""
        self._delay, self._loss = delay, loss

    def next_ns(self) -> int:
        """When the next frame is due; FOREVER if none is in flight."""
        return self._frames[0][0] if self._frames else FOREVER

    def take(self, now: int) -> bytes | None:
        """Remove and return the next frame that is due by ``now``; None if there is none."""
        if self.next_ns() > now:
            return None
        due_ns, frame = self._frames.popleft()
        self._held_bytes -= len(frame)
        self.lateness.add(now - due_ns)
        return frame

    def summary(self) -> dict[str, object]:
        """Counts of frames and their lateness in ms, as plain JSON values."""
        return {
            "frames": self.lateness.count,
            "lost": self.lost,
            "overflowed": self.overflowed,
            "unwritten": self.unwritten,
            "late_ms": spread_ms(self.lateness),
        }

    @property
    def late_ms(self) -> float:
        """The 99th percentile of the lateness."""
        return (self.lateness.percentile(99) or 0) / 1e6


@dataclass(frozen=True, slots=True)
class RelayedLink:
    """A link whose frames the relay carries, and the names of its taps; both ways have a seed."""

    name: str
    upper_tap: str
    lower_tap: str
    up: KernelWay
    down: KernelWay
    seed: int = 0


def line(way: KernelWay, seed: int) -> DelayLine:
    """Make the delay line of one direction."""
    return DelayLine(
        delay_of(way.latency_ns, way.jitter_ns, seed),
        way.loss,
        np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, 1]))).random,
    )


class _Relay:
    """The loop of the process: two taps for each link, and the frames between them."""

    def __init__(self, links: Sequence[RelayedLink], control: Path, stack: ExitStack) -> None:
        self._began_ns = time.monotonic_ns()  # the moment 0 of the jitter
        self._links = {link.name: link for link in links}
        self._lines: dict[str, dict[str, DelayLine]] = {}
        # tap -> (its line, the tap where its frames come out)
        self._ways: dict[int, tuple[DelayLine, int]] = {}
        self._due: list[tuple[int, int]] = []  # (when, tap) of the first frame of each busy line
        for link in links:
            upper, lower = _tap(link.upper_tap, stack), _tap(link.lower_tap, stack)
            down, up = (
                line(way, 2 * link.seed + number) for number, way in enumerate((link.down, link.up))
            )
            self._lines[link.name] = {"down": down, "up": up}
            self._ways[upper], self._ways[lower] = (down, lower), (up, upper)
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
        files = [0, self._listener.fileno(), *self._ways]
        while True:
            wait_s = None
            if self._due:
                due_ns = self._began_ns + self._due[0][0]
                wait_s = max(0.0, (due_ns - time.monotonic_ns()) / NS_PER_S)
            ready = select.select(files, [], [], wait_s)[0]
            now = time.monotonic_ns()
            self._turn(ready, now - self._began_ns)
            if ready:
                self._turns.add(time.monotonic_ns() - now)
            if 0 in ready and not os.read(0, _MOST_BYTES):
                return
            if self._listener.fileno() in ready:
                self._answer()

    def _turn(self, ready: Sequence[int], now: int) -> None:
        """Read frames from the taps in ``ready``, and forward all frames that are due."""
        for tap in ready:
            if tap in self._ways:
                way = self._ways[tap][0]
                idle = way.next_ns() == FOREVER
                _read(tap, way, now)
                if idle:
                    self._expect(tap, way)
        while self._due and self._due[0][0] <= now:
            tap = heapq.heappop(self._due)[1]
            way, target = self._ways[tap]
            while (frame := way.take(now)) is not None:
                try:
                    os.write(target, frame)
                except OSError:  # the interface is down, or its queue is full
                    way.unwritten += 1
            self._expect(tap, way)

    def _expect(self, tap: int, way: DelayLine) -> None:
        if (due_ns := way.next_ns()) < FOREVER:
            heapq.heappush(self._due, (due_ns, tap))

    def _answer(self) -> None:
        peer, _ = self._listener.accept()
        with peer:
            peer.settimeout(0.05)
            try:
                request = json.loads(peer.recv(_MOST_BYTES))
                if "link" in request:
                    ways = {key: KernelWay(**request[key]) for key in ("down", "up")}
                    self._change(request["link"], ways)
                peer.sendall(json.dumps(self._counts()).encode())
            except (OSError, ValueError, KeyError, TypeError):
                return  # the peer sees that there is no answer

    def _change(self, name: str, ways: dict[str, KernelWay]) -> None:
        """Give a link other delays and losses; frames in flight keep theirs. KeyError: no such."""
        for number, (direction, way) in enumerate(ways.items()):
            delay = delay_of(way.latency_ns, way.jitter_ns, 2 * self._links[name].seed + number)
            self._lines[name][direction].change(delay, way.loss)

    def _counts(self) -> dict[str, object]:
        """The frames and lateness of each link, and the lines that were too late too often."""
        lines = {
            f"{name} {direction}": way
            for name, ways in self._lines.items()
            for direction, way in ways.items()
        }
        late = {name: way.late_ms for name, way in lines.items() if way.late_ms > LATE_MS}
        return self._facts | {
            "turn_ms": spread_ms(self._turns),
            "strain": ", ".join(f"{name} {late_ms:.1f} ms" for name, late_ms in late.items()),
            "links": {
                name: {direction: way.summary() for direction, way in ways.items()}
                for name, ways in self._lines.items()
            },
        }


def _read(tap: int, way: DelayLine, now: int) -> None:
    for _ in range(TURN_FRAMES):
        try:
            frame = os.read(tap, 2048)
        except OSError:  # nothing more, or the interface is not up yet
            return
        way.put(frame, now)


def _tap(name: str, stack: ExitStack) -> int:
    """Create a tap; it goes when ``stack`` closes."""
    try:
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, tap)
        fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    except OSError as error:
        raise BadValue(f"a tap interface for the relay: {error}") from None
    return tap


def main(control: str) -> None:
    """Read the links, make their taps, say "ready" (or why not), and carry frames."""
    links = msgspec.json.decode(sys.stdin.buffer.readline(), type=list[RelayedLink])
    with ExitStack() as stack:
        try:
            relay = _Relay(links, Path(control), stack)
        except (BadValue, OSError) as error:
            print(error, flush=True)
            return
        gc.freeze()
        print("ready", flush=True)
        relay.run()


class RelayProcess:
    """The owner's side: it starts the process, and ends it. BadValue if it cannot start."""

    def __init__(self, links: Sequence[RelayedLink], control: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "emulator.lab.relay", str(control)],
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
            counts: dict[str, Any] = json.loads(answer)
            return counts
    except (OSError, ValueError) as error:
        raise BadValue(f"lab: the relay does not answer: {error}") from None


if __name__ == "__main__":
    main(sys.argv[1])
