"""The two ZeroMQ sockets, non-blocking. They move frames and do not interpret them."""

from __future__ import annotations

import errno
import os
import resource
import select
import socket as sockets
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any, cast

import zmq
from zmq.utils.monitor import recv_monitor_message

from edgefl.errors import UserError
from edgefl.hosts.wall.keys import (
    EdgeKeys,
    ServerKeys,
    edge_of,
    secure_edge,
    secure_server,
)
from edgefl.protocol.messages import MAX_HEADER_BYTES, MAX_PIECE_BYTES

MOST_QUEUED = 20_000
MOST_FRAMES = 2  # header and body; the routing id comes from libzmq
ZERO_COPY_BYTES = 1 << 18  # below, handing the memory over costs more than copying it
# plain ints: pyzmq's flags are slow to combine
NOW, NOW_MORE = (int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE))
EVENTS, POLLIN = int(zmq.EVENTS), int(zmq.POLLIN)
TURNED_AWAY: dict[int, str] = {
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "it wants keys (--keys DIR)",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: (
        "it does not know this key (allowed.json of its --keys DIR), or has shut this edge out"
    ),
}
KEYS_FOR_NOTHING = "it has no keys (leave --keys out, or give it some)"
HUNG_UP = int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
NO_CONNECTION = (-1, 0)
FILES_PER_EDGE, FILES_SPARE = 1, 64


class Wire:
    """What both ends share: waiting for the socket or another descriptor."""

    def __init__(self, context: zmq.Context, kind: int) -> None:
        self.socket: zmq.Socket = context.socket(kind)
        self.socket.linger = 0
        self.socket.sndhwm = 0  # no limit: credits and windows bound the bytes
        self.socket.rcvhwm = MOST_QUEUED  # per peer: TCP stops one that sends too many small frames
        self.socket.maxmsgsize = max(MAX_HEADER_BYTES, MAX_PIECE_BYTES)
        self.socket.copy_threshold = 0  # ``_send`` decides
        self._fd = self.socket.getsockopt(zmq.FD)

    @property
    def readable(self) -> bool:
        return bool(int(self.socket.getsockopt(EVENTS)) & POLLIN)

    def wait(self, other_fd: int, timeout_s: float | None) -> bool:
        """Wait for a message, the other descriptor, or the time-out; True if the other descriptor
        is readable.

        ZeroMQ's descriptor is edge-triggered, so EVENTS must be read before each wait.
        """
        return (
            other_fd
            in select.select([self._fd, other_fd], [], [], 0 if self.readable else timeout_s)[0]
        )

    def _parts(self) -> list[zmq.Frame] | None:
        try:
            return self.socket.recv_multipart(NOW, copy=False)
        except zmq.Again:
            return None

    def _send(self, header: bytes, body: Any) -> None:
        if body is None:
            self.socket.send(header, NOW)
        else:
            self.socket.send(header, NOW_MORE)
            self.socket.send(body, NOW, copy=len(body) < ZERO_COPY_BYTES)

    def close(self, linger_ms: int = 0) -> None:
        self.socket.close(linger=linger_ms)


