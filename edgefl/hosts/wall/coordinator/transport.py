"""Transfers over the wire: offers, pieces, credits, arrivals; between the sessions' frames and
the pacer's flows.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable

from edgefl.hosts.wall.coordinator.flow import Flow
from edgefl.hosts.wall.coordinator.mailbox import Carried, Heard, Whole
from edgefl.hosts.wall.coordinator.pacer import Pacer
from edgefl.hosts.wall.coordinator.probe import Probes
from edgefl.hosts.wall.coordinator.sessions import UNKNOWN_RTT, Session
from edgefl.protocol.codec import decode_note, encode_note, places
from edgefl.protocol.errors import WireError
from edgefl.protocol.messages import (
    MAX_PIECE_BYTES,
    Arrived,
    CancelTask,
    Credit,
    Delivered,
    FreshRequest,
    Join,
    Offer,
    Piece,
    Pong,
    Ready,
    Stamped,
    Started,
    TooLate,
)
from edgefl.protocol.transfers import Incoming, Outgoing
from edgefl.record.files import DROPPED, FRESH
from edgefl.strategies.base.decisions import Grant
from emulator.agenda import Agenda
from emulator.clock import WallClock
from emulator.links.network import Transfer

MOST_OFFERS = 8  # updates that one edge may have waiting
REMEMBERED = 4  # deliveries of an edge that can be told again after a broken session


@dataclass(slots=True, eq=False)
class Waiting:
    """An offered update: when its training began, if that is known, and its flow once it was
    granted.
    """

    offer: Offer
    task: int
    began_ns: int | None = None
    flow: Flow | None = None


class Transport:
    """Runs in the pacing thread. ``stamped``: edges whose training takes an emulated time.

    ``send(edge, message, body)``; ``tell`` reaches the logic thread; ``agenda`` holds emulated
    moments.
    """

    def __init__(
        self,
        pacer: Pacer,
        clock: WallClock,
        agenda: Agenda[Any],
        send: Callable[..., None],
        tell: Callable[[Any], None],
        probes: Probes,
        latency_ns: Mapping[str, int],
        most_bytes: int,
        stamped: Collection[str],
        sessions: dict[str, Session],
    ) -> None:
        self.pacer, self.clock, self.agenda, self.send, self.tell = pacer, clock, agenda, send, tell
        self.probes, self.latency_ns, self.most_bytes, self.stamped, self.sessions = (
            probes,
            latency_ns,
            most_bytes,
            stamped,
            sessions,
        )
        self.waiting: defaultdict[str, dict[int, Waiting]] = defaultdict(
            dict
        )  # edge -> its transfer number -> offered update
        self.number_at_edge: dict[int, int] = {}  # uplink flow -> the edge's own transfer number
        self.task_of: dict[int, int] = {}  # downlink flow -> task
        self.began: dict[str, tuple[int, int]] = {}  # edge -> (task, emulated moment it began)
        self.delivered: defaultdict[str, OrderedDict[int, int]] = defaultdict(OrderedDict)
        self.closed: dict[
            str, int
        ] = {}  # edge -> the latest task whose request is too late to answer

    # --------------------------------------------------------------- what the logic thread asks for
    def carry(self, edge: str, outgoing: Outgoing, now: int) -> None:
        """A bulk message goes down, unless it has come too late already."""
        if outgoing.kind == FRESH and self.closed.get(edge) == outgoing.task:
            return
        outgoing.number = self.pacer.next_number()
        transfer = Transfer(outgoing.number, edge, "down", outgoing.size, outgoing.kind)
        self.task_of[transfer.number] = outgoing.task
        self.pacer.start(
            transfer, len(outgoing.meta), outgoing, self.rtt_ns(edge), now, self.clock.now()
        )
        self.send(edge, outgoing.offer(now))
        if edge not in self.sessions:
            self.pacer.suspend(edge, now)

    def grant(self, grant: Grant, now: int) -> None:
        """An offered update may come up."""
        edge = grant.edge
        for number, waiting in self.waiting[edge].items():
            if waiting.task == grant.task and waiting.flow is None:
                offer = waiting.offer
                transfer = Transfer(
                    self.pacer.next_number(), edge, "up", len(offer.meta) + offer.size, offer.kind
                )
                self.number_at_edge[transfer.number] = number
                incoming = Incoming(offer, self.most_bytes)
                waiting.flow = self.pacer.start(
                    transfer,
                    len(offer.meta),
                    incoming,
                    self.rtt_ns(edge),
                    now,
                    self.clock.now(),
                    grant.slots,
                )
                if edge not in self.sessions:
                    self.pacer.suspend(edge, now)

    def noted(self, edge: str, note: Any, now: int) -> None:
        """A note goes to the edge: one that calls a task off stops its download too."""
        if isinstance(note, CancelTask):
            for flow in list(self.pacer.of_edge[edge].values()):
                if self.task_of.get(flow.transfer.number) == note.task:
                    self._drop(flow, now)
            self._forget_offers(edge, [note.task])

    # ------------------------------------------------------------------ time
    def release(self, now: int) -> None:
        """Send and credit what may go by ``now``."""
        for flow, first, end in self.pacer.release(now):
            if isinstance(flow.side, Outgoing):
                self._send_pieces(flow, flow.side, first, end)
            else:
                number = self.number_at_edge[flow.transfer.number]
                self.send(flow.transfer.edge, Credit(number, flow.side.received, end))

    def complete(self, now: int) -> None:
        """Report what is due by ``now`` and whole."""
        for flow in self.pacer.completed(now):
            self._done(flow)
        for completion in self.pacer.copies.take_sent():
            self.tell(Carried(completion, completion.due_ns))

    def overdue(self, now: int) -> None:
        """The run ends: count what is late and not there yet, and name the paths that were never
        measured.
        """
        for edge in self.sessions:
            for flow in self.pacer.of_edge[edge].values():
                self.pacer.count_late(flow, now)
        self.probes.judge(list(self.sessions))

    def probed(self, patience_s: float) -> bool:
        return self.probes.done(patience_s)

    # ------------------------------------------------------------------ sessions
    def entered(self, session: Session, join: Join) -> None:
        """An edge joined. Flows that it does not know of are over; the others go on from what it
        has.
        """
        now, edge, held = self.clock.now(), session.edge, dict(join.held)
        self._forget_offers(
            edge,
            [
                waiting.task
                for waiting in self.waiting[edge].values()
                if waiting.task not in join.tasks
            ],
        )
        for flow in list(self.pacer.of_edge[edge].values()):
            number = flow.transfer.number
            if isinstance(flow.side, Incoming):
                continue  # until the edge offers it again
            if number not in held or held[number] > flow.body:
                self._drop(flow, now)
                continue
            self.pacer.resume(flow, held[number], now)
            if held[number] == flow.body and flow.last_byte_ns is None:
                self._finished(self.pacer.last_byte(flow, now))
        for number in held:
            if number in self.delivered[edge]:
                self.send(edge, Delivered(number, self.delivered[edge][number]))
        self.probes.begin(edge)

    def gone(self, edge: str, now: int) -> None:
        self.pacer.suspend(edge, now)

    # ------------------------------------------------------------------ frames
    def frame(self, session: Session, message: Any, body: Any) -> None:
        """WireError if it is out of place."""
        match message:
            case Piece() if body is not None:
                self._piece(session, message, body)
            case Arrived():
                self._arrived(session, message)
            case Offer():
                self._offered(session.edge, message)
            case Stamped():
                note = decode_note(message.note)
                if not isinstance(note, FreshRequest):
                    raise WireError(f"{type(note).__name__} from an edge")
                task, began_ns = self.began.get(session.edge, (None, 0))
                due_ns = message.at_ns + self.latency_ns[session.edge]  # at the coordinator
                if session.edge in self.stamped and task == note.task:
                    self.pacer.fidelity.task(self.clock.now() - due_ns, message.at_ns - began_ns)
                    self.began[session.edge] = (note.task, message.at_ns)
                if note.until_ns:
                    self.agenda.add(
                        max(note.until_ns, self.clock.now()),
                        partial(self._too_late, session.edge, note.task),
                    )
                if not self._fresh(
                    session.edge, note.task
                ):  # else it is asked again in a new session, and the answer is on its way
                    self.agenda.add(max(due_ns, self.clock.now()), (session.edge, note))
            case Pong() if body is not None:
                self.probes.came(session, message, len(body))
            case _:
                raise WireError(f"{type(message).__name__} from an edge")

    def _piece(self, session: Session, piece: Piece, body: Any) -> None:
        waiting = self.waiting[session.edge].get(piece.transfer)
        if waiting is None:
            return  # of a transfer that was dropped meanwhile
        flow, end = waiting.flow, piece.offset + len(body)
        if flow is None or end > flow.released:
            raise WireError(
                f"bytes up to {end} of transfer {piece.transfer} came, up to"
                f" {flow.released if flow else 0} were credited"
            )
        now, incoming = self.clock.now(), flow.side
        incoming.add(piece.offset, body)
        self.pacer.fidelity.ahead(
            flow.ahead(self.pacer.network, incoming.received, now, self._tolerance_ns(session))
        )
        self.pacer.took(flow, now)
        if incoming.complete:
            self._finished(self.pacer.last_byte(flow, now))

    def _arrived(self, session: Session, arrived: Arrived) -> None:
        flow = self.pacer.flows.get(arrived.transfer)
        if (
            flow is None
            or flow.transfer.edge != session.edge
            or not isinstance(flow.side, Outgoing)
            or flow.last_byte_ns is not None
        ):
            return
        if not arrived.curve or arrived.curve[-1][0] != flow.body or flow.released < flow.body:
            raise WireError(
                f"transfer {arrived.transfer}: arrivals end at {arrived.curve[-1:]},"
                f" {flow.released} of {flow.body} bytes were sent"
            )
        now, at = self.clock.now(), 0
        for size, stamp in arrived.curve:
            at = (
                now
                if session.rtt_ns == UNKNOWN_RTT
                else min(self.clock.at_monotonic(stamp - session.offset_ns), now)
            )
            self.pacer.fidelity.ahead(
                flow.ahead(self.pacer.network, size, at, self._tolerance_ns(session))
            )
        self._finished(self.pacer.last_byte(flow, at))

    def _offered(self, edge: str, offer: Offer) -> None:
        """An update is ready, or its edge offers it again in a new session."""
        Incoming.check(offer, self.most_bytes)
        task, now = places(offer.meta)[0], self.clock.now()
        if offer.kind != "update" or (
            len(self.waiting[edge]) >= MOST_OFFERS and offer.transfer not in self.waiting[edge]
        ):
            raise WireError(
                f"offer of a {offer.kind!r} by an edge with {len(self.waiting[edge])} waiting"
            )
        known = self.waiting[edge].get(offer.transfer)
        if known is not None and known.offer.digest == offer.digest:
            if known.flow is not None and known.flow.suspended:
                self.pacer.resume(known.flow, known.flow.side.received, now)
            return
        if known is not None and known.flow is not None:
            self._drop(known.flow, now)
        began_ns = self._began(edge, task)
        if known is None:
            self._forget_offers(
                edge, [task]
            )  # the edge was urged: this one takes the place of what it had offered for later
        self.waiting[edge][offer.transfer] = waiting = Waiting(offer, task, began_ns)
        if (
            edge in self.stamped and known is None and began_ns is not None
        ):  # offered again, it is not late again
            self.pacer.fidelity.task(now - offer.due_ns, offer.due_ns - began_ns)
        self.agenda.add(max(offer.due_ns, now), partial(self._ready, edge, waiting))

    def _began(self, edge: str, task: int) -> int | None:
        """When the training of an update that is offered began; asked once, or again if another
        offer of it has come before.
        """
        if self.began.get(edge, (None, 0))[0] == task:
            return self.began.pop(edge)[1]
        return next(
            (waiting.began_ns for waiting in self.waiting[edge].values() if waiting.task == task),
            None,
        )

    def _ready(self, edge: str, waiting: Waiting, now: int) -> None:
        """Its moment has come, unless another offer has taken its place."""
        if waiting in self.waiting[edge].values():
            self.tell(Heard(now, edge, Ready(waiting.task)))

    def _too_late(self, edge: str, task: int, now: int) -> None:
        """A fresher model that is not there by now is of no use any more: its download ends,
        what it has brought counts, and the edge is told.
        """
        self.closed[edge] = task
        for flow in self._fresh(edge, task):
            self.tell(
                Carried(
                    flow.completion or self.pacer.network.carried(flow.transfer, now, DROPPED), now
                )
            )
            self._drop(flow, now)
        self.send(edge, Stamped(now, encode_note(TooLate(task))))

    def _fresh(self, edge: str, task: int) -> list[Flow]:
        """Fresher models for this task that are on their way."""
        return [
            flow
            for flow in self.pacer.of_edge[edge].values()
            if flow.transfer.kind == FRESH and self.task_of[flow.transfer.number] == task
        ]

    def acknowledged(self, edge: str, task: int) -> None:
        """The update's fate is on record: what is left of its offer is forgotten."""
        self._forget_offers(edge, [task])

    # ------------------------------------------------------------------ ends
    def _forget_offers(self, edge: str, tasks: list[int]) -> None:
        for number in [
            number for number, waiting in self.waiting[edge].items() if waiting.task in tasks
        ]:
            waiting = self.waiting[edge].pop(number)
            if waiting.flow is not None:
                self._drop(waiting.flow, self.clock.now())

    def _drop(self, flow: Flow, now: int) -> None:
        self.number_at_edge.pop(flow.transfer.number, None)
        self.task_of.pop(flow.transfer.number, None)
        self.pacer.drop(flow, now, self.clock.now())

    def _send_pieces(self, flow: Flow, outgoing: Outgoing, first: int, end: int) -> None:
        while first < end:
            view = outgoing.piece(first, min(end - first, MAX_PIECE_BYTES))
            self.send(flow.transfer.edge, Piece(flow.transfer.number, first), view)
            first += len(view)

    def _finished(self, flows: list[Flow]) -> None:
        for flow in flows:
            self._done(flow)

    def _done(self, flow: Flow) -> None:
        at, transfer = flow.finished_ns(), flow.transfer
        assert at is not None and flow.completion is not None
        if flow.broadcast is None and not flow.known:
            self.tell(Carried(flow.completion, at))
        if isinstance(flow.side, Incoming):
            del self.waiting[transfer.edge][
                self.number_at_edge.pop(transfer.number)
            ]  # offered again, it begins anew
            self.tell(Whole(at, transfer.edge, flow.side))
            return
        task = self.task_of.pop(transfer.number)
        told = self.delivered[transfer.edge]
        told[transfer.number] = at
        while len(told) > REMEMBERED:
            told.popitem(last=False)
        self.send(transfer.edge, Delivered(transfer.number, at))
        if transfer.kind == "task":
            self.began[transfer.edge] = (task, at)
            self.tell(Heard(at, transfer.edge, Started(task)))

    def rtt_ns(self, edge: str) -> int:
        """Of the path, in emulated ns; 0 while it is not known."""
        session = self.sessions.get(edge)
        return (
            0 if session is None or session.rtt_ns == UNKNOWN_RTT else self._tolerance_ns(session)
        )

    def _tolerance_ns(self, session: Session) -> int:
        """How wrong an arrival's stamp may be: less than the round trip by which the two clocks
        were compared.
        """
        return int(session.rtt_ns * self.clock.speed)
