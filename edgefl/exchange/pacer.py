"""Pieces and credit: which bytes of the transfers under way may be sent now, on the wall clock.

This module sends nothing itself.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from edgefl.exchange.machine import Exchange, Flow, broadcast_transfer
from edgefl.protocol.messages import MAX_PAIRS, MAX_PIECE_BYTES, SPACED_BYTES
from emulator.capacity.service import WORK_PER_BYTE, Steady
from emulator.clock import Ticket
from emulator.fidelity import Fidelity
from emulator.kernel_pacing import Burst
from emulator.links.bottleneck import SharedLink
from emulator.links.link import Booking, Link
from emulator.links.network import Completion, Network, Transfer
from emulator.units import FOREVER, NS_PER_S

Stretch = tuple[int, int, int]  # begin and end (emulated ns), and bytes that arrived in between

LEAST_NS = 100_000_000  # a shorter time would show the pieces and not the link
MOST_STRETCHES = 64  # of one transfer
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
# On links that the kernel paces: most bytes that it gets at once, and the grains of a wake-up in
# the time by which it gets them before their first one leaves. A piece is so many times as long.
MOST_FAR_BYTES, FAR_GRAINS, FAR_PIECE = 1 << 19, 4, 5
# On the slowest of these links a burst takes this part of the window. The longer it is, the later
# bytes must leave so that none is too early (``early_ns``); the shorter, the more segments. With .8
# and 100 links that end at once, busy edges read last bytes up to 60 ms late; with .6, 1 ms.
BURST_OF_WINDOW = 0.6
# A congestion window has two bursts. They must last for the round trip, and for the time by which a
# busy receiver answers late: this part of the window.
BURSTS_UNDER_WAY, BUSY_OF_WINDOW = 2, 5
LEAST_BURSTS = 32  # of a transfer
# bytes that a native uplink may have in transit: they fill the socket's queue, which is memory
NATIVE_WINDOW = 1 << 22


def stretches(stamps: Sequence[tuple[int, int]]) -> list[Stretch]:
    """Combine stamps (bytes so far, moment) of one receiver to stretches of LEAST_NS or longer.

    What had arrived by the first stamp does not count: it is not known since when. A long transfer
    has at most MOST_STRETCHES, a short one is one stretch. Empty if no time passed, or if the
    stamps are not in order: an edge on another machine has sent them.
    """
    if len(stamps) < 2 or stamps[-1][1] <= stamps[0][1]:
        return []
    if any(after[0] < before[0] or after[1] < before[1] for before, after in pairwise(stamps)):
        return []
    (got, began_ns), (whole, ended_ns) = stamps[0], stamps[-1]
    least_ns = max(LEAST_NS, -(-(ended_ns - began_ns) // MOST_STRETCHES))
    found: list[Stretch] = []
    for so_far, at_ns in stamps[1:-1]:
        # not if the rest would be too short for a stretch of its own
        if at_ns - began_ns >= least_ns and ended_ns - at_ns >= least_ns:
            found.append((began_ns, at_ns, so_far - got))
            got, began_ns = so_far, at_ns
    return [*found, (began_ns, ended_ns, whole - got)]


@dataclass(frozen=True, slots=True)
class PiecePlan:
    """How far bytes run ahead of the service curve: ``window_ns`` of link time plus the round
    trip, in pieces of ``piece_ns``.

    ``grain_ns``: pieces that can wait are sent at its multiples, so that one wake-up serves many
    links.

    ``far_ns``: on links that the kernel paces, link time of what waits in the kernel when the next
    piece follows.
    """

    window_ns: int
    piece_ns: int
    grain_ns: int = 1
    far_ns: int = 0

    def length_ns(self, flows: int) -> int:
        """The link time of a piece while there are so many shaped flows."""
        longest_ns = max(self.piece_ns, int(LONGEST_OF_WINDOW * self.window_ns))
        return min(self.piece_ns * (1 + flows // FEW_FLOWS), longest_ns)

    def rounded_to_ns(self, flows: int) -> int:
        """The time between two wake-ups for pieces while there are so many shaped flows."""
        return self.grain_ns * (COARSE_GRAINS if flows >= COARSE_FROM else 1)


@dataclass(slots=True, eq=False)
class PacedFlow(Flow):
    """A transfer in pieces. ``content``: an Outgoing to an edge, an Incoming from one.

    ``starts``: see Offer. ``stamps``: of a native transfer, (body bytes, emulated moment) at each
    arrival, on the receiver's clock. ``broken``: its session ended before all of it arrived.

    Body bytes exclude the ``meta`` bytes, which travel in the Offer. ``released``: body bytes that
    were sent or credited. ``release_at``: when the next piece may be sent. ``due_at``: for the end
    of each released piece (total body bytes), the moment at which these bytes are at the receiver
    by the service curve. ``piece_ns``: link time of the first piece.

    ``kernel``: the kernel spaces the bytes, so they are released in longer pieces, and ``far_ns``
    before the first one may leave. ``leave_ns``: when the last released byte leaves. ``burst_ns``:
    link time of what the kernel sends at once.

    Of an upload: ``began_ns``, when its training began, if known; ``ready_ns``, when it is ready;
    ``ready``, the entry of an agenda that reports this (None: it is reported). ``void``: it is not
    reported before the edge offers it again.
    """

    awaits_bytes: bool = True
    meta: int = 0
    piece: int = MAX_PIECE_BYTES
    window_ns: int = 0
    shaped: bool = False
    grain_ns: int = 1
    released: int = 0
    release_at: int = FOREVER
    piece_ns: int = 0
    due_at: dict[int, int] = field(default_factory=dict)
    suspended: bool = False
    known: bool = False  # counts as delivered when due, even if its bytes arrive later
    stamps: list[tuple[int, int]] = field(default_factory=list)
    broken: bool = False
    starts: bool = False
    rate_bit_s: int = 0
    planned: tuple[int, int] | None = None  # of ``_plan_steady``: (end of next piece, its due_at)
    kernel: bool = False
    far_ns: int = 0
    burst_ns: int = 0
    leave_ns: int = 0
    length_ns: int = FOREVER  # link time of a piece's body, as planned; native ones do not grow
    began_ns: int | None = None
    ready_ns: int = 0
    ready: Ticket | None = None
    void: bool = False

    def shape(
        self,
        network: Network,
        pace: PiecePlan,
        rtt_ns: int,
        now: int,
        native_bit_s: int | None = None,
        burst: Burst | None = None,
    ) -> None:
        """Choose the pieces of a transfer whose link has it since ``now``.

        ``native_bit_s``: the rate of the last transfer on this path, if it is native. ``burst``:
        of this path, in emulated time, if the kernel can pace the transfer.
        """
        if network.link(self.transfer.edge, self.transfer.direction).capacity is None:
            self.shape_native(native_bit_s)
            return
        self.shaped, self.rate_bit_s = True, self._link_bit_s(network, pace, now)
        rate, self.length_ns = self.rate_bit_s, pace.piece_ns
        by_length = rate * pace.piece_ns // (8 * NS_PER_S)
        self.piece = min(max(by_length, SMALLEST_PIECE), LARGEST_PIECE)
        self.piece_ns = (self.meta + self.piece) * 8 * NS_PER_S // rate if rate else pace.piece_ns
        self.window_ns = pace.window_ns + rtt_ns
        self.far_ns = pace.far_ns
        link, booking = network.booked(self.transfer)
        if burst is not None and booking is not None and link.steady(booking) is not None:
            burst_ns = burst.size_bytes * 8 * NS_PER_S // rate
            answer_ns = burst.rtt_ns + pace.window_ns // BUSY_OF_WINDOW
            # neither bursts that show, nor more than the path carries in so short segments
            longest_ns = int(FIRST_OF_WINDOW * pace.window_ns)
            shown = burst.size_bytes * LEAST_BURSTS > self.transfer.size or burst_ns > longest_ns
            self.kernel = not shown and BURSTS_UNDER_WAY * burst_ns >= answer_ns
            self.burst_ns = burst_ns if self.kernel else 0

    def shape_native(self, native_bit_s: int | None) -> None:
        """Choose the pieces of a transfer on a native link; ``native_bit_s``: see ``shape``."""
        if native_bit_s is None:
            self.piece = _native_piece(self.body // NATIVE_PIECES)
        elif self.body <= native_ahead(native_bit_s):
            self.piece = max(self.body, 1)
        else:
            # a download has no window, and its socket takes a limited number of messages at once
            wanted = max(native_bit_s * NATIVE_PIECE_NS // (8 * NS_PER_S), self.body // MAX_PAIRS)
            self.piece = _native_piece(wanted)

    def _link_bit_s(self, network: Network, pace: PiecePlan, now: int) -> int:
        """The link's rate at ``now``.

        Or that as the service begins: on a shared link, its share; also if the link carries nothing
        now, or has another rate within a piece.
        """
        link = network.link(self.transfer.edge, self.transfer.direction)
        assert link.capacity is not None
        (rate_bit_s, until_ns), first_ns = link.capacity.segment(now), FOREVER
        changes = until_ns - now < pace.piece_ns
        if isinstance(link, SharedLink) or not rate_bit_s or changes:
            first_ns = network.due_at(self.transfer, 1)
        if first_ns >= FOREVER:
            return rate_bit_s
        served = network.progress(self.transfer, first_ns + pace.piece_ns)
        return served * 8 * NS_PER_S // pace.piece_ns

    @property
    def carrier(self) -> Transfer:
        """The transfer that is emulated: the broadcast's, for a copy."""
        return self.broadcast or self.transfer

    @property
    def body(self) -> int:
        return self.transfer.size - self.meta

    @property
    def received(self) -> int:
        """Body bytes of an upload that have arrived."""
        received: int = self.content.received
        return received

    @property
    def at_once_ns(self) -> int:
        """Link time of what may leave at once: the first piece, or a burst of the kernel."""
        return max(self.piece_ns, self.burst_ns)

    @property
    def early_ns(self) -> int:
        """How long before it is due a byte leaves that the kernel paces.

        The last byte of a burst is then as early as it may be. The time of the first burst after a
        pause counts half, and bursts may become longer by a sixth.
        """
        quarter_ns = self.transfer.size // 4 * 8 * NS_PER_S // self.rate_bit_s
        over_ns = max(7 * self.burst_ns // 4 - self.at_once_ns, 0)
        return max(min(self.window_ns, quarter_ns) - over_ns, 0)

    @property
    def _window_full(self) -> bool:
        return (
            not self.shaped
            and self.transfer.direction == "up"
            and self.released - self.received >= NATIVE_WINDOW
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
        if steady is not None and self.kernel:
            self._plan_kernel(link, booking, *steady)
            return
        self.kernel = False  # the link was changed meanwhile
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

    def _plan_kernel(self, link: Link, booking: Booking, curve: Steady, delay_ns: int) -> None:
        """``plan_release`` of a transfer that the kernel paces: long before the bytes leave."""
        rate, begin_ns = curve.rate_bit_s, curve.start_ns + delay_ns
        most = min(rate * FAR_PIECE * self.far_ns // (8 * NS_PER_S), MOST_FAR_BYTES)
        border = self.released + max(most, self.piece)
        # the nearest border of a message: transfers of one model then have the same messages
        nearest = (border + SPACED_BYTES // 2) // SPACED_BYTES * SPACED_BYTES
        border = min(nearest if nearest > self.released else border, self.body)
        sent = self.meta + self.released - booking.kept
        first_ns = begin_ns - -max(0, sent) * WORK_PER_BYTE // rate
        due_ns = begin_ns - -max(0, self.meta + border - booking.kept) * WORK_PER_BYTE // rate
        far_ns = min(self.far_ns, MOST_FAR_BYTES * 8 * NS_PER_S // rate)
        opens = link.opens_at(booking, self.meta + border)
        at_ns, grain_ns = max(opens, first_ns - self.early_ns - far_ns), far_ns // FAR_GRAINS
        rounded_ns = -(-at_ns // grain_ns) * grain_ns if self.released else at_ns
        self.release_at, self.planned = rounded_ns, (border, due_ns)

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
        if first == 0 and end > SMALLEST_PIECE and self.transfer.direction == "up":
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
                if self.kernel:
                    self.leave_ns = due_ns - self.early_ns
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

        Too early is: ahead of the service curve by more than the window and what may leave at once,
        or by more than a quarter of the transfer and a piece. The curve is the network's, so this
        also finds mistakes of ``plan_release``.
        """
        due_ns, latest_ns = self.due_at.get(body_bytes), at_ns + tolerance_ns
        if due_ns is None:
            return False
        if latest_ns < due_ns - self.window_ns - self.at_once_ns:
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


def rate_between(stamps: Sequence[tuple[int, int]]) -> int | None:
    """The rate (bit/s) between the first and the last arrival; None if nothing was measured."""
    if not stamps or stamps[-1][1] <= stamps[0][1]:
        return None
    (first, began_ns), (last, ended_ns) = stamps[0], stamps[-1]
    return max((last - first) * 8 * NS_PER_S // (ended_ns - began_ns), 0)


def native_ahead(bit_s: int) -> int:
    """The largest native transfer (bytes) that is one piece, if its path carries ``bit_s``."""
    return _native_piece(bit_s * ONE_PIECE_NS // (8 * NS_PER_S))


def _native_piece(wanted: int) -> int:
    least, most = NATIVE_PIECE_BYTES
    return min(max(wanted, least), most)


class Pacer:
    """Plans the pieces of all transfers under way. ``now`` is emulated ns.

    The moments of release are in one heap; stale entries are skipped. ``host_now`` may be later
    than ``now``: this counts as transfer lag, not as wake lag.
    """

    def __init__(self, exchange: Exchange[PacedFlow], pace: PiecePlan, fidelity: Fidelity) -> None:
        self.exchange, self.network = exchange, exchange.network
        self.pace, self.fidelity = pace, fidelity
        self.shaped_flows = self.kernel_flows = 0
        self.native_bit_s: dict[tuple[str, str], int] = {}  # (edge, direction) -> last measured
        self._heap: list[tuple[int, int]] = []
        self._host_now = 0  # the latest host time that a caller gave

    @property
    def grain_ns(self) -> int:
        """The emulated time between two wake-ups for pieces that can wait."""
        if 0 < self.shaped_flows == self.kernel_flows:
            return self.pace.window_ns // FAR_GRAINS
        return self.pace.rounded_to_ns(self.shaped_flows)

    def begin(
        self,
        flow: PacedFlow,
        rtt_ns: int,
        now: int,
        host_now: int,
        slots: tuple[int, ...] | None = None,
        burst: Burst | None = None,
    ) -> None:
        """Put the transfer on its link at ``now``.

        ``slots``: see ``Exchange.begin``. ``burst``: see ``PacedFlow.shape``.
        """
        self.exchange.begin(flow, now, slots)
        flow.shape(self.network, self.pace, rtt_ns, now, self._native_bit_s(flow), burst)
        self._begun(flow, now, host_now)

    def begin_native(self, flow: PacedFlow, now: int) -> None:
        """Begin a download on an idle native link: it is due now, so the network need not know."""
        self.exchange.add(flow)
        flow.shape_native(self._native_bit_s(flow))
        flow.completion, flow.release_at = Completion(flow.transfer, now, now, now), now

    def broadcast(
        self,
        copies: list[tuple[PacedFlow, int]],
        slots: tuple[int, ...],
        number: int,
        now: int,
        host_now: int,
    ) -> None:
        """Start transfer ``number`` in ``slots`` for all ``copies``, each (transfer, rtt).

        Without slots the copies count as delivered ``now``: they cost no emulated time.
        """
        flows = [flow for flow, _ in copies]
        if slots:
            sizes = [flow.transfer.size for flow in flows]
            transfer = broadcast_transfer(number, sizes, flows[0].transfer.kind)
            carrier = PacedFlow(transfer, 0, None, awaits_bytes=False)
            self.exchange.broadcast(carrier, flows, slots, now)
        for flow, rtt_ns in copies:
            if slots:
                flow.shape(self.network, self.pace, rtt_ns, now)
            else:
                self.exchange.add(flow)
                flow.known, flow.completion = True, Completion(flow.transfer, now, now, now)
            self._begun(flow, now, host_now)

    def _native_bit_s(self, flow: PacedFlow) -> int | None:
        return self.native_bit_s.get((flow.transfer.edge, flow.transfer.direction))

    def _begun(self, flow: PacedFlow, now: int, host_now: int) -> None:
        self._count(flow, 1)
        flow.lengthen(self.pace.length_ns(self.shaped_flows))
        flow.grain_ns = self.grain_ns
        if flow.body == 0:
            flow.last_byte_ns = now
        self._replan(flow, host_now)

    def next_due(self) -> int:
        """The next moment at which ``release`` or ``carried`` has work."""
        self._replan_shared()
        while self._heap and self._stale(self._heap[0]):
            heapq.heappop(self._heap)
        return min(self._heap[0][0] if self._heap else FOREVER, self.exchange.next_due())

    @property
    def has_pieces(self) -> bool:
        """Whether a piece waits for its moment."""
        return bool(self._heap)

    def is_due(self, now: int) -> bool:
        """Whether ``release`` may have work at ``now``; cheap."""
        return bool(self._heap) and self._heap[0][0] <= now

    def release(self, now: int) -> Iterator[tuple[PacedFlow, int, int]]:
        """Yield (flow, from, to): body bytes to send or to credit now.

        The delay of each release counts as wake lag.
        """
        self._replan_shared()
        self._hear(now)
        length_ns, grain_ns = self.pace.length_ns(self.shaped_flows), self.grain_ns
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if self._stale(entry):
                continue
            flow = self.exchange.flows[entry[1]]
            if flow.shaped:
                self.fidelity.wake(now - entry[0])
            flow.grain_ns = grain_ns
            first, end = flow.release(self.network, now)
            if flow.lengthen(length_ns):
                self._replan(flow, now)
            elif flow.release_at < FOREVER:
                heapq.heappush(self._heap, (flow.release_at, entry[1]))
            yield flow, first, end

    def carried(self, now: int) -> list[PacedFlow]:
        """Remove and return the transfers that are delivered, see ``Exchange.carried``."""
        delivered = self.exchange.carried(now)
        for flow in delivered:
            if flow.awaits_bytes:
                self._judge(flow)
        return delivered

    def took(self, flow: PacedFlow, now: int) -> None:
        """Bytes of an uplink flow have arrived: move the window of a native link."""
        if not flow.shaped and flow.release_at == FOREVER:
            self._replan(flow, now)

    def last_byte(self, flow: PacedFlow, at_ns: int) -> list[PacedFlow]:
        """The last byte arrived at emulated ``at_ns``. Returns the flow if this delivers it."""
        if not self.exchange.arrived(flow, at_ns):
            return []
        self._judge(flow)
        return [flow]

    def suspend(self, edge: str, now: int) -> None:
        """Suspend the edge's links, because its session is broken."""
        for flow in self.exchange.of_edge[edge].values():
            flow.suspended = flow.broken = True
            # a broadcast continues without this receiver
            if flow.completion is None and flow.broadcast is None:
                upload = flow.transfer.direction == "up"
                received = flow.received if upload else flow.released
                self.network.suspend(flow.transfer, flow.meta + received, now)
            self._replan(flow, now)

    def resume(self, flow: PacedFlow, body_bytes: int, now: int) -> None:
        """Continue after the first ``body_bytes`` bytes, which the receiver has."""
        flow.released, flow.suspended = body_bytes, False
        flow.due_at.clear()
        if flow.completion is None and flow.broadcast is None:
            self.network.suspend(flow.transfer, flow.meta + body_bytes, now)
            self.network.resume(flow.transfer, now)
        self._replan(flow, now)
        self._replan_behind(flow, now)

    def cancelled(self, flow: PacedFlow, host_now: int) -> None:
        """The exchange has cancelled this transfer: others of its link may start now."""
        if flow.granted:
            self._count(flow, -1)
            self._replan_behind(flow, host_now)

    def count_late(self, flow: PacedFlow, now: int) -> None:
        """At the end of the run, count the lag of a flow that is due and incomplete."""
        completion = flow.completion
        if flow.shaped and completion is not None and flow.last_byte_ns is None:
            self.fidelity.transfer(
                now - completion.due_ns, completion.due_ns - completion.offered_ns
            )

    def _judge(self, flow: PacedFlow) -> None:
        """Count a transfer that is delivered in the verdict."""
        self._count(flow, -1)
        completion = flow.completion
        assert completion is not None and flow.last_byte_ns is not None
        if flow.shaped:
            late = flow.last_byte_ns - completion.due_ns
            # a shared medium that learned of the transfer late has also shifted its due moment
            late_in_all_ns = max(late, 0) + completion.shifted_ns
            self.fidelity.transfer(late_in_all_ns, completion.due_ns - completion.offered_ns)
            self.fidelity.lead(max(-late, 0))
        elif (measured := flow.measured_bit_s()) is not None:
            self.native_bit_s[flow.transfer.edge, flow.transfer.direction] = measured

    def _count(self, flow: PacedFlow, by: int) -> None:
        self.shaped_flows += by * flow.shaped
        self.kernel_flows += by * bool(flow.burst_ns)

    def _hear(self, host_now: int) -> None:
        self._host_now = max(self._host_now, host_now)

    def _replan_shared(self) -> None:
        """Replan transfers whose plan another transfer has changed, on a shared medium or link."""
        for transfer in self.network.take_replanned():
            own = self.exchange.flows.get(transfer.number)
            copies = self.exchange.copies_of(transfer.number)
            for flow in copies or ([] if own is None else [own]):
                if (
                    flow.completion is None and flow.release_at > self._host_now
                ):  # otherwise it is sent at once anyway
                    self._replan(flow, self._host_now)

    def _replan(self, flow: PacedFlow, host_now: int) -> None:
        self._hear(host_now)
        flow.plan_release(self.network)
        flow.release_at = max(flow.release_at, host_now)
        if flow.release_at < FOREVER:
            heapq.heappush(self._heap, (flow.release_at, flow.transfer.number))

    def _replan_behind(self, flow: PacedFlow, host_now: int) -> None:
        """Replan the link's other transfers: they may start at other moments now."""
        for other in self.exchange.of_edge[flow.transfer.edge].values():
            if (
                other is not flow
                and other.transfer.direction == flow.transfer.direction
                and other.completion is None
            ):
                self._replan(other, host_now)

    def _stale(self, entry: tuple[int, int]) -> bool:
        flow = self.exchange.flows.get(entry[1])
        return flow is None or flow.release_at != entry[0]
