"""The two ZeroMQ sockets, non-blocking. They move frames and do not interpret them."""

from __future__ import annotations

import errno
import os
import select
import selectors
import socket as sockets
import time
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any, cast

import zmq
from zmq.utils.monitor import recv_monitor_message

from edgefl.clocks.network_addresses import needs_ipv6, split_tcp, tcp
from edgefl.clocks.wall.connections import NO_CONNECTION, Connection
from edgefl.clocks.wall.keys import (
    EdgeKeys,
    ServerKeys,
    edge_of,
    secure_edge,
    secure_server,
)
from edgefl.errors import UserError
from edgefl.protocol.messages import MAX_HEADER_BYTES, MAX_PIECE_BYTES
from emulator.kernel_pacing import PacedConnection

# Messages per peer. At the limit of received messages, TCP stops the peer. At the limit of messages
# to send, the peer does not read: its session ends. Credits and windows limit a transfer's bytes.
MOST_RECEIVED, MOST_TO_SEND = 1_000, 10_000
# TCP closes a connection whose other end is silent for 60 s (on Linux), so an outage of 30 s closes
# none. libzmq's own heartbeats would take half a core with 10,000 edges: it searches the timers of
# all connections for each message that answers one.
KEEPALIVE = {
    zmq.TCP_KEEPALIVE: 1,
    zmq.TCP_KEEPALIVE_IDLE: 30,
    zmq.TCP_KEEPALIVE_INTVL: 10,
    zmq.TCP_KEEPALIVE_CNT: 6,
    zmq.TCP_MAXRT: 60_000,  # ms, while something that was sent is not acknowledged
}
# Limit of the bytes of all headers received at a time. A body's byte takes 1/64 of the time of a
# header's byte.
MOST_HEADER_BYTES, HEADER_WEIGHT = 1 << 18, 64
MOST_FRAME_BYTES = max(MAX_HEADER_BYTES, MAX_PIECE_BYTES)
MOST_FRAMES = 2  # header and body; the routing id comes from libzmq
# for smaller bodies, sharing the memory costs more than a copy: a thread of pyzmq hears when it is
# free again
SHARED_BYTES, ZERO_COPY_BYTES = 1 << 12, 1 << 19
MOST_COPIED = 32  # bodies whose copies are kept
# plain ints: pyzmq's flags are slow to combine
NOW, NOW_MORE = (int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE))
EVENTS, POLLIN = int(zmq.EVENTS), int(zmq.POLLIN)
LOOK_S = 0.01
BACKLOG = 100  # libzmq's own
KEYS_REQUIRED = "it requires keys (--keys DIR)"
TURNED_AWAY: dict[int, str] = {
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: KEYS_REQUIRED,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: (
        "it does not know this key (allowed.json of its --keys DIR), or has excluded this edge"
    ),
}
KEYS_FOR_NOTHING = "it has no keys (omit --keys here, or start it with --keys)"
HUNG_UP = int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
ENDS = (HUNG_UP, int(zmq.EVENT_HANDSHAKE_SUCCEEDED), int(zmq.EVENT_DISCONNECTED))
CURVE_BYTES = 33  # what encryption adds to a frame (CurveZMQ, ZeroMQ RFC 26: command MESSAGE)
SHORT_FRAME, FRAME_BYTES = 255, (2, 9)  # ZMTP's flags and length


class Wire:
    """What both ends share: the socket's options, and waiting for it or another descriptor."""

    def __init__(self, context: zmq.Context, kind: int, keyed: bool) -> None:
        self.socket: zmq.Socket = context.socket(kind)
        self.socket.linger = 0
        self.socket.sndhwm, self.socket.rcvhwm = MOST_TO_SEND, MOST_RECEIVED
        self.socket.maxmsgsize = MOST_FRAME_BYTES + (CURVE_BYTES if keyed else 0)
        self.socket.copy_threshold = 0  # ``_send`` decides
        for option, value in KEEPALIVE.items():
            self.socket.setsockopt(option, value)
        self.fd: int = cast(int, self.socket.getsockopt(zmq.FD))
        # past a layer of pyzmq that looks at each call for options which are not used here
        self._send_frame = zmq.backend.Socket.send.__get__(self.socket)
        self._quiet = False  # the last wait ended without a message

    @property
    def readable(self) -> bool:
        return bool(int(self.socket.getsockopt(EVENTS)) & POLLIN)

    def wait(self, other_fd: int, timeout_s: float | None) -> bool:
        """Wait for a message, the other descriptor, or the timeout.

        Returns True if the other descriptor is readable.
        ZeroMQ's descriptor is edge-triggered, so EVENTS must be read before each wait. ``select``,
        because other waits end up to 1 ms late; both descriptors are among the process' first.
        """
        waits = not self.readable
        found = select.select([self.fd, other_fd], [], [], timeout_s if waits else 0)[0]
        self._quiet = waits and self.fd not in found
        return other_fd in found

    def _nothing(self) -> bool:
        """Whether there is no message for sure."""
        return self._quiet and not self.readable

    def _parts(self) -> list[zmq.Frame] | None:
        """The parts of the next message; None if there is none.

        ``recv_multipart`` takes three times as long, because it asks the socket for more parts.
        """
        try:
            part = self.socket.recv(NOW, copy=False)
        except zmq.Again:
            return None
        parts = [part]
        while part.more:
            part = self.socket.recv(NOW, copy=False)
            parts.append(part)
        return parts

    def _send(self, header: bytes, body: Any) -> None:
        if body is None:
            self._send_frame(header, NOW)
        else:
            self._send_frame(header, NOW_MORE)
            self._send_frame(body, NOW, type(body) is memoryview and len(body) < ZERO_COPY_BYTES)

    def close(self, linger_ms: int = 0) -> None:
        self.socket.close(linger=linger_ms)


