"""A model in pieces: cut without copying, joined in order, verified before use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from edgefl.protocol import codec
from edgefl.protocol.codec import (
    Incoming,
    Outgoing,
    beyond_limits,
    decode,
    encode,
)
from edgefl.protocol.messages import MAX_PIECE_BYTES, SPACED_BYTES, Update, WireError
from edgefl.vectors import aligned

MOST = 1 << 20


def update(*sizes: int) -> Update:
    """An update with vectors a, b, ... of these sizes; all elements differ."""
    ends = np.cumsum([0, *sizes])
    named = {
        chr(97 + i): np.arange(ends[i], ends[i + 1], dtype=np.float32) + 1
        for i in range(len(sizes))
    }
    return Update(3, 4, named, {"loss": 0.5})


def carry(outgoing: Outgoing, incoming: Incoming, piece: int) -> Incoming:
    while not incoming.complete:
        incoming.add(incoming.received, outgoing.piece(incoming.received, piece))
    return incoming


# ------------------------------------------------------------------ whole ways
@given(st.lists(st.integers(0, 30), min_size=1, max_size=4), st.integers(1, 200))
def test_a_message_in_pieces_of_any_size_comes_back(sizes: list[int], piece: int) -> None:
    message = update(*sizes)
    outgoing = Outgoing(9, message)
    back = carry(outgoing, Incoming(outgoing.offer(5), MOST), piece).message()
    assert (back.number, back.version, back.numbers) == (3, 4, {"loss": 0.5})
    assert all(
        np.array_equal(back.vectors[name], message.vectors[name]) for name in message.vectors
    ) and list(back.vectors) == list(message.vectors)


def test_a_piece_never_crosses_two_vectors_and_shares_their_memory() -> None:
    message = update(2, 0, 3)
    outgoing = Outgoing(1, message)
    pieces = [outgoing.piece(offset, 100) for offset in (0, 5, 8, 19)]
    assert [len(piece) for piece in pieces] == [8, 3, 12, 1]
    assert np.shares_memory(np.frombuffer(pieces[0], np.uint8), message.vectors["a"])
    assert np.shares_memory(np.frombuffer(pieces[2], np.uint8), message.vectors["c"])


def test_transfers_of_one_model_have_the_same_pieces_at_the_same_borders() -> None:
    first = Outgoing(1, update(100_000))
    second = Outgoing(2, update(100_000), of_body="0" * 32, like=first)
    for offset in range(0, first.body, SPACED_BYTES):
        piece = first.piece(offset, SPACED_BYTES)
        assert second.piece(offset, SPACED_BYTES) is piece
        assert first.piece(offset, len(piece) // 2) == piece[: len(piece) // 2]
        assert len(first.piece(offset, 1 << 20)) == first.body - offset


# ------------------------------------------------------------------ digests


@pytest.mark.parametrize("damage", ["body", "digest", "meta", "missing"])
def test_what_does_not_match_its_digest_is_refused(damage: str) -> None:
    outgoing = Outgoing(1, update(10))
    offer = outgoing.offer(0)
    if damage == "digest":
        offer = structs.replace(offer, digest="0" * 48)
    if damage == "meta":
        offer = structs.replace(offer, meta=Outgoing(1, replace(update(10), version=5)).meta)
    incoming = Incoming(offer, MOST)
    if damage != "missing":
        carry(outgoing, incoming, 16)
    if damage == "body":
        incoming.body[7] ^= 1
    with pytest.raises(WireError, match="digest"):
        incoming.message()


# ------------------------------------------------------------------ pieces out of place
@pytest.mark.parametrize(
    ("offset", "size"),
    [(0, 8), (4, 8), (12, 8), (8, 0), (8, 33), (40, 1), (-8, 8)],
    ids=["again", "overlapping", "a gap", "empty", "too long", "behind the end", "negative"],
)
def test_a_piece_out_of_place_is_refused_and_changes_nothing(offset: int, size: int) -> None:
    incoming = Incoming(Outgoing(6, update(10)).offer(0), MOST)
    incoming.add(0, memoryview(bytes(range(8))))
    with pytest.raises(WireError, match="transfer 6, expected from 8 up to 40"):
        incoming.add(offset, memoryview(b"x" * size))
    assert incoming.received == 8 and incoming.body[:8].tolist() == list(range(8))


def test_a_piece_of_more_than_the_limit_is_refused() -> None:
    incoming = Incoming(Outgoing(1, update(1 << 19)).offer(0), 1 << 22)
    with pytest.raises(WireError):
        incoming.add(0, memoryview(bytes(MAX_PIECE_BYTES + 1)))
    incoming.add(0, memoryview(bytes(MAX_PIECE_BYTES)))


# ------------------------------------------------------------------ offers
@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"kind": "gossip"}, "kind 'gossip'"),
        ({"size": MOST + 4}, f"at most {MOST}"),
        ({"size": 2**40}, "at most"),
        ({"size": 36}, "not that of its vectors"),
        ({"size": 0}, "not that of its vectors"),
        ({"meta": b"\xc1"}, "malformed"),
        ({"meta": Outgoing(1, update(2**16)).meta, "size": 40}, "not that of its vectors"),
    ],
)
def test_no_memory_is_taken_for_an_offer_that_cannot_be_true(
    change: dict[str, Any], match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    monkeypatch.setattr(
        codec, "aligned", lambda size, dtype: taken.append(size) or aligned(size, dtype)
    )
    offer = structs.replace(Outgoing(1, update(10)).offer(0), **change)
    with pytest.raises(WireError, match=match):
        Incoming(offer, MOST)
    assert taken == []
    incoming = Incoming(Outgoing(1, update(10)).offer(0), MOST)
    assert taken == []
    incoming.add(0, memoryview(bytes(8)))
    assert taken == [40]


# ------------------------------------------------------------------ what a sender may send
ONE = np.zeros(1, np.float32)


@pytest.mark.parametrize(
    ("vectors", "numbers", "beyond"),
    [
        (
            {chr(0x10000 + n) * 64: ONE for n in range(64)},
            {chr(0x10000 + n) * 64: 1.0 for n in range(64)},
            None,
        ),
        ({"weights": np.zeros(250, np.float32)}, {}, None),
        (
            {"weights": np.zeros(250, np.float32), "more": ONE},
            {},
            "1004 bytes of vectors, at most 1000 ",
        ),
        ({np.str_("weights"): ONE}, {np.str_("loss"): 1.0}, None),
        ({str(n): ONE for n in range(65)}, {}, "65 vectors, at most 64"),
        ({"weights": ONE}, {str(n): 1.0 for n in range(65)}, "65 numbers, at most 64"),
        ({"w" * 65: ONE}, {}, "a name among its vectors is 'www"),
        ({3: ONE}, {}, "a name among its vectors is '3', expected text"),
        ({}, {"w" * 65: 1.0}, "a name among its numbers is 'www"),
        ({}, {None: 1.0}, "a name among its numbers is 'None', expected text"),
    ],
)
def test_the_sender_knows_what_the_receiver_refuses(
    vectors: dict[Any, Any], numbers: dict[Any, float], beyond: str | None
) -> None:
    message = Update(1, 2, vectors, numbers)
    found = beyond_limits(message, 1000)
    if beyond is None:
        assert found is None
        offer = Outgoing(1, message).offer(0)
        assert decode(encode(offer, 1, 1))[0] == offer, "and its header fits"
        assert Incoming(offer, 1000).task == 1
        return
    assert found is not None and found.startswith(beyond)
    with pytest.raises(WireError):
        Incoming(Outgoing(1, message).offer(0), 1000)
