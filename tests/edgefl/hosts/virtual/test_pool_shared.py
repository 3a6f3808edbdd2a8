"""Messages between a process and its workers: vectors in cells, whole messages over a socket."""

from __future__ import annotations

import socket

import numpy as np
import pytest
from builders import vector

from edgefl.hosts.virtual.pool.forked import Arena, MessageStream, pack, unpack
from edgefl.vectors import ALIGNMENT


def test_a_vector_lies_in_its_slot_and_is_not_for_writing() -> None:
    arena = Arena(2, 1, 3)
    cell = arena.take()
    assert cell == 0
    arena.write(cell, vector(1, 2, 3))
    number, found, nan = unpack(
        pack([7, {"weights": vector(9, 9, 9)}, float("nan")], lambda one: cell), arena
    )
    assert (
        number == 7
        and nan != nan
        and found["weights"].tolist() == [1, 2, 3]
        and found["weights"].ctypes.data % ALIGNMENT == 0
    )
    assert not found["weights"].flags.writeable
    arena.write(cell, vector(4, 5, 6))
    assert found["weights"].tolist() == [4, 5, 6], "no copy"


@pytest.mark.parametrize(
    "array",
    [vector(1, 2), np.arange(6).reshape(2, 3), np.zeros(0, np.float32)],
    ids=["float32", "int64", "empty"],
)
def test_a_vector_without_a_slot_travels_along(array: np.ndarray) -> None:
    (found,) = unpack(pack([array], lambda one: None), Arena(1, 1, 3))
    assert (
        found.dtype == array.dtype
        and found.shape == array.shape
        and found.tolist() == array.tolist()
        and (found.size == 0 or found.ctypes.data % ALIGNMENT == 0)
    )


def test_what_is_no_plain_data_is_refused() -> None:
    with pytest.raises(TypeError, match="object cannot be sent to a worker"):
        pack([object()], lambda one: None)


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