class Router(Wire):
    """The coordinator's end.

    With ROUTER_MANDATORY ``send`` detects that a peer has disconnected. ROUTER_HANDOVER stays off:
    with it, one key could take over another key's session.
    """

    def __init__(self, context: zmq.Context, keys: ServerKeys | None) -> None:
        super().__init__(context, zmq.ROUTER, keys is not None)
        self.connections: dict[bytes, Connection] = {}  # by routing id
        self.by_fd: dict[int, Connection] = {}  # the latest with that descriptor
        self.full: dict[bytes, None] = {}  # peers that do not read (an ordered set)
        self.paced: dict[bytes, PacedConnection] = {}  # those that the kernel may pace
        # the latest bodies that were copied, and their copies: one model often goes to many edges
        self._copied: dict[int, tuple[Callable[[], Any] | None, zmq.Frame | None]] = {}
        self.socket.router_mandatory = True
        self.keyed = keys is not None
        if keys is not None:
            secure_server(self.socket, keys)

    def bind(self, host: str, port: int, segment: int | None = None) -> int:
        """Listen on ``port`` (0: any free port) and return it.

        ``segment``: the longest segments (bytes) of its connections, in both directions.
        UserError if the port is in use or the host is not an address of this machine.
        """
        self.socket.ipv6 = needs_ipv6(host)
        try:
            if segment is not None:
                self.socket.setsockopt(zmq.USE_FD, _listening(host, port, segment))
            self.socket.bind(tcp(host, port or "*"))
        except (OSError, zmq.ZMQError) as error:
            raise UserError(
                f"cannot listen on {host}:{port} (network.host, network.port): {error.strerror}"
            ) from error
        endpoint = cast(bytes, self.socket.getsockopt(zmq.LAST_ENDPOINT))
        return int(endpoint.decode().rpartition(":")[2])

    def send(self, routing: bytes, header: bytes, body: Any = None) -> bool:
        """Send a message to a peer. False if it was not sent.

        Either no peer has that routing id, or the peer's queue is full: then it is in ``full``.
        """
        if self.paced and routing in self.paced:
            self.paced[routing].add(message_bytes(header, body, self.keyed))
        try:
            self._send_frame(routing, NOW_MORE)
            if type(body) is memoryview and SHARED_BYTES <= len(body) < ZERO_COPY_BYTES:
                body = self._copy(body)
            self._send(header, body)
            return True
        except zmq.ZMQError as error:
            if error.errno == zmq.EAGAIN:
                self.full[routing] = None
            elif error.errno != errno.EHOSTUNREACH:
                raise
            return False

    def _copy(self, body: memoryview) -> zmq.Frame:
        """A frame with a copy of ``body``. Its messages share it without a thread of pyzmq."""
        of, frame = self._copied.pop(id(body), (None, None))
        if of is None or frame is None or of() is not body:
            of, frame = weakref.ref(body), zmq.Frame(body, copy=True)
        self._copied[id(body)] = (of, frame)  # the latest one last
        if len(self._copied) > MOST_COPIED:
            del self._copied[next(iter(self._copied))]
        return frame

    def receive(self, most: int) -> Iterator[tuple[bytes, str | None, list[zmq.Frame]]]:
        """Yield at most ``most`` waiting messages, and a limited number of bytes.

        An item is (routing id, edge of the key, frames). libzmq takes one message of each peer in
        turn.
        """
        taken = 0
        if self._nothing():
            return
        for _ in range(most):
            if taken > HEADER_WEIGHT * MOST_HEADER_BYTES:
                return
            parts = self._parts()
            if parts is None:
                return
            routing, (header, *others) = parts[0].bytes, parts[1:] or parts
            taken += HEADER_WEIGHT * len(header) + sum(map(len, others))
            connection = self.connections.get(routing)
            if connection is None:
                connection = self.connections[routing] = _connection(routing, parts[-1])
                self.by_fd[connection.fd] = connection
            connection.messages += 1
            yield routing, edge_of(parts[-1]) if self.keyed else None, parts[1:]

    def close(self, linger_ms: int = 0) -> None:
        """Close the socket, once all has left, but at the latest after ``linger_ms``.

        The kernel drops what it has not sent if the peer sends something meanwhile.
        """
        until_s = time.monotonic() + linger_ms / 1000
        for paced in self.paced.values():
            paced.limit(None)
            while paced.unsent() and time.monotonic() < until_s:
                time.sleep(LOOK_S)
        super().close(linger_ms)

    def pace(self, routing: bytes) -> int:
        """Prepare the connection of this peer for pacing by the kernel, see ``paced``.

        Returns the length of its segments (bytes); 0: the kernel cannot.
        """
        connection = self.connections.get(routing, NO_CONNECTION)
        paced = PacedConnection(connection.fd, connection.inode)
        if paced.segment:
            self.paced[routing] = paced
        return paced.segment

    def take_full(self) -> list[bytes]:
        """Return, and forget, the peers whose queue was full since the last call."""
        if not self.full:
            return []
        full, self.full = list(self.full), {}
        return full

    def greeted(self, routing: bytes) -> None:
        """Mark this peer as one that has begun a session."""
        if routing in self.connections:
            self.connections[routing].greeted = True

    def joined(self, routing: bytes) -> None:
        """Mark this peer as a joined edge."""
        if routing in self.connections:
            self.connections[routing].greeted = self.connections[routing].joined = True

    def cut(self, routing: bytes) -> None:
        """Close this peer's connection if it is open. libzmq deletes the peer's queue.

        The peer may connect again.
        """
        connection = self.connections.pop(routing, NO_CONNECTION)
        self.paced.pop(routing, None)
        with suppress(OSError):
            if os.fstat(connection.fd).st_ino == connection.inode:
                with sockets.socket(fileno=os.dup(connection.fd)) as socket:
                    socket.shutdown(sockets.SHUT_RDWR)

    def forget_others(self, routings: Collection[bytes]) -> None:
        """Forget all connections except those of these peers."""
        for routing in self.connections.keys() - routings:
            connection = self.connections.pop(routing)
            self.paced.pop(routing, None)
            if self.by_fd.get(connection.fd) is connection:
                del self.by_fd[connection.fd]


