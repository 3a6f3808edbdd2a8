"""The codec: what it makes of each kind of object, and that sharing stays."""

from __future__ import annotations

import gc
import math
from array import array
from collections import Counter, OrderedDict, deque
from fractions import Fraction
from functools import partial
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import ref

import numpy as np
import orjson
import pytest
from checkpoint_graphs import (
    OWN,
    Access,
    Color,
    Guarded,
    Latest,
    MoreSlots,
    Names,
    Node,
    Pair,
    Plain,
    Point,
    Ring,
    Settings,
    Slots,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.checkpoints.codec import CannotDecode, CannotEncode, Encoded, decode, encode


def back(root: object, **externals: object) -> Any:
    """Encode, write the tree as JSON, and decode."""
    encoded = encode(root, externals, OWN)
    tree = orjson.loads(orjson.dumps(encoded.tree))
    return decode(Encoded(tree, encoded.arrays), externals, OWN)


# ---------------------------------------------------------------------- values
@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 0, -(1 << 63), (1 << 64) + 1, -(1 << 200)),
        *(0.1, -0.0, 5e-324, math.inf, -math.inf),
        *("", "text\0\n\u2028é", "\ud800 alone"),
        *(b"", b"\xff" * 5, b"\xff" * 5000, bytearray(b"ab")),
        *((), (1, (2, "x")), [[], [1.5, None]]),
        *({}, {"a": 1, "b": {"c": 2}}, {"\ud800": 1}),
        {1: "int", (2, 3): "tuple", "4": "text", None: [], Point(1): "point"},
        *(set(), {3, 1, 2}, {"a", 1, None}, frozenset({frozenset({1}), 2})),
        {Point(1, (2, frozenset({Point(3)})))},
        *(deque([1, 2], maxlen=2), deque([1]), Ring([1, 2], maxlen=3)),
        *(OrderedDict(b=1, a=2), Latest(b=1, a=2), Counter(a=3, b=0)),
        *(range(2, 9, 3), range(1 << 70, 0, -1), Fraction(-3, 7), Path("a/b")),
        *(Color.GREEN, Access.READ | Access.RUN, Access.WRITE),
        *(Point(1, [2]), Pair(1, Pair([], 2)), Settings(rate=2.5)),
        *(np.float32(0.1), np.int64(-5), np.bool_(True), np.datetime64("2026-01-02")),
        *(np.dtype(np.float32), array("Q", [1, 1 << 63])),
        *(list, Plain.Inner),
    ],
)
def test_a_value_comes_back_equal(value: object) -> None:
    for root in (value, [value], {"k": value}, (value,)):
        found = back(root)
        assert found == root and type(found) is type(root)
    found = back([value])[0]
    assert type(found) is type(value)
    if not isinstance(value, (set, frozenset)):  # their order means nothing
        assert repr(found) == repr(value)


def test_a_counter_goes_on_counting() -> None:
    numbers, steps = count(5), count(1, -3)
    next(numbers), next(steps)
    found = back((numbers, steps))
    assert [next(found[0]), next(found[1])] == [6, -2]


def test_objects_with_a_dict_and_slots() -> None:
    found = back(Plain(a=1, b=[2]))
    assert type(found) is Plain and vars(found) == {"a": 1, "b": [2]}
    slots = back(Slots([1]))
    assert slots.known == [1] and slots.private == 7 and not hasattr(slots, "never")
    more = MoreSlots(2)
    more.extra = 3
    found = back(more)
    assert (found.known, found.private, vars(found)) == (2, 7, {"extra": 3})
    names = Names(a=1)
    names.title = "t"
    found = back(names)
    assert type(found) is Names and found == {"a": 1} and found.title == "t"


# ---------------------------------------------------------------------- sharing
def test_cycles() -> None:
    around: list[Any] = []
    around += [(around, 1), {"me": around}, {Point(1): around}]
    found = back(around)
    assert found[0][0] is found and found[1]["me"] is found and found[2][Point(1)] is found

    node, other = Node("a"), Node("b")
    node.others, other.others = [other, node], [node]
    one = back({node: 1, other: 2})
    first, second = one
    assert first.others == [second, first] and second.others == [first] and one[first] == 1


def test_a_list_that_is_too_deep_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(20_000):
        deep = [deep]
    with pytest.raises(CannotEncode, match="^the root: cannot save objects that are nested so"):
        encode(deep)


def test_methods_and_partials_of_them() -> None:
    owner = Plain()
    owner.later = partial(owner.called, number=3)
    owner.method = owner.called
    found = back(owner)
    assert found.later() == (found, 3) and found.method(4) == (found, 4)


@pytest.mark.slow
def test_weak_references() -> None:
    strong = Node("a")
    found = back({"strong": strong, "weak": ref(strong)})
    assert found["weak"]() is found["strong"]
    gone = ref(Node("gone"))
    gc.collect()
    assert back([gone])[0]() is None
    only = Node("nothing in the graph holds it")
    found = back([ref(only)])
    gc.collect()
    assert found[0]() is None


