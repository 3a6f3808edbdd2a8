"""One bulk message in transfer: cut into pieces on one side, joined and checked on the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import xxhash

from edgefl.protocol.codec import BULK, TransferMeta, meta, pack, transfer_meta, unpack
from edgefl.protocol.errors import WireError
from edgefl.protocol.messages import (
    MAX_ARRAYS,
    MAX_NAME,
    MAX_PIECE_BYTES,
    SPACED_BYTES,
    Bulk,
    Offer,
)
from edgefl.vectors import aligned


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
