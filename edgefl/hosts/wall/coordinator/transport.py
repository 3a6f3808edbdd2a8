"""Transfers over the wire: pass each frame, note and flow to the uplink or the downlink."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from edgefl.hosts.exchange import pays_latency
from edgefl.hosts.setup.network import DIRECTIONS
from edgefl.hosts.wall.coordinator.allowances import (
    Allowances,
    ReportAllowance,
    moment,
)
from edgefl.hosts.wall.coordinator.context import TransferContext
from edgefl.hosts.wall.coordinator.continuation import Continuation
from edgefl.hosts.wall.coordinator.downlink import Downlink
from edgefl.hosts.wall.coordinator.flow import Flow
from edgefl.hosts.wall.coordinator.probe import Probes
from edgefl.hosts.wall.coordinator.session import Answered, Session
from edgefl.hosts.wall.coordinator.stretches import stretches
from edgefl.hosts.wall.coordinator.thread_messages import Carried, HostSaid, Measured
from edgefl.hosts.wall.coordinator.training_times import TrainingTimes
from edgefl.hosts.wall.coordinator.uplink import Uplink
from edgefl.protocol.codec import decode_note
from edgefl.protocol.errors import WireError
from edgefl.protocol.host_reports import HostFacts, HostReport
from edgefl.protocol.messages import (
    Acknowledged,
    Arrived,
    CancelTask,
    FreshRequest,
    Join,
    Offer,
    Piece,
    Pong,
    Stamped,
    TaskFailed,
    ToEdge,
    Trained,
    Working,
)
from edgefl.protocol.transfers import Outgoing
from edgefl.record.files import PING, TRAINING
from emulator.clock import Ticket

# of ``behind_s``: the times that the last rate of a path says, and the most, also if it was never
# measured; an edge waits for 60 s for its coordinator
SPARE, MOST_BEHIND_S = 3.0, 30.0


@dataclass(slots=True)
class OpenNote:
    """A note of an edge about a task.

    ``tickets``: entries of the agenda. One delivers the note; a request has a second one, at the
    moment from which an answer is too late.
    """

    task: int
    tickets: list[Ticket]


class Transport:
    """All transfers of a run, in the pacing thread.

    ``stamped``: edges whose training takes an emulated time. ``reports``: how often edges may
    report about their hosts. ``useless(edge, what)``: called for a message that changes nothing.
    """

    def __init__(
        self,
        context: TransferContext,
        probes: Probes,
        latency_ns: Mapping[str, int],
        most_bytes: int,
        stamped: Collection[str],
        reports: ReportAllowance,
        useless: Callable[[str, str], None] = lambda edge, what: None,
    ) -> None:
        self.context, self.probes, self.latency_ns = context, probes, latency_ns
        self.pacer = context.pacer
        self.training = TrainingTimes(self.pacer.fidelity, stamped)
        self.allowances, self.reports = Allowances(), reports
        self.useless = useless
        self.uplink = Uplink(context, self.training, self.allowances, most_bytes, useless)
        self.downlink = Downlink(
            context, self.training, self.allowances, self.uplink.allow_ahead, useless
        )
        self.resumed = False
        self.notes: dict[tuple[str, type], OpenNote] = {}  # an edge's latest of each kind

    def end(self, edge: str, note: ToEdge, now: int) -> None:
        """Stop what ``note`` ends at this edge."""
        self.downlink.end(edge, note, now)
        self.uplink.end(edge, note)
        if isinstance(note, CancelTask):
            self.training.working.pop(edge, None)
        if isinstance(note, (CancelTask, Acknowledged)):
            self._forget_notes(edge, lambda task: task == note.task)

    # ------------------------------------------------------------------ time
    def release(self, now: int) -> None:
        """Send and credit the bytes that may be sent by ``now``."""
        for flow, first, end in self.pacer.release(now):
            if isinstance(flow.side, Outgoing):
                self.downlink.send_pieces(flow, first, end)
            else:
                self.uplink.credit(flow, first, end)

    def complete(self, now: int) -> None:
        """Report the transfers that are due by ``now`` and complete."""
        self._finish(self.pacer.completed(now))
        for completion in self.pacer.copies.take_sent():
            self.context.tell(Carried(completion, completion.due_ns))

    def _finish(self, flows: list[Flow]) -> None:
        for flow in flows:
            self.done(flow)

    def done(self, flow: Flow) -> None:
        """Report a flow that is due and complete."""
        at = flow.finished_ns()
        assert at is not None and flow.completion is not None
        if flow.broadcast is None and not flow.known:
            found = [] if flow.broken else stretches(flow.stamps)
            self.context.tell(Carried(flow.completion, at, found))
        direction = self.downlink if isinstance(flow.side, Outgoing) else self.uplink
        direction.done(flow, at)

    def native(self, edge: str) -> list[bool]:
        """Whether the edge's link is native, for each direction."""
        return [self.pacer.network.link(edge, way).capacity is None for way in DIRECTIONS]

    def answered(self, answered: Answered) -> None:
        """Report the round trip of a heartbeat if the edge's path is not emulated."""
        if any(self.native(answered.edge)):
            sent_ns = self.context.clock.at_monotonic(answered.sent_ns)
            ended_ns = self.context.clock.at_monotonic(answered.sent_ns + answered.rtt_ns)
            self.context.tell(Measured(PING, answered.edge, None, [(sent_ns, ended_ns, 0)]))

    def _trained(self, edge: str, trained: Trained) -> None:
        self.allowances.trained(edge, trained.task)
        clock = self.context.clock
        ended_ns, spent_ns = clock.now(), int(trained.spent_ns * clock.speed)
        if edge not in self.training.stamped and 0 < spent_ns <= ended_ns:
            stretch = (ended_ns - spent_ns, ended_ns, trained.samples)
            self.context.tell(Measured(TRAINING, edge, trained.task, [stretch]))

    def overdue(self, now: int) -> None:
        """At the end of the run, count what is late and incomplete, and report unmeasured paths."""
        for edge in list(self.training.working):
            self.training.overdue(edge, now)
        for edge in self.context.sessions:
            for flow in self.pacer.of_edge[edge].values():
                self.pacer.count_late(flow, now)
        self.probes.judge(list(self.context.sessions))

    def behind_s(self) -> float:
        """How long (s) the models that were sent and have not arrived may still take.

        What is sent now stands behind them in the queue of its connection. On emulated links the
        queues are short.
        """
        behind: Counter[str] = Counter()
        for flow in self.pacer.flows.values():
            edge = flow.transfer.edge
            under_way = isinstance(flow.side, Outgoing) and flow.last_byte_ns is None
            if under_way and not flow.shaped and edge in self.context.sessions:
                behind[edge] += 8 * flow.released
        slowest_s = 0.0
        for edge, bits in behind.items():
            bit_s = self.pacer.native_bit_s.get((edge, "down"))
            slowest_s = max(slowest_s, SPARE * bits / bit_s if bit_s else MOST_BEHIND_S)
        return min(slowest_s, MOST_BEHIND_S)

    # ------------------------------------------------------------------ sessions
    def go_on(self, continuation: Continuation) -> None:
        """Go on with the transfers of a run that was broken off; no edge has joined yet."""
        self.resumed = self.uplink.forgives_past_slots = True
        self.downlink.go_on(continuation)

    def entered(self, session: Session, join: Join) -> None:
        """An edge has joined. Continue with the open tasks and transfers that its Join names."""
        edge, held = session.edge, {pair[0]: pair[1] for pair in join.held}
        self.allowances.new_session(edge)
        if self.resumed:
            self.allowances.knows(edge, join.tasks)
        self.reports.new_session(edge)
        self.uplink.entered(edge, join.tasks)
        self._forget_notes(edge, lambda task: task not in join.tasks)
        self._finish(self.downlink.entered(edge, held, join.tasks, self.context.clock.now()))
        self.downlink.tell_again(edge, held)
        self.probes.begin(edge)

    def gone(self, edge: str, now: int) -> None:
        self.pacer.suspend(edge, now)

    # ------------------------------------------------------------------ frames
    def frame(self, session: Session, message: Any, body: Any) -> None:
        """Handle a frame of a joined edge. WireError if edges may not send it."""
        match message:
            case Piece() if body is not None:
                self._finish(self.uplink.piece(session, message, body))
            case Arrived():
                self._finish(self.downlink.arrived(session, message))
            case Offer():
                self.uplink.offered(session.edge, message)
            case Trained():
                self._trained(session.edge, message)
            case Working():
                self.allowances.working(session.edge, message.task)
                self.training.working[session.edge] = message
            case Stamped():
                self._note(session.edge, message)
            case HostFacts():
                self.reports.facts(session.edge)
                self._host_said(session.edge, message)
            case HostReport():
                self.reports.report(session.edge, session.heard_ns)
                self._host_said(session.edge, message)
            case Pong() if body is not None:
                if not self.probes.came(session, message, len(body)):
                    self.useless(session.edge, "a Pong with bytes")
            case _:
                raise WireError(f"{type(message).__name__} from an edge")

    def _host_said(self, edge: str, message: HostFacts | HostReport) -> None:
        self.context.tell(HostSaid(self.context.clock.now(), edge, message))

    def _note(self, edge: str, stamped: Stamped) -> None:
        """Handle a note: the edge asks for a fresher model, or its training has failed.

        If a request is repeated in a new session while its answer is being sent, the coordinator
        does not get it again.
        """
        self.training.working.pop(edge, None)
        note, now = decode_note(stamped.note), self.context.clock.now()
        if not isinstance(note, (FreshRequest, TaskFailed)):
            raise WireError(f"{type(note).__name__} from an edge")
        self.allowances.notes(edge, note.task)
        delay_ns = self.latency_ns[edge] if pays_latency(note) else 0
        due_ns = moment(stamped.at_ns, now) + delay_ns  # at the coordinator
        self.training.asked(edge, note.task, stamped.at_ns, now - due_ns)
        entries: list[tuple[int, Any]] = []
        if isinstance(note, FreshRequest):
            closes_ns = self.downlink.answers.closes_ns(note)
            if closes_ns is not None:
                close = partial(self.downlink.close, edge, note.task)
                entries.append((moment(closes_ns, now), close))
        if isinstance(note, TaskFailed) or not self.downlink.answering(edge, note.task):
            entries.append((due_ns, (edge, note)))
        self._forget_note((edge, type(note)))
        tickets = [self.context.agenda.add(max(at_ns, now), item) for at_ns, item in entries]
        self.notes[edge, type(note)] = OpenNote(note.task, tickets)

    def _forget_notes(self, edge: str, of: Callable[[int], bool]) -> None:
        """Forget the edge's notes on the tasks for which ``of(task)`` holds."""
        for key in ((edge, FreshRequest), (edge, TaskFailed)):
            if key in self.notes and of(self.notes[key].task):
                self._forget_note(key)

    def _forget_note(self, key: tuple[str, type]) -> None:
        if key in self.notes:
            for ticket in self.notes.pop(key).tickets:
                self.context.agenda.cancel(ticket)
