"""A model in pieces: cut without copying, joined in order, verified before use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from edgefl.protocol import transfers
from edgefl.protocol.codec import decode, encode, size_of
from edgefl.protocol.errors import WireError
from edgefl.protocol.messages import MAX_PIECE_BYTES, Assignment, Fresh, Offer, Update
from edgefl.protocol.transfers import (
    Incoming,
    Outgoing,
    beyond_limits,
    body_digest,
    most_body,
)
from edgefl.vectors import ALIGNMENT, aligned, aligned_copy

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


def test_an_offer_says_what_will_come() -> None:
    outgoing = Outgoing(9, update(2, 5))
    offer = outgoing.offer(due_ns=77)
    assert (offer.transfer, offer.kind, offer.size, offer.due_ns) == (9, "update", 28, 77)
    assert outgoing.size == len(offer.meta) + 28 == size_of(update(2, 5)) and outgoing.task == 3


def test_a_piece_never_crosses_two_vectors_and_shares_their_memory() -> None:
    message = update(2, 0, 3)
    outgoing = Outgoing(1, message)
    pieces = [outgoing.piece(offset, 100) for offset in (0, 5, 8, 19)]
    assert [len(piece) for piece in pieces] == [8, 3, 12, 1]
    assert np.shares_memory(np.frombuffer(pieces[0], np.uint8), message.vectors["a"])
    assert np.shares_memory(np.frombuffer(pieces[2], np.uint8), message.vectors["c"])


@pytest.mark.parametrize("offset", [-1, 20, 21])
def test_a_piece_outside_the_body_is_our_own_mistake(offset: int) -> None:
    with pytest.raises(IndexError, match="20 bytes"):
        Outgoing(1, update(2, 3)).piece(offset, 10)


def test_a_message_without_a_body_is_whole_at_once() -> None:
    outgoing = Outgoing(1, Update(3, 4, {}, {"loss": 1.0}))
    incoming = Incoming(outgoing.offer(0), MOST)
    assert incoming.complete and incoming.message().numbers == {"loss": 1.0}


def test_the_vectors_are_aligned_and_views_where_they_can_be() -> None:
    outgoing = Outgoing(1, update(32, 3, 7))
    incoming = carry(outgoing, Incoming(outgoing.offer(0), MOST), 50)
    vectors = incoming.message().vectors
    assert all(vector.ctypes.data % ALIGNMENT == 0 for vector in vectors.values())
    assert [np.shares_memory(vectors[name], incoming.body) for name in "abc"] == [True, True, False]


def test_a_single_piece_is_kept_where_it_lies_and_aligned_for_maths() -> None:
    outgoing = Outgoing(1, update(16))
    store = aligned(65, np.uint8)[1:]  # not aligned
    store[:] = outgoing.piece(0, 64)
    incoming = Incoming(outgoing.offer(0), MOST)
    incoming.add(0, store.data)
    assert np.shares_memory(incoming.body, store)
    (vector,) = incoming.message().vectors.values()
    assert vector.ctypes.data % ALIGNMENT == 0 and vector.tobytes() == store.tobytes()


# ------------------------------------------------------------------ digests
def test_a_known_digest_of_the_body_is_the_same_digest() -> None:
    vector = np.arange(100, dtype=np.float32)
    messages = [
        Assignment(1, 2, {"weights": vector}),
        Assignment(1, 2, {"weights": aligned_copy(vector)}),
    ]
    assert Outgoing(1, messages[0], body_digest([vector])).digest == Outgoing(2, messages[1]).digest


def test_another_content_or_header_has_another_digest() -> None:
    vector = np.arange(10, dtype=np.float32)
    others = [
        Assignment(1, 2, {"weights": vector}),
        Assignment(2, 2, {"weights": vector}),
        Assignment(1, 3, {"weights": vector}),
        Assignment(1, 2, {"w": vector}),
        Assignment(1, 2, {"weights": vector + 1}),
        Assignment(1, 2, {"weights": vector}, {"lr": 1.0}),
        Assignment(1, 2, {"weights": vector[:5], "b": vector[5:]}),
    ]
    assert len({Outgoing(1, other).digest for other in others}) == len(others)


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


def test_nothing_more_fits_behind_the_end() -> None:
    outgoing = Outgoing(1, update(4))
    incoming = carry(outgoing, Incoming(outgoing.offer(0), MOST), 16)
    with pytest.raises(WireError):
        incoming.add(16, memoryview(b"x"))


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
        transfers, "aligned", lambda size, dtype: taken.append(size) or aligned(size, dtype)
    )
    offer = structs.replace(Outgoing(1, update(10)).offer(0), **change)
    with pytest.raises(WireError, match=match):
        Incoming(offer, MOST)
    assert taken == []
    incoming = Incoming(Outgoing(1, update(10)).offer(0), MOST)
    assert taken == []
    incoming.add(0, memoryview(bytes(8)))
    assert taken == [40]


@pytest.mark.parametrize(
    ("kind", "name"), [(Assignment, "task"), (Fresh, "fresh"), (Update, "update")]
)
def test_each_kind_of_bulk_message_travels(kind: type, name: str) -> None:
    outgoing = Outgoing(1, kind(1, 2, {"weights": np.ones(3, np.float32)}))
    offer: Offer = outgoing.offer(0)
    assert offer.kind == name and type(carry(outgoing, Incoming(offer, MOST), 5).message()) is kind


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


def test_a_transfer_may_hold_eight_models_and_a_mib() -> None:
    assert most_body(0) == 1 << 20 and most_body(1000) == 8000 + (1 << 20)
