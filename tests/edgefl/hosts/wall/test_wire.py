"""The coordinator's socket: closing a peer's connection, and how much it receives at a time."""

from __future__ import annotations

import socket as sockets
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import zmq

from edgefl.hosts.wall import keys, wire
from edgefl.hosts.wall.connections import (
    BROKEN_OFF,
    ENDLESS,
    HALF_OPEN,
    NEVER_JOINED,
    UNKNOWN_KEY,
    WRONG_HANDSHAKE,
    Watch,
)
from edgefl.hosts.wall.mailbox import Mailbox
from edgefl.hosts.wall.wire import MOST_HEADER_BYTES, Dealer, Router

pytestmark = pytest.mark.processes

PATIENCE_MS = 5_000


@pytest.fixture
def context() -> Iterator[zmq.Context]:
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


class Wired:
    """A Router and connected peers."""

    def __init__(self, context: zmq.Context) -> None:
        self.context = context
        self.router = Router(context, None)
        self.port = self.router.bind("127.0.0.1", 0)

    def peer(self, port: int | None = None) -> zmq.Socket:
        """A peer that does not connect again after its connection is closed."""
        socket: zmq.Socket = self.context.socket(zmq.DEALER)
        socket.setsockopt(zmq.RECONNECT_IVL, -1)
        socket.connect(f"tcp://127.0.0.1:{port or self.port}")
        return socket

    def heard(self, most: int = 1) -> list[tuple[bytes, list[bytes]]]:
        """The next messages: (routing id, frames)."""
        assert self.router.socket.poll(PATIENCE_MS)
        return [
            (routing, [frame.bytes for frame in frames])
            for routing, _, frames in self.router.receive(most)
        ]

    def routing(self, peer: zmq.Socket) -> bytes:
        peer.send(b"hello")
        ((routing, _),) = self.heard()
        return routing


def gone(wired: Wired, routing: bytes) -> bool:
    for _ in range(500):
        if not wired.router.send(routing, b"are you there"):
            return True
        wired.router.socket.poll(10)
    return False


def test_a_peer_that_is_cut_is_gone_and_the_others_stay(context: zmq.Context) -> None:
    wired = Wired(context)
    culprit, other = wired.peer(), wired.peer()
    bad, good = wired.routing(culprit), wired.routing(other)
    wired.router.cut(bad)
    assert gone(wired, bad)
    wired.router.cut(bad)  # a second cut does no harm
    other.send(b"still here")
    assert wired.heard() == [(good, [b"still here"])]
    assert wired.router.send(good, b"so am I")
    assert other.poll(PATIENCE_MS) and other.recv() == b"so am I"


def test_a_descriptor_that_is_used_again_is_not_cut(context: zmq.Context) -> None:
    wired = Wired(context)
    first = wired.peer()
    old = wired.routing(first)
    fd = wired.router.connections[old].fd
    first.close(linger=0)
    assert gone(wired, old)
    second = wired.peer()
    new = wired.routing(second)
    assert wired.router.connections[new].fd == fd, "the system gives the lowest one that is free"
    wired.router.cut(old)
    second.send(b"still here")
    assert wired.heard() == [(new, [b"still here"])]


def test_only_living_connections_are_kept_in_mind(context: zmq.Context) -> None:
    wired = Wired(context)
    peers = [wired.peer() for _ in range(5)]
    routings = [wired.routing(peer) for peer in peers]
    wired.router.forget_others({routings[2], b"unknown"})
    assert list(wired.router.connections) == [routings[2]]
    assert list(wired.router.by_fd.values()) == list(wired.router.connections.values())
    wired.router.cut(routings[0])  # no longer known
    assert wired.router.send(routings[0], b"hello")