def test_externals_are_named_and_not_copied() -> None:
    outside = Plain(lock=Lock())
    found = encode({"a": outside, "call": outside.called}, {"host": outside}, OWN)
    other = Plain()
    made: Any = decode(found, {"host": other}, OWN)
    assert made["a"] is other and made["call"](1) == (other, 1)
    with pytest.raises(CannotDecode, match="needs 'host', which this process does not have"):
        decode(found, {}, OWN)


def test_an_object_with_a_state_gets_it() -> None:
    Guarded.restored.clear()
    inner = Guarded("inner", [1])
    outer = Guarded("outer", {"inner": inner})
    found = back([outer, inner])
    assert Guarded.restored == ["inner", "outer"]  # the inner one is complete when outer gets it
    assert found[0].kept["inner"] is found[1] and found[1].kept == [1]
    assert found[1].made is not inner.made


def test_an_external_with_a_state_gets_it_back() -> None:
    shared = np.ones(2)
    old = Guarded("g", shared)
    found = encode({"owner": old, "same": shared}, {"guard": old}, OWN)
    new = Guarded("new", None)
    made: Any = decode(found, {"guard": new}, OWN)
    assert made["owner"] is new and new.name == "g" and new.kept is made["same"]


# ---------------------------------------------------------------------- arrays
@pytest.mark.parametrize(
    "vector",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(6, dtype=np.float64).reshape(2, 3).T,
        np.asfortranarray(np.arange(24, dtype=np.int16).reshape(2, 3, 4)),
        np.arange(10)[::-2],
        np.arange(10)[1:9:3],
        np.broadcast_to(np.float32(2), (3, 2)),
        np.zeros(0, np.float32),
        np.zeros((2, 0, 3)),
        np.array(5.0),
        np.array([True, False]),
        np.array(["a", "bc"]),
        np.array([1, 2], ">i4"),
        np.array([1 + 2j]),
        np.array(["2026-01-02"], "M8[D]"),
        np.array([math.nan, -0.0, math.inf]),
    ],
    ids=lambda vector: f"{vector.dtype} {vector.shape} {vector.strides}",
)
@pytest.mark.parametrize("writeable", [True, False])
def test_an_array_comes_back_bit_by_bit(vector: np.ndarray, writeable: bool) -> None:
    vector = vector.copy(order="K") if writeable else vector
    vector.flags.writeable = writeable
    found = back([vector])[0]
    assert found.dtype == vector.dtype and found.shape == vector.shape
    assert found.tobytes() == vector.tobytes() and found.flags.writeable == writeable
    if vector.size:
        assert found.strides == vector.strides
        assert (found.ctypes.data - vector.ctypes.data) % 64 == 0
        assert not np.shares_memory(found, vector)


def test_only_an_array_that_may_change_is_copied() -> None:
    vector = np.ones(3)
    copied, live = encode([vector]), encode([vector], copy=False)
    vector[:] = 5
    assert copied.arrays["a0"].tolist() == [1, 1, 1] and live.arrays["a0"].tolist() == [5, 5, 5]
    vector.flags.writeable = False
    assert encode([vector]).arrays["a0"] is vector


# ---------------------------------------------------------------------- generators
@pytest.mark.parametrize("name", ["PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937"])
def test_a_generator_goes_on(name: str) -> None:
    bits = getattr(np.random, name)(np.random.SeedSequence(7, spawn_key=(1, 2)))
    generator = np.random.Generator(bits)
    generator.random(5), generator.integers(10, dtype=np.uint32)  # half a draw is left
    generator.spawn(2)
    shared = np.random.Generator(bits)
    found, same = back([generator, shared])
    assert found.bit_generator is same.bit_generator
    assert found.spawn(1)[0].random() == generator.spawn(1)[0].random()
    assert found.integers(1 << 20, size=3, dtype=np.uint32).tolist() == (
        generator.integers(1 << 20, size=3, dtype=np.uint32).tolist()
    )
    assert found.normal(size=9).tolist() == generator.normal(size=9).tolist()


# ---------------------------------------------------------------------- properties
KEYS = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False)
ATOMS = KEYS | st.binary(max_size=40) | st.fractions() | st.sampled_from(list(Color))
GRAPHS = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.lists(inner, max_size=4).map(deque)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4).map(OrderedDict)
        | st.builds(Point, st.integers(), inner)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=25,
)


@settings(max_examples=30)
@given(GRAPHS)
@pytest.mark.slow
def test_any_tree_of_values_comes_back(value: object) -> None:
    found = back(value)
    assert found == value and repr(found) == repr(value)


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 40), st.sampled_from([-3, -2, -1, 1, 2, 3])),
        min_size=1,
        max_size=8,
    )
)
@pytest.mark.slow
def test_any_views_of_one_array_come_back(cuts: list[tuple[int, int, int]]) -> None:
    whole = np.arange(40, dtype=np.float32)
    views = [whole[start:end:step] for start, end, step in cuts]
    found = back(views)
    for number, view in enumerate(views):
        if view.size:
            view[0] = found[number][0] = -1.0 - number
        assert [each.tolist() for each in found] == [each.tolist() for each in views]
