"""Uploads of updates: offered, granted, credited piece by piece, received."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from edgefl.hosts.exchange import ends
from edgefl.hosts.wall.coordinator.allowances import Allowances, moment
from edgefl.hosts.wall.coordinator.context import TransferContext
from edgefl.hosts.wall.coordinator.flow import (
    ONE_PIECE_NS,
    Flow,
    native_ahead,
    rate_between,
)
from edgefl.hosts.wall.coordinator.session import Session
from edgefl.hosts.wall.coordinator.stretches import stretches
from edgefl.hosts.wall.coordinator.thread_messages import CameAhead, Heard, Whole
from edgefl.hosts.wall.coordinator.training_times import TrainingTimes
from edgefl.protocol.errors import LimitExceeded, WireError
from edgefl.protocol.messages import UPDATE, Credit, Offer, Piece, Ready, ToEdge
from edgefl.protocol.transfers import Incoming
from edgefl.strategies.base.decisions import Grant
from emulator.clock import Ticket
from emulator.links.network import Transfer
from emulator.tdma.channel import ChannelLink

MOST_OFFERS = 8  # updates that one edge may have waiting


@dataclass(slots=True, eq=False)
class Waiting:
    """An offered update: when its training began, if known, and its flow once it is granted.

    ``ahead``: bytes that may come before the grant. ``stamps``: their arrivals, see Flow.
    ``ready_ns``: when it is ready. ``ready``: the agenda's entry that reports this; None: reported.
    """

    offer: Offer
    task: int
    incoming: Incoming
    began_ns: int | None = None
    flow: Flow | None = None
    ready_ns: int = 0
    ready: Ticket | None = None
    ahead: int = 0
    stamps: list[tuple[int, int]] = field(default_factory=list)


class UplinkFaults(Protocol):
    """The injected faults that concern the uplink."""

    def damaged(self, edge: str, body: Any) -> Any:
        """The bytes of a piece as they are received, perhaps damaged."""

    def repeats(self, edge: str) -> bool:
        """Whether this edge's update arrives twice."""


