"""The encoding of messages: one msgpack header, then raw buffers.

Everything received is checked against the message's types and limits. A header is [code,
incarnation, session, fields...]. It has at most the bytes that the largest fields of its kind take.
No list in it is long or contains lists: pairs of numbers are encoded as bytes. So decoding takes
time in proportion to the number of bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgpack
import numpy as np

from edgefl.protocol import messages
from edgefl.protocol.errors import LimitExceeded, WireError
from edgefl.protocol.field_limits import Limit
from edgefl.protocol.messages import (
    MAX_ARRAYS,
    MAX_HEADER_BYTES,
    MAX_LIST,
    MAX_NAME,
    Bulk,
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
    messages.TaskFailed,
)
SMALL = (*messages.Frame.__args__, *NOTES)
CODES = {kind: code for code, kind in enumerate(SMALL)}
NAMES = {kind: tuple(f.name for f in fields(kind)) for kind in SMALL}
MOST = 2**62  # for an int without its own Limit
PAIR = struct.Struct(">QQ")
PAIR_BYTES = PAIR.size
FEW_PAIRS = 16  # for more, numpy is faster
HEAD_BYTES = 1 + 3 * 9  # the list and its first three ints
NO_HEADER = "header is not [code, incarnation, session, ...]"
INT_BYTES = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}  # msgpack's unsigned ints


def _packed(pairs: list[list[int]]) -> bytes:
    if len(pairs) > FEW_PAIRS:
        return np.array(pairs, ">u8").tobytes()
    return b"".join([PAIR.pack(first, second) for first, second in pairs])


def _pairs(value: bytes) -> list[list[int]]:
    if len(value) > PAIR_BYTES * FEW_PAIRS:
        return np.frombuffer(value, ">u8").reshape(-1, 2).tolist()
    return [[first, second] for first, second in PAIR.iter_unpack(value)]


def _all_in_limits(value: bytes) -> bool:
    if len(value) > PAIR_BYTES * FEW_PAIRS:
        return bool((np.frombuffer(value, ">u8") <= MOST).all())
    return all(first <= MOST and second <= MOST for first, second in PAIR.iter_unpack(value))


def _check(hint: Any) -> Check:
    """Make a predicate from one field's annotation."""
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
    if base == int | None:
        return lambda value: value is None or (type(value) is int and 0 <= value <= most)
    if base is str or base is bytes:
        return lambda value: type(value) is base and len(value) <= most
    if base == list[int]:
        return lambda value: (
            type(value) is list
            and len(value) <= most
            and all(type(item) is int and 0 <= item <= MOST for item in value)
        )
    if base == list[list[int]]:
        return lambda value: (
            type(value) is bytes
            and len(value) <= PAIR_BYTES * most
            and len(value) % PAIR_BYTES == 0
            and _all_in_limits(value)
        )
    raise TypeError(f"no check for {base!r}")


HINTS = [list(get_type_hints(kind, include_extras=True).values()) for kind in SMALL]
CHECKS = [
    [(name, _check(hint)) for name, hint in zip(NAMES[kind], hints)]
    for kind, hints in zip(SMALL, HINTS)
]


def _most_bytes(hint: Any) -> int:
    """The largest size of one field in msgpack."""
    if hint is bool:
        return 1
    base, limit = get_args(hint)
    each = {int: 0, int | None: 0, str: 4, bytes: 1, list[int]: 9, list[list[int]]: PAIR_BYTES}[
        base
    ]
    return 9 + each * int(limit.most)


MOST_BYTES = [
    min(HEAD_BYTES + sum(_most_bytes(hint) for hint in hints), MAX_HEADER_BYTES) for hints in HINTS
]
PAIRS = {
    kind: [at for at, hint in enumerate(hints) if list[list[int]] in get_args(hint)]
    for kind, hints in zip(SMALL, HINTS)
}


def encode(message: Any, incarnation: int, session: int) -> bytes:
    """Encode the header frame of a small message: [code, incarnation, session, fields...]."""
    kind = type(message)
    values = [getattr(message, name) for name in NAMES[kind]]
    for at in PAIRS[kind]:
        values[at] = _packed(values[at])
    header: bytes = msgpack.packb([CODES[kind], incarnation, session, *values])
    return header


def says(header: bytes | memoryview, kind: type) -> bool:
    """Whether this is a header of a message of class ``kind``, even if malformed."""
    return len(header) > 1 and header[0] >> 4 == 9 and header[1] == CODES[kind]


