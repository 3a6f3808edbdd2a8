"""The encoding of messages: one msgpack header, then raw buffers.

Everything received is checked against the message's types and limits. A header is [code,
incarnation, session, fields...]. It has at most the bytes that the largest fields of its kind take.
No list in it is long or contains lists: pairs of numbers are encoded as bytes. So decoding takes
time in proportion to the number of bytes.

A frame may hold several headers of one session, each with its length: see ``bundle``. A bulk
message is cut into pieces on one side (``Outgoing``), and joined and checked on the other
(``Incoming``).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Annotated, Any, get_type_hints

import msgpack
import msgspec
import numpy as np
import xxhash
from msgspec import Meta, Struct
from msgspec.inspect import BoolType, BytesType, IntType, ListType, StrType, UnionType, type_info
from msgspec.structs import astuple

from edgefl.protocol import messages
from edgefl.protocol.messages import (
    MAX_ARRAYS,
    MAX_HEADER_BYTES,
    MAX_LIST,
    MAX_NAME,
    MAX_PIECE_BYTES,
    MOST,
    SPACED_BYTES,
    Bulk,
    Count,
    LimitExceeded,
    Offer,
    WireError,
)
from edgefl.vectors import ALIGNMENT, aligned, aligned_copy

BULK = {
    sort.kind: sort
    for sort in (messages.Assignment, messages.Fresh, messages.Pushed, messages.Update)
}
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
PAIR = struct.Struct(">QQ")
HEAD = 3  # items of a header before the fields
HEAD_BYTES = 1 + HEAD * 9
NO_HEADER = "header is not [code, incarnation, session, ...]"
# A frame with several headers begins with this byte, which msgpack does not use. Before each header
# stands its length.
BUNDLE, BUNDLE_BYTE, LENGTH = b"\xc1", 0xC1, struct.Struct(">H")
MOST_BUNDLED, MOST_BUNDLED_BYTES = 8, 1 << 12


def _wire_type(hint: Any) -> Any:
    """The type of a field on the wire: pairs of numbers are bytes there."""
    info = type_info(hint)
    if isinstance(info, ListType) and isinstance(info.item_type, ListType):
        return Annotated[bytes, Meta(max_length=PAIR.size * (info.max_length or 0))]
    return hint


def _most_bytes(hint: Any) -> int:
    """The largest size of a field in msgpack. TypeError if it has no limit."""
    match type_info(hint):
        case BoolType():
            return 1
        case IntType(ge=0, le=int()) | UnionType(types=(IntType(ge=0, le=int()), _)):
            return 9
        case StrType(max_length=int(most)):
            return 9 + 4 * most
        case BytesType(max_length=int(most)):
            return 9 + most
        case ListType(item_type=IntType(), max_length=int(most)):
            return 9 + 9 * most
    raise TypeError(f"no limit of {hint}")


class Form:
    """How messages of a class are encoded.

    ``pairs``: the places of pairs of numbers among its fields. ``most_bytes``: of a header.
    """

    def __init__(self, kind: Any) -> None:
        self.kind, self.name = kind, kind.__name__
        hints = get_type_hints(kind, include_extras=True)
        types = {name: _wire_type(hint) for name, hint in hints.items()}
        self.fields = list(hints)
        self.pairs = [at for at, name in enumerate(hints) if types[name] is not hints[name]]
        size = HEAD_BYTES + sum(map(_most_bytes, types.values()))
        self.most_bytes = min(size, MAX_HEADER_BYTES)
        rows = [("code", int), ("incarnation", int), ("session", int), *types.items()]
        header = msgspec.defstruct(self.name, rows, array_like=True, forbid_unknown_fields=True)
        self.decoder = msgspec.msgpack.Decoder(header)


FORMS = [Form(kind) for kind in SMALL]  # by code


def encode(message: Any, incarnation: int, session: int) -> bytes:
    """Encode the header frame of a small message: [code, incarnation, session, fields...]."""
    code = CODES[type(message)]
    row = [code, incarnation, session, *astuple(message)]
    for at in FORMS[code].pairs:
        row[HEAD + at] = b"".join([PAIR.pack(*pair) for pair in row[HEAD + at]])
    return msgspec.msgpack.encode(row)


def says(header: bytes | memoryview, kind: type) -> bool:
    """Whether this is a header of a message of class ``kind``, even if malformed."""
    return len(header) > 1 and header[0] >> 4 == 9 and header[1] == CODES[kind]


def head(header: bytes | memoryview) -> tuple[Any, int, int]:
    """Decode (kind, incarnation, session) without the fields; WireError if they are malformed."""
    form = _form(header)
    unpacker = msgpack.Unpacker(max_buffer_size=HEAD_BYTES)  # this also limits all lengths
    unpacker.feed(header[:HEAD_BYTES])
    try:
        unpacker.read_array_header()
        _, incarnation, session = (unpacker.unpack() for _ in range(HEAD))
    except Exception:
        raise WireError(NO_HEADER) from None
    if not type(incarnation) is type(session) is int or min(incarnation, session) < 0:
        raise WireError(NO_HEADER)
    return form.kind, incarnation, session


def _form(header: bytes | memoryview) -> Form:
    if len(header) > MAX_HEADER_BYTES:
        raise LimitExceeded(f"header of {len(header)} bytes, at most {MAX_HEADER_BYTES}")
    if len(header) < 2 or header[0] >> 4 != 9 or header[1] >= len(SMALL):
        raise WireError(NO_HEADER)
    form = FORMS[header[1]]
    if len(header) > form.most_bytes:
        raise LimitExceeded(f"{form.name} of {len(header)} bytes, at most {form.most_bytes}")
    return form


def decode(header: bytes | memoryview) -> tuple[Any, int, int]:
    """Decode (message, incarnation, session); WireError if it is malformed."""
    form = _form(header)
    try:
        _, incarnation, session, *values = astuple(form.decoder.decode(header))
        for at in form.pairs:
            values[at] = _pairs(values[at])
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise _refusal(form, header, str(error)) from None
    return form.kind(*values), incarnation, session


def _pairs(encoded: bytes) -> list[list[int]]:
    """Decode pairs of numbers. ValueError if they are cut off, or too large."""
    if len(encoded) % PAIR.size:
        raise ValueError("has half a pair of numbers")
    pairs = [[first, second] for first, second in PAIR.iter_unpack(encoded)]
    if any(first > MOST or second > MOST for first, second in pairs):
        raise ValueError(f"has a pair of numbers with one above {MOST}")
    return pairs


def _refusal(form: Form, header: bytes | memoryview, reason: str) -> WireError:
    """Say what is wrong with a header that cannot be decoded."""
    try:
        # limits, because msgpack allocates memory for the length that a list claims
        row = msgpack.unpackb(header, max_array_len=MAX_LIST, max_map_len=0)
    except msgpack.StackError:
        return LimitExceeded(f"{form.name} is nested too deep")
    except Exception as error:
        if "exceeds max_" in str(error):  # msgpack has no exception class for this
            return LimitExceeded(f"{form.name} has too long a list: {error}")
        return WireError(f"header is not msgpack: {error}")
    if len(row) < HEAD or not type(row[1]) is type(row[2]) is int:
        return WireError(NO_HEADER)
    found, expected = len(row) - HEAD, len(form.fields)
    if found != expected:
        return WireError(f"{form.name} has {found} fields, expected {expected}")
    names = dict(enumerate(form.fields, HEAD))
    named = re.sub(r"\$\[(\d+)\]", lambda place: names[int(place[1])], reason)
    return WireError(f"{form.name}: {named}")


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
        message.size_bytes = len(meta(message)) + body
    return message.size_bytes


Name = Annotated[str, Meta(max_length=MAX_NAME)]
Elements = Annotated[int, Meta(ge=0, lt=2**38)]


class TransferMeta(Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """What names and sizes the arrays of a bulk message: (name, elements) of each vector."""

    number: Count
    version: Count
    vectors: Annotated[list[tuple[Name, Elements]], Meta(max_length=MAX_ARRAYS)]
    numbers: Annotated[dict[Name, float], Meta(max_length=MAX_ARRAYS)]


def meta(message: Bulk) -> bytes:
    """Encode the TransferMeta of a message."""
    # a strategy's own name may be of a subclass of str, as numpy's texts are
    vectors = [
        (str(name) if isinstance(name, str) else name, vector.size)
        for name, vector in message.vectors.items()
    ]
    numbers = {
        str(name) if isinstance(name, str) else name: float(number)
        for name, number in message.numbers.items()
    }
    return msgspec.msgpack.encode((message.number, message.version, vectors, numbers))


def transfer_meta(encoded: bytes) -> TransferMeta:
    """Decode what ``meta`` has encoded; WireError if it is malformed."""
    try:
        row = msgpack.unpackb(encoded, max_array_len=MAX_ARRAYS, max_map_len=MAX_ARRAYS)
        found = msgspec.convert(row, TransferMeta, builtin_types=(bytes,))
    except Exception as error:
        raise WireError(f"transfer header is malformed: {error}") from None
    if len({name for name, _ in found.vectors}) < len(found.vectors):
        raise WireError("transfer header names a vector twice")
    if not all(type(value) is float for value in row[3].values()):
        raise WireError("transfer numbers are not a table of floats")
    return found


def unpack(kind: str, meta: TransferMeta, body: np.ndarray) -> Bulk:
    """Make the message from its meta and its body (uint8, 64-byte aligned).

    Vectors are views; only those that are not aligned are copied.
    """
    whole = 4 * sum(size for _, size in meta.vectors)
    if body.size != whole:
        raise WireError(f"transfer holds {body.size} bytes, its header names {whole}")
    vectors, at = {}, 0
    for name, size in meta.vectors:
        view = body[at : at + 4 * size].view(np.float32)
        vectors[name] = view if view.ctypes.data % ALIGNMENT == 0 else aligned_copy(view)
        at += 4 * size
    return BULK[kind](meta.number, meta.version, vectors, meta.numbers)


# ---------------------------------------------------------------------- bodies of transfers
class Outgoing:
    """A message as bytes: the meta is sent in the Offer, the body in pieces.

    Both count as its size. The pieces share the message's memory.
    """

    def __init__(
        self,
        number: int,
        message: Bulk,
        of_body: str | None = None,
        like: Outgoing | None = None,
    ) -> None:
        """Pack ``message``.

        One model for many edges: ``of_body``, the body's digest if it is already known; ``like``,
        another transfer of the same vectors. Both then have the same parts, which the socket
        copies once.
        """
        self.number = number
        self.kind = message.kind
        self.task, self.version = message.number, message.version
        self._parts: list[memoryview]
        self._starts: list[int]
        self._cuts: dict[int, memoryview]  # by their first byte, see ``piece``
        if like is not None and of_body is not None:
            self.meta = meta(message)
            self._parts, self._starts, self._cuts = like._parts, like._starts, like._cuts
        else:
            self.meta, arrays = pack(message)
            self._parts = [array.view(np.uint8).data for array in arrays]
            self._starts = list(accumulate(map(len, self._parts), initial=0))
            self._cuts = {}
            of_body = of_body or body_digest(arrays)
        self.body = self._starts[-1]
        self.size = len(self.meta) + self.body
        self.digest = whole_digest(self.meta, of_body)

    def offer(self, due_ns: int, ahead: int = 0, starts: bool = False, pushes: int = 0) -> Offer:
        content = (self.number, self.kind, self.meta, self.body, self.digest)
        return Offer(*content, due_ns, ahead, starts, pushes)

    def piece(self, offset: int, most: int) -> memoryview:
        """Return at most ``most`` bytes from ``offset`` on, never across two arrays.

        Between multiples of SPACED_BYTES, transfers of the same vectors return the same object.
        """
        cut = self._cuts.get(offset)
        if cut is not None and len(cut) <= most <= SPACED_BYTES:
            return cut
        for start, part in zip(self._starts, self._parts):
            if start == offset and 0 < len(part) <= most:
                return part
            if start <= offset < start + len(part):
                piece = part[offset - start : offset - start + most]
                longest = min(SPACED_BYTES, start + len(part) - offset)
                if offset % SPACED_BYTES == 0 and len(piece) == longest:
                    self._cuts[offset] = piece
                return piece
        raise IndexError(f"offset {offset} is outside a body of {self.body} bytes")


@dataclass(slots=True)
class Incoming:
    """A transfer that is being received; each piece must start where the last one ended.

    A transfer of a single piece is not copied here: ``message`` aligns it, and does not run on the
    receiving thread.
    """

    offer: Offer
    most_bytes: int
    received: int = 0
    body: np.ndarray | None = field(default=None, init=False, repr=False)
    meta: TransferMeta = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """WireError if the offer is inconsistent or too large; before any memory is allocated."""
        offer = self.offer
        if offer.kind not in BULK:
            raise WireError(f"no transfer of kind {offer.kind!r}")
        if offer.size > self.most_bytes:
            raise WireError(f"transfer of {offer.size} bytes, at most {self.most_bytes}")
        self.meta = transfer_meta(offer.meta)
        if sum(4 * size for _, size in self.meta.vectors) != offer.size:
            raise WireError("the offer's size is not that of its vectors")

    @property
    def task(self) -> int:
        return self.meta.number

    @property
    def complete(self) -> bool:
        return self.received == self.offer.size

    def add(self, offset: int, data: memoryview) -> None:
        """Add a piece; WireError if it is out of order or too long."""
        end = offset + len(data)
        if (
            offset != self.received
            or end > self.offer.size
            or len(data) > MAX_PIECE_BYTES
            or not len(data)
        ):
            raise WireError(
                f"piece [{offset}, {end}) of transfer {self.offer.transfer}, expected from"
                f" {self.received} up to {self.offer.size}"
            )
        piece = np.frombuffer(data, dtype=np.uint8)
        if piece.size == self.offer.size:
            self.body = piece
        else:
            self.body = aligned(self.offer.size, np.uint8) if self.body is None else self.body
            self.body[offset:end] = piece
        self.received = end

    def message(self) -> Bulk:
        """Return the whole message; WireError if its digest is not the offered one."""
        body = np.empty(0, np.uint8) if self.body is None else self.body
        if whole_digest(self.offer.meta, body_digest([body])) != self.offer.digest:
            raise WireError(f"transfer {self.offer.transfer} does not match its digest")
        return unpack(self.offer.kind, self.meta, body)


def most_body(model_bytes: int) -> int:
    """The largest number of bytes of vectors in one transfer.

    Eight models, and 1 MiB for other vectors where the model is small.
    """
    return 8 * model_bytes + (1 << 20)


def beyond_limits(message: Bulk, most_bytes: int) -> str | None:
    """Return the limit by which the other side would refuse this message, or None.

    The meta of a message within these limits fits into an Offer.
    """
    for what, named in (("vectors", message.vectors), ("numbers", message.numbers)):
        if len(named) > MAX_ARRAYS:
            return f"{len(named)} {what}, at most {MAX_ARRAYS}"
        for name in named:
            if not isinstance(name, str) or len(name) > MAX_NAME:
                return (
                    f"a name among its {what} is {str(name)[:MAX_NAME]!r}, expected text of at most"
                    f" {MAX_NAME} characters"
                )
    size = 4 * sum([vector.size for vector in message.vectors.values()])
    return (
        f"{size} bytes of vectors, at most {most_bytes} (eight models and 1 MiB)"
        if size > most_bytes
        else None
    )


def body_digest(arrays: list[np.ndarray]) -> str:
    """The digest of the bytes of all arrays, concatenated."""
    state = xxhash.xxh3_128()
    for array in arrays:
        state.update(array.view(np.uint8).data)
    return state.hexdigest()


def whole_digest(meta: bytes, of_body: str) -> str:
    """The digest of a transfer, from its meta and its body's digest.

    A transfer with another digest is another transfer and starts at byte 0.
    """
    return xxhash.xxh3_64_hexdigest(meta) + of_body
