"""Transfers over the wire, in the pacing thread: models to edges, updates and notes from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from msgspec.structs import replace

from edgefl.clocks.setup.network import DIRECTIONS, usual_bit_s
from edgefl.clocks.wall.coordinator import thread_messages as messages
from edgefl.clocks.wall.coordinator.run_logic import Continuation
from edgefl.clocks.wall.coordinator.sessions import (
    UNKNOWN_RTT,
    Allowances,
    Answered,
    ReportAllowance,
    Session,
    moment,
)
from edgefl.clocks.wall.system import OWN_SYSTEM, System
from edgefl.exchange.machine import Deliveries, FaultLives, closes_ns
from edgefl.exchange.pacer import (
    ONE_PIECE_NS,
    PacedFlow,
    Pacer,
    native_ahead,
    rate_between,
    stretches,
)
from edgefl.protocol.codec import Incoming, Outgoing, decode_note, encode_note
from edgefl.protocol.messages import (
    FRESH,
    MAX_PIECE_BYTES,
    PUSH,
    SPACED_BYTES,
    TASK,
    UPDATE,
    Acknowledged,
    Arrived,
    CancelTask,
    Credit,
    Delivered,
    Dropped,
    FreshRequest,
    HostFacts,
    HostReport,
    Join,
    LimitExceeded,
    NothingNewer,
    Offer,
    Piece,
    Ping,
    Pong,
    PushArrived,
    PushReplaced,
    Ready,
    Stamped,
    Started,
    TaskFailed,
    ToEdge,
    Trained,
    WireError,
    Working,
)
from edgefl.record.files import PING, TRAINING
from edgefl.strategies.base.events_and_decisions import Grant
from emulator.clock import Agenda, Ticket, WallClock
from emulator.fidelity import Fidelity
from emulator.kernel_pacing import Burst, PacedConnection
from emulator.links.network import Completion, Network, Transfer
from emulator.tdma.channel import ChannelLink
from emulator.units import NS_PER_S

PROBE_BYTES = 1 << 17
TRIES = 3  # a probe that shared the path with other probes measures too little
PROBE_FASTER = 2  # than the link, if the kernel paces it
KERNEL, PROCESS = "kernel", "process"
MOST_OFFERS = 8  # updates that one edge may have waiting
# of ``behind_s``: the times that the last rate of a path says, and the most, also if it was never
# measured; an edge waits for 60 s for its coordinator
SPARE, MOST_BEHIND_S = 3.0, 30.0


class TrainingTimes:
    """Training times of edges, for the verdict.

    ``stamped``: edges whose training takes an emulated time. The others run on native devices,
    which the verdict does not judge.
    """

    def __init__(self, fidelity: Fidelity, stamped: Collection[str]) -> None:
        self.fidelity, self.stamped = fidelity, stamped
        self.began: dict[str, tuple[int, int]] = {}  # edge -> (task, emulated moment it began)
        self.working: dict[str, Working] = {}  # what each edge computes, and by when it must end

    def begins(self, edge: str, task: int, at_ns: int) -> None:
        self.began[edge] = (task, at_ns)

    def asked(self, edge: str, task: int, at_ns: int, late_ns: int) -> None:
        """The edge stopped at ``at_ns`` to ask for a fresher model.

        The request arrived ``late_ns`` after its emulated moment. A new session repeats it.
        """
        began = self.began.get(edge)
        if edge in self.stamped and began is not None and began[0] == task and began[1] < at_ns:
            self.fidelity.task(late_ns, at_ns - began[1])
            self.began[edge] = (task, at_ns)

    def offered(self, edge: str, task: int) -> int | None:
        """When the training of this update began. The first call removes it."""
        if self.began.get(edge, (None, 0))[0] == task:
            return self.began.pop(edge)[1]
        return None

    def done(self, edge: str, began_ns: int, due_ns: int, now: int) -> None:
        """The update that was due at ``due_ns`` is offered ``now``."""
        if edge in self.stamped:
            self.fidelity.task(now - due_ns, due_ns - began_ns)

    def overdue(self, edge: str, now: int) -> None:
        """Count unfinished work that was due by now: the edge is lost, or the run ends."""
        working = self.working.pop(edge, None)
        if working is None:
            return
        task, began_ns = self.began.get(edge, (None, 0))  # until its update is offered
        if task == working.task and now > working.due_ns:
            del self.began[edge]  # its update may still be offered
            self.fidelity.task(now - working.due_ns, working.due_ns - began_ns)


@dataclass(slots=True)
class Probe:
    """One edge's measurement so far: the best rate of its tries."""

    tries: int = 0
    best_bit_s: int = 0
    done: bool = False