def head(header: bytes | memoryview) -> tuple[Any, int, int]:
    """Decode (kind, incarnation, session) without the fields; WireError if they are malformed."""
    kind = _kind(header)
    incarnation, at = _int(header, 2)
    session, _ = _int(header, at)
    return kind, incarnation, session


def _kind(header: bytes | memoryview) -> Any:
    if len(header) > MAX_HEADER_BYTES:
        raise LimitExceeded(f"header of {len(header)} bytes, at most {MAX_HEADER_BYTES}")
    if len(header) < 2 or header[0] >> 4 != 9 or header[1] >= len(SMALL):
        raise WireError(NO_HEADER)
    kind, most = SMALL[header[1]], MOST_BYTES[header[1]]
    if len(header) > most:
        raise LimitExceeded(f"{kind.__name__} of {len(header)} bytes, at most {most}")
    return kind


def _int(header: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return the int that begins at byte ``at``, and its end."""
    first = header[at] if at < len(header) else 0xC1
    if first < 0x80:
        return first, at + 1
    end = at + 1 + INT_BYTES.get(first, len(header))
    if end > len(header):
        raise WireError(NO_HEADER)
    return int.from_bytes(header[at + 1 : end], "big"), end


def decode(header: bytes | memoryview) -> tuple[Any, int, int]:
    """Decode (message, incarnation, session); WireError if it is malformed."""
    kind = _kind(header)
    try:
        # limits, because msgpack allocates memory for the length that a list claims
        row = msgpack.unpackb(header, max_array_len=MAX_LIST, max_map_len=0)
    except msgpack.StackError:
        raise LimitExceeded(f"{kind.__name__} is nested too deep") from None
    except Exception as error:
        if "exceeds max_" in str(error):  # msgpack has no exception class for this
            raise LimitExceeded(f"{kind.__name__} has too long a list: {error}") from None
        raise WireError(f"header is not msgpack: {error}") from None
    if not isinstance(row, list) or len(row) < 3:
        raise WireError(NO_HEADER)
    code, incarnation, session, *values = row
    if not (type(code) is type(incarnation) is type(session) is int):
        raise WireError(NO_HEADER)
    checks = CHECKS[CODES[kind]]
    if len(values) != len(checks):
        raise WireError(f"{kind.__name__} has {len(values)} fields, expected {len(checks)}")
    for (name, check), value in zip(checks, values):
        if not check(value):
            raise WireError(f"{kind.__name__}.{name} is out of its limits")
    for at in PAIRS[kind]:
        values[at] = _pairs(values[at])
    return kind(*values), incarnation, session


def encode_note(note: Any) -> bytes:
    return encode(note, 0, 0)


def decode_note(data: bytes) -> Any:
    """Decode a note between actors; WireError for any other message."""
    message = decode(data)[0]
    if not isinstance(message, NOTES):
        raise WireError(f"{type(message).__name__} is not a note")
    return message


def pack(message: Bulk) -> tuple[bytes, list[np.ndarray]]:
    """Return (meta, arrays) of a bulk message; the arrays are flat float32.

    Arrays are sent as they are in memory; the meta names and sizes them.
    """
    return _meta(message), [
        np.ascontiguousarray(vector, dtype=np.float32).reshape(-1)
        for vector in message.vectors.values()
    ]


def size_of(message: Bulk) -> int:
    """Bytes of the message on its emulated link: the same on both clocks."""
    return len(_meta(message)) + sum(4 * vector.size for vector in message.vectors.values())


def _meta(message: Bulk) -> bytes:
    places = [[name, vector.size] for name, vector in message.vectors.items()]
    numbers = {name: float(value) for name, value in message.numbers.items()}
    meta: bytes = msgpack.packb([message.number, message.version, places, numbers])
    return meta


Places = tuple[int, int, list[tuple[str, int]], dict[str, float]]


def places(meta: bytes) -> Places:
    """Decode (number, version, [(name, elements)], numbers) of a meta; WireError if malformed."""
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
        raise WireError("transfer numbers are not a table of floats")
    return number, version, named, numbers


def unpack(kind: str, placed: Places, body: np.ndarray) -> Bulk:
    """Make the message from its ``places`` and its body (uint8, 64-byte aligned).

    Vectors are views; only those that are not aligned are copied.
    """
    number, version, named, numbers = placed
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
