"""The relay of kernel mode: it delays and drops frames in user space.

It is used on kernels without netem, and for jitter that keeps order.

    host's tap -> [ line "down" ] -> namespace's tap
    namespace's tap -> [ line "up" ] -> host's tap
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import numpy as np

from emulator.delay import Delay
from emulator.delay.jitter import Jitter
from emulator.delay.latency import Latency
from emulator.errors import BadValue
from emulator.kernel.commands import KernelShape, KernelWay, Place, VethEnd
from emulator.quantiles import Quantiles
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
            self._frames.append((self._delay.arrival(now), frame))
            self._held_bytes += len(frame)

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
        late = self.lateness
        lateness = {
            "p50": late.percentile(50),
            "p99": late.percentile(99),
            "max": late.max if late.count else None,
        }
        return {
            "frames": late.count,
            "lost": self.lost,
            "overflowed": self.overflowed,
            "unwritten": self.unwritten,
            "late_ms": {
                name: None if ns is None else round(ns / 1e6, 3) for name, ns in lateness.items()
            },
        }


class Relay:
    """Two taps, which it creates, and the frames between them.

    The caller waits until a tap is readable or a frame is due. ``began_ns`` is the moment 0 of the
    jitter. ``stack`` closes the taps, which removes them.
    """

    def __init__(
        self, place: Place, shape: KernelShape, seed: int, stack: ExitStack, began_ns: int
    ) -> None:
        self._began_ns = began_ns
        self._directions = ("down", "up")
        self.taps = [_tap(end, stack) for end in (place.host, place.own)]
        self._lines = [
            line(way, 2 * seed + number) for number, way in enumerate((shape.down, shape.up))
        ]

    def next_ns(self) -> int:
        """When the next frame is due; FOREVER if none is in flight."""
        return min(self._began_ns + min(line.next_ns() for line in self._lines), FOREVER)

    def turn(self, ready: Sequence[int], now: int) -> None:
        """Read frames from the taps in ``ready``, and forward all frames that are due."""
        moment_ns = now - self._began_ns
        for tap, way in zip(self.taps, self._lines):
            if tap in ready:
                _read(tap, way, moment_ns)
        for tap, way in zip(reversed(self.taps), self._lines):
            while (frame := way.take(moment_ns)) is not None:
                try:
                    os.write(tap, frame)
                except OSError:  # the interface is down, or its queue is full
                    way.unwritten += 1

    def strain(self) -> str:
        """Describe the directions that were too late too often; '' if none was."""
        return strain(dict(zip(self._directions, self._lines)))

    def summary(self) -> dict[str, object]:
        """Frames and lateness of each direction."""
        return {name: way.summary() for name, way in zip(self._directions, self._lines)}


def line(way: KernelWay, seed: int) -> DelayLine:
    """Make the delay line of one direction."""
    delay = (
        Jitter(way.latency_ns, way.jitter_ns, seed=seed)
        if way.jitter_ns
        else Latency(way.latency_ns)
    )
    return DelayLine(
        delay,
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


def _tap(end: VethEnd, stack: ExitStack) -> int:
    try:
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, tap)
        fcntl.ioctl(
            tap, _TUNSETIFF, struct.pack("16sH22x", end.name.encode(), _IFF_TAP | _IFF_NO_PI)
        )
    except OSError as error:
        raise BadValue(f"kernel mode: a tap interface for the relay: {error}") from None
    return tap