class Uplink:
    """Uploads; runs in the pacing thread. ``faults``: set before a run with injected faults.

    ``gives_ahead``: the strategy does not schedule uploads, so an edge may send the first bytes of
    an update together with its Offer if nothing on its way is emulated.
    """

    gives_ahead = False
    faults: UplinkFaults | None = None
    forgives_past_slots = False  # in a resumed run

    def __init__(
        self,
        context: TransferContext,
        training: TrainingTimes,
        allowances: Allowances,
        most_bytes: int,
        useless: Callable[[str, str], None],
    ) -> None:
        """``useless``: see Transport."""
        self.useless = useless
        self.context, self.training, self.most_bytes = context, training, most_bytes
        self.allowances = allowances
        # edge -> its transfer number -> offered update
        self.waiting: defaultdict[str, dict[int, Waiting]] = defaultdict(dict)
        # edge -> bytes of ended transfers that were credited and may still come
        self._late_bytes: Counter[str] = Counter()
        self._ahead: dict[str, tuple[int, int]] = {}  # edge -> the task and bytes of allow_ahead

    # ------------------------------------------------------------------ the logic thread's requests
    def grant(self, grant: Grant, number: int, now: int) -> None:
        """Start the upload of an offered update, as transfer ``number``."""
        edge = grant.edge
        for waiting in self.waiting[edge].values():
            if waiting.task == grant.task and waiting.flow is None:
                offer = waiting.offer
                meta = len(offer.meta)
                transfer = Transfer(number, edge, "up", meta + offer.size, offer.kind)
                slots = self._usable(edge, grant.slots, now)
                flow = self.context.start(transfer, meta, waiting.incoming, now, slots)
                waiting.flow = flow
                if waiting.stamps:
                    flow.released, flow.stamps = waiting.ahead, waiting.stamps
                if waiting.ahead and waiting.incoming.complete:
                    flow.last_byte_ns = waiting.stamps[-1][1]

    def _usable(self, edge: str, slots: tuple[int, ...] | None, now: int) -> tuple[int, ...] | None:
        """The granted slots. Those of a grant before a resumption may have passed."""
        link = self.context.pacer.network.link(edge, "up")
        if slots is None or not self.forgives_past_slots or not isinstance(link, ChannelLink):
            return slots
        return tuple(slot for slot in slots if link.channel.grid.begins(slot) >= now)

    def end(self, edge: str, note: ToEdge) -> None:
        """Forget the updates that ``note`` ends."""
        self._forget(edge, [each for each in self._of(edge) if ends(note, UPDATE, each.task)])

    def _of(self, edge: str) -> list[Waiting]:
        return list(self.waiting[edge].values())

    def _forget(self, edge: str, offers: list[Waiting]) -> None:
        for waiting in offers:
            del self.waiting[edge][waiting.offer.transfer]
            if waiting.ready is not None:
                self.context.agenda.cancel(waiting.ready)
            credited = waiting.ahead if waiting.flow is None else waiting.flow.released
            self._late_bytes[edge] += max(credited - waiting.incoming.received, 0)
            if waiting.flow is not None:
                self.context.drop(waiting.flow, self.context.clock.now())

    # ------------------------------------------------------------------ offers
    def entered(self, edge: str, tasks: list[int]) -> None:
        """The edge has joined with these open tasks. Forget its offers for other tasks.

        The remaining uploads are suspended until the edge offers them again.
        """
        self._forget(edge, [each for each in self._of(edge) if each.task not in tasks])
        self._late_bytes.pop(edge, None)  # they were lost with the former session
        self._ahead.pop(edge, None)
        for waiting in self._of(edge):
            waiting.ahead = waiting.incoming.received  # the rest was lost with the session

    def allow_ahead(self, edge: str, task: int) -> int:
        """How many bytes of the update of ``task`` may follow its Offer without a Credit.

        This is one piece, so none until the path was measured.
        """
        bit_s = self.context.pacer.native_bit_s.get((edge, "up"))
        if bit_s is None or not self.gives_ahead or edge in self.training.stamped:
            return 0
        self._ahead[edge] = (task, native_ahead(bit_s))
        return native_ahead(bit_s)

    def offered(self, edge: str, offer: Offer) -> None:
        """Handle an offer: an update is ready, or the edge offers it again in a new session."""
        incoming = Incoming(offer, self.most_bytes)
        task, now = incoming.task, self.context.clock.now()
        known = self._known(edge, offer, task)
        self.allowances.offers(edge, task)
        due_ns = moment(offer.due_ns, now)
        if known is not None and known.offer.digest == offer.digest:
            if known.flow is not None and known.flow.suspended:
                self.context.pacer.resume(known.flow, known.flow.side.received, now)
            return
        began_ns = self._began(edge, task)
        # an urged edge makes a new offer, which replaces the former one
        self._forget(edge, [each for each in self._of(edge) if each is known or each.task == task])
        if known is None and began_ns is not None:  # a repeated offer does not count as late again
            self.training.done(edge, began_ns, due_ns, now)
        self.waiting[edge][offer.transfer] = waiting = Waiting(offer, task, incoming, began_ns)
        waiting.ready_ns = reported_ns = max(due_ns, now)
        if offer.ahead:
            waiting.ahead, waiting.stamps = offer.ahead, [(0, now)]
            if offer.ahead == offer.size and self.faults is None:
                reported_ns += ONE_PIECE_NS  # together with its bytes, if these come by then
        ready = partial(self._ready, edge, waiting)
        waiting.ready = self.context.agenda.add(reported_ns, ready)

    def _known(self, edge: str, offer: Offer, task: int) -> Waiting | None:
        """The edge's earlier offer with this number, or None.

        WireError if the edge may not offer this, LimitExceeded if too many of its offers wait.
        """
        waiting = self.waiting[edge]
        if offer.kind != UPDATE:
            raise WireError(f"offer of a {offer.kind!r} by an edge")
        if offer.starts:
            raise WireError("an update that starts, which only a task does")
        if offer.ahead:
            of, most = self._ahead.pop(edge, (None, 0))
            if of != task or offer.ahead > min(most, offer.size):
                raise WireError(f"{offer.ahead} bytes behind an offer, which were not allowed")
        if len(waiting) >= MOST_OFFERS and offer.transfer not in waiting:
            raise LimitExceeded(f"an offer by an edge with {len(waiting)} waiting")
        return waiting.get(offer.transfer)

    def _began(self, edge: str, task: int) -> int | None:
        """When the training of an offered update began; None if unknown."""
        began_ns = self.training.offered(edge, task)
        if began_ns is not None:
            return began_ns
        return next((each.began_ns for each in self._of(edge) if each.task == task), None)

    def _ready(self, edge: str, waiting: Waiting, now: int) -> None:
        """Report the update as ready: its emulated moment has come."""
        waiting.ready = None
        self.context.tell(Heard(waiting.ready_ns, edge, _ready(waiting)))

    def _came_ahead(self, edge: str, waiting: Waiting, now: int) -> None:
        """Report the update as ready and whole. It waits here until it is taken or granted."""
        if waiting.ready is None:
            return  # it was reported as ready before
        self.context.agenda.cancel(waiting.ready)
        waiting.ready = None
        stamps, incoming = waiting.stamps, waiting.incoming
        measured = rate_between(stamps)
        if measured is not None:
            self.context.pacer.native_bit_s[edge, "up"] = measured
        ready, found = _ready(waiting), stretches(stamps)
        self.context.tell(CameAhead(waiting.ready_ns, edge, ready, incoming, now, found))

    def taken(self, edge: str, transfer: int) -> None:
        """The logic thread has taken an update that came ahead."""
        self.waiting[edge].pop(transfer, None)

    # ------------------------------------------------------------------ bytes
    def credit(self, flow: Flow, first: int, end: int) -> None:
        """Allow the edge to send body bytes [first, end)."""
        number, received = flow.side.offer.transfer, flow.side.received
        for limit in flow.cuts(first, end):
            self.context.send(flow.transfer.edge, Credit(number, received, limit))

    def piece(self, session: Session, piece: Piece, body: Any) -> list[Flow]:
        """Receive a piece. Returns the flow if it is done.

        WireError for bytes beyond the credit. Pieces of an unknown transfer change nothing, as long
        as they are no more than the credit of those that have just ended.
        """
        if self.faults is not None:
            body = self.faults.damaged(session.edge, body)
        waiting = self.waiting[session.edge].get(piece.transfer)
        if waiting is None:
            if not 0 < len(body) <= self._late_bytes[session.edge]:
                self.useless(session.edge, "bytes of an unknown transfer")
            else:
                self._late_bytes[session.edge] -= len(body)
            return []
        flow, end = waiting.flow, piece.offset + len(body)
        credited = waiting.ahead if flow is None else flow.released
        if end > credited:
            raise WireError(
                f"bytes up to {end} of transfer {piece.transfer} came, up to {credited} were"
                " credited"
            )
        now, incoming = self.context.clock.now(), waiting.incoming
        incoming.add(piece.offset, body)
        if flow is None:
            waiting.stamps.append((incoming.received, now))
            if incoming.complete and self.faults is None and waiting.ready_ns <= now:
                self._came_ahead(session.edge, waiting, now)
            return []
        flow.arrived(incoming.received, now)
        self.context.check_ahead(flow, incoming.received, now, session)
        self.context.pacer.took(flow, now)
        return self.context.pacer.last_byte(flow, now) if incoming.complete else []

    def done(self, flow: Flow, at_ns: int) -> None:
        """Pass the update, complete at ``at_ns``, to the logic thread. A new offer starts anew."""
        edge, incoming = flow.transfer.edge, flow.side
        waiting = self.waiting[edge].pop(incoming.offer.transfer)
        if waiting.ready is not None:  # a grant of before a resumption may be earlier than this
            self.context.agenda.cancel(waiting.ready)
        twice = self.faults is not None and self.faults.repeats(edge)
        # a copy, because the logic thread frees the body of the first one
        for each in (incoming, copy(incoming)) if twice else (incoming,):
            self.context.tell(Whole(at_ns, edge, each))


def _ready(waiting: Waiting) -> Ready:
    return Ready(waiting.task, len(waiting.offer.meta) + waiting.offer.size)
