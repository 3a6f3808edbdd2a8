"""One transfer between its emulated plan and its real bytes: what may be sent by when, and
whether the bytes kept to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from edgefl.protocol.messages import MAX_PIECE_BYTES
from edgefl.protocol.transfers import Incoming, Outgoing
from emulator.links.network import Completion, Network, Transfer
from emulator.units import FOREVER, NS_PER_S

SMALLEST_PIECE, LARGEST_PIECE = 1 << 10, 1 << 16  # on shaped links
ROOM_GRAINS = 2  # a piece waits for the next multiple of the grain only if it is due so much later
# bytes that a native uplink may have under way: the socket's queue is memory too
NATIVE_WINDOW = 1 << 22


@dataclass(frozen=True, slots=True)
class PiecePlan:
    """How bytes run ahead of the service curve: ``window_ns`` of link time (besides the round
    trip), in pieces of ``piece_ns``.

    ``grain_ns``: pieces that need not go at once go at its multiples, so that one wake serves many
    links.
    """

    window_ns: int
    piece_ns: int
    grain_ns: int = 1


@dataclass(slots=True, eq=False)
class Flow:
    """Downlink flows hold an Outgoing, uplink flows an Incoming. Body bytes exclude the ``meta``
    bytes, which travel in the Offer.

    ``released``: body bytes that were sent or credited. ``release_at``: when the next piece may go.
    ``due_at``: body bytes in all, at each border of released pieces -> moment at which the service
    curve has them at the receiver. ``piece_ns``: link time of a piece.
    """

    transfer: Transfer
    meta: int
    piece: int
    window_ns: int
    shaped: bool
    grain_ns: int
    side: Any  # Outgoing or Incoming; who has a flow knows which
    released: int = 0
    release_at: int = FOREVER
    piece_ns: int = 0
    due_at: dict[int, int] = field(default_factory=dict)
    completion: Completion | None = None
    last_byte_ns: int | None = None  # emulated moment at which the last byte arrived
    suspended: bool = False
    broadcast: Transfer | None = None  # of a copy, the transfer that carries it
    known: bool = False  # it counts as delivered when due, whenever its bytes come

    @property
    def carrier(self) -> Transfer:
        """The transfer that the network knows."""
        return self.broadcast or self.transfer

    @property
    def body(self) -> int:
        return self.transfer.size - self.meta

    @property
    def _window_full(self) -> bool:
        return (
            not self.shaped
            and isinstance(self.side, Incoming)
            and self.released - self.side.received >= NATIVE_WINDOW
        )

    def plan_release(self, network: Network) -> None:
        """When the next piece may go: no earlier than service begins (on a TDMA channel, the slot
        of its last byte), at most the window and a quarter of the transfer ahead.

        The first piece may be ahead by the window and its own length.
        """
        if self.released >= self.body or self.suspended or self._window_full:
            self.release_at = FOREVER
            return
        if (
            self.completion is not None
        ):  # due already, and the bytes are late: the rest goes at once
            self.release_at = self.completion.due_ns
            return
        start = network.started(self.carrier)
        if start is None:
            self.release_at = FOREVER
            return
        if not self.shaped:
            self.release_at = start
            return
        end = self.meta + self._next_border(network)
        opens = network.opens_at(self.carrier, end)
        quarter = max(self.transfer.size // 4, self.piece)
        due_ns = network.due_at(self.carrier, end)
        by_window = due_ns - self.window_ns
        if self.released == 0:
            self.release_at = self._rounded(max(opens, by_window - self.piece_ns), due_ns)
            return
        # never before service begins
        by_quarter = network.due_at(self.carrier, end - quarter) if end > quarter else start
        self.release_at = self._rounded(max(by_window, by_quarter, opens), due_ns)

    def _next_border(self, network: Network) -> int:
        """Body bytes in all when the next piece has gone. It ends with its slot: what lies in
        the next one may not go before that begins.
        """
        border = min(self.released + self.piece, self.body)
        if not self.shaped or self.completion is not None:
            return border
        return min(
            border,
            max(
                network.stretch_bytes(self.carrier, self.meta + self.released) - self.meta,
                self.released + 1,
            ),
        )

    def _rounded(self, at_ns: int, due_ns: int) -> int:
        """The next multiple of the grain, if there is time enough until the piece is due."""
        later_ns = -(-at_ns // self.grain_ns) * self.grain_ns
        return later_ns if later_ns + ROOM_GRAINS * self.grain_ns <= due_ns else at_ns

    def release(self, network: Network, now: int) -> tuple[int, int]:
        """Release everything that may go by ``now``: body bytes [from, to)."""
        first = self.released
        while self.release_at <= now:
            self.released = self._next_border(network)
            if self.shaped and self.completion is None:
                self.due_at[self.released] = network.due_at(self.carrier, self.meta + self.released)
            self.plan_release(network)
        return first, self.released

    def ahead(self, network: Network, body_bytes: int, at_ns: int, tolerance_ns: int) -> bool:
        """Whether ``body_bytes`` in all, at the receiver at ``at_ns``, were ahead of the service
        curve: by more than the window, or by more than a quarter of the transfer, and a piece. The
        curve is the network's, so a fault of ``plan_release`` is seen.
        """
        due_ns, latest_ns = self.due_at.get(body_bytes), at_ns + tolerance_ns
        if due_ns is None:
            return False
        if latest_ns < due_ns - self.window_ns - self.piece_ns:
            return True
        if self.completion is not None:
            return False  # the network keeps its curve no longer
        most = max(self.transfer.size // 4, self.piece) + self.piece
        return self.meta + body_bytes - network.progress(self.carrier, latest_ns) > most

    def finished_ns(self) -> int | None:
        """max(last byte, due): when the actor gets it; None while either is to come."""
        if self.completion is None or self.last_byte_ns is None:
            return None
        if self.known:
            return self.completion.due_ns
        # a native link's is due when offered: compared clocks may be a little off
        return max(self.last_byte_ns, self.completion.due_ns)


def make_flow(
    network: Network,
    transfer: Transfer,
    meta: int,
    side: Outgoing | Incoming,
    pace: PiecePlan,
    rtt_ns: int,
    now: int,
) -> Flow:
    """The flow of a transfer that was just offered to the network at ``now``."""
    capacity = network.link(transfer.edge, transfer.direction).capacity
    if capacity is None:
        return Flow(transfer, meta, MAX_PIECE_BYTES, 0, False, pace.grain_ns, side)
    rate = _rate_bit_s(network, transfer, pace, now)
    piece = min(max(rate * pace.piece_ns // (8 * NS_PER_S), SMALLEST_PIECE), LARGEST_PIECE)
    piece_ns = (meta + piece) * 8 * NS_PER_S // rate if rate else pace.piece_ns
    return Flow(
        transfer, meta, piece, pace.window_ns + rtt_ns, True, pace.grain_ns, side, piece_ns=piece_ns
    )


def _rate_bit_s(network: Network, transfer: Transfer, pace: PiecePlan, now: int) -> int:
    """The link's rate at ``now``; on a shared link what the transfer gets of it as its service
    begins.
    """
    link = network.link(transfer.edge, transfer.direction)
    assert link.capacity is not None
    first_ns = network.due_at(transfer, 1) if link.bottleneck is not None else FOREVER
    if first_ns >= FOREVER:
        return link.capacity.segment(now)[0]
    return network.progress(transfer, first_ns + pace.piece_ns) * 8 * NS_PER_S // pace.piece_ns
