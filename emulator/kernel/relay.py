"""The relay of kernel mode: it delays and drops frames in user space.

It is used on kernels without netem, and for jitter that keeps order.

    upper tap -> [ line "down" ] -> lower tap
    lower tap -> [ line "up" ] -> upper tap

In kernel mode the upper tap is that of this host, and the lower one that of the namespace. A lab
has one relay for all its links.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from emulator.delay import Delay, delay_of
from emulator.errors import BadValue
from emulator.fidelity import Quantiles, spread_ms
from emulator.kernel.commands import KernelWay
from emulator.units import FOREVER

TURN_FRAMES = 64  # frames read from one tap per turn; a small number, so that due frames leave
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
LATE_MS = 1.0  # 99 % of the frames should be at most this late
HELD_BYTES = 64 * 2**20
"""The maximum in flight in one direction; more is dropped and counted, as in a full queue."""


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


@dataclass(frozen=True, slots=True)
class RelayedLink:
    """A link whose frames the relay carries, and the names of its taps; both ways have a seed."""

    name: str
    upper_tap: str
    lower_tap: str
    up: KernelWay
    down: KernelWay
    seed: int = 0


class Relay:
    """Two taps for each link, which it creates, and the frames between them.

    The caller waits until a tap is readable or a frame is due. ``began_ns`` is the moment 0 of the
    jitter. ``stack`` closes the taps, which removes them.
    """

    def __init__(self, links: Sequence[RelayedLink], stack: ExitStack, began_ns: int) -> None:
        self._began_ns = began_ns
        self._seeds = {link.name: link.seed for link in links}
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
        self.taps = list(self._ways)

    def next_ns(self) -> int:
        """When the next frame is due; FOREVER if none is in flight."""
        return self._began_ns + self._due[0][0] if self._due else FOREVER

    def turn(self, ready: Sequence[int], now: int) -> None:
        """Read frames from the taps in ``ready``, and forward all frames that are due."""
        moment_ns = now - self._began_ns
        for tap in ready:
            if tap in self._ways:
                way = self._ways[tap][0]
                idle = way.next_ns() == FOREVER
                _read(tap, way, moment_ns)
                if idle:
                    self._expect(tap, way)
        while self._due and self._due[0][0] <= moment_ns:
            tap = heapq.heappop(self._due)[1]
            way, target = self._ways[tap]
            while (frame := way.take(moment_ns)) is not None:
                try:
                    os.write(target, frame)
                except OSError:  # the interface is down, or its queue is full
                    way.unwritten += 1
            self._expect(tap, way)

    def change(self, name: str, up: KernelWay, down: KernelWay) -> None:
        """Give a link other delays and losses; frames in flight keep theirs. KeyError: no such."""
        lines, seed = self._lines[name], self._seeds[name]
        for number, (direction, way) in enumerate((("down", down), ("up", up))):
            delay = delay_of(way.latency_ns, way.jitter_ns, 2 * seed + number)
            lines[direction].change(delay, way.loss)

    def strain(self) -> str:
        """Describe the lines that were too late too often; '' if none was."""
        return strain(
            {
                f"{name} {direction}".strip(): way
                for name, lines in self._lines.items()
                for direction, way in lines.items()
            }
        )

    def summary(self) -> dict[str, dict[str, dict[str, object]]]:
        """For each link, the frames and lateness of each direction."""
        return {
            name: {direction: way.summary() for direction, way in lines.items()}
            for name, lines in self._lines.items()
        }

    def _expect(self, tap: int, way: DelayLine) -> None:
        if (due_ns := way.next_ns()) < FOREVER:
            heapq.heappush(self._due, (due_ns, tap))


def line(way: KernelWay, seed: int) -> DelayLine:
    """Make the delay line of one direction."""
    return DelayLine(
        delay_of(way.latency_ns, way.jitter_ns, seed),
        way.loss,
        np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, 1]))).random,
    )


def strain(lines: Mapping[str, DelayLine]) -> str:
    """Describe the lines in which more than 1 % of the frames left more than LATE_MS late.

    '' if there is none.
    """
    late_ms = {name: (way.lateness.percentile(99) or 0) / 1e6 for name, way in lines.items()}
    return ", ".join(f"{name} {late:.1f} ms" for name, late in late_ms.items() if late > LATE_MS)


def _read(tap: int, way: DelayLine, moment_ns: int) -> None:
    for _ in range(TURN_FRAMES):
        try:
            frame = os.read(tap, 2048)
        except OSError:  # nothing more, or the interface is not up yet
            return
        way.put(frame, moment_ns)


def _tap(name: str, stack: ExitStack) -> int:
    try:
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, tap)
        fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    except OSError as error:
        raise BadValue(f"kernel mode: a tap interface for the relay: {error}") from None
    return tap