class Router(Wire):
    """The coordinator's end. With ROUTER_MANDATORY ``send`` knows that a peer is gone. Handover
    stays off, or one key could take over another's session.
    """

    def __init__(self, context: zmq.Context, keys: ServerKeys | None) -> None:
        super().__init__(context, zmq.ROUTER)
        # routing id -> (descriptor of its connection, inode: descriptors are used again)
        self._connections: dict[bytes, tuple[int, int]] = {}
        self.socket.router_mandatory = True
        self.keyed = keys is not None
        if keys is not None:
            secure_server(self.socket, keys)

    def bind(self, host: str, port: int) -> int:
        """Listen on ``port`` (0: any free one) and return it. UserError if the port is in use or
        the host is not an address of this machine.
        """
        try:
            self.socket.bind(f"tcp://{host}:{port or '*'}")
        except zmq.ZMQError as error:
            raise UserError(
                f"cannot listen on {host}:{port} (network.host, network.port): {error.strerror}"
            ) from error
        endpoint = cast(bytes, self.socket.getsockopt(zmq.LAST_ENDPOINT))
        return int(endpoint.decode().rpartition(":")[2])

    def send(self, routing: bytes, header: bytes, body: Any = None) -> bool:
        """False if no peer has that routing id."""
        try:
            self.socket.send(routing, NOW_MORE)
            self._send(header, body)
            return True
        except zmq.ZMQError as error:
            if error.errno in (errno.EHOSTUNREACH, zmq.EAGAIN):
                return False
            raise

    def receive(self, most: int) -> Iterator[tuple[bytes, str | None, list[zmq.Frame]]]:
        """At most ``most`` waiting messages: (routing id, key's edge, frames)."""
        for _ in range(most):
            parts = self._parts()
            if parts is None:
                return
            routing = parts[0].bytes
            if routing not in self._connections:
                self._connections[routing] = _connection(parts[-1])
            yield routing, edge_of(parts[-1]) if self.keyed else None, parts[1:]

    def cut(self, routing: bytes) -> None:
        """Close this peer's connection, if it is still there; libzmq forgets what it queued for
        it. A peer may connect again.
        """
        fd, inode = self._connections.pop(routing, NO_CONNECTION)
        with suppress(OSError):
            if os.fstat(fd).st_ino == inode:
                with sockets.socket(fileno=os.dup(fd)) as connection:
                    connection.shutdown(sockets.SHUT_RDWR)

    def forget_others(self, routings: Collection[bytes]) -> None:
        """Keep in mind only these peers' connections."""
        for routing in self._connections.keys() - routings:
            del self._connections[routing]


def _connection(frame: zmq.Frame) -> tuple[int, int]:
    """The descriptor over which this frame came, with its inode."""
    try:
        fd = int(frame.get(zmq.SRCFD))
        return fd, os.fstat(fd).st_ino
    except (OSError, zmq.ZMQError):  # it is closed already
        return NO_CONNECTION


class Dealer(Wire):
    """An edge's end. Each session has a new one: old queues must not reach a new coordinator
    before the Hello.
    """

    def __init__(self, context: zmq.Context, keys: EdgeKeys | None, address: str) -> None:
        super().__init__(context, zmq.DEALER)
        self._keyed = keys is not None
        # connections that the other side accepted and dropped, as far as ``turned_away`` knows
        self.hung_up = 0
        self._monitor = self.socket.get_monitor_socket(sum(TURNED_AWAY) + HUNG_UP)
        if keys is not None:
            secure_edge(self.socket, keys)
        try:
            self.socket.connect(address)
        except zmq.ZMQError as error:
            raise UserError(
                f"--connect {address}: expected tcp://HOST:PORT ({error.strerror})"
            ) from error

    def turned_away(self) -> str | None:
        """Why there is no connection, if the reason is the keys. libzmq does not retry after
        that.
        """
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)["event"]
            self.hung_up += event == HUNG_UP
            if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL and self._keyed:
                return KEYS_FOR_NOTHING
            if event in TURNED_AWAY:
                return TURNED_AWAY[event]
        return None

    def close(self, linger_ms: int = 0) -> None:
        self.socket.disable_monitor()
        self._monitor.close(linger=0)  # or the context would wait for it
        super().close(linger_ms)

    def send(self, header: bytes, body: Any = None) -> None:
        self._send(header, body)

    def receive(self) -> Iterator[list[zmq.Frame]]:
        """All waiting messages."""
        while (parts := self._parts()) is not None:
            yield parts


def room_for_edges(edges: int) -> int:
    """Raise the limit of open files as far as allowed, and return how many are left beyond what
    ``edges`` need. UserError if there are too few: at the limit libzmq would spin.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    left = hard - edges * FILES_PER_EDGE - FILES_SPARE
    if left < 0:
        raise UserError(
            f"{edges} edges need {edges * FILES_PER_EDGE + FILES_SPARE} open files, this system"
            f" allows {hard} (ulimit -n)"
        )
    return left