# ------------------------------------------------------------------ bounds
def test_a_turn_takes_in_a_limited_number_of_bytes(context: zmq.Context) -> None:
    wired = Wired(context)
    peer = wired.peer()
    for _ in range(20):
        peer.send(bytes(MOST_HEADER_BYTES // 4))
    taken = []
    while sum(taken) < 20:
        taken.append(len(wired.heard(most=100)))
    assert max(taken) <= 5


def test_a_peer_that_floods_does_not_keep_the_others_waiting(context: zmq.Context) -> None:
    """libzmq takes one message of each peer in turn, so each turn receives from all of them."""
    wired = Wired(context)
    flood, other = wired.peer(), wired.peer()
    bad, good = wired.routing(flood), wired.routing(other)
    for _ in range(50):
        flood.send(bytes(MOST_HEADER_BYTES // 4))
    wired.router.socket.poll(PATIENCE_MS)
    other.send(b"still here")
    time.sleep(0.1)
    assert good in [routing for routing, _ in wired.heard(most=100)] and bad != good


def test_a_peer_that_does_not_read_is_named_and_holds_up_nobody(
    context: zmq.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MOST_TO_SEND", 10)
    wired = Wired(context)
    deaf, other = wired.peer(), wired.peer()
    deaf.rcvhwm = 1
    bad, good = wired.routing(deaf), wired.routing(other)
    piece, sent = bytes(1 << 20), 0
    while wired.router.send(bad, b"piece", piece):
        sent += 1
        assert sent < 1_000
    assert wired.router.take_full() == [bad] and wired.router.take_full() == []
    assert wired.router.send(good, b"still here") and other.poll(PATIENCE_MS)
    wired.router.cut(bad)
    assert gone(wired, bad)


class Relay:
    """A path between peers and a port that can fall silent without closing a connection."""

    def __init__(self, port: int) -> None:
        self.port, self.silent = port, threading.Event()
        self.server = sockets.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self.server.accept()
                there = sockets.create_connection(("127.0.0.1", self.port))
                for pair in ((here, there), (there, here)):
                    threading.Thread(target=self._copy, args=pair, daemon=True).start()

    def _copy(self, source: sockets.socket, sink: sockets.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                while self.silent.is_set():
                    time.sleep(0.01)
                sink.sendall(data)
        sink.close()


@pytest.mark.alone
def test_a_path_that_falls_silent_costs_no_connection_until_it_is_dead(
    context: zmq.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like 15 s and 60 s, but 50 times as fast: a silence of 0.5 s stands for 25 s."""
    assert wire.SILENCE_S > 30 + wire.HEARTBEAT_S
    monkeypatch.setattr(wire, "HEARTBEAT_S", 0.3)
    monkeypatch.setattr(wire, "SILENCE_S", 1.2)
    wired = Wired(context)
    relay = Relay(wired.port)
    peer = wired.peer(relay.server.getsockname()[1])
    routing = wired.routing(peer)
    relay.silent.set()
    peer.send(b"on the way")
    time.sleep(0.5)
    relay.silent.clear()
    assert wired.heard() == [(routing, [b"on the way"])]
    assert wired.router.send(routing, b"same connection") and peer.poll(PATIENCE_MS)
    relay.silent.set()
    assert gone(wired, routing)
    relay.server.close()


def test_a_wait_that_finds_nothing_hides_no_later_message(context: zmq.Context) -> None:
    wired = Wired(context)
    peer = wired.peer()
    routing = wired.routing(peer)
    mailbox = Mailbox()
    assert not wired.router.wait(mailbox.fd, 0.0)
    assert list(wired.router.receive(1)) == []
    peer.send(b"late")
    assert wired.heard() == [(routing, [b"late"])]  # without another wait
    mailbox.put(1)
    assert wired.router.wait(mailbox.fd, 0.0) and list(wired.router.receive(1)) == []


# ------------------------------------------------------------------ strangers
class Watched(Wired):
    """A Router with watched connections."""

    def __init__(self, context: zmq.Context) -> None:
        super().__init__(context)
        self.endless: list[int] = []
        self.watch = Watch(self.router, 1 << 20, self.endless.append)
        self.watch.start()

    def until(self, kind: str, number: int = 1) -> None:
        for _ in range(500):
            if self.watch.counts[kind] >= number:
                return
            time.sleep(0.01)
        raise AssertionError(f"{kind}: {self.watch.counts}")

    def end(self) -> dict[str, int]:
        self.router.socket.disable_monitor()
        return self.watch.stop()


def test_strangers_are_counted_by_what_they_did(context: zmq.Context) -> None:
    wired = Watched(context)
    friend = wired.peer()
    wired.router.joined(wired.routing(friend))
    for first in (b"", b"GET / HTTP/1.1\r\n\r\n" * 10, b"\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL"):
        with sockets.create_connection(("127.0.0.1", wired.port)) as stranger:
            stranger.sendall(first)
            stranger.settimeout(0.1)
            with suppress(OSError):
                while stranger.recv(1 << 16):
                    pass
    wired.until(BROKEN_OFF, 2)
    stranger = wired.peer()
    wired.routing(stranger)
    stranger.close(linger=0)
    wired.until(NEVER_JOINED)
    half_open = sockets.create_connection(("127.0.0.1", wired.port))
    wired.until("connections", 6)
    counts = wired.end()
    half_open.close()
    assert counts["connections"] == 6 and counts[HALF_OPEN] == 1
    assert sum(counts.values()) == 6 + 5  # all except the honest peer


def test_a_wrong_key_is_counted(context: zmq.Context, tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        keys.new(tmp_path / name, ["e000"])
    ours, theirs = (keys.load_edge(tmp_path / name, "e000") for name in ("ours", "theirs"))
    server = keys.load_server(tmp_path / "ours")
    doorman = keys.Doorman(context, server)
    doorman.start()
    wired = Watched(context)
    wired.watch.stop()
    wired.router.close()
    wired.router = Router(context, server)
    wired.watch = Watch(wired.router, 1 << 20, wired.endless.append)
    wired.watch.start()
    port = wired.router.bind("127.0.0.1", 0)
    edge_keys = keys.EdgeKeys(theirs.public, theirs.secret, ours.server)
    stranger = Dealer(context, edge_keys, f"tcp://127.0.0.1:{port}")
    wired.until(UNKNOWN_KEY)
    stranger.close()
    plain = wired.context.socket(zmq.DEALER)
    plain.connect(f"tcp://127.0.0.1:{port}")
    wired.until(WRONG_HANDSHAKE)
    wired.end()
    doorman.stop()


def bare_peer(port: int) -> sockets.socket:
    """A connection after its handshake (ZMTP 3.0, no keys): the test sends the rest."""
    peer = sockets.create_connection(("127.0.0.1", port))
    peer.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32))
    properties = b"\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
    ready = b"\x05READY" + properties
    peer.sendall(struct.pack("BB", 4, len(ready)) + ready)
    heard = b""
    while b"READY" not in heard:
        heard += peer.recv(1 << 10)
    peer.sendall(frame(b"hello", more=False))
    return peer


def frame(data: bytes, more: bool) -> bytes:
    return struct.pack(">BQ", 2 + more, len(data)) + data


@pytest.mark.alone
def test_a_message_without_an_end_is_cut_off_early(context: zmq.Context) -> None:
    wired = Watched(context)
    friend = wired.peer()
    good = wired.routing(friend)
    wired.router.joined(good)  # its later message is as long as a stranger's limit
    stranger, part, sent = bare_peer(wired.port), frame(bytes(1 << 20), more=True), 0
    ((bad, _),) = wired.heard()
    before = psutil.Process().memory_info().rss
    with suppress(ConnectionError):
        while sent < 1_000:
            stranger.sendall(part)
            sent += 1
    wired.until(ENDLESS)
    assert sent < 400 and psutil.Process().memory_info().rss - before < 400e6
    assert gone(wired, bad) and wired.router.by_fd[wired.endless[0]].routing == bad
    friend.send_multipart([b"header", bytes(1 << 20)])
    assert wired.heard() == [(good, [b"header", bytes(1 << 20)])]
    assert wired.end()[ENDLESS] == 1
    stranger.close()
    print(f"endless message: {sent} MB sent")


def test_an_edge_may_send_what_it_has_credit_for(context: zmq.Context) -> None:
    """While the coordinator does not read, all of it is in transit."""
    wired = Watched(context)
    edge = wired.peer()
    wired.router.joined(wired.routing(edge))
    for _ in range(4):
        edge.send(bytes(1 << 20))
    time.sleep(0.3)
    assert not wired.endless and sum(len(wired.heard()) for _ in range(4)) == 4
    wired.end()