class Probes:
    """Measures the paths to the edges. ``send(edge, message, body)`` sends to an edge.

    The verdict names each path that is slower than its emulated link times ``speed``.
    """

    def __init__(
        self,
        network: Network,
        speed: float,
        fidelity: Fidelity,
        send: Callable[..., None],
        system: System = OWN_SYSTEM,
    ) -> None:
        self.network, self.speed, self.fidelity, self.send = network, speed, fidelity, send
        self.system = system
        self.of_edge: dict[str, Probe] = {}
        self._began_s = 0.0

    def begin(self, edge: str) -> None:
        """Send a short ping for the round-trip time, then the payload."""
        self._began_s = self.system.monotonic_s()
        self.of_edge[edge] = Probe()
        self.send(edge, Ping(self.system.monotonic_ns()))
        self._again(edge)

    def done(self, patience_s: float) -> bool:
        """Whether all joined edges are measured, or ``patience_s`` has passed since the last one
        joined.
        """
        return (
            all(probe.done for probe in self.of_edge.values())
            or self.system.monotonic_s() - self._began_s > patience_s
        )

    def came(self, session: Session, pong: Pong, size: int) -> bool:
        """The payload has come back: compute the rate, and measure again if it is too low.

        False if no payload was awaited.
        """
        probe = self.of_edge.get(session.edge)
        if probe is None or probe.done or size != PROBE_BYTES:
            return False
        rtt_ns = 0 if session.rtt_ns == UNKNOWN_RTT else session.rtt_ns
        taken_ns = max(self.system.monotonic_ns() - pong.sent_ns - rtt_ns, 1)
        probe.best_bit_s = max(probe.best_bit_s, 2 * 8 * size * NS_PER_S // taken_ns)
        needed = self.needed_bit_s(session.edge)
        if needed is None or probe.best_bit_s >= needed or probe.tries >= TRIES:
            probe.done = True
            if needed is not None:
                self.fidelity.slow_path(session.edge, probe.best_bit_s, needed)
        else:
            self._again(session.edge)
        return True

    def too_slow(self, edge: str) -> dict[str, int] | None:
        """The rates of a path that was measured, if it is slower than its emulated link."""
        probe, needed = self.of_edge[edge], self.needed_bit_s(edge)
        if not probe.done or needed is None or probe.best_bit_s >= needed:
            return None
        return {"measured_bit_s": probe.best_bit_s, "needed_bit_s": needed}

    def judge(self, edges: list[str]) -> None:
        """At the end, report the paths to ``edges`` whose probe never came back."""
        for edge in edges:
            probe = self.of_edge.get(edge)
            if probe is not None and not probe.done and self.needed_bit_s(edge) is not None:
                self.fidelity.strain(f"the real path of edge {edge} could not be measured")

    def _again(self, edge: str) -> None:
        self.of_edge[edge].tries += 1
        self.send(edge, Ping(self.system.monotonic_ns()), bytes(PROBE_BYTES))

    def needed_bit_s(self, edge: str) -> int | None:
        """The faster of the edge's two emulated links, in real bit/s; None if they are native."""
        capacities = [self.network.link(edge, direction).capacity for direction in ("up", "down")]
        rates = [usual_bit_s(capacity) for capacity in capacities if capacity is not None]
        return int(max(rates) * self.speed) if rates else None


@dataclass(slots=True, eq=False)
class ToldNote:
    """A note of an edge on ``task``, which it has said for the moment ``at_ns``.

    ``delivers``: the entry of the agenda that delivers it. ``closes``: of a request, the one at
    the moment from which an answer is too late.
    """

    task: int
    at_ns: int
    closes: Ticket | None = None
    delivers: Ticket | None = None


class KernelPacing(Protocol):
    """A Router: the connections that the kernel may pace, by the routing ids of their peers."""

    paced: dict[bytes, PacedConnection]

    def pace(self, routing: bytes) -> int:
        """Prepare a peer's connection; returns the length of its segments, 0: it cannot be."""


class Transport:
    """All transfers of a run, in the pacing thread: drives the exchange with real bytes.

    ``send(edge, message, body)`` sends to an edge. ``tell`` sends to the logic thread. ``agenda``
    holds emulated moments. ``sessions``: of the connected edges. ``useless(edge, what)``: called
    for a message that changes nothing. ``most_bytes``: of the body of one update. ``reports``: how
    often edges may report about their hosts. ``gives_ahead``: the strategy does not schedule
    uploads, so an edge may send the first bytes of an update together with its Offer if nothing on
    its way is emulated. ``faults``: of a run with injected faults. ``resumed``: the run goes on, so
    edges may know tasks that this process has never given. ``kernel``: None: this process paces all
    links.
    """

    def __init__(
        self,
        pacer: Pacer,
        clock: WallClock,
        agenda: Agenda[Any],
        send: Callable[..., None],
        tell: Callable[[Any], None],
        sessions: dict[str, Session],
        useless: Callable[[str, str], None],
        training: TrainingTimes,
        probes: Probes,
        most_bytes: int,
        reports: ReportAllowance,
        gives_ahead: bool = False,
        faults: FaultLives | None = None,
        resumed: bool = False,
        kernel: KernelPacing | None = None,
    ) -> None:
        self.pacer, self.exchange, self.network = pacer, pacer.exchange, pacer.network
        self.clock, self.agenda, self.send, self.tell = clock, agenda, send, tell
        self.sessions, self.useless = sessions, useless
        self.training, self.probes, self.most_bytes = training, probes, most_bytes
        self.reports, self.gives_ahead = reports, gives_ahead
        self.faults, self.resumed, self.kernel = faults, resumed, kernel
        # transfers on shaped links, by who paced them
        self.paced: Counter[str] = Counter({KERNEL: 0, PROCESS: 0})
        self.without_kernel: set[str] = set()  # edges whose connections no kernel can pace
        self.allowances = Allowances()
        # an edge's latest notes of each kind, see ``_former``
        self.notes: dict[tuple[str, type], list[ToldNote]] = {}
        # edge -> a task, and the moments at which pushes for it have arrived
        self._pushes: dict[str, tuple[int, list[int]]] = {}
        # the task and the moment of an edge's latest note
        self.asked: dict[str, tuple[int, int]] = {}
        self.deliveries = Deliveries()
        # edge -> bytes of ended transfers that were credited and may still come
        self._late_bytes: Counter[str] = Counter()
        # edge -> a task, and how many bytes of its update may follow its Offer without a Credit
        self._ahead: dict[str, tuple[int, int]] = {}

    # ------------------------------------------------------------------ the logic thread's requests
    def carry(self, edge: str, outgoing: Outgoing, now: int, replaces: bool = False) -> None:
        """Start to send a model, unless it answers a closed request.

        ``replaces``: it is a push, which takes the place of those that wait.
        """
        if self.exchange.too_late(edge, outgoing.kind, outgoing.task):
            return
        if outgoing.kind == FRESH:
            self.allowances.goes_on(edge, outgoing.task)
        if outgoing.kind == PUSH:
            self._make_room(edge, outgoing.task, replaces, now)
            if not self.exchange.has_room(edge):
                self._replaced(edge, outgoing, now)
                return
        flow = self._download(edge, outgoing)
        if outgoing.body and edge in self.sessions and self.network.at_once(edge, "down", now):
            self.pacer.begin_native(flow, now)
        else:
            self._begin(flow, now)
        flow.starts = (
            not flow.shaped and outgoing.kind == TASK and edge not in self.training.stamped
        )
        ahead = self._allow_ahead(edge, outgoing.task) if flow.starts else 0
        self.send(edge, outgoing.offer(now, ahead, flow.starts))
        if not flow.shaped:  # nothing to wait for: the Offer's arrival is that of the first byte
            self._send_pieces(flow, *flow.release(self.network, self.clock.now()))

    def carry_all(self, request: messages.CarryAll) -> None:
        """Start a broadcast: one transfer is emulated, and each receiver is offered a real copy."""
        now, outgoings = request.now, request.outgoings
        for edge, outgoing in outgoings:
            if outgoing.kind == PUSH and request.replaces:
                self._make_room(edge, outgoing.task, True, now)
        copies = [
            (self._download(edge, outgoing), self._rtt_ns(edge)) for edge, outgoing in outgoings
        ]
        self.pacer.broadcast(copies, request.slots, request.number, now, self.clock.now())
        for edge, outgoing in outgoings:
            self.send(edge, outgoing.offer(now))
            self._suspend_absent(edge, now)

    def grant(self, grant: Grant, number: int, now: int) -> None:
        """Start the upload of an offered update, as transfer ``number``."""
        flow = self.exchange.offered(grant.edge, grant.task)
        if flow is None:
            return
        flow.transfer = replace(flow.transfer, number=number)
        if flow.released and flow.content.complete:
            flow.last_byte_ns = flow.stamps[-1][1]
        self._begin(flow, now, self._usable(grant.edge, grant.slots, now))

    def no_upload(self, edge: str, offer: int) -> None:
        """The logic thread has taken an update that came ahead: it needs no upload."""
        flow = self.exchange.uploads[edge].get(offer)
        if flow is not None:
            self.exchange.cancel(flow, self.clock.now())

    def end(self, edge: str, note: ToEdge, now: int) -> None:
        """Stop what ``note`` ends at this edge."""
        for flow in self.exchange.end(edge, note, now):
            if flow.transfer.kind == PUSH and flow.completion is not None:
                self.tell(messages.Carried(flow.completion, now))
            self._cancelled(flow)
        if isinstance(note, NothingNewer):
            self.allowances.goes_on(edge, note.task)
        if isinstance(note, CancelTask):
            self.training.working.pop(edge, None)
        if isinstance(note, (CancelTask, Acknowledged)):
            self._forget_notes(edge, lambda task: task == note.task)

    def _close(self, edge: str, task: int, now: int) -> None:
        """Close a request for a fresher model whose answer has not arrived in time."""
        note, ended = self.exchange.close(edge, task, now)
        for flow in ended:
            assert flow.completion is not None
            self.tell(messages.Carried(flow.completion, now))
            self._cancelled(flow)
        self.send(edge, Stamped(now, encode_note(note)))

    # ------------------------------------------------------------------ pushes
    def _make_room(self, edge: str, task: int, replaces: bool, now: int) -> None:
        for flow in self.exchange.make_room(edge, task, replaces, now):
            self._cancelled(flow)
            self.send(edge, Dropped(flow.transfer.number))
            self._replaced(edge, flow.content, now)

    def _is_void(self, edge: str, task: int, pushes: int, at_ns: int) -> bool:
        """Whether a push has arrived before ``at_ns`` that the edge did not have when it said this.

        ``pushes``: of this task, which it had.
        """
        of, moments = self._pushes.get(edge, (-1, []))
        return of == task and any(moment_ns < at_ns for moment_ns in moments[pushes:])

    def _replaced(self, edge: str, outgoing: Outgoing, now: int) -> None:
        dropped = PushReplaced(outgoing.task, outgoing.version, outgoing.number)
        self.tell(messages.Heard(now, edge, dropped))

    def _pushed(self, edge: str, flow: PacedFlow, at_ns: int) -> None:
        """A push has arrived. What the edge has said for later moments of this task is void, and
        what it says before it has the push.

        The edge trains ahead of emulated time, and the push may change what follows. It says again
        what still holds.
        """
        arrived = PushArrived(flow.task, flow.content.version, flow.transfer.number)
        self.allowances.goes_on(edge, flow.task)
        self.tell(messages.Heard(at_ns, edge, arrived))
        if edge not in self.training.stamped:
            return
        task, moments = self._pushes.get(edge, (-1, []))
        self._pushes[edge] = flow.task, [*(moments if task == flow.task else ()), at_ns]
        for upload in self.exchange.uploads[edge].values():
            if upload.task == flow.task and upload.ready is not None and upload.ready_ns > at_ns:
                self._not_ready(upload)
                upload.void = True
        # a push comes before a request of its moment
        self._forget_note((edge, FreshRequest), at_ns - 1)
        self._forget_note((edge, TaskFailed), at_ns)

    # ------------------------------------------------------------------ beginnings and ends
    def _download(self, edge: str, outgoing: Outgoing) -> PacedFlow:
        if outgoing.kind == TASK:
            self.allowances.given(edge, outgoing.task)
        transfer = Transfer(outgoing.number, edge, "down", outgoing.size, outgoing.kind)
        return PacedFlow(transfer, outgoing.task, outgoing, meta=len(outgoing.meta))

    def _begin(self, flow: PacedFlow, now: int, slots: tuple[int, ...] | None = None) -> None:
        """Begin to pace this transfer. Its link is suspended while the edge is not connected."""
        edge = flow.transfer.edge
        burst = self._burst(edge, flow)
        self.pacer.begin(flow, self._rtt_ns(edge), now, self.clock.now(), slots, burst)
        if flow.shaped:
            self.paced[KERNEL if flow.kernel else PROCESS] += 1
        self._suspend_absent(edge, now)

    def _burst(self, edge: str, flow: PacedFlow) -> Burst | None:
        """What the kernel sends at once on this path; None: it cannot pace the transfer.

        Notes to an edge that trains must not wait behind a queue in the kernel, so it gets only
        what an edge does not train beside.
        """
        session = self.sessions.get(edge)
        if session is None or not session.segment or session.rtt_ns == UNKNOWN_RTT:
            return None
        paced, kind = self._paced(session), flow.transfer.kind
        if paced is None or kind not in (TASK, UPDATE):
            return None
        burst = paced.burst()  # the edge's socket has another size, and the same round trip
        size_bytes = flow.content.offer.burst if kind == UPDATE else burst.size_bytes
        return Burst(size_bytes, int(burst.rtt_ns * self.clock.speed)) if size_bytes else None

    def _resume(self, flow: PacedFlow, received: int, now: int) -> None:
        """Continue a transfer in a new session, whose connection the kernel may not pace.

        An upload needs the difference of the clocks, which is not measured yet.
        """
        session = self.sessions[flow.transfer.edge]
        compared = flow.transfer.direction == "down" or session.rtt_ns != UNKNOWN_RTT
        flow.kernel &= compared and self._paced(session) is not None
        self.pacer.resume(flow, received, now)

    def _suspend_absent(self, edge: str, now: int) -> None:
        if edge not in self.sessions:
            self.pacer.suspend(edge, now)

    def _usable(self, edge: str, slots: tuple[int, ...] | None, now: int) -> tuple[int, ...] | None:
        """The granted slots. Those of a grant before a resumption may have passed."""
        link = self.network.link(edge, "up")
        if slots is None or not self.resumed or not isinstance(link, ChannelLink):
            return slots
        return tuple(slot for slot in slots if link.channel.grid.begins(slot) >= now)

    def _cancel(self, flow: PacedFlow, now: int) -> None:
        self.exchange.cancel(flow, now)
        self._cancelled(flow)

    def _cancelled(self, flow: PacedFlow) -> None:
        """The exchange has cancelled this transfer: forget what else is known of it."""
        self.pacer.cancelled(flow, self.clock.now())
        self._lift(flow)
        if flow.offer is not None:
            self._not_ready(flow)
            self._late_bytes[flow.transfer.edge] += max(flow.released - flow.received, 0)

    def _not_ready(self, flow: PacedFlow) -> None:
        """Do not report this upload as ready any more."""
        if flow.ready is not None:
            self.agenda.cancel(flow.ready)
            flow.ready = None

    # ------------------------------------------------------------------ time
    def release(self, now: int) -> None:
        """Send and credit the bytes that may be sent by ``now``."""
        for flow, first, end in self.pacer.release(now):
            if flow.transfer.direction == "down":
                self._send_pieces(flow, first, end)
            else:
                self._credit(flow, first, end)

    def _send_pieces(self, flow: PacedFlow, first: int, end: int) -> None:
        """Send body bytes [first, end)."""
        self._spread(flow, end - first)
        most = SPACED_BYTES if flow.kernel else MAX_PIECE_BYTES
        for border in flow.cuts(first, end):
            while first < border:
                view = flow.content.piece(first, min(border - first, most))
                self.send(flow.transfer.edge, Piece(flow.transfer.number, first), view)
                first += len(view)

    def _credit(self, flow: PacedFlow, first: int, end: int) -> None:
        """Allow the edge to send body bytes [first, end)."""
        assert flow.offer is not None
        leave_ns = 0
        if flow.kernel and (session := self.sessions.get(flow.transfer.edge)) is not None:
            leave_ns = self._leaves_ns(flow, session) + session.offset_ns
        for limit in flow.cuts(first, end):
            credit = Credit(flow.offer, flow.received, limit, max(leave_ns, 0))
            self.send(flow.transfer.edge, credit)

    # ------------------------------------------------------------------ pacing by the kernel
    def _spread(self, flow: PacedFlow, more: int) -> None:
        """Let the kernel space these bytes of a download, or no bytes at all."""
        session = self.sessions.get(flow.transfer.edge)
        paced = self._paced(session)
        if session is None or paced is None:
            return
        if flow.kernel and flow.completion is None:
            leaves_ns = self._leaves_ns(flow, session)
            paced.spread(more, leaves_ns - self.probes.system.monotonic_ns())
        else:
            paced.limit(None)

    def _leaves_ns(self, flow: PacedFlow, session: Session) -> int:
        """When the last byte that was released leaves, on this process' monotonic clock."""
        within_ns = (flow.leave_ns - self.clock.now()) / self.clock.speed
        leaves_ns = self.probes.system.monotonic_ns() + int(max(within_ns, 0))
        session.queued_until_ns = max(session.queued_until_ns, leaves_ns)
        return leaves_ns

    def _lift(self, flow: PacedFlow) -> None:
        """A download has ended: what is still queued leaves at once."""
        if flow.kernel and flow.transfer.direction == "down":
            paced = self._paced(self.sessions.get(flow.transfer.edge))
            if paced is not None:
                paced.limit(None)

    def _paced(self, session: Session | None) -> PacedConnection | None:
        if self.kernel is None or session is None or not session.segment:
            return None
        return self.kernel.paced.get(session.routing)

    def _prepare(self, session: Session, join: Join) -> None:
        """Prepare pacing by the kernels of both ends.

        The probe is paced, too: its bytes must not open the congestion window, which would make
        bursts longer.
        """
        if self.kernel is None:
            return
        session.segment = min(self.kernel.pace(session.routing), join.segment)
        paced = self._paced(session)
        needed_bit_s = self.probes.needed_bit_s(session.edge)
        if needed_bit_s is None:
            return  # native links need no pacing
        if not session.segment:
            self.without_kernel.add(session.edge)
        if paced is not None:
            # The probe takes at most one second: pings have to wait for it.
            paced.limit(max(PROBE_FASTER * needed_bit_s // 8, PROBE_BYTES))

    def complete(self, now: int) -> None:
        """Report the transfers that are due by ``now`` and complete."""
        for flow in self.pacer.carried(now):
            self.done(flow)

    def done(self, flow: PacedFlow) -> None:
        """Report a transfer that is delivered."""
        at_ns = flow.finished_ns()
        assert at_ns is not None and flow.completion is not None
        if flow.broadcast is None and not flow.known:
            measured = [] if flow.broken else stretches(flow.stamps)
            self.tell(messages.Carried(flow.completion, at_ns, measured))
        if flow.transfer.direction == "up":
            self._not_ready(flow)  # a grant of before a resumption may be earlier than this
            edge, contents = flow.transfer.edge, [flow.content]
            if self.faults is not None and self.faults.take("duplicate", edge):
                contents.append(copy(flow.content))  # the logic thread frees the first one's body
            for content in contents:
                self.tell(messages.Whole(at_ns, edge, content))
        elif flow.awaits_bytes:
            self._delivered(flow, at_ns)

    def _delivered(self, flow: PacedFlow, at_ns: int) -> None:
        """Report a download to the edge and to the logic thread.

        An edge whose task has started knows it.
        """
        self._lift(flow)
        edge, number = flow.transfer.edge, flow.transfer.number
        if not flow.starts:
            self.deliveries.add(edge, number, at_ns)
            self.send(edge, Delivered(number, at_ns))
        if flow.transfer.kind == TASK:
            self.training.begins(edge, flow.task, at_ns)
            self.tell(messages.Heard(at_ns, edge, Started(flow.task)))
        elif flow.transfer.kind == PUSH:
            self._pushed(edge, flow, at_ns)

    def native(self, edge: str) -> list[bool]:
        """Whether the edge's link is native, for each direction."""
        return [self.network.link(edge, way).capacity is None for way in DIRECTIONS]

    def answered(self, answered: Answered) -> None:
        """Report the round trip of a heartbeat if the edge's path is not emulated."""
        if any(self.native(answered.edge)):
            sent_ns = self.clock.at_monotonic(answered.sent_ns)
            ended_ns = self.clock.at_monotonic(answered.sent_ns + answered.rtt_ns)
            self.tell(messages.Measured(PING, answered.edge, None, [(sent_ns, ended_ns, 0)]))

    def overdue(self, now: int) -> None:
        """At the end of the run, count what is late and incomplete, and report unmeasured paths."""
        for edge in list(self.training.working):
            self.training.overdue(edge, now)
        for edge in self.sessions:
            for flow in self.exchange.of_edge[edge].values():
                self.pacer.count_late(flow, now)
        self.probes.judge(list(self.sessions))

    def behind_s(self) -> float:
        """How long (s) the models that were sent and have not arrived may still take.

        What is sent now stands behind them in the queue of its connection. On emulated links the
        queues are short.
        """
        behind: Counter[str] = Counter()
        for flow in self.exchange.flows.values():
            edge = flow.transfer.edge
            under_way = flow.transfer.direction == "down" and flow.last_byte_ns is None
            if under_way and not flow.shaped and edge in self.sessions:
                behind[edge] += 8 * flow.released
        slowest_s = 0.0
        for edge, bits in behind.items():
            bit_s = self.pacer.native_bit_s.get((edge, "down"))
            slowest_s = max(slowest_s, SPARE * bits / bit_s if bit_s else MOST_BEHIND_S)
        return min(slowest_s, MOST_BEHIND_S)

    # ------------------------------------------------------------------ sessions
    def go_on(self, continuation: Continuation) -> None:
        """Offer again what was under way when the run was broken off; no edge has joined yet.

        Copies of a broadcast count as delivered: their slots may have passed.
        """
        now = continuation.at_ns
        for edge, latest in continuation.delivered.items():
            for number, at_ns in latest.items():
                self.deliveries.add(edge, number, at_ns)
        for download, outgoing in continuation.downloads:
            if download.slotted:
                self.carry_all(messages.CarryAll(now, 0, [(download.edge, outgoing)], ()))
            else:
                self.carry(download.edge, outgoing, now)

    def entered(self, session: Session, join: Join) -> list[int]:
        """An edge has joined. Continue with the open tasks and transfers that its Join names.

        Its uploads are suspended until it offers them again. Returns the tasks that it has: not
        those whose model it was getting in a transfer that is given up. Another process of this
        edge may have had the model since then.
        """
        edge, now = session.edge, self.clock.now()
        held = {pair[0]: pair[1] for pair in join.held}
        latest: Mapping[int, int] = self.deliveries.of_edge.get(edge, {})
        given_up = held.keys() - latest.keys() - self.exchange.of_edge[edge].keys()
        lost = {task for number, task in join.begins if number in given_up}
        tasks = [task for task in join.tasks if task not in lost]
        self.allowances.new_session(edge)
        if self.resumed:
            self.allowances.knows(edge, tasks)
        self.reports.new_session(edge)
        self._ahead.pop(edge, None)
        self._prepare(session, join)
        for flow in self.exchange.under_way(edge):
            if flow.transfer.direction == "down":
                self._go_on_sending(flow, held, tasks, now)
            elif flow.task not in tasks:
                self._cancel(flow, now)
            elif not flow.granted:
                flow.released = flow.received  # the rest was lost with the session
        self._late_bytes.pop(edge, None)  # they were lost with the former session
        self._pushes.pop(edge, None)  # it says again what still holds
        self._forget_notes(edge, lambda task: task not in tasks)
        for number in held:  # the edge has not learned of these deliveries
            if number in latest:
                self.send(edge, Delivered(number, latest[number]))
            elif number not in self.exchange.of_edge[edge]:
                self.send(edge, Dropped(number))
        self.probes.begin(edge)
        return tasks

    def _go_on_sending(
        self, flow: PacedFlow, held: dict[int, int], tasks: Collection[int], now: int
    ) -> None:
        """Continue a download at the byte that the edge needs next, or drop it.

        ``held``: received bytes by transfer; without the flow, the edge does not know it. Then, if
        the edge has its task, the coordinator was killed just after its delivery.
        """
        received = held.get(flow.transfer.number)
        if received is None and flow.transfer.kind == PUSH and flow.task in tasks:
            # its Offer was lost with the session
            self.send(flow.transfer.edge, flow.content.offer(now))
            received = 0
        if received is None or received > flow.body:
            if flow.transfer.kind == TASK and flow.task in tasks:
                if not flow.known:
                    completion = Completion(flow.transfer, now, now, now)
                    self.tell(messages.Carried(completion, now))
                self.tell(messages.Heard(now, flow.transfer.edge, Started(flow.task)))
            self._cancel(flow, now)
            return
        self._resume(flow, received, now)
        if received == flow.body and flow.last_byte_ns is None:
            self._last_byte(flow, now)

    def gone(self, edge: str, now: int) -> None:
        self.pacer.suspend(edge, now)

    # ------------------------------------------------------------------ frames
    def frame(self, session: Session, message: Any, body: Any) -> None:
        """Handle a frame of a joined edge. WireError if edges may not send it."""
        edge, now = session.edge, self.clock.now()
        match message:
            case Piece() if body is not None:
                self._piece(session, message, body)
            case Arrived():
                self._arrived(session, message)
            case Offer():
                self._offered(edge, message)
            case Trained():
                self._trained(edge, message)
            case Working():
                self.allowances.count(edge, message.task, "begins")
                self.training.working[edge] = message
            case Stamped():
                self._note(edge, message)
            case HostFacts():
                self.reports.facts(edge)
                self.tell(messages.HostSaid(now, edge, message))
            case HostReport():
                self.reports.report(edge, session.heard_ns)
                self.tell(messages.HostSaid(now, edge, message))
            case Pong() if body is not None:
                if not self.probes.came(session, message, len(body)):
                    self.useless(edge, "a Pong with bytes")
                elif (rates := self.probes.too_slow(edge)) is not None:
                    self.tell(messages.Noticed(now, "slow_path", {"edge": edge, **rates}))
            case _:
                raise WireError(f"{type(message).__name__} from an edge")

    def _trained(self, edge: str, trained: Trained) -> None:
        self.allowances.count(edge, trained.task, "reports")
        ended_ns, spent_ns = self.clock.now(), int(trained.spent_ns * self.clock.speed)
        if edge not in self.training.stamped and 0 < spent_ns <= ended_ns:
            stretch = (ended_ns - spent_ns, ended_ns, trained.samples)
            self.tell(messages.Measured(TRAINING, edge, trained.task, [stretch]))

    def _last_byte(self, flow: PacedFlow, at_ns: int) -> None:
        for each in self.pacer.last_byte(flow, at_ns):
            self.done(each)

    def _arrived(self, session: Session, arrived: Arrived) -> None:
        """Process the edge's arrival stamps of a complete download.

        WireError if the stamps are impossible. The arrival of an unknown transfer, or one that is
        told again, changes nothing.
        """
        flow = self.exchange.of_edge[session.edge].get(arrived.transfer)
        if flow is None or flow.transfer.direction == "up" or flow.last_byte_ns is not None:
            self.useless(session.edge, "the arrival of an unknown transfer")
            return
        if not arrived.curve or arrived.curve[-1][0] != flow.body or flow.released < flow.body:
            raise WireError(
                f"transfer {arrived.transfer}: arrivals end at {arrived.curve[-1:]},"
                f" {flow.released} of {flow.body} bytes were sent"
            )
        now, at_ns = self.clock.now(), 0
        for size, stamp in arrived.curve:
            at_ns = now
            if session.rtt_ns != UNKNOWN_RTT:
                moment_ns = self.clock.at_monotonic(stamp - session.offset_ns)
                # one clock, so the time between two is exact; what an edge has made up may lie
                # outside of the run, and beyond what the verdict and the record can hold
                at_ns = min(max(moment_ns, 0), now)
                flow.arrived(size, at_ns)
            self._check_ahead(flow, size, at_ns, session)
        self._last_byte(flow, at_ns)

    def _piece(self, session: Session, piece: Piece, body: Any) -> None:
        """Receive a piece of an update.

        WireError for bytes beyond the credit. Pieces of an unknown transfer change nothing, as long
        as they are no more than the credit of those that have just ended.
        """
        edge = session.edge
        if self.faults is not None and len(body) and self.faults.take("corrupt", edge):
            body = bytearray(body)
            body[-1] ^= 0xFF  # its digest then fails, and the edge sends the update again
        flow = self.exchange.uploads[edge].get(piece.transfer)
        if flow is None:
            if not 0 < len(body) <= self._late_bytes[edge]:
                self.useless(edge, "bytes of an unknown transfer")
            else:
                self._late_bytes[edge] -= len(body)
            return
        end = piece.offset + len(body)
        if end > flow.released:
            raise WireError(
                f"bytes up to {end} of transfer {piece.transfer} came, up to {flow.released} were"
                " credited"
            )
        now, incoming = self.clock.now(), flow.content
        incoming.add(piece.offset, body)
        flow.arrived(incoming.received, now)
        if not flow.granted:
            if incoming.complete and self.faults is None and flow.ready_ns <= now:
                self._arrived_early(edge, flow, now)
            return
        self._check_ahead(flow, incoming.received, now, session)
        self.pacer.took(flow, now)
        if incoming.complete:
            self._last_byte(flow, now)

    def _check_ahead(self, flow: PacedFlow, body_bytes: int, at_ns: int, session: Session) -> None:
        """Count, in the verdict, bytes that arrived too early.

        At ``at_ns`` the receiver has ``body_bytes`` in total.
        """
        early = flow.ahead(self.network, body_bytes, at_ns, self._tolerance_ns(session))
        self.pacer.fidelity.ahead(early)

    def _rtt_ns(self, edge: str) -> int:
        """The round-trip time of the real path, in emulated ns; 0 while it is unknown."""
        session = self.sessions.get(edge)
        if session is None or session.rtt_ns == UNKNOWN_RTT:
            return 0
        return self._tolerance_ns(session)

    def _tolerance_ns(self, session: Session) -> int:
        """The largest error (emulated ns) of an arrival's stamp.

        The two clocks are compared by a ping, so the error is below its round-trip time.
        """
        return int(session.rtt_ns * self.clock.speed)

    # ------------------------------------------------------------------ offers
    def _allow_ahead(self, edge: str, task: int) -> int:
        """How many bytes of the update of ``task`` may follow its Offer without a Credit.

        This is one piece, so none until the path was measured.
        """
        bit_s = self.pacer.native_bit_s.get((edge, "up"))
        if bit_s is None or not self.gives_ahead or edge in self.training.stamped:
            return 0
        self._ahead[edge] = (task, native_ahead(bit_s))
        return native_ahead(bit_s)

    def _offered(self, edge: str, offer: Offer) -> None:
        """Handle an offer: an update is ready, or the edge offers it again in a new session."""
        incoming = Incoming(offer, self.most_bytes)
        task, now = incoming.task, self.clock.now()
        self._check_offer(edge, offer, task)
        self.allowances.count(edge, task, "offers")
        due_ns = moment(offer.due_ns, now)
        uploads = self.exchange.uploads[edge]
        known = uploads.get(offer.transfer)
        if known is not None and known.content.offer.digest == offer.digest:
            if known.suspended:
                self._resume(known, known.received, now)
            if known.void and not self._is_void(edge, task, offer.pushes, due_ns):
                # a push has arrived, and has changed nothing
                known.void, at_ns = False, max(known.ready_ns, now)
                known.ready = self.agenda.add(at_ns, partial(self._ready, edge, known))
            return
        # an urged edge makes a new offer, which replaces the former one
        former = [flow for flow in uploads.values() if flow is known or flow.task == task]
        began_ns = self.training.offered(edge, task)
        if began_ns is None:
            began_ns = next((flow.began_ns for flow in former if flow.task == task), None)
        for flow in former:
            self._cancel(flow, now)
        if known is None and began_ns is not None:  # a repeated offer does not count as late again
            self.training.done(edge, began_ns, due_ns, now)
        meta = len(offer.meta)
        transfer = Transfer(-1, edge, "up", meta + offer.size, offer.kind)
        flow = PacedFlow(transfer, task, incoming, offer=offer.transfer, meta=meta)
        flow.began_ns, flow.ready_ns = began_ns, max(due_ns, now)
        self.exchange.offer(flow)
        if self._is_void(edge, task, offer.pushes, due_ns):
            flow.void = True
            return
        reported_ns = flow.ready_ns
        if offer.ahead:
            flow.released, flow.stamps = offer.ahead, [(0, now)]
            if offer.ahead == offer.size and self.faults is None:
                reported_ns += ONE_PIECE_NS  # together with its bytes, if these come by then
        flow.ready = self.agenda.add(reported_ns, partial(self._ready, edge, flow))

    def _check_offer(self, edge: str, offer: Offer, task: int) -> None:
        """WireError if the edge may not offer this, LimitExceeded if too many offers wait."""
        uploads = self.exchange.uploads[edge]
        if offer.kind != UPDATE:
            raise WireError(f"offer of a {offer.kind!r} by an edge")
        if offer.starts:
            raise WireError("an update that starts, which only a task does")
        if offer.ahead:
            of, most = self._ahead.pop(edge, (None, 0))
            if of != task or offer.ahead > min(most, offer.size):
                raise WireError(f"{offer.ahead} bytes behind an offer, which were not allowed")
        if len(uploads) >= MOST_OFFERS and offer.transfer not in uploads:
            raise LimitExceeded(f"an offer by an edge with {len(uploads)} waiting")

    def _ready(self, edge: str, flow: PacedFlow, now: int) -> None:
        """Report the update as ready: its emulated moment has come."""
        flow.ready = None
        ready = Ready(flow.task, flow.transfer.size)
        self.tell(messages.Heard(flow.ready_ns, edge, ready))

    def _arrived_early(self, edge: str, flow: PacedFlow, now: int) -> None:
        """Report the update as ready and complete. It waits here until it is taken or granted."""
        if flow.ready is None:
            return  # it was reported as ready before
        self._not_ready(flow)
        bit_s = rate_between(flow.stamps)
        if bit_s is not None:
            self.pacer.native_bit_s[edge, "up"] = bit_s
        ready, measured = Ready(flow.task, flow.transfer.size), stretches(flow.stamps)
        self.tell(messages.EarlyUpdate(flow.ready_ns, edge, ready, flow.content, now, measured))

    # ------------------------------------------------------------------ notes
    def _note(self, edge: str, stamped: Stamped) -> None:
        """Handle a note: the edge asks for a fresher model, or its training has failed.

        If a request is repeated in a new session while its answer is being sent, the coordinator
        does not get it again.
        """
        self.training.working.pop(edge, None)
        note, now = decode_note(stamped.note), self.clock.now()
        if not isinstance(note, (FreshRequest, TaskFailed)):
            raise WireError(f"{type(note).__name__} from an edge")
        self.allowances.count(edge, note.task, "notes")
        before, self.asked[edge] = self.asked.get(edge), (note.task, stamped.at_ns)
        again = before is None or before == self.asked[edge]
        # a push comes before a request of its moment
        until_ns = stamped.at_ns + isinstance(note, FreshRequest)
        if self._is_void(edge, note.task, stamped.pushes, until_ns):
            return
        due_ns = self.exchange.note_due_ns(edge, note, moment(stamped.at_ns, now))
        self.training.asked(edge, note.task, stamped.at_ns, now - due_ns)
        former = self._former((edge, type(note)), note.task, stamped.at_ns)
        told = ToldNote(note.task, stamped.at_ns)
        if isinstance(note, FreshRequest):
            self.exchange.open(edge)
            if (at_ns := closes_ns(note)) is not None:
                close = partial(self._close, edge, note.task)
                told.closes = self.agenda.add(max(moment(at_ns, now), now), close)
        if isinstance(note, TaskFailed) or not (again and self._is_answering(edge, note.task)):
            told.delivers = self.agenda.add(max(due_ns, now), (edge, note))
        self.notes[edge, type(note)] = [*former, told]

    def _is_answering(self, edge: str, task: int) -> bool:
        """Whether a fresher model for this task is being sent."""
        flows = self.exchange.of_edge[edge].values()
        return any(flow.transfer.kind == FRESH and flow.task == task for flow in flows)

    def _forget_notes(self, edge: str, of: Callable[[int], bool]) -> None:
        """Forget the edge's notes on the tasks for which ``of(task)`` holds."""
        for key in ((edge, FreshRequest), (edge, TaskFailed)):
            if key in self.notes and of(self.notes[key][-1].task):
                self._forget_note(key)

    def _former(self, key: tuple[str, type], task: int, at_ns: int) -> list[ToldNote]:
        """Forget an edge's notes of this kind before a new one, but for its earlier request of the
        same task: it may have asked once more ahead of emulated time. That one is delivered, and
        nothing closes it.
        """
        kept: list[ToldNote] = []
        for told in self.notes.pop(key, ()):
            earlier = told.task == task and told.at_ns < at_ns
            self._cancel_tickets(told.closes, None if earlier else told.delivers)
            if earlier and told.delivers is not None:
                kept = [ToldNote(task, told.at_ns, None, told.delivers)]
        return kept

    def _cancel_tickets(self, *tickets: Ticket | None) -> None:
        for ticket in tickets:
            if ticket is not None:
                self.agenda.cancel(ticket)

    def _forget_note(self, key: tuple[str, type], after_ns: int = -1) -> None:
        """Forget an edge's notes of this kind, or those that it has said for later moments."""
        kept: list[ToldNote] = []
        for told in self.notes.pop(key, ()):
            if told.at_ns > after_ns:
                self._cancel_tickets(told.closes, told.delivers)
            else:
                kept.append(told)
        if kept:
            self.notes[key] = kept
