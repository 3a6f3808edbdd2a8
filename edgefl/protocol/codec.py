"""The encoding of messages: one msgpack header, then raw buffers.

Everything received is checked against the message's types and limits. A header is [code,
incarnation, session, fields...]. It has at most the bytes that the largest fields of its kind take.
No list in it is long or contains lists: pairs of numbers are encoded as bytes. So decoding takes
time in proportion to the number of bytes.

A frame may hold several headers of one session, each with its length: see ``bundle``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgpack
import numpy as np

from edgefl.protocol import messages
from edgefl.protocol.errors import LimitExceeded, WireError
from edgefl.protocol.messages import (
    MAX_ARRAYS,
    MAX_HEADER_BYTES,
    MAX_LIST,
    MAX_NAME,
    Bulk,
)
from edgefl.vectors import ALIGNMENT, aligned_copy

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
BUFFER_BYTES = 512  # most headers are shorter; it grows
FEW_PAIRS = 16  # for more, numpy is faster
HEAD_BYTES = 1 + 3 * 9  # the list and its first three ints
NO_HEADER = "header is not [code, incarnation, session, ...]"
# A frame with several headers begins with this byte, which msgpack does not use. Before each header
# stands its length.
BUNDLE, BUNDLE_BYTE, LENGTH = b"\xc1", 0xC1, struct.Struct(">H")
MOST_BUNDLED, MOST_BUNDLED_BYTES = 8, 1 << 12
INT_BYTES = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}  # msgpack's unsigned ints


def _packed(pairs: list[list[int]]) -> bytes:
    if len(pairs) > FEW_PAIRS:
        return np.array(pairs, ">u8").tobytes()
    return b"".join([PAIR.pack(first, second) for first, second in pairs])


def _pairs(value: bytes) -> list[list[int]]:
    if len(value) > PAIR_BYTES * FEW_PAIRS:
        return np.frombuffer(value, ">u8").reshape(-1, 2).tolist()
    return [[first, second] for first, second in PAIR.iter_unpack(value)]


def _in_limits(value: list[Any]) -> bool:
    return all(type(item) is int and 0 <= item <= MOST for item in value)


def _pairs_in_limits(value: bytes) -> bool:
    if len(value) > PAIR_BYTES * FEW_PAIRS:
        return bool((np.frombuffer(value, ">u8") <= MOST).all())
    return all(first <= MOST and second <= MOST for first, second in PAIR.iter_unpack(value))


def _condition(hint: Any) -> str:
    """Return the source of the condition that one field's annotation makes on a value ``{0}``."""
    if hint is bool:
        return "type({0}) is bool"
    if get_origin(hint) is not Annotated:
        raise TypeError(f"no check for {hint!r}")
    base, limit = get_args(hint)
    whole = f"type({{0}}) is int and 0 <= {{0}} <= {limit.most}"
    if base is int:
        return whole
    if base == int | None:
        return f"({{0}} is None or {whole})"
    if base is str or base is bytes:
        return f"type({{0}}) is {base.__name__} and len({{0}}) <= {limit.most}"
    if base == list[int]:
        return f"type({{0}}) is list and len({{0}}) <= {limit.most} and in_limits({{0}})"
    if base == list[list[int]]:
        size = f"len({{0}}) <= {PAIR_BYTES * limit.most} and len({{0}}) % {PAIR_BYTES} == 0"
        return f"type({{0}}) is bytes and {size} and pairs_in_limits({{0}})"
    raise TypeError(f"no check for {hint!r}")


def _wrong_field(kind: type, hints: list[Any]) -> Callable[..., int]:
    """Make a function of a message's values that returns the number of the first one that is out
    of its limits, or -1.

    It is compiled from one condition for each field, as ``dataclass`` compiles ``__init__``: calls
    of a predicate for each field took a third of the time of decoding.
    """
    names = [f"value{at}" for at in range(len(hints))]
    tests = [
        f"    if not ({_condition(hint).format(name)}): return {at}\n"
        for at, (name, hint) in enumerate(zip(names, hints))
    ]
    source = f"def wrong_field({', '.join(names)}):\n{''.join(tests)}    return -1\n"
    made: dict[str, Any] = {"in_limits": _in_limits, "pairs_in_limits": _pairs_in_limits}
    exec(compile(source, f"<checks of {kind.__name__}>", "exec"), made)
    wrong: Callable[..., int] = made["wrong_field"]
    return wrong


