"""Watch the coordinator's TCP connections, and close those that take what is not theirs.

Before an edge has joined, its connection may send 16 KiB in all, and it must begin a session soon.
Only a limited number of connections may have none. So strangers cost little memory and few open
files. After it has joined, a connection may not send a message without an end.
"""

from __future__ import annotations

import errno
import os
import select
import socket as sockets
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from mmap import PAGESIZE
from threading import Event, Thread
from typing import Protocol

import zmq

STATM = "/proc/self/statm"
LOOK_EVERY_S = 0.02
# Each connection with a session is looked at only when the process has grown by so much, or after
# so many looks at the others in which it has not: an endless message makes it grow, and hundreds of
# idle connections do not. Both are of a hundred connections, and grow with their number: a look at
# 10,000 takes 50 ms.
GROWTH_BYTES, TURNS_WITHOUT_LOOK = 1 << 20, 10
CONNECTIONS_PER_LOOK = 100
# Before it has joined, an honest edge sends only a handshake, Hello and Join: less than 4 KiB.
BEFORE_JOINING_BYTES = 1 << 14
TO_GREET_S = 10.0  # from the connection to the Hello; a session has its own time to join
# Connections without a session, besides one of each edge. One takes up to 100 kB, and libzmq needs
# as much again for those that it is closing: 64 grew the process by 50 MB under 4,000 new
# connections a second, 32 by 30 MB.
MOST_STRANGERS = 32
# Connections that libzmq may accept before this thread closes others: its queue of new ones is 100.
BURST = 110
SPARE_BYTES = 1 << 23  # on top of the largest transfer, for which an edge may have credit
WRONG_HANDSHAKE, UNKNOWN_KEY = "wrong handshake", "unknown key"
BROKEN_OFF, HALF_OPEN = "broken off in the handshake", "half open at the end"
NEVER_JOINED, ENDLESS = "closed without joining", "endless message"
# closed by ``Watch``
TOO_LONG, TOO_MUCH = "too long without a session", "too many bytes before joining"
TOO_MANY, NO_FILES = "too many connections without a session", "no open files left"
UNENDING = "a message without an end"  # why an edge is quarantined
FAILED: dict[int, str] = {
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: WRONG_HANDSHAKE,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: UNKNOWN_KEY,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: BROKEN_OFF,
}
ACCEPTED, ACCEPT_FAILED, SUCCEEDED, DISCONNECTED = (
    int(zmq.EVENT_ACCEPTED),
    int(zmq.EVENT_ACCEPT_FAILED),
    int(zmq.EVENT_HANDSHAKE_SUCCEEDED),
    int(zmq.EVENT_DISCONNECTED),
)
EVENT = struct.Struct("=Hi")  # an event of libzmq: its kind and its value
RECEIVED = struct.Struct("@Q")
RECEIVED_AT = 128  # tcpi_bytes_received in Linux' struct tcp_info
INFO_BYTES = RECEIVED_AT + RECEIVED.size
# Without a reset, a peer whose window is closed learns of the end after up to 102 s: Linux keeps
# the connection for 60 s, and the peer doubles the pauses between its probes, from 0.2 s on.
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: the close sends it
IPV4_MAPPED = bytes(10) + b"\xff\xff"
MOST_EVENTS = 1_000  # processed before the connections are looked at


class MemoryGrowth:
    """Compares the resident memory with the least one since ``forget``."""

    def __init__(self) -> None:
        self._fd = -1
        with suppress(OSError):  # not Linux: it always counts as grown
            self._fd = os.open(STATM, os.O_RDONLY | os.O_CLOEXEC)
        self._lowest = self._pages()

    def grown(self, least_bytes: float) -> bool:
        """Whether the process holds ``least_bytes`` more than at its lowest."""
        pages = self._pages()
        self._lowest = min(self._lowest, pages)
        return self._fd < 0 or (pages - self._lowest) * PAGESIZE >= least_bytes

    def forget(self) -> None:
        """Compare with the present memory from now on."""
        self._lowest = self._pages()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _pages(self) -> int:
        return int(os.pread(self._fd, 64, 0).split()[1]) if self._fd >= 0 else 0


@dataclass(slots=True, eq=False)
class Connection:
    """A connection that has sent a whole message: its routing id, descriptor and inode.

    The inode tells apart two connections with the same descriptor number. ``greeted``: it has begun
    a session, perhaps an earlier one. ``joined``: as an edge.
    """

    routing: bytes
    fd: int
    inode: int
    messages: int = 0
    greeted: bool = False
    joined: bool = False


NO_CONNECTION = Connection(b"", -1, 0)


@dataclass(slots=True, eq=False)
class Stream:
    """The bytes of a connection from ``address``. ``base``: received when its last message was
    processed; before it has joined, 0. ``closed``: this class has closed it.
    """

    socket: sockets.socket
    inode: int
    since_s: float
    address: bytes
    base: int = 0
    messages: int = 0
    closed: bool = False

    def received(self) -> int:
        """All bytes that the system has received on this connection so far; 0: it is closed."""
        try:
            info = self.socket.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_INFO, INFO_BYTES)
        except OSError:
            return 0
        return int(RECEIVED.unpack_from(info, RECEIVED_AT)[0])


