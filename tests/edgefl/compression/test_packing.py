"""Packed messages: what travels, what arrives, and what cannot be unpacked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from builders import vector

from edgefl.compression.compressor import find
from edgefl.compression.packing import ERROR, FAULT, Packing
from edgefl.protocol.codec import size_of
from edgefl.protocol.messages import Assignment, Update
from edgefl.streams import Streams
from edgefl.vectors import Layout, LayoutEntry

LAYOUT = Layout(
    (LayoutEntry("w", (4,), 0, "parameter", ""), LayoutEntry("mean", (2,), 4, "buffer", ""))
)
PLAIN = Layout(LAYOUT.entries[:1])  # without a buffer
START = vector(1, 2, 3, 4, 0, 0)
NEW = vector(1, 5, 3, 4.5, 0, 1)


def packing(up: str | None = None, down: str | None = None, **facts: Any) -> Packing:
    ways = [
        None if name is None else find(name, {"share": 0.34} if "_k" in name else {})
        for name in (up, down)
    ]
    return Packing(ways[0], ways[1], LAYOUT, Streams(1), **facts)


def update(**vectors: np.ndarray) -> Update:
    return Update(7, 3, vectors, {"samples": 9.0})


def sizes(given: int = 6) -> object:
    return lambda name: given


def test_the_change_of_a_model_travels_and_the_model_arrives() -> None:
    both = packing("top_k")
    sent, learned = both.update(update(weights=NEW), START, {}, "a")
    assert sent.vectors["weights"].nbytes == 8 + 2 * 4 and sent.numbers["packed weights"] == 6
    assert learned[ERROR].tolist() == [0, 0, 0, 0.5]
    got, fault = both.unpacked(sent, START, sizes())
    assert fault is None and got.vectors["weights"].tolist() == [1, 5, 3, 4, 0, 1]
    assert got.numbers == {"samples": 9.0}


def test_an_update_that_travels_twice_saves_twice() -> None:
    both, later = packing("top_k"), replace(update(weights=NEW), number=1000)
    small, large = (both.update(new, START, {}, "a")[0] for new in (update(weights=NEW), later))
    for sent in (small, small, large):  # the first one is damaged, and no one reads it
        both.carried("up", size_of(sent), "update")
        assert both.saved_up == 0, "none has been read"
    saved = size_of(update(weights=NEW)) - size_of(small)
    assert both.unpacked(small, START, sizes())[1] is None and both.saved_up == 2 * saved
    assert both.unpacked(large, START, sizes())[1] is None and both.saved_up == 3 * saved


@pytest.mark.parametrize("name", ["float16", "int8", "sign", "top_k", "random_k"])
def test_buffers_travel_as_they_are(name: str) -> None:
    """A mean and a variance that no method would keep, in a model that is sent up or down."""
    both, new = packing(name, name), vector(1, 5, 3, 4.5, 1e9, 1e-9)
    up, _ = both.update(update(weights=new), START, {}, "a")
    got, fault = both.unpacked(up, START, sizes())
    down = both.sent(Assignment(1, 3, {"weights": new}))
    for arrived in (got, both.taken(down)):
        assert fault is None and arrived.vectors["weights"].tobytes()[16:] == new.tobytes()[16:]
    assert both.model_bytes() == up.vectors["weights"].nbytes == down.vectors["weights"].nbytes
    alone = replace(both, layout=PLAIN)
    plain, _ = alone.update(update(weights=new[:4]), START[:4], {}, "a")
    packed_bytes = plain.vectors["weights"].nbytes
    assert up.vectors["weights"].tobytes()[:packed_bytes] == plain.vectors["weights"].tobytes()
    assert up.vectors["weights"].nbytes == packed_bytes + 2 * 4


@pytest.mark.parametrize(("trainable", "nbytes"), [(3, 4 + 4 + 2 * 4), (0, 4 + 5 * 4)])
def test_the_buffers_of_a_sub_model_travel_as_they_are(trainable: int, nbytes: int) -> None:
    """int8: a scale, then a byte for each trainable element, filled up to 4 bytes."""
    both, new = packing("int8", "int8", submodel=trainable), vector(1, 5, 3, 1e9, 1e-9)
    up, _ = both.update(update(weights=new), START[:5], {}, "a")
    got, fault = both.unpacked(up, START[:5], sizes(5))
    assert fault is None and up.vectors["weights"].nbytes == nbytes
    assert got.vectors["weights"][trainable:].tobytes() == new[trainable:].tobytes()


def test_an_error_comes_with_the_next_update() -> None:
    both = packing("top_k")
    memory = {ERROR: vector(0, 0, 8, 0)}
    sent, learned = both.update(update(weights=NEW), START, memory, "a")
    got, _ = both.unpacked(sent, START, sizes())
    assert got.vectors["weights"].tolist() == [1, 2, 11, 4, 0, 1]
    assert learned[ERROR].tolist() == [0, 3, 0, 0.5]


def test_a_model_is_packed_once_for_all_edges() -> None:
    here, there = packing(down="int8"), packing(down="int8")
    sent = [here.sent(Assignment(n, 3, {"weights": NEW, "more": START}, {})) for n in (1, 2)]
    assert sent[0].vectors["weights"] is sent[1].vectors["weights"]
    assert sent[0].vectors["weights"].nbytes == 4 + 4 + 2 * 4 and sent[0].vectors["more"] is START
    got = there.taken(sent[0])
    assert got.numbers == {} and np.array_equal(got.vectors["weights"], here.received(NEW, 3))
    assert np.abs(got.vectors["weights"] - NEW).max() < 5 / 127
    assert here.saved_down == 0, "none has come to its edge"
    size = size_of(sent[0])
    saved = size_of(Assignment(1, 3, {"weights": NEW, "more": START}, {})) - size
    here.carried("down", size, "task")
    here.carried("down", size, "task")
    assert here.saved_down == 2 * saved and saved == (24 - 16) - len("packed weights") - 10
    here.carried("down", size // 2, "dropped")
    assert here.saved_down == 2 * saved + round(saved * (size // 2) / size)


@pytest.mark.parametrize("up", ["int8", "random_k"])
def test_lots_depend_on_the_edge_and_the_task(up: str) -> None:
    both, start = replace(packing(up), layout=PLAIN), np.zeros(50, np.float32)
    new = np.sqrt(np.arange(50, dtype=np.float32))
    found = [
        both.update(replace(update(weights=new), number=task), start, {}, edge)[0]
        for edge, task in (("a", 1), ("a", 1), ("a", 2), ("b", 1))
    ]
    sent = [each.vectors["weights"].tobytes() for each in found]
    assert sent[0] == sent[1] and len(set(sent)) == 3


def test_what_is_not_finite_travels_whole() -> None:
    """The coordinator then says what is wrong with it."""
    both, bad = packing("int8", "int8"), vector(1, np.nan, 0, 0, 0, 0)
    sent, learned = both.update(update(weights=bad), START, {}, "a")
    assert sent.vectors["weights"] is bad and learned == {}
    assert both.unpacked(sent, START, sizes()) == (sent, None)
    assert both.sent(Assignment(1, 0, {"weights": bad})).vectors["weights"] is bad
    assert both.received(bad, 0) is bad


def test_what_cannot_be_unpacked_is_a_fault() -> None:
    both = packing("top_k")
    sent, _ = both.update(update(weights=NEW), START, {}, "a")
    whole = update(weights=NEW)
    short = replace(sent, vectors={"weights": sent.vectors["weights"][:1]})
    outside = replace(sent, vectors={"weights": sent.vectors["weights"].copy()})
    outside.vectors["weights"].view(np.uint32)[0] = 4
    longer = replace(sent, numbers=sent.numbers | {"packed weights": 7.0})
    nameless = replace(sent, vectors={"weight": sent.vectors["weights"]})
    for bad in (whole, short, outside, longer, nameless):
        assert both.unpacked(bad, START, sizes()) == (bad, FAULT)
    with pytest.raises(ValueError, match="1 elements, expected 4"):
        packing(down="float16").taken(
            Assignment(1, 0, {"weights": vector(1)}, {"packed weights": 6.0})
        )