HINTS = [list(get_type_hints(kind, include_extras=True).values()) for kind in SMALL]
WRONG_FIELD = [_wrong_field(kind, hints) for kind, hints in zip(SMALL, HINTS)]
FIELDS = [len(hints) for hints in HINTS]


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
# the places of pairs among the values of a message, by its code; most kinds have none
PAIRS = [
    tuple(at for at, hint in enumerate(hints) if list[list[int]] in get_args(hint))
    for hints in HINTS
]


def _values(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    """Make the function that returns the values of a message's fields."""
    names = NAMES[kind]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda message: tuple(getattr(message, name) for name in names)


VALUES = {kind: _values(kind) for kind in SMALL}


def _packed_row(row: tuple[Any, ...]) -> bytes:
    """Encode a short row. The packer's usual buffer has 256 KiB, which take time to get."""
    row_bytes: bytes = msgpack.Packer(buf_size=BUFFER_BYTES).pack(row)
    return row_bytes


def encode(message: Any, incarnation: int, session: int) -> bytes:
    """Encode the header frame of a small message: [code, incarnation, session, fields...]."""
    kind = type(message)
    code, values = CODES[kind], VALUES[kind](message)
    if PAIRS[code]:
        values = tuple(
            _packed(value) if at in PAIRS[code] else value for at, value in enumerate(values)
        )
    return _packed_row((code, incarnation, session, *values))


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
    at_code = header[1]  # that of the kind: ``code`` may be True
    if len(values) != FIELDS[at_code]:
        raise WireError(f"{kind.__name__} has {len(values)} fields, expected {FIELDS[at_code]}")
    wrong = WRONG_FIELD[at_code](*values)
    if wrong >= 0:
        raise WireError(f"{kind.__name__}.{NAMES[kind][wrong]} is out of its limits")
    for at in PAIRS[at_code]:
        values[at] = _pairs(values[at])
    return kind(*values), incarnation, session


def bundle(headers: Sequence[bytes]) -> bytes:
    """Put several headers into one frame, in their order; a single one stays as it is.

    Each has at most MOST_BUNDLED_BYTES. A body belongs to the last one.
    """
    if len(headers) == 1:
        return headers[0]
    parts = [BUNDLE]
    for header in headers:
        parts += (LENGTH.pack(len(header)), header)
    return b"".join(parts)


def is_bundle(frame: memoryview) -> bool:
    return len(frame) > 0 and frame[0] == BUNDLE_BYTE


def unbundled(frame: memoryview) -> Sequence[memoryview]:
    """The headers in a frame; WireError if it is a malformed bundle."""
    if not is_bundle(frame):
        return (frame,)
    found: list[memoryview] = []
    at = 1
    while at + LENGTH.size <= len(frame):
        if len(found) == MOST_BUNDLED:
            raise LimitExceeded(f"more than {MOST_BUNDLED} headers in a frame")
        begin = at + LENGTH.size
        at = begin + LENGTH.unpack_from(frame, at)[0]
        found.append(frame[begin:at])
    if at != len(frame) or not found:
        raise WireError("a bundle of headers is malformed")
    return found


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
    return meta(message), [
        np.ascontiguousarray(vector, dtype=np.float32).reshape(-1)
        for vector in message.vectors.values()
    ]


def size_of(message: Bulk) -> int:
    """Bytes of the message on its emulated link: the same on both clocks."""
    if not message.size_bytes:  # computed once: several parts of a run ask for it
        body = 4 * sum([vector.size for vector in message.vectors.values()])
        object.__setattr__(message, "size_bytes", len(meta(message)) + body)
    return message.size_bytes


def meta(message: Bulk) -> bytes:
    """Encode what names and sizes the arrays of a bulk message."""
    places = [[name, vector.size] for name, vector in message.vectors.items()]
    numbers = dict(zip(message.numbers, map(float, message.numbers.values())))
    return _packed_row((message.number, message.version, places, numbers))


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
