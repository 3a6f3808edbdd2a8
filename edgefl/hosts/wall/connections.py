"""Watch the coordinator's TCP connections.

This finds connections that fail in the handshake, that never join, or that send a message
without an end.
"""

from __future__ import annotations

import socket as sockets
import struct
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Thread
from typing import Protocol

import zmq

from edgefl.hosts.wall.memory_growth import MemoryGrowth

LOOK_EVERY_MS = 20
# Each connection is looked at only when the process has grown by so much, or after so many turns
# in which it has not: an endless message makes it grow, and hundreds of idle connections do not.
GROWTH_BYTES, TURNS_WITHOUT_LOOK = 1 << 20, 10
# before it has joined, an honest edge sends only Hello and Join
BEFORE_JOINING_BYTES = 1 << 20
SPARE_BYTES = 1 << 23  # on top of the largest transfer, for which an edge may have credit
WRONG_HANDSHAKE, UNKNOWN_KEY = "wrong handshake", "unknown key"
BROKEN_OFF, HALF_OPEN = "broken off in the handshake", "half open at the end"
NEVER_JOINED, ENDLESS = "closed without joining", "endless message"
FAILED: dict[int, str] = {
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: WRONG_HANDSHAKE,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: UNKNOWN_KEY,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: BROKEN_OFF,
}
ACCEPTED, SUCCEEDED, DISCONNECTED = (
    int(zmq.EVENT_ACCEPTED),
    int(zmq.EVENT_HANDSHAKE_SUCCEEDED),
    int(zmq.EVENT_DISCONNECTED),
)
EVENT = struct.Struct("=Hi")  # an event of libzmq: its kind and its value
RECEIVED = struct.Struct("@Q")
RECEIVED_AT = 128  # tcpi_bytes_received in Linux' struct tcp_info


@dataclass(slots=True, eq=False)
class Connection:
    """A connection that has sent a whole message: its routing id, descriptor and inode.

    The inode tells apart two connections with the same descriptor number.
    """

    routing: bytes
    fd: int
    inode: int
    messages: int = 0
    joined: bool = False


NO_CONNECTION = Connection(b"", -1, 0)


@dataclass(slots=True, eq=False)
class Stream:
    """The bytes of a connection. ``base``: bytes received when its last message was processed."""

    socket: sockets.socket
    base: int = 0
    messages: int = 0


class Watched(Protocol):
    """A Router."""

    socket: zmq.Socket
    by_fd: dict[int, Connection]


class Watch(Thread):
    """Reads the events of the coordinator's socket and counts the bytes of each connection.

    libzmq delivers a message only when it has the last part. It limits the size of a part, but
    not the number of parts. So this thread closes the TCP connection of a peer that sends more
    bytes than one message may have. ``most_bytes``: of one transfer.
    """

    def __init__(
        self,
        router: Watched,
        most_bytes: int,
        endless: Callable[[int], None],
        at_start: Callable[[], object] = bool,
    ) -> None:
        super().__init__(name="connections", daemon=True)
        self.router, self.by_fd = router, router.by_fd
        self.most_bytes, self.endless = most_bytes, endless
        self.at_start = at_start  # called in this thread
        self.counts: Counter[str] = Counter()
        self._handshakes = 0  # under way
        self._failed = 0  # handshakes whose connection is not closed yet
        self._streams: dict[int, Stream] = {}
        self._growth = MemoryGrowth(GROWTH_BYTES)
        self._not_looked = 0  # turns since the last look
        self._over = Event()
        address = f"inproc://connections-{id(self)}"
        router.socket.monitor(address, ACCEPTED | SUCCEEDED | DISCONNECTED | sum(FAILED))
        self._events: zmq.Socket = router.socket.context.socket(zmq.PAIR)
        # no limit: at a limit, libzmq's own thread would wait for this thread
        self._events.rcvhwm = 0
        self._events.connect(address)

    def run(self) -> None:
        self.at_start()
        while not self._over.is_set():
            self._events.poll(LOOK_EVERY_MS)
            self.take()
            self._not_looked += 1
            if self._growth.grown() or self._not_looked >= TURNS_WITHOUT_LOOK:
                self._not_looked = 0
                self.look()
                self._growth.forget()
        self._growth.close()
        for fd in list(self._streams):
            self._forget(fd)
        self._events.close(linger=0)

    def stop(self) -> dict[str, int]:
        """End the thread. Returns how many connections there were, and counts by kind of fault."""
        self.router.socket.disable_monitor()  # before the reader ends, or libzmq would wait
        self._over.set()
        self.join()
        if self._handshakes > 0:
            self.counts[HALF_OPEN] = self._handshakes
        return dict(sorted(self.counts.items()))

    def take(self) -> None:
        """Process all waiting events."""
        with suppress(zmq.Again):
            while True:
                event, value = EVENT.unpack_from(self._events.recv_multipart(zmq.NOBLOCK)[0])
                self._happened(event, value)

    def _happened(self, event: int, value: int) -> None:
        if event == ACCEPTED:
            self.counts["connections"] += 1
            self._handshakes += 1
            self._forget(value)
            with suppress(OSError):  # already closed
                self._streams[value] = Stream(
                    sockets.socket(sockets.AF_INET, sockets.SOCK_STREAM, fileno=value)
                )
        elif event == SUCCEEDED:
            self._handshakes -= 1
        elif event in FAILED:
            self._handshakes -= 1
            self._failed += 1
            self.counts[FAILED[event]] += 1
        elif event == DISCONNECTED:
            self._forget(value)
            if self._failed:
                self._failed -= 1
            elif not self.by_fd.get(value, NO_CONNECTION).joined:
                self.counts[NEVER_JOINED] += 1

    def look(self) -> None:
        """Close each connection that has sent too many bytes without ending its message."""
        for fd, stream in self._streams.items():
            connection = self.by_fd.get(fd, NO_CONNECTION)
            most = SPARE_BYTES + self.most_bytes if connection.joined else BEFORE_JOINING_BYTES
            with suppress(OSError):  # already closed
                received = _received(stream.socket)
                if connection.messages != stream.messages:
                    stream.base, stream.messages = received, connection.messages
                elif received - stream.base > most:
                    stream.base = received
                    stream.socket.shutdown(sockets.SHUT_RDWR)
                    self.counts[ENDLESS] += 1
                    self.endless(fd)

    def _forget(self, fd: int) -> None:
        """Forget a connection. libzmq owns its descriptor and closes it."""
        stream = self._streams.pop(fd, None)
        if stream is not None:
            stream.socket.detach()


def _received(socket: sockets.socket) -> int:
    """All bytes received on this connection so far."""
    info = socket.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_INFO, RECEIVED_AT + RECEIVED.size)
    return int(RECEIVED.unpack_from(info, RECEIVED_AT)[0])
