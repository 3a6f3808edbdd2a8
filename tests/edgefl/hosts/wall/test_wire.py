"""The coordinator's socket: whom it can cut off, and how much it takes in at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zmq

from edgefl.hosts.wall.wire import Router

pytestmark = pytest.mark.processes

PATIENCE_MS = 5_000


@pytest.fixture
def context() -> Iterator[zmq.Context]:
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


class Wired:
    """A Router and peers that are connected to it."""

    def __init__(self, context: zmq.Context) -> None:
        self.context = context
        self.router = Router(context, None)
        self.port = self.router.bind("127.0.0.1", 0)

    def peer(self) -> zmq.Socket:
        """A peer that does not connect again when it is cut."""
        socket: zmq.Socket = self.context.socket(zmq.DEALER)
        socket.setsockopt(zmq.RECONNECT_IVL, -1)
        socket.connect(f"tcp://127.0.0.1:{self.port}")
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
    wired.router.cut(bad)  # twice does no harm
    other.send(b"still here")
    assert wired.heard() == [(good, [b"still here"])]
    assert wired.router.send(good, b"so am I")
    assert other.poll(PATIENCE_MS) and other.recv() == b"so am I"


def test_a_descriptor_that_is_used_again_is_not_cut(context: zmq.Context) -> None:
    wired = Wired(context)
    first = wired.peer()
    old = wired.routing(first)
    fd = wired.router._connections[old][0]
    first.close(linger=0)
    assert gone(wired, old)
    second = wired.peer()
    new = wired.routing(second)
    assert wired.router._connections[new][0] == fd, "the system gives the lowest one that is free"
    wired.router.cut(old)
    second.send(b"still here")
    assert wired.heard() == [(new, [b"still here"])]


def test_only_living_connections_are_kept_in_mind(context: zmq.Context) -> None:
    wired = Wired(context)
    peers = [wired.peer() for _ in range(5)]
    routings = [wired.routing(peer) for peer in peers]
    wired.router.forget_others({routings[2], b"unknown"})
    assert list(wired.router._connections) == [routings[2]]
    wired.router.cut(routings[0])  # unknown by now
    assert wired.router.send(routings[0], b"hello")
