"""Messages between a process and its workers: vectors in cells, whole messages over a socket."""

from __future__ import annotations

import socket

import pytest

from edgefl.hosts.virtual.pool.forked import MessageStream


def test_messages_come_whole_however_large_and_sending_never_waits() -> None:
    one, other = (MessageStream(end) for end in socket.socketpair())
    large = bytes(range(256)) * 20_000
    for data in (b"a", large, b"", b"z"):
        one.send(data)
    assert one.pending
    came: list[bytes] = []
    while one.pending or len(came) < 4:
        came += other.receive()
        one.push()
    assert came == [b"a", large, b"", b"z"] and other.receive() == []


def test_the_end_is_heard_after_the_last_message() -> None:
    one, other = (MessageStream(end) for end in socket.socketpair())
    one.send(b"last")
    one.close()
    assert other.receive() == [b"last"]
    with pytest.raises(EOFError):
        other.receive()
    other.send(b"into the void")
    assert not other.pending
