"""The coordinator's socket: closing a peer's connection, and how much it receives at a time."""

from __future__ import annotations

import os
import socket as sockets
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import zmq

from edgefl.clocks.wall import connections, keys, wire
from edgefl.clocks.wall.connections import (
    BEFORE_JOINING_BYTES,
    BROKEN_OFF,
    ENDLESS,
    HALF_OPEN,
    NEVER_JOINED,
    TOO_LONG,
    TOO_MANY,
    TOO_MUCH,
    UNENDING,
    UNKNOWN_KEY,
    WRONG_HANDSHAKE,
    MemoryGrowth,
    Watch,
)
from edgefl.clocks.wall.system import OWN_SYSTEM
from edgefl.clocks.wall.wire import MOST_HEADER_BYTES, Dealer, Router, wire_bytes
from edgefl.errors import UserError
from emulator.kernel_pacing import PacedConnection

pytestmark = pytest.mark.processes

PATIENCE_MS = 5_000


@pytest.fixture
def context() -> Iterator[zmq.Context]:
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


class Wired:
    """A Router and connected peers."""

    def __init__(
        self,
        context: zmq.Context,
        server: keys.ServerKeys | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.context = context
        self.router = Router(context, server)
        self.port = self.router.bind(host, 0)

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


@pytest.mark.skipif(not hasattr(sockets, "TCP_USER_TIMEOUT"), reason="an option of Linux")
def test_tcp_closes_connections_whose_other_end_is_gone(context: zmq.Context) -> None:
    wired = Wired(context)
    peer = wired.peer()  # kept: its connection ends with it
    fd = wired.router.connections[wired.routing(peer)].fd
    with sockets.socket(fileno=os.dup(fd)) as connection:

        def option(level: int, name: int) -> int:
            return connection.getsockopt(level, name)

        assert option(sockets.SOL_SOCKET, sockets.SO_KEEPALIVE) == 1
        idle_s = option(sockets.IPPROTO_TCP, sockets.TCP_KEEPIDLE)
        tries = option(sockets.IPPROTO_TCP, sockets.TCP_KEEPCNT)
        silent_s = idle_s + tries * option(sockets.IPPROTO_TCP, sockets.TCP_KEEPINTVL)
        unanswered_s = option(sockets.IPPROTO_TCP, sockets.TCP_USER_TIMEOUT) / 1000
        # an outage of 30 s closes none
        assert 30 < silent_s <= 120 and 30 < unanswered_s <= 120


# ------------------------------------------------------------------ IPv6
IPV6 = pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="no IPv6 here")


@IPV6
@pytest.mark.parametrize(
    ("listens", "reached"),
    [
        ("::1", "tcp://[::1]:{}"),
        ("::", "tcp://127.0.0.1:{}"),
        ("localhost", "tcp://localhost:{}"),
    ],
)
def test_a_dealer_reaches_a_router_over_ipv6(
    context: zmq.Context, listens: str, reached: str
) -> None:
    wired = Wired(context, host=listens)
    edge = Dealer(context, None, reached.format(wired.port))
    edge.send(b"hello")
    ((routing, frames),) = wired.heard()
    assert frames == [b"hello"] and wired.router.send(routing, b"welcome")
    assert edge.socket.poll(PATIENCE_MS)
    assert [[part.bytes for part in parts] for parts in edge.receive()] == [[b"welcome"]]
    edge.close()


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


# ------------------------------------------------------------------ strangers
class Watched(Wired):
    """A Router with watched connections."""

    def __init__(
        self,
        context: zmq.Context,
        server: keys.ServerKeys | None = None,
        host: str = "127.0.0.1",
        **limits: int,
    ) -> None:
        super().__init__(context, server, host)
        self.greedy: list[tuple[bytes, str]] = []
        self.strangers: list[str] = []
        self.watch = Watch(
            self.router,
            1 << 20,
            lambda routing, reason: self.greedy.append((routing, reason)),
            self.strangers.append,
            **limits,
        )
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
    wired = Watched(context, server)
    port = wired.port
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
    wired.router.joined(good)  # its later message is longer than a stranger's limit
    edge, part, sent = bare_peer(wired.port), frame(bytes(1 << 20), more=True), 0
    edge.settimeout(PATIENCE_MS / 1000)
    ((bad, _),) = wired.heard()
    wired.router.joined(bad)
    before = psutil.Process().memory_info().rss
    with suppress(ConnectionError):  # no TimeoutError: the peer is told at once
        while sent < 1_000:
            edge.sendall(part)
            sent += 1
    wired.until(ENDLESS)
    assert sent < 400 and psutil.Process().memory_info().rss - before < 400e6
    assert gone(wired, bad) and wired.greedy == [(bad, UNENDING)]
    friend.send_multipart([b"header", bytes(1 << 20)])
    assert wired.heard() == [(good, [b"header", bytes(1 << 20)])]
    assert wired.end()[ENDLESS] == 1
    edge.close()
    print(f"endless message: {sent} MB sent")