class Watched(Protocol):
    """A Router."""

    socket: zmq.Socket
    by_fd: dict[int, Connection]


class Watch(Thread):
    """Reads the events of the coordinator's socket and counts the bytes of each connection.

    libzmq allocates a whole message when its first byte arrives, before any key is checked, and
    delivers a message only when it has the last part. It limits the size of a part, but not the
    number of parts. So this thread closes the TCP connection of a peer that sends more bytes than
    it may. ``most_bytes``: of one transfer. ``most_strangers``: connections without a session.
    ``most``: all connections. Above a limit, it closes the oldest one without a session of the
    address that has most of them.

    ``greedy(routing, reason)``: called for a peer with a session whose connection it has closed.
    ``stranger(reason)``: called at the first connection without a session that it closes for this
    reason.
    """

    def __init__(
        self,
        router: Watched,
        most_bytes: int,
        greedy: Callable[[bytes, str], None],
        stranger: Callable[[str], None],
        most_strangers: int = MOST_STRANGERS,
        most: int = sys.maxsize,
        at_start: Callable[[], object] = bool,
    ) -> None:
        super().__init__(name="connections", daemon=True)
        self.router, self.by_fd = router, router.by_fd
        self.most_bytes, self.most_strangers, self.most = most_bytes, most_strangers, most
        self.greedy, self.stranger = greedy, stranger
        self.at_start = at_start  # called in this thread
        self.counts: Counter[str] = Counter()
        self._handshakes = 0  # under way
        self._failed = 0  # handshakes whose connection is not closed yet
        self._broken_off = False  # the latest event was a handshake that ended with its connection
        self._streams: dict[int, Stream] = {}
        self._strangers: dict[int, Stream] = {}  # those without a session, oldest first
        self._from: Counter[bytes] = Counter()  # how many of them, by address
        self._growth = MemoryGrowth()
        self._not_looked = 0  # turns since the last look
        self._over = Event()
        address = f"inproc://connections-{id(self)}"
        wanted = ACCEPTED | ACCEPT_FAILED | SUCCEEDED | DISCONNECTED | sum(FAILED)
        router.socket.monitor(address, wanted)
        self._events: zmq.Socket = router.socket.context.socket(zmq.PAIR)
        # no limit: at a limit, libzmq's own thread would wait for this thread
        self._events.rcvhwm = 0
        self._events.connect(address)
        # It wakes up when a connection without a session has sent something: at 1 GB/s, strangers
        # would send 20 MB between two looks.
        self._poll = select.epoll()
        self._poll.register(self._events.getsockopt(zmq.FD), select.EPOLLIN)

    def run(self) -> None:
        self.at_start()
        looked_s, more = time.monotonic(), True
        events = self._events.getsockopt(zmq.FD)
        while not self._over.is_set():
            for fd, _ in self._poll.poll(0.0 if more else LOOK_EVERY_S):
                if fd in self._strangers:
                    self._look_at_stranger(fd)
                more |= fd == events
            more = more and self.take()
            if time.monotonic() - looked_s < LOOK_EVERY_S:
                continue
            looked_s = time.monotonic()
            self.look_at_strangers()
            self._not_looked += 1
            many = max(len(self._streams) / CONNECTIONS_PER_LOOK, 1)
            if (
                self._growth.grown(many * GROWTH_BYTES)
                or self._not_looked >= many * TURNS_WITHOUT_LOOK
            ):
                self._not_looked = 0
                self.look()
                self._growth.forget()
        self._growth.close()
        for fd in list(self._streams):
            self._forget(fd)
        self._poll.close()
        self._events.close(linger=0)

    def stop(self) -> dict[str, int]:
        """End the thread. Returns how many connections there were, and counts by kind of fault."""
        self.router.socket.disable_monitor()  # before the reader ends, or libzmq would wait
        self._over.set()
        self.join()
        if self._handshakes > 0:
            self.counts[HALF_OPEN] = self._handshakes
        return dict(sorted(self.counts.items()))

    def take(self) -> bool:
        """Process waiting events. Returns whether there may be more."""
        for _ in range(MOST_EVENTS):
            try:
                event, value = EVENT.unpack_from(self._events.recv_multipart(zmq.NOBLOCK)[0])
            except zmq.Again:
                return False
            self._happened(event, value)
        return True

    def _happened(self, event: int, value: int) -> None:
        if event == ACCEPTED:
            self._accepted(value)
        elif event == ACCEPT_FAILED:
            if value in (errno.EMFILE, errno.ENFILE):  # libzmq would try again and again
                for fd in list(self._strangers):
                    self._close_stranger(fd, NO_FILES)
        elif event == SUCCEEDED:
            self._handshakes -= 1
        elif event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
            self._handshakes -= 1
            self._broken_off = True
        elif event in FAILED:
            self._handshakes -= 1
            self._failed += 1
            self.counts[FAILED[event]] += 1
        elif event == DISCONNECTED:
            self._disconnected(value)

    def _accepted(self, fd: int) -> None:
        self.counts["connections"] += 1
        self._handshakes += 1
        self._forget(fd)
        with suppress(OSError):  # already closed
            inode, socket = os.fstat(fd).st_ino, sockets.socket(fileno=fd)
            stream = Stream(socket, inode, time.monotonic(), b"")
            self._streams[fd] = self._strangers[fd] = stream
            self._poll.register(fd, select.EPOLLIN | select.EPOLLET)
            stream.address = _address(socket)
        if fd in self._strangers:
            self._from[self._strangers[fd].address] += 1
        if self._crowded():
            for each in [each for each in self._strangers if self._connection(each).greeted]:
                self._no_stranger(each)
        if self._crowded():
            self._make_room()

    def _crowded(self) -> bool:
        return len(self._strangers) > self.most_strangers or len(self._streams) > self.most

    def _make_room(self) -> None:
        """Close the oldest connection without a session of the address that has most of them.

        So edges at other addresses are not crowded out. Without a crowd, it is the oldest of all.
        """
        most = max(self._from.values(), default=0)
        for fd, stream in self._strangers.items():
            if self._from[stream.address] == most:
                self._close_stranger(fd, TOO_MANY)
                return

    def _disconnected(self, fd: int) -> None:
        broken_off, self._broken_off = self._broken_off, False
        stream, joined = self._streams.get(fd), self._connection(fd).joined
        self._forget(fd)
        if stream is not None and stream.closed:
            return  # it was counted
        if broken_off:
            self.counts[BROKEN_OFF] += 1
        elif self._failed:
            self._failed -= 1
        elif not joined:
            self.counts[NEVER_JOINED] += 1

    def _connection(self, fd: int) -> Connection:
        """What the Router knows about the connection that has this descriptor now."""
        stream, connection = self._streams.get(fd), self.by_fd.get(fd, NO_CONNECTION)
        same = stream is not None and stream.inode == connection.inode
        return connection if same else NO_CONNECTION

    # ------------------------------------------------------------------ looking
    def look_at_strangers(self) -> None:
        """Close each connection without a session that is too old or has sent too much."""
        now_s = time.monotonic()
        for fd, stream in list(self._strangers.items()):
            if now_s - stream.since_s > TO_GREET_S and not self._connection(fd).greeted:
                self._close_stranger(fd, TOO_LONG)
            else:
                self._look_at_stranger(fd)

    def _look_at_stranger(self, fd: int) -> None:
        if self._connection(fd).greeted:
            self._no_stranger(fd)
        elif self._strangers[fd].received() > BEFORE_JOINING_BYTES:
            self._close_stranger(fd, TOO_MUCH)

    def look(self) -> None:
        """Close each other connection that has sent too much without joining or in one message."""
        for fd, stream in self._streams.items():
            if fd in self._strangers or stream.closed:
                continue
            connection, received = self._connection(fd), stream.received()
            if not connection.joined:
                if received > BEFORE_JOINING_BYTES:
                    self._close(stream, TOO_MUCH)
                    if connection is not NO_CONNECTION:  # its session has ended
                        self.greedy(connection.routing, TOO_MUCH)
            elif connection.messages != stream.messages:
                stream.base, stream.messages = received, connection.messages
            elif received - stream.base > SPARE_BYTES + self.most_bytes:
                self._close(stream, ENDLESS)
                self.greedy(connection.routing, UNENDING)

    def _close_stranger(self, fd: int, reason: str) -> None:
        self._close(self._strangers[fd], reason)
        self._no_stranger(fd)
        if self.counts[reason] == 1:
            self.stranger(reason)

    def _close(self, stream: Stream, reason: str) -> None:
        """Close the TCP connection; libzmq then closes its descriptor."""
        self.counts[reason] += 1
        stream.closed = True
        with suppress(OSError):  # already closed; the descriptor may have another use by now
            if os.fstat(stream.socket.fileno()).st_ino == stream.inode:
                stream.socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_LINGER, RESET)
                stream.socket.shutdown(sockets.SHUT_RDWR)

    def _no_stranger(self, fd: int) -> None:
        stream = self._strangers.pop(fd, None)
        if stream is not None:
            with suppress(OSError):  # already closed
                self._poll.unregister(fd)
            self._from[stream.address] -= 1
            if not self._from[stream.address]:
                del self._from[stream.address]

    def _forget(self, fd: int) -> None:
        """Forget a connection. libzmq owns its descriptor and closes it."""
        self._no_stranger(fd)
        stream = self._streams.pop(fd, None)
        if stream is not None:
            stream.socket.detach()


def _address(socket: sockets.socket) -> bytes:
    """The address of the other end.

    Of an IPv6 address only the first 64 bits: one user often has all addresses below them.
    """
    host = socket.getpeername()[0].partition("%")[0]
    if ":" not in host:
        return sockets.inet_pton(sockets.AF_INET, host)
    packed = sockets.inet_pton(sockets.AF_INET6, host)
    return packed if packed.startswith(IPV4_MAPPED) else packed[:8]
