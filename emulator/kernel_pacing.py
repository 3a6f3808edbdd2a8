"""The kernel spaces what is written on a TCP connection (SO_MAX_PACING_RATE).

It needs Linux 4.20 or later and no privileges. No queueing discipline is involved: the kernel sets
a timer for each connection. What is queued leaves at an even rate, however late a process wakes up.

What Linux does, and what follows:

- It counts payload only, so a rate is that of the bytes that are written.
- It sends bursts of half a congestion window, which is ten segments after a pause, and pacing keeps
  it so. So segments are short (``segment_for``), which is decided before a connection is made: on
  loopback they would have 64 KiB.
- Bytes that are written with MSG_EOR share no packet with others, so they leave piece by piece with
  segments of any length. ``emulator proxy`` writes so; libzmq does not.
- It never spaces the first ten segments of a connection: those of the ping that measures the path.
- A congestion control that chooses its own rate (BBR) sends slower than it may, so another one is
  chosen for a paced connection.
"""

from __future__ import annotations

import os
import socket as sockets
import struct
from contextlib import suppress
from typing import NamedTuple

from emulator.units import NS_PER_S

SO_MAX_PACING_RATE = 47  # Python has no name for it
RATE = struct.Struct("@Q")  # bytes per second
UNLIMITED = 2**64 - 1
USUAL_ROOM = 1 << 16  # of a socket's buffer, about
# in Linux' struct tcp_info: all bytes sent, and those of them that were sent again
SENT_AT, SENT = 200, struct.Struct("@QQ")
RTT_AT, WINDOW_AT = 68, 80  # the smoothed round-trip time, in us; congestion window, in segments
U32 = struct.Struct("@I")
INFO_BYTES = SENT_AT + SENT.size
BURST_SEGMENTS, MOST_BURST_BYTES = 5, 1 << 16
SEGMENT_BYTES = (536, 9000)  # what every host accepts; a jumbo frame
OWN_RATE, OTHERS = b"bbr", (b"cubic", b"reno")


class Burst(NamedTuple):
    """What the kernel sends at once on a connection, and when TCP's acknowledgement comes."""

    size_bytes: int
    rtt_ns: int


def segment_for(burst: int) -> int:
    """The length of segments with which so many bytes are sent at once, if possible."""
    least, most = SEGMENT_BYTES
    return min(max(burst // BURST_SEGMENTS, least), most)


class PacedConnection:
    """How fast the kernel sends what is queued on one TCP connection, whose socket others own.

    ``segment``: the bytes of its segments; 0: the kernel cannot pace it. Call ``add`` for all that
    is written from now on. Once the connection is closed, nothing has an effect.
    """

    def __init__(self, fd: int, inode: int) -> None:
        self.fd, self.inode = fd, inode
        self.limited = False
        self._queued = self._first = 0  # bytes that were added; bytes sent before these
        self._room = USUAL_ROOM  # bytes that the kernel takes at once
        self.segment = self._prepared()

    def _prepared(self) -> int:
        segment = 0
        if not hasattr(sockets, "TCP_INFO"):
            return segment  # another system than Linux
        with suppress(OSError), _Borrowed(self.fd, self.inode) as socket:
            info = socket.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_INFO, INFO_BYTES)
            for bytes_s in (NS_PER_S, UNLIMITED):  # some sandboxes accept it and do nothing
                socket.setsockopt(sockets.SOL_SOCKET, SO_MAX_PACING_RATE, RATE.pack(bytes_s))
                got = socket.getsockopt(sockets.SOL_SOCKET, SO_MAX_PACING_RATE, RATE.size)
                if got != RATE.pack(bytes_s):
                    return 0
            if len(info) == INFO_BYTES and _leaves_the_rate(socket):
                self._first = _sent(info)
                segment = socket.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_MAXSEG)
        return segment

    def add(self, size_bytes: int) -> None:
        """Count bytes that are written, or that libzmq gets to write."""
        self._queued += size_bytes

    def spread(self, more: int, within_ns: int) -> None:
        """Let what is queued, and ``more`` bytes that follow now, leave evenly within this time."""
        with suppress(OSError), _Borrowed(self.fd, self.inode) as socket:
            left = self._unsent(socket) + more
            self._limit(socket, max(left * NS_PER_S // within_ns, 1) if within_ns > 0 else None)
            if left > self._room:  # otherwise the owner's thread wakes up for each 20 kB
                self._room = left
                socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF, left)

    def burst(self) -> Burst:
        """What the kernel sends at once now. Pacing does not change it."""
        segments, rtt_us = BURST_SEGMENTS, 0
        with suppress(OSError), _Borrowed(self.fd, self.inode) as socket:
            info = socket.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_INFO, INFO_BYTES)
            (rtt_us,), (window,) = U32.unpack_from(info, RTT_AT), U32.unpack_from(info, WINDOW_AT)
            segments = max(window // 2, segments)
        return Burst(min(segments * self.segment, MOST_BURST_BYTES), 1000 * rtt_us)

    def unsent(self) -> int:
        """The bytes that have not left; 0: the connection is closed."""
        with suppress(OSError), _Borrowed(self.fd, self.inode) as socket:
            return self._unsent(socket)
        return 0

    def _unsent(self, socket: sockets.socket) -> int:
        info = socket.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_INFO, INFO_BYTES)
        # libzmq adds a few bytes of its own now and then
        self._first = max(self._first, _sent(info) - self._queued)
        return self._queued - (_sent(info) - self._first)

    def limit(self, bytes_s: int | None) -> None:
        """Send at this rate at most; None: as fast as the path allows."""
        if bytes_s is not None or self.limited:
            with suppress(OSError), _Borrowed(self.fd, self.inode) as socket:
                self._limit(socket, bytes_s)

    def _limit(self, socket: sockets.socket, bytes_s: int | None) -> None:
        self.limited = bytes_s is not None
        rate = RATE.pack(UNLIMITED if bytes_s is None else bytes_s)
        socket.setsockopt(sockets.SOL_SOCKET, SO_MAX_PACING_RATE, rate)


class _Borrowed:
    """A socket that others own. OSError if its descriptor has another use by now."""

    def __init__(self, fd: int, inode: int) -> None:
        if os.fstat(fd).st_ino != inode:
            raise OSError("closed")
        self.socket = sockets.socket(sockets.AF_INET, sockets.SOCK_STREAM, 0, fd)

    def __enter__(self) -> sockets.socket:
        return self.socket

    def __exit__(self, *error: object) -> None:
        self.socket.detach()


def _sent(info: bytes) -> int:
    sent, again = SENT.unpack_from(info, SENT_AT)
    return int(sent - again)


def _leaves_the_rate(socket: sockets.socket) -> bool:
    """Whether the congestion control leaves the rate to us; it is changed if it does not."""
    level, option = sockets.IPPROTO_TCP, sockets.TCP_CONGESTION
    for other in OTHERS:
        if not socket.getsockopt(level, option, 16).startswith(OWN_RATE):
            return True
        with suppress(OSError):
            socket.setsockopt(level, option, other)
    return not socket.getsockopt(level, option, 16).startswith(OWN_RATE)