def test_an_edge_may_send_what_it_has_credit_for(context: zmq.Context) -> None:
    """While the coordinator does not read, all of it is in transit."""
    wired = Watched(context)
    edge = wired.peer()
    wired.router.joined(wired.routing(edge))
    for _ in range(4):
        edge.send(bytes(1 << 20))
    time.sleep(0.3)
    assert not wired.greedy and sum(len(wired.heard()) for _ in range(4)) == 4
    wired.end()


def closed(peer: sockets.socket) -> bool:
    """Whether the other side closes this connection in time."""
    peer.settimeout(PATIENCE_MS / 1000)
    with suppress(ConnectionError):
        while peer.recv(1 << 16):
            pass
    return True


def half_command(mechanism: bytes) -> bytes:
    """The begin of a connection up to a command of 1 MiB in the handshake."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + mechanism.ljust(20, b"\0") + bytes(32)
    return greeting + struct.pack(">BQ", 6, 1 << 20)


@pytest.mark.parametrize("keyed", [False, True])
def test_a_stranger_may_send_16_kib_and_no_more(
    context: zmq.Context, tmp_path: Path, keyed: bool
) -> None:
    """libzmq would keep an unfinished command of 1 MiB before it has checked any key."""
    server = None
    if keyed:
        keys.new(tmp_path / "keys", ["e000"])
        server = keys.load_server(tmp_path / "keys")
    wired = Watched(context, server)
    begin = half_command(b"CURVE" if keyed else b"NULL")
    modest, greedy = (sockets.create_connection(("127.0.0.1", wired.port)) for _ in range(2))
    modest.sendall(begin + bytes(BEFORE_JOINING_BYTES - len(begin)))
    greedy.sendall(begin + bytes(BEFORE_JOINING_BYTES - len(begin) + 1))
    assert closed(greedy)
    modest.setblocking(False)
    with suppress(BlockingIOError):
        while data := modest.recv(1 << 10):  # what the other side says in the handshake
            pass
        assert data, "it is still open"
    counts = wired.end()
    assert counts[TOO_MUCH] == 1 and wired.strangers == [TOO_MUCH]
    modest.close()


def test_a_peer_that_has_greeted_is_named_if_it_sends_more_before_it_joins(
    context: zmq.Context,
) -> None:
    wired = Watched(context)
    peer = bare_peer(wired.port)
    ((routing, _),) = wired.heard()
    wired.router.greeted(routing)
    with suppress(ConnectionError):
        peer.sendall(frame(bytes(BEFORE_JOINING_BYTES), more=False))
    assert closed(peer)
    wired.until(TOO_MUCH)
    for _ in range(500):
        if wired.greedy:
            break
        time.sleep(0.01)
    assert wired.greedy == [(routing, TOO_MUCH)] and wired.strangers == []
    wired.end()


def test_who_begins_no_session_is_cut_off_in_time(
    context: zmq.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like 10 s, but 20 times as fast. An edge that has a session has its own time to join."""
    assert connections.TO_GREET_S == 10
    monkeypatch.setattr(connections, "TO_GREET_S", 0.5)
    wired = Watched(context)
    edge = wired.peer()
    good = wired.routing(edge)
    wired.router.greeted(good)
    silent = sockets.create_connection(("127.0.0.1", wired.port))
    idle = bare_peer(wired.port)
    wired.heard()
    assert closed(silent) and closed(idle)
    assert wired.router.send(good, b"still here") and edge.poll(PATIENCE_MS)
    assert wired.end()[TOO_LONG] == 2 and wired.strangers == [TOO_LONG]


def test_a_crowd_of_strangers_makes_room_for_an_edge(context: zmq.Context) -> None:
    """The oldest connection of the address that has most of them is closed."""
    wired = Watched(context, most_strangers=3)
    quiet = sockets.create_connection(("127.0.0.1", wired.port), source_address=("127.0.0.2", 0))
    crowd = [sockets.create_connection(("127.0.0.1", wired.port)) for _ in range(10)]
    for stranger in crowd[:8]:
        assert closed(stranger)
    edge = wired.peer()
    good = wired.routing(edge)
    wired.until(TOO_MANY, 9)  # until it joins, the edge is one more of the crowd's address
    wired.router.joined(good)
    more = [sockets.create_connection(("127.0.0.1", wired.port)) for _ in range(10)]
    wired.until(TOO_MANY, 18)
    assert wired.router.send(good, b"still here") and edge.poll(PATIENCE_MS)
    quiet.setblocking(False)
    with suppress(BlockingIOError):
        while data := quiet.recv(1 << 10):
            pass
        assert data, "it is still open"
    assert wired.end()[TOO_MANY] in (18, 19) and wired.strangers == [TOO_MANY]
    for peer in (quiet, *crowd, *more):
        peer.close()


