"""One transfer, its emulated plan and its real bytes: which bytes may be sent when, and whether
they were on time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgefl.hosts.wall.coordinator.stretches import LEAST_NS
from edgefl.protocol.messages import MAX_PAIRS, MAX_PIECE_BYTES
from edgefl.protocol.transfers import Incoming, Outgoing
from emulator.capacity.service import WORK_PER_BYTE, Steady
from emulator.links.link import Booking, Link
from emulator.links.network import Completion, Network, Transfer
from emulator.units import FOREVER, NS_PER_S

SMALLEST_PIECE, LARGEST_PIECE = 1 << 10, 1 << 16  # on shaped links
# Pieces of a native transfer: of the length in time in which the arrivals show its rate over time,
# by the rate of the path's last transfer; of the first transfer, so many.
NATIVE_PIECE_NS = LEAST_NS // 2
NATIVE_PIECES, NATIVE_PIECE_BYTES = 16, (1 << 14, MAX_PIECE_BYTES)
# A transfer that takes less time than this is one stretch, of which only the ends count: it is sent
# as one piece.
ONE_PIECE_NS = 2 * LEAST_NS
# With each further so many shaped transfers, pieces are longer by their length with few: at most so
# many windows, and this part of the transfer. A piece is sent a window before its last byte is due,
# so its first byte is at most 2.8 windows late, and the transfer is not. The first piece, which
# is sent as service begins, is shorter than the window, so that its last byte is not too early.
FEW_FLOWS, LONGEST_OF_WINDOW, FIRST_OF_WINDOW, LONGEST_OF_TRANSFER = 32, 3.8, 0.8, 1 / 8
# from so many shaped transfers on, one wake-up serves the pieces of so many grains
COARSE_FROM, COARSE_GRAINS = 64, 2
# a piece waits for the next multiple of the grain only if it is then due this many grains later
ROOM_GRAINS = 2
# bytes that a native uplink may have in transit: they fill the socket's queue, which is memory
NATIVE_WINDOW = 1 << 22


@dataclass(frozen=True, slots=True)
class PiecePlan:
    """How far bytes run ahead of the service curve: ``window_ns`` of link time plus the round
    trip, in pieces of ``piece_ns``.

    ``grain_ns``: pieces that can wait are sent at its multiples, so that one wake-up serves many
    links.
    """

    window_ns: int
    piece_ns: int
    grain_ns: int = 1

    def length_ns(self, flows: int) -> int:
        """The link time of a piece while there are so many shaped flows."""
        longest_ns = max(self.piece_ns, int(LONGEST_OF_WINDOW * self.window_ns))
        return min(self.piece_ns * (1 + flows // FEW_FLOWS), longest_ns)

    def rounded_to_ns(self, flows: int) -> int:
        """The time between two wake-ups for pieces while there are so many shaped flows."""
        return self.grain_ns * (COARSE_GRAINS if flows >= COARSE_FROM else 1)


@dataclass(slots=True, eq=False)
class Flow:
    """One transfer in pieces. A downlink flow holds an Outgoing, an uplink flow an Incoming.

    ``stamps``: of a native transfer, (body bytes, emulated moment) at each arrival, on the
    receiver's clock. ``broken``: its session ended before it was whole. ``starts``: see Offer.

    Body bytes exclude the ``meta`` bytes, which travel in the Offer. ``released``: body bytes that
    were sent or credited. ``release_at``: when the next piece may be sent. ``due_at``: for the end
    of each released piece (total body bytes), the moment at which these bytes are at the receiver
    by the service curve. ``piece_ns``: link time of the first piece.
    """

    transfer: Transfer
    meta: int
    piece: int
    window_ns: int
    shaped: bool
    grain_ns: int
    side: Any  # Outgoing or Incoming; the flow's owner knows which
    released: int = 0
    release_at: int = FOREVER
    piece_ns: int = 0
    due_at: dict[int, int] = field(default_factory=dict)
    completion: Completion | None = None
    last_byte_ns: int | None = None  # emulated moment at which the last byte arrived
    suspended: bool = False
    broadcast: Transfer | None = None  # for a copy of a broadcast: the transfer that carries it
    known: bool = False  # counts as delivered when due, even if its bytes arrive later
    stamps: list[tuple[int, int]] = field(default_factory=list)
    broken: bool = False
    starts: bool = False
    rate_bit_s: int = 0
    planned: tuple[int, int] | None = None  # of ``_plan_steady``: (end of next piece, its due_at)
    length_ns: int = FOREVER  # link time of a piece's body, as planned; native ones do not grow

    @property
    def carrier(self) -> Transfer:
        """The transfer that is emulated: the broadcast's, for a copy."""
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

    def lengthen(self, length_ns: int) -> bool:
        """Make the following pieces so long (link time). Returns whether they were shorter.

        The first piece is shorter than the window.
        """
        if self.released == 0:
            length_ns = min(length_ns, int(FIRST_OF_WINDOW * self.window_ns))
        if length_ns <= self.length_ns:
            return False
        self.length_ns = length_ns
        most = min(LARGEST_PIECE, int(self.transfer.size * LONGEST_OF_TRANSFER))
        piece = min(self.rate_bit_s * length_ns // (8 * NS_PER_S), most)
        if piece <= self.piece:
            return False
        self.piece = piece
        if self.released == 0:
            self.piece_ns = (self.meta + piece) * 8 * NS_PER_S // self.rate_bit_s
        return True

    def plan_release(self, network: Network) -> None:
        """Set ``release_at``, when the next piece may be sent.

        This is not before service begins (on a TDMA channel: the slot of the piece's last byte).
        The piece is ahead of the service curve by at most the window, and by at most a quarter of
        the transfer. The first piece may be ahead by the window and its own length.
        """
        self.planned = None
        if self.released >= self.body or self.suspended or self._window_full:
            self.release_at = FOREVER
            return
        if (
            self.completion is not None
        ):  # the transfer is already due and its bytes are late: send the rest at once
            self.release_at = self.completion.due_ns
            return
        link, booking = network.booked(self.carrier)
        start = None if booking is None else link.started(booking)
        if booking is None or start is None:
            self.release_at = FOREVER
            return
        if not self.shaped:
            self.release_at = start
            return
        steady = link.steady(booking)
        if steady is not None:
            self._plan_steady(link, start, booking, *steady)
            return
        end = self.meta + self._next_border(link, booking)
        opens, due_ns = link.opens_at(booking, end), link.due_at(booking, end)
        by_window = due_ns - self.window_ns
        if self.released == 0:
            self.release_at = self._rounded(max(opens, by_window - self.piece_ns), due_ns)
            return
        quarter = max(self.transfer.size // 4, self.piece)
        # never before service begins
        by_quarter = link.due_at(booking, end - quarter) if end > quarter else start
        self.release_at = self._rounded(max(by_window, by_quarter, opens), due_ns)

    def _plan_steady(
        self, link: Link, start: int, booking: Booking, curve: Steady, delay_ns: int
    ) -> None:
        """``plan_release`` at a constant rate, which most links have, with few calls for a piece.

        ``release`` needs the piece's end and due moment again, so they are kept.
        """
        rate, begin_ns, kept = curve.rate_bit_s, curve.start_ns + delay_ns, booking.kept
        released, border = self.released, min(self.released + self.piece, self.body)
        end = self.meta + border
        due_ns = begin_ns - -max(0, end - kept) * WORK_PER_BYTE // rate
        by_window = due_ns - self.window_ns
        opens = link.opens_at(booking, end)
        if released == 0:
            at_ns = max(opens, by_window - self.piece_ns)
        else:
            at_ns = max(opens, by_window)
            quarter = max(self.transfer.size // 4, self.piece)
            ahead = end - quarter - kept
            if end <= quarter:
                at_ns = max(at_ns, start)
            elif ahead < 0 or quarter * WORK_PER_BYTE < self.window_ns * rate:
                at_ns = max(at_ns, begin_ns - -max(0, ahead) * WORK_PER_BYTE // rate)
        self.release_at = self._rounded(at_ns, due_ns)
        self.planned = (border, due_ns)

    def _next_border(self, link: Link, booking: Booking | None) -> int:
        """Total body bytes after the next piece.

        A piece ends with its slot: bytes of the next slot must not be sent before that begins.
        """
        border = min(self.released + self.piece, self.body)
        if not self.shaped or self.completion is not None or booking is None:
            return border
        stretch = link.stretch_bytes(booking, self.meta + self.released) - self.meta
        return min(border, max(stretch, self.released + 1))

    def cuts(self, first: int, end: int) -> Iterator[int]:
        """Yield the ends of the pieces in which body bytes [first, end) go onto the wire.

        A small first piece marks the first arrival of a native upload. Of a download, the Offer
        does, which is sent right before it.
        """
        if self.shaped or self.known:
            yield end
            return
        if first == 0 and end > SMALLEST_PIECE and isinstance(self.side, Incoming):
            first = SMALLEST_PIECE
            yield first
        while first < end:
            first = min(first + self.piece, end)
            yield first

    def _rounded(self, at_ns: int, due_ns: int) -> int:
        """The next multiple of the grain, if there is enough time until the piece is due."""
        later_ns = -(-at_ns // self.grain_ns) * self.grain_ns
        return later_ns if later_ns + ROOM_GRAINS * self.grain_ns <= due_ns else at_ns

    def release(self, network: Network, now: int) -> tuple[int, int]:
        """Release all body bytes that may be sent by ``now``; returns their range [from, to)."""
        first = self.released
        while self.release_at <= now:
            if self.planned is not None and self.completion is None:
                self.released, due_ns = self.planned
                self.due_at[self.released] = due_ns
            else:
                link, booking = network.booked(self.carrier)
                self.released = self._next_border(link, booking)
                if self.shaped and self.completion is None and booking is not None:
                    self.due_at[self.released] = link.due_at(booking, self.meta + self.released)
            self.plan_release(network)
        return first, self.released

    def arrived(self, body_bytes: int, at_ns: int) -> None:
        """Note that the receiver had ``body_bytes`` in total at ``at_ns``, on a native link.

        A known model is unshaped, too, but its link may be an emulated one.
        """
        if not self.shaped and not self.known and len(self.stamps) < MAX_PAIRS:
            self.stamps.append((body_bytes, at_ns))

    def ahead(self, network: Network, body_bytes: int, at_ns: int, tolerance_ns: int) -> bool:
        """Whether ``body_bytes`` (total), at the receiver at ``at_ns``, were too early.

        Too early is: ahead of the service curve by more than the window and a piece, or by more
        than a quarter of the transfer and a piece. The curve is the network's, so this also finds
        mistakes of ``plan_release``.
        """
        due_ns, latest_ns = self.due_at.get(body_bytes), at_ns + tolerance_ns
        if due_ns is None:
            return False
        if latest_ns < due_ns - self.window_ns - self.piece_ns:
            return True
        if self.completion is not None:
            return False  # the network no longer has its curve
        most = max(self.transfer.size // 4, self.piece) + self.piece
        return self.meta + body_bytes - network.progress(self.carrier, latest_ns) > most

    def measured_bit_s(self) -> int | None:
        """The rate between the first and the last arrival; None if nothing was measured."""
        return None if self.broken else rate_between(self.stamps)

    def finished_ns(self) -> int | None:
        """When the actor gets the transfer: max(last byte, due); None until both are known."""
        if self.completion is None or self.last_byte_ns is None:
            return None
        if self.known:
            return self.completion.due_ns
        # a native transfer is due when offered; compared clocks may differ a little
        return max(self.last_byte_ns, self.completion.due_ns)


def make_flow(
    network: Network,
    transfer: Transfer,
    meta: int,
    side: Outgoing | Incoming,
    pace: PiecePlan,
    rtt_ns: int,
    now: int,
    native_bit_s: int | None = None,
) -> Flow:
    """Make the flow of a transfer that was offered to the network at ``now``.

    ``native_bit_s``: the rate of the last transfer on this path, if it is native.
    """
    capacity = network.link(transfer.edge, transfer.direction).capacity
    if capacity is None:
        return native_flow(transfer, meta, side, pace, native_bit_s)
    rate = _rate_bit_s(network, transfer, pace, now)
    piece = min(max(rate * pace.piece_ns // (8 * NS_PER_S), SMALLEST_PIECE), LARGEST_PIECE)
    piece_ns = (meta + piece) * 8 * NS_PER_S // rate if rate else pace.piece_ns
    flow = Flow(
        transfer, meta, piece, pace.window_ns + rtt_ns, True, pace.grain_ns, side, piece_ns=piece_ns
    )
    flow.rate_bit_s, flow.length_ns = rate, pace.piece_ns
    return flow


def native_flow(
    transfer: Transfer,
    meta: int,
    side: Outgoing | Incoming,
    pace: PiecePlan,
    native_bit_s: int | None,
) -> Flow:
    """Make the flow of a transfer on a native link; ``native_bit_s``: see ``make_flow``."""
    body = transfer.size - meta
    if native_bit_s is None:
        piece = _native_piece(body // NATIVE_PIECES)
    else:
        piece = native_piece(native_bit_s, body)
    return Flow(transfer, meta, piece, 0, False, pace.grain_ns, side)


def rate_between(stamps: Sequence[tuple[int, int]]) -> int | None:
    """The rate (bit/s) between the first and the last arrival; None if nothing was measured."""
    if not stamps or stamps[-1][1] <= stamps[0][1]:
        return None
    (first, began_ns), (last, ended_ns) = stamps[0], stamps[-1]
    return max((last - first) * 8 * NS_PER_S // (ended_ns - began_ns), 0)


def native_piece(bit_s: int, body: int) -> int:
    """The size of the pieces (bytes) of a native transfer of ``body`` bytes.

    ``bit_s``: what its path carries.
    """
    if body <= native_ahead(bit_s):
        return max(body, 1)
    return _native_piece(bit_s * NATIVE_PIECE_NS // (8 * NS_PER_S))


def native_ahead(bit_s: int) -> int:
    """The largest native transfer (bytes) that is one piece, if its path carries ``bit_s``."""
    return _native_piece(bit_s * ONE_PIECE_NS // (8 * NS_PER_S))


def _native_piece(wanted: int) -> int:
    least, most = NATIVE_PIECE_BYTES
    return min(max(wanted, least), most)


def _rate_bit_s(network: Network, transfer: Transfer, pace: PiecePlan, now: int) -> int:
    """The link's rate at ``now``; on a shared link, the transfer's share as its service begins."""
    link = network.link(transfer.edge, transfer.direction)
    assert link.capacity is not None
    first_ns = network.due_at(transfer, 1) if link.bottleneck is not None else FOREVER
    if first_ns >= FOREVER:
        return link.capacity.segment(now)[0]
    return network.progress(transfer, first_ns + pace.piece_ns) * 8 * NS_PER_S // pace.piece_ns