def message_bytes(header: bytes, body: Any, keyed: bool) -> int:
    """The bytes that libzmq writes for this message."""
    size = wire_bytes(len(header), keyed)
    return size if body is None else size + wire_bytes(len(body), keyed)


def wire_bytes(size: int, keyed: bool) -> int:
    """The bytes that a frame takes on its connection."""
    size += CURVE_BYTES * keyed
    return size + FRAME_BYTES[size > SHORT_FRAME]


def _listening(host: str, port: int, segment: int) -> int:
    """A descriptor that listens, as libzmq would make it, whose connections have such segments."""
    family = sockets.AF_INET6 if needs_ipv6(host) else sockets.AF_INET
    with sockets.socket(family, sockets.SOCK_STREAM) as socket:
        socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
        if family == sockets.AF_INET6:  # all of IPv4, too, as "::" promises
            socket.setsockopt(sockets.IPPROTO_IPV6, sockets.IPV6_V6ONLY, 0)
        socket.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_MAXSEG, segment)
        socket.bind((host, port))
        socket.listen(BACKLOG)
        socket.setblocking(False)
        return socket.detach()


def _connection(routing: bytes, frame: zmq.Frame) -> Connection:
    """The connection on which this frame arrived."""
    try:
        fd = int(frame.get(zmq.SRCFD))
        return Connection(routing, fd, os.fstat(fd).st_ino)
    except (OSError, zmq.ZMQError):  # already closed
        return Connection(routing, -1, 0)


