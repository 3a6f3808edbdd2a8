"""The encoding of messages: a round trip changes nothing, and malformed input is a WireError."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.inspect import BoolType, BytesType, IntType, ListType, StrType, UnionType, type_info

from edgefl.protocol import messages as m
from edgefl.protocol.codec import (
    BULK,
    CODES,
    FORMS,
    SMALL,
    decode,
    decode_note,
    encode,
    head,
    pack,
    size_of,
    transfer_meta,
    unpack,
)
from edgefl.protocol.messages import LimitExceeded, WireError
from edgefl.vectors import ALIGNMENT, aligned

HEAD = (7, 2**60)  # incarnation, session


FIELDS: dict[type, Any] = {kind: type_info(kind).fields for kind in SMALL}  # type: ignore[attr-defined]


def sort_of(field: Any) -> str:
    """What a field holds."""
    match field.type:
        case BoolType():
            return "bool"
        case UnionType():
            return "int or None"
        case ListType(item_type=ListType()):
            return "pairs"
    kinds = {IntType: "int", StrType: "text", BytesType: "bytes", ListType: "ints"}
    return kinds[type(field.type)]


def most_of(field: Any) -> int:
    """The largest value or the largest length of a field."""
    limited = field.type.types[0] if isinstance(field.type, UnionType) else field.type
    return limited.le if isinstance(limited, IntType) else limited.max_length


def values(field: Any) -> st.SearchStrategy[Any]:
    """All values that a field may have; short texts, to limit the search."""
    if sort_of(field) == "bool":
        return st.booleans()
    most = min(most_of(field), 40)
    items = st.integers(0, 2**62)
    return {
        "int": st.integers(0, most_of(field)),
        "int or None": st.none() | st.integers(0, most_of(field)),
        "text": st.text(st.characters(codec="utf-8"), max_size=most),
        "bytes": st.binary(max_size=most),
        "ints": st.lists(items, max_size=min(most, 16)),
        "pairs": st.lists(st.lists(items, min_size=2, max_size=2), max_size=min(most, 16)),
    }[sort_of(field)]


small = st.sampled_from(SMALL).flatmap(
    lambda kind: st.builds(kind, **{f.name: values(f) for f in FIELDS[kind]})
)


def row(code: int, *rest: Any) -> bytes:
    return msgpack.packb([code, *HEAD, *rest])


def refused(header: bytes, match: str | None = None) -> None:
    with pytest.raises(WireError, match=match):
        decode(header)


# ------------------------------------------------------------------ small messages
@settings(max_examples=30)
@given(small, st.integers(0, 2**32), st.integers(0, 2**60))
def test_a_message_comes_back_as_it_was(message: Any, incarnation: int, session: int) -> None:
    header = encode(message, incarnation, session)
    assert decode(header) == decode(memoryview(header)) == (message, incarnation, session)


# the wire form of a valid value, and of one item of a long one
PLAIN = {
    "bool": False,
    "int": 1,
    "int or None": None,
    "text": "a",
    "bytes": b"a",
    "ints": [],
    "pairs": b"",
}
PAIR = (3).to_bytes(8, "big") + (4).to_bytes(8, "big")
ITEM: dict[str, Any] = {"text": "x", "bytes": b"x", "ints": [3], "pairs": PAIR}


def with_field(kind: type, index: int, value: Any) -> bytes:
    """A header whose fields are valid, but for one."""
    rest = [PLAIN[sort_of(each)] for each in FIELDS[kind]]
    rest[index] = value
    return row(CODES[kind], *rest)


def test_the_longest_values_pass_and_one_more_does_not() -> None:
    for kind in SMALL:
        for index, field in enumerate(FIELDS[kind]):
            sort = sort_of(field)
            if sort == "bool":
                continue
            most = most_of(field)
            full, more = (ITEM[sort] * n if sort in ITEM else n for n in (most, most + 1))
            refused(with_field(kind, index, more))
            found = getattr(decode(with_field(kind, index, full))[0], field.name)
            assert found == ([[3, 4]] * most if sort == "pairs" else full)


WRONG: dict[str, list[Any]] = {
    "bool": [0, 1, None, "true"],
    "int": [True, False, -1, 1.0, "1", None, [1], 2**62 + 1, 2**64 - 1],
    "int or None": [True, -1, 1.0, "1", b"", [], 2**62 + 1],
    "text": [b"a", 1, None, ["a"]],
    "bytes": ["a", "YQ==", 1, None],
    "ints": [None, 1, "ab", [True], [1.0], ["1"], [[1]], [-1], [2**64 - 1]],
    "pairs": [None, 1, "a" * 16, [], [[1, 2]], bytes(8), bytes(17), b"\xff" * 16],
}


def test_another_type_in_any_field_is_refused() -> None:
    for kind in SMALL:
        for index, field in enumerate(FIELDS[kind]):
            for wrong in WRONG[sort_of(field)]:
                refused(with_field(kind, index, wrong), kind.__name__)


def test_too_few_and_too_many_fields_are_refused() -> None:
    refused(row(CODES[m.Piece], 1), "Piece has 1 fields, expected 2")
    refused(row(CODES[m.Piece], 1, 2, 3), "Piece has 3 fields, expected 2")
    refused(row(CODES[m.Welcome], {}), "Welcome has 1 fields, expected 0")


def exceeds(header: bytes, match: str) -> None:
    with pytest.raises(LimitExceeded, match=match):
        decode(header)


@pytest.mark.parametrize("kind", [kind for kind in SMALL if kind is not m.Setup])
def test_what_an_edge_sends_is_limited_by_its_kind(kind: type) -> None:
    most = FORMS[CODES[kind]].most_bytes
    assert most <= 128 << 10
    exceeds(row(CODES[kind], bytes(most)), f"{kind.__name__} of .* at most {most}")


def test_no_header_takes_more_work_than_its_bytes() -> None:
    """A list claims memory for its items: 17 KB of nested lists would claim 67 MB."""
    head = bytes([0x95, CODES[m.Arrived], 1, 1])
    bombs = [
        head + claim * (17_000 // len(claim))
        for claim in (b"\x9f", b"\x91", b"\xdc\x00\x10", b"\xdc\x40\x00", b"\xdd\0\0\0\x10")
    ]
    tracemalloc.start()
    for bomb in bombs:
        refused(bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_the_head_is_read_without_the_rest() -> None:
    for session in (0, 127, 128, 2**16, 2**40, 2**60):
        header = encode(m.Piece(1, 2), 2**32, session)
        assert head(header) == head(header[:-2] + b"\xc1\xc1") == (m.Piece, 2**32, session)
    for wrong in (b"", b"\x93", b"\x93\x01", b"\x93\x01\x02", b"\x93\x01\xcf12", b"\x93\x01\xa1a"):
        with pytest.raises(WireError, match="code, incarnation, session"):
            head(wrong)


def test_a_frame_is_no_note() -> None:
    with pytest.raises(WireError, match="Welcome is not a note"):
        decode_note(encode(m.Welcome(), 0, 0))


# ------------------------------------------------------------------ bulk messages
def meta_of(
    number: Any = 1, version: Any = 2, rows: Any = (("weights", 3),), numbers: Any = None
) -> bytes:
    return msgpack.packb([number, version, rows, {} if numbers is None else numbers])


def body_of(arrays: list[np.ndarray]) -> np.ndarray:
    data = b"".join(array.tobytes() for array in arrays)
    body = aligned(len(data), np.uint8)
    body[:] = np.frombuffer(data, np.uint8)
    return body


vectors = st.dictionaries(
    st.text(max_size=8),
    st.integers(0, 40).map(lambda n: np.arange(n, dtype=np.float32)),
    max_size=5,
)


@settings(max_examples=30)
@given(
    st.sampled_from(sorted(BULK)),
    vectors,
    st.dictionaries(st.text(max_size=8), st.floats(), max_size=5),
)
def test_a_bulk_message_comes_back(
    kind: str, named: dict[str, np.ndarray], numbers: dict[str, float]
) -> None:
    message = BULK[kind](5, 2**62, named, numbers)
    meta, arrays = pack(message)
    back = unpack(kind, transfer_meta(meta), body_of(arrays))
    assert (type(back), back.number, back.version, list(back.vectors)) == (
        BULK[kind],
        5,
        2**62,
        list(named),
    )
    assert all(np.array_equal(back.vectors[name], named[name]) for name in named)
    assert all(
        vector.ctypes.data % ALIGNMENT == 0 for vector in back.vectors.values() if vector.size
    )
    assert {name: repr(value) for name, value in back.numbers.items()} == {
        name: repr(value) for name, value in numbers.items()
    }
    assert size_of(message) == len(meta) + sum(4 * vector.size for vector in named.values())


def test_vectors_are_sent_as_flat_float32() -> None:
    meta, (array,) = pack(
        m.Assignment(1, 2, {"weights": np.ones((2, 3), dtype=np.float64)[:, ::2]}, {"lr": 1})
    )
    found = transfer_meta(meta)
    assert (array.dtype, array.tolist()) == (np.float32, [1.0] * 4)
    assert (found.vectors, found.numbers) == (
        [("weights", 4)],
        {"lr": 1.0},
    )


@pytest.mark.parametrize(
    "meta",
    [
        b"",
        b"\xff" * 9,
        msgpack.packb({}),
        msgpack.packb([1, 2, []]),
        msgpack.packb([1, 2, [], {}, 5]),
        meta_of(number=-1),
        meta_of(number=2**62 + 1),
        meta_of(version=None),
        meta_of(rows={}),
        meta_of(rows=[[b"a", 1]]),
        meta_of(rows=[["a", -1]]),
        meta_of(rows=[["a", 2**38]]),
        meta_of(rows=[["a" * 65, 1]]),
        meta_of(rows=[["a", 1], ["b", 1], ["a", 2]]),
        meta_of(rows=[[str(n), 1] for n in range(65)]),
        meta_of(numbers=[]),
        meta_of(numbers={"a": 1}),
        meta_of(numbers={1: 1.0}),
        meta_of(numbers={"a" * 65: 1.0}),
        meta_of(numbers={str(n): 1.0 for n in range(65)}),
    ],
)
def test_malformed_transfer_headers_are_refused(meta: bytes) -> None:
    with pytest.raises(WireError):
        transfer_meta(meta)


@pytest.mark.parametrize("size", [0, 4, 11, 13, 16])
def test_a_body_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(WireError, match="12"):
        unpack("update", transfer_meta(meta_of()), aligned(size, np.uint8))


@pytest.mark.parametrize("pairs", [0, 1, 17, m.MAX_PAIRS])
def test_pairs_are_bytes_and_have_limits(pairs: int) -> None:
    curve = [[at, m.MAX_PAIRS + at] for at in range(pairs)]
    raw = b"".join(struct.pack(">QQ", *pair) for pair in curve)
    header = encode(m.Arrived(7, curve), 3, 4)
    assert header.endswith(raw) and decode(header) == (m.Arrived(7, curve), 3, 4)
    if pairs:
        for at in (-16, -8):  # the last pair's first and second number
            beyond = header[:at] + struct.pack(">Q", 2**62 + 1) + header[len(header) + at + 8 :]
            with pytest.raises(WireError, match="Arrived: has a pair"):
                decode(beyond)
