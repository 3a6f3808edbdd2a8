"""Bytes of messages: one msgpack header, then raw buffers. Everything that comes in is checked
against the message's types and limits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgpack
import numpy as np

from edgefl.protocol import messages
from edgefl.protocol.errors import WireError
from edgefl.protocol.messages import (
    MAX_ARRAYS,
    MAX_HEADER_BYTES,
    MAX_ITEMS,
    MAX_NAME,
    Bulk,
    Limit,
)
from edgefl.vectors import ALIGNMENT, aligned_copy

Check = Callable[[Any], bool]
BULK = {sort.kind: sort for sort in (messages.Assignment, messages.Fresh, messages.Update)}
NOTES = (
    messages.FreshRequest,
    messages.NothingNewer,
    messages.CancelTask,
    messages.Acknowledged,
    messages.UrgeTask,
    messages.TooLate,
)
SMALL = (*messages.Frame.__args__, *NOTES)
CODES = {kind: code for code, kind in enumerate(SMALL)}
NAMES = {kind: tuple(f.name for f in fields(kind)) for kind in SMALL}
MOST = 2**62  # of an int without a Limit of its own


def _check(hint: Any) -> Check:
    """A predicate for one field's annotation."""
    if get_origin(hint) is Annotated:
        base, limit = get_args(hint)
        return _limited(base, limit)
    if hint is bool:
        return lambda value: isinstance(value, bool)
    raise TypeError(f"no check for {hint!r}")


def _limited(base: Any, limit: Limit) -> Check:
    most = limit.most
    if base is int:
        return lambda value: type(value) is int and 0 <= value <= most
    if base is str or base is bytes:
        return lambda value: type(value) is base and len(value) <= most
    if base == list[int]:
        return lambda value: (
            type(value) is list
            and len(value) <= most
            and all(type(item) is int and 0 <= item <= MOST for item in value)
        )
    if base == list[list[int]]:
        pair = _limited(list[int], Limit(2))
        return lambda value: (
            type(value) is list
            and len(value) <= most
            and all(pair(item) and len(item) == 2 for item in value)
        )
    raise TypeError(f"no check for {base!r}")


CHECKS = [
    [(name, _check(get_type_hints(kind, include_extras=True)[name])) for name in NAMES[kind]]
    for kind in SMALL
]


def encode(message: Any, incarnation: int, session: int) -> bytes:
    """The header frame of a small message: [code, incarnation, session, fields...]."""
    kind = type(message)
    header: bytes = msgpack.packb(
        [CODES[kind], incarnation, session, *[getattr(message, name) for name in NAMES[kind]]]
    )
    return header


def decode(header: bytes | memoryview) -> tuple[Any, int, int]:
    """(message, incarnation, session); WireError says what is wrong with it."""
    if len(header) > MAX_HEADER_BYTES:
        raise WireError(f"header of {len(header)} bytes, at most {MAX_HEADER_BYTES}")
    try:
        # memory is taken for the length it claims
        row = msgpack.unpackb(header, max_array_len=min(MAX_ITEMS, len(header)), max_map_len=0)
    except Exception as error:
        raise WireError(f"header is not msgpack: {error}") from None
    if (
        not isinstance(row, list)
        or len(row) < 3
        or any(type(v) is not int for v in row[:3])
        or not 0 <= row[0] < len(SMALL)
    ):
        raise WireError("header is not [code, incarnation, session, ...]")
    checks, values = CHECKS[row[0]], row[3:]
    if len(values) != len(checks):
        raise WireError(
            f"{SMALL[row[0]].__name__} has {len(values)} fields, expected {len(checks)}"
        )
    for (name, check), value in zip(checks, values):
        if not check(value):
            raise WireError(f"{SMALL[row[0]].__name__}.{name} is out of its limits")
    return SMALL[row[0]](*values), row[1], row[2]


def encode_note(note: Any) -> bytes:
    return encode(note, 0, 0)


def decode_note(data: bytes) -> Any:
    """A note between actors; WireError for any other message."""
    message = decode(data)[0]
    if not isinstance(message, NOTES):
        raise WireError(f"{type(message).__name__} is not a note")
    return message


def pack(message: Bulk) -> tuple[bytes, list[np.ndarray]]:
    """(meta, arrays): the arrays are sent as they lie in memory, the meta says what they are.
    All are float32 and flat.
    """
    return _meta(message), [
        np.ascontiguousarray(vector, dtype=np.float32).reshape(-1)
        for vector in message.vectors.values()
    ]


def size_of(message: Bulk) -> int:
    """Bytes that the message takes on its link: the same on both clocks."""
    return len(_meta(message)) + sum(4 * vector.size for vector in message.vectors.values())


def _meta(message: Bulk) -> bytes:
    places = [[name, vector.size] for name, vector in message.vectors.items()]
    numbers = {name: float(value) for name, value in message.numbers.items()}
    meta: bytes = msgpack.packb([message.number, message.version, places, numbers])
    return meta


def places(meta: bytes) -> tuple[int, int, list[tuple[str, int]], dict[str, float]]:
    """(number, version, [(name, elements)], numbers) of a bulk message; WireError if malformed."""
    try:
        number, version, rows, numbers = msgpack.unpackb(
            meta, max_array_len=MAX_ARRAYS, max_map_len=MAX_ARRAYS
        )
        named = [(name, size) for name, size in rows]
    except Exception as error:
        raise WireError(f"transfer header is malformed: {error}") from None
    counts = type(rows) is list and all(
        type(v) is int and 0 <= v <= MOST for v in (number, version)
    )
    if not counts or not all(
        type(n) is str and len(n) <= MAX_NAME and type(s) is int and 0 <= s < 2**38
        for n, s in named
    ):
        raise WireError("transfer header is out of its limits")
    if len({name for name, _ in named}) < len(named):
        raise WireError("transfer header names a vector twice")
    if type(numbers) is not dict or not all(
        type(key) is str and len(key) <= MAX_NAME and type(value) is float
        for key, value in numbers.items()
    ):
        raise WireError("transfer numbers are not floats by name")
    return number, version, named, numbers


def unpack(kind: str, meta: bytes, body: np.ndarray) -> Bulk:
    """The message from its meta and its body (uint8, 64-byte aligned): vectors are views, copied
    only where they are not aligned.
    """
    number, version, named, numbers = places(meta)
    if body.size != 4 * sum(size for _, size in named):
        raise WireError(
            f"transfer holds {body.size} bytes, its header names"
            f" {4 * sum(size for _, size in named)}"
        )
    vectors, at = {}, 0
    for name, size in named:
        view = body[at : at + 4 * size].view(np.float32)
        vectors[name] = view if view.ctypes.data % ALIGNMENT == 0 else aligned_copy(view)
        at += 4 * size
    return BULK[kind](number, version, vectors, numbers)