def test_all_connections_together_leave_open_files(context: zmq.Context) -> None:
    wired = Watched(context, most=4)
    edges = [wired.peer() for _ in range(3)]
    for edge in edges:
        wired.router.joined(wired.routing(edge))
    strangers = [sockets.create_connection(("127.0.0.1", wired.port)) for _ in range(5)]
    for stranger in strangers[:4]:
        assert closed(stranger)
    assert wired.end()[TOO_MANY] == 4
    for peer in strangers:
        peer.close()


# ------------------------------------------------------------------ memory growth
PAGE = connections.PAGESIZE


@pytest.fixture
def statm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "statm"
    monkeypatch.setattr(connections, "STATM", str(path))
    path.write_text("900 100 9 9 0 9 0\n")
    return path


def test_growth_counts_from_the_lowest_point_since_the_last_look(statm: Path) -> None:
    growth = MemoryGrowth()
    found = []
    for pages in (109, 110, 60, 69, 70):
        statm.write_text(f"900 {pages} 9 9 0 9 0\n")
        found.append(growth.grown(10 * PAGE))
    assert found == [False, True, False, False, True]
    growth.forget()
    assert not growth.grown(10 * PAGE)
    growth.close()


# ------------------------------------------------------------------ paced by the kernel
def paced_pair(context: zmq.Context) -> tuple[Router, Dealer, bytes]:
    router = Router(context, None)
    dealer = Dealer(context, None, f"tcp://127.0.0.1:{router.bind('127.0.0.1', 0, segment=1000)}")
    dealer.send(b"hello")
    assert router.socket.poll(PATIENCE_MS)
    ((routing, _, _),) = router.receive(10)
    return router, dealer, routing


def rate(paced: PacedConnection) -> int:
    """The kernel's limit of this connection."""
    with sockets.socket(fileno=os.dup(paced.fd)) as socket:
        return int.from_bytes(socket.getsockopt(sockets.SOL_SOCKET, 47, 8), "little")


@pytest.mark.skipif(not OWN_SYSTEM.paces, reason="only Linux paces connections")
def test_the_kernel_spreads_what_is_queued_at_both_ends(context: zmq.Context) -> None:
    router, dealer, routing = paced_pair(context)
    segment = router.pace(routing)
    if not segment:
        pytest.skip("this kernel does not pace connections")
    assert segment <= 1000
    paced = router.paced[routing]
    assert rate(paced) == 2**64 - 1
    paced.spread(5_000, 10**9 // 2)
    assert rate(paced) == 10_000
    paced.spread(5_000, 0)  # too late: at once
    assert rate(paced) == 2**64 - 1
    paced.limit(1_000_000)
    router.send(routing, b"h" * 30, memoryview(bytes(50_000)))
    paced.spread(100_000, 10**9)
    assert 100_000 < rate(paced) < 150_100  # with what has not left of the 50 kB
    paced.limit(None)
    assert dealer.socket.poll(PATIENCE_MS)
    assert sum(1 for _ in dealer.receive()) == 1
    edge = dealer.pace()
    assert edge is not None and edge.segment <= 1000
    edge.spread(7_000, 10**9)
    assert rate(edge) == 7_000
    router.close()
    dealer.close()


@pytest.mark.skipif(not OWN_SYSTEM.paces, reason="only Linux paces connections")
def test_a_connection_that_is_closed_is_not_paced(context: zmq.Context) -> None:
    router, dealer, routing = paced_pair(context)
    if not router.pace(routing):
        pytest.skip("this kernel does not pace connections")
    paced, inode = router.paced[routing], router.paced[routing].inode
    paced.inode = inode + 1  # the descriptor has another use
    paced.limit(1_000)
    paced.spread(1_000, 10**9)
    assert paced.unsent() == 0
    paced.inode = inode
    assert rate(paced) == 2**64 - 1
    assert PacedConnection(paced.fd, inode + 1).segment == 0
    router.forget_others([])
    assert not router.paced and router.pace(b"nobody") == 0
    dealer.send(b"more")
    assert router.socket.poll(PATIENCE_MS)
    ((routing, _, _),) = router.receive(10)
    assert router.pace(routing)
    router.cut(routing)
    assert not router.paced
    router.close()
    dealer.close()


def test_an_address_in_use_is_one_clear_line(context: zmq.Context) -> None:
    with sockets.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for segment in (None, 1000):
            router = Router(context, None)
            with pytest.raises(UserError, match=rf"cannot listen on 127.0.0.1:{port} .*: Addr"):
                router.bind("127.0.0.1", port, segment)
            router.close()


def test_the_bytes_of_a_message_on_its_connection() -> None:
    assert [wire_bytes(size, False) for size in (0, 255, 256)] == [2, 257, 265]
    assert [wire_bytes(size, True) for size in (0, 222, 223)] == [35, 257, 265]