class Dealer(Wire):
    """An edge's end. Each session has a new one, so that no old queued message reaches a new
    coordinator before the Hello.
    """

    def __init__(self, context: zmq.Context, keys: EdgeKeys | None, address: str) -> None:
        super().__init__(context, zmq.DEALER, keys is not None)
        self._keyed = keys is not None
        # connections that the other side accepted and then closed, counted by ``turned_away``
        self.hung_up = 0
        self._refusal: str | None = None
        self._accepted = self._cut_off = False
        self._header: zmq.Frame | None = None  # the latest that was received
        self._paced: PacedConnection | None = None
        self._monitor: zmq.Socket | None = self.socket.get_monitor_socket(
            sum(TURNED_AWAY) + sum(ENDS)
        )
        if keys is not None:
            secure_edge(self.socket, keys)
        where = split_tcp(address)
        self.socket.ipv6 = where is not None and needs_ipv6(where[0])
        try:
            self.socket.connect(address)
        except zmq.ZMQError as error:
            raise UserError(
                f"--connect {address}: expected tcp://HOST:PORT ({error.strerror})"
            ) from error

    def turned_away(self) -> str | None:
        """Why the coordinator refused the connection, if the keys are the reason; otherwise None.

        libzmq does not retry after such a refusal.
        """
        self._look()
        return self._refusal

    def cut_off(self) -> bool:
        """Whether a connection has closed that was accepted: what was sent on it may be lost.

        libzmq connects again, but it sends nothing twice.
        """
        self._look()
        return self._cut_off

    def _look(self) -> None:
        while self._monitor is not None and self._refusal is None and self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)["event"]
            self.hung_up += event == HUNG_UP
            self._cut_off |= event == zmq.EVENT_DISCONNECTED and self._accepted
            self._accepted = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL and self._keyed:
                self._refusal = KEYS_FOR_NOTHING
            else:
                self._refusal = TURNED_AWAY.get(event)

    def joined(self) -> None:
        """The session has joined. What happens to its connection is not watched any more.

        Without this, thousands of edges in one process would need three sockets each.
        """
        if self._monitor is not None:
            self.socket.disable_monitor()
            self._monitor.close(linger=0)  # otherwise the context would wait for it
            self._monitor = None

    def close(self, linger_ms: int = 0) -> None:
        self.joined()
        super().close(linger_ms)

    def send(self, header: bytes, body: Any = None) -> bool:
        """Queue a message; False: libzmq has given up the connection, and will make no other.

        It does so after an error in the protocol, such as a key that is not known any more.
        """
        if self._paced is not None:
            self._paced.add(message_bytes(header, body, self._keyed))
        try:
            self._send(header, body)
        except zmq.Again:
            return False
        return True

    def pace(self) -> PacedConnection | None:
        """Prepare the connection for pacing by the kernel; None: the kernel cannot."""
        if self._header is not None:
            connection = _connection(b"", self._header)
            paced = PacedConnection(connection.fd, connection.inode)
            self._paced = paced if paced.segment else None
        return self._paced

    def receive(self) -> Iterator[list[zmq.Frame]]:
        """Yield all waiting messages."""
        while self.readable:  # an exception for it costs more than this look
            if (parts := self._parts()) is not None:
                self._header = parts[0]
                yield parts


class Poller:
    """Waits for many dealers, and for a mailbox with the descriptor ``other_fd``.

    ZeroMQ's descriptors are edge-triggered: after each use of a dealer, EVENTS must be read before
    the next wait. So ``used`` must be called.
    """

    def __init__(self, other_fd: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._selector.register(other_fd, selectors.EVENT_READ)
        self._of: dict[Dealer, Any] = {}
        self._used: set[Dealer] = set()

    def add(self, dealer: Dealer, of: Any) -> None:
        """Wait for this dealer, too; ``wait`` returns ``of`` for it."""
        self._of[dealer] = of
        self._selector.register(dealer.fd, selectors.EVENT_READ, dealer)
        self._used.add(dealer)

    def remove(self, dealer: Dealer) -> None:
        """Do not wait for this dealer any more. Call it before its ``close``."""
        if self._of.pop(dealer, None) is not None:
            self._selector.unregister(dealer.fd)
            self._used.discard(dealer)

    def used(self, dealer: Dealer) -> None:
        """The dealer has received or sent."""
        if dealer in self._of:
            self._used.add(dealer)

    def wait(self, timeout_s: float) -> tuple[bool, list[Any]]:
        """Wait for a message, an item in the mailbox, or the timeout.

        Returns whether the mailbox may have an item, and for which dealers there may be a message.
        """
        ready = {dealer: self._of[dealer] for dealer in self._used if dealer.readable}
        self._used.clear()
        woken = False
        for key, _ in self._selector.select(0 if ready else max(timeout_s, 0)):
            if key.data is None:
                woken = True
            else:
                ready[key.data] = self._of[key.data]
        return woken, list(ready.values())

    def close(self) -> None:
        self._selector.close()
