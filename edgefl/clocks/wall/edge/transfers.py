"""The edge's end of transfers: assemble and stamp downloads, send uploads as credit allows."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from edgefl.exchange.machine import MOST_PUSHES
from edgefl.protocol.codec import Incoming, Outgoing
from edgefl.protocol.messages import (
    FRESH,
    MAX_PAIRS,
    MAX_PIECE_BYTES,
    PUSH,
    SPACED_BYTES,
    TASK,
    Arrived,
    Bulk,
    Credit,
    Offer,
    Piece,
    Update,
    WireError,
)

MOST_INCOMING = 4 + MOST_PUSHES
MOST_STAMPS = MAX_PAIRS - 1  # per transfer; after these only the last arrival is stamped


@dataclass(slots=True)
class IncomingModel:
    """A download. ``curve``: (bytes, edge's clock) at the arrival of its offer and of each piece.

    ``message``: once complete. ``ahead``: bytes of the task's update that may follow its Offer.
    """

    incoming: Incoming
    curve: list[list[int]] = field(default_factory=list)
    message: Bulk | None = None
    ahead: int = 0


@dataclass(slots=True)
class OfferedUpdate:
    """An offered update. ``sent``: bytes sent; None: the next credit names the first byte."""

    outgoing: Outgoing
    due_ns: int
    sent: int | None = None


class EdgeTransfers:
    """All transfers of an edge. It has no I/O: it gets frames and returns frames.

    ``now_ns`` is the edge's own monotonic clock, which goes on while the machine sleeps.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.downloads: dict[int, IncomingModel] = {}
        self.uploads: dict[int, OfferedUpdate] = {}
        self._taken: deque[tuple[int, str]] = deque(maxlen=2 * MOST_PUSHES)  # the latest pushes
        self._numbers = 0
        self._ahead = (0, 0)  # task, and bytes of its update that may follow its Offer at once

    @property
    def held(self) -> list[list[int]]:
        """(transfer, received bytes) of every download that is not yet delivered."""
        return [[number, download.incoming.received] for number, download in self.downloads.items()]

    @property
    def begins(self) -> list[list[int]]:
        """(transfer, task) of those that begin a task."""
        return [
            [number, download.incoming.task]
            for number, download in self.downloads.items()
            if download.incoming.offer.kind == TASK
        ]

    @property
    def tasks(self) -> list[int]:
        """Tasks whose model is not yet delivered."""
        return [download.incoming.task for download in self.downloads.values()]

    def new_session(self) -> None:
        """Drop the credits of the old session."""
        self._ahead = (0, 0)
        for download in self.downloads.values():
            download.ahead = 0
        for upload in self.uploads.values():
            upload.sent = None

    def offered(self, offer: Offer, now_ns: int) -> Arrived | None:
        if offer.transfer in self.downloads:
            return None
        if len(self.downloads) >= MOST_INCOMING:
            raise WireError(f"{len(self.downloads)} downloads are under way already")
        # its first bytes are here: the time until the last ones is that of the wire alone
        download = IncomingModel(Incoming(offer, self.most_bytes), [[0, now_ns]], ahead=offer.ahead)
        _check_model(download.incoming)
        self.downloads[offer.transfer] = download
        return self._whole(download)

    def piece(self, piece: Piece, body: Any, now_ns: int) -> Arrived | None:
        """Add a piece and stamp its arrival. Returns Arrived after the last piece."""
        download = self.downloads.get(piece.transfer)
        if download is None:
            return None
        download.incoming.add(piece.offset, body)
        if len(download.curve) < MOST_STAMPS or download.incoming.complete:
            download.curve.append([download.incoming.received, now_ns])
        return self._whole(download)

    def started(self, number: int) -> tuple[Bulk, int] | None:
        """The message of a whole download that is not declared delivered, and its moment."""
        download = self.downloads.get(number)
        if download is None or download.message is None or not download.incoming.offer.starts:
            return None
        del self.downloads[number]
        self._ahead = (download.message.number, download.ahead)
        return download.message, download.incoming.offer.due_ns

    def delivered(self, number: int) -> Bulk | None:
        """Return the message of a download that the coordinator declares delivered.

        None for a push that it declares again: a coordinator that was killed does not know of it.
        """
        download = self.downloads.pop(number, None)
        if download is None:
            return None
        offer = download.incoming.offer
        if offer.kind == PUSH:
            if (number, offer.digest) in self._taken:
                return None
            self._taken.append((number, offer.digest))
        return download.message

    def dropped(self, number: int) -> None:
        """The coordinator has dropped this download."""
        self.downloads.pop(number, None)

    def new(self, update: Update, due_ns: int) -> Outgoing:
        """Prepare an update for its offer."""
        self._numbers += 1
        outgoing = Outgoing(self._numbers, update)
        self.uploads[outgoing.number] = OfferedUpdate(outgoing, due_ns)
        return outgoing

    def bring_back(self, number: int, update: Update, due_ns: int) -> None:
        """Prepare an update for its next offer, with the number of its first one."""
        self._numbers = max(self._numbers, number)
        self.uploads[number] = OfferedUpdate(Outgoing(number, update), due_ns)

    def offer(
        self, outgoing: Outgoing, due_ns: int, pushes: int = 0
    ) -> tuple[Offer, list[tuple[Piece, memoryview]]]:
        """The first Offer of an update, and the piece that follows it at once, if one may."""
        task, most = self._ahead
        self._ahead = (0, 0)
        if task != outgoing.task or not (size := min(most, outgoing.body, MAX_PIECE_BYTES)):
            return outgoing.offer(due_ns, pushes=pushes), []
        view = outgoing.piece(0, size)
        self.uploads[outgoing.number].sent = len(view)
        return outgoing.offer(due_ns, len(view), pushes=pushes), [(Piece(outgoing.number, 0), view)]

    def credit(self, credit: Credit) -> Iterator[tuple[Piece, memoryview]]:
        """Yield the pieces that the credit allows."""
        upload = self.uploads.get(credit.transfer)
        if upload is None:
            return
        if upload.sent is None:
            upload.sent = credit.offset
        end = min(credit.limit, upload.outgoing.body)
        most = SPACED_BYTES if credit.leave_ns else MAX_PIECE_BYTES
        while upload.sent < end:
            view = upload.outgoing.piece(upload.sent, min(end - upload.sent, most))
            yield Piece(credit.transfer, upload.sent), view
            upload.sent += len(view)

    def acknowledged(self, task: int) -> None:
        """The coordinator has recorded the update: drop its bytes."""
        self.uploads = {
            number: upload
            for number, upload in self.uploads.items()
            if upload.outgoing.task != task
        }

    def cancelled(self, task: int, only: str | None = None) -> None:
        """The task is over: drop its downloads. ``only``: those of this kind."""
        self.downloads = {
            number: download
            for number, download in self.downloads.items()
            if download.incoming.task != task or only not in (None, download.incoming.offer.kind)
        }

    def unacknowledged(self, updates: Mapping[int, Update]) -> Iterable[tuple[Outgoing, int]]:
        """The uploads to offer again, with their stamps; all others are dropped."""
        self.uploads = {
            number: upload
            for number, upload in self.uploads.items()
            if upload.outgoing.task in updates
        }
        return [(upload.outgoing, upload.due_ns) for upload in self.uploads.values()]

    def _whole(self, download: IncomingModel) -> Arrived | None:
        incoming = download.incoming
        if not incoming.complete:
            return None
        try:
            download.message = incoming.message()
        except WireError:
            del self.downloads[incoming.offer.transfer]  # begin again at byte 0
            raise
        return Arrived(incoming.offer.transfer, download.curve)


def _check_model(incoming: Incoming) -> None:
    """Raise WireError unless the offer is of a model from which a device can train."""
    offer, meta = incoming.offer, incoming.meta
    if offer.kind not in (TASK, FRESH, PUSH) or "weights" not in dict(meta.vectors):
        raise WireError(f"a transfer of kind {offer.kind!r} without a model for the edge")
    if offer.kind != TASK and (offer.starts or offer.ahead):
        raise WireError(f"a transfer of kind {offer.kind!r} that starts or has an update")
    if not all(map(math.isfinite, meta.numbers.values())):
        raise WireError(f"a transfer of kind {offer.kind!r} with a number that is not finite")
