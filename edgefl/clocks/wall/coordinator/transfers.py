"""Transfers over the wire, in the pacing thread: models to edges, updates and notes from them.

``Transport`` has them all. It passes each frame, note and flow to ``Downlink`` or ``Uplink``.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from edgefl.clocks.exchange import Answers, ends, pays_latency
from edgefl.clocks.fault_lives import FaultLives
from edgefl.clocks.setup.network import DIRECTIONS, usual_bit_s
from edgefl.clocks.wall.coordinator import thread_messages as messages
from edgefl.clocks.wall.coordinator.limits import (
    Allowances,
    ReportAllowance,
    moment,
)
from edgefl.clocks.wall.coordinator.pacer import (
    ONE_PIECE_NS,
    Flow,
    Pacer,
    native_ahead,
    rate_between,
    stretches,
)
from edgefl.clocks.wall.coordinator.run_logic import REMEMBERED, Continuation
from edgefl.clocks.wall.coordinator.sessions import UNKNOWN_RTT, Answered, Session
from edgefl.clocks.wall.system import OWN_SYSTEM, System
from edgefl.protocol.codec import decode_note, encode_note
from edgefl.protocol.errors import LimitExceeded, WireError
from edgefl.protocol.messages import (
    DROPPED,
    FRESH,
    MAX_PIECE_BYTES,
    TASK,
    UPDATE,
    Acknowledged,
    Arrived,
    CancelTask,
    Credit,
    Delivered,
    FreshRequest,
    HostFacts,
    HostReport,
    Join,
    Offer,
    Piece,
    Ping,
    Pong,
    Ready,
    Stamped,
    Started,
    TaskFailed,
    ToEdge,
    Trained,
    Working,
)
from edgefl.protocol.transfers import Incoming, Outgoing
from edgefl.record.files import PING, TRAINING
from edgefl.strategies.base.events_and_decisions import Grant
from emulator.clock import Agenda, Ticket, WallClock
from emulator.fidelity import Fidelity
from emulator.links.network import Completion, Network, Transfer
from emulator.tdma.channel import ChannelLink
from emulator.units import NS_PER_S

PROBE_BYTES = 1 << 17
TRIES = 3  # a probe that shared the path with other probes measures too little
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

        The request arrived ``late_ns`` after its emulated moment.
        """
        began = self.began.get(edge)
        if edge in self.stamped and began is not None and began[0] == task:
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
            self.fidelity.task(now - working.due_ns, working.due_ns - began_ns)


@dataclass(frozen=True, slots=True)
class TransferContext:
    """What the transfers of the pacing thread work with.

    ``send(edge, message, body)`` sends to an edge. ``tell`` sends to the logic thread. ``agenda``
    holds emulated moments. ``sessions``: of the connected edges. ``useless(edge, what)``: called
    for a message that changes nothing.
    """

    pacer: Pacer
    clock: WallClock
    agenda: Agenda[Any]
    send: Callable[..., None]
    tell: Callable[[Any], None]
    sessions: dict[str, Session]
    training: TrainingTimes
    useless: Callable[[str, str], None]
    allowances: Allowances = field(default_factory=Allowances)

    def start(
        self,
        transfer: Transfer,
        meta: int,
        side: Outgoing | Incoming,
        now: int,
        slots: tuple[int, ...] | None = None,
    ) -> Flow:
        """Begin to pace this transfer. Its link is suspended while the edge is not connected."""
        edge = transfer.edge
        flow = self.pacer.start(
            transfer, meta, side, self.rtt_ns(edge), now, self.clock.now(), slots
        )
        self.suspend_absent(edge, now)
        return flow

    def start_native(self, transfer: Transfer, meta: int, side: Outgoing, now: int) -> Flow | None:
        """Begin a download that is due at once; None if its link emulates something, or the edge
        is not connected.
        """
        edge = transfer.edge
        if not side.body or edge not in self.sessions:
            return None
        if not self.pacer.network.at_once(edge, transfer.direction, now):
            return None
        return self.pacer.start_native(transfer, meta, side, now)

    def suspend_absent(self, edge: str, now: int) -> None:
        if edge not in self.sessions:
            self.pacer.suspend(edge, now)

    def drop(self, flow: Flow, now: int) -> None:
        self.pacer.drop(flow, now, self.clock.now())

    def check_ahead(self, flow: Flow, body_bytes: int, at_ns: int, session: Session) -> None:
        """Count, in the verdict, bytes that arrived too early.

        At ``at_ns`` the receiver has ``body_bytes`` in total.
        """
        tolerance_ns = self._tolerance_ns(session)
        self.pacer.fidelity.ahead(flow.ahead(self.pacer.network, body_bytes, at_ns, tolerance_ns))

    def rtt_ns(self, edge: str) -> int:
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
        needed = self._needed_bit_s(session.edge)
        if needed is None or probe.best_bit_s >= needed or probe.tries >= TRIES:
            probe.done = True
            if needed is not None:
                self.fidelity.slow_path(session.edge, probe.best_bit_s, needed)
            return True
        self._again(session.edge)
        return True

    def judge(self, edges: list[str]) -> None:
        """At the end, report the paths to ``edges`` whose probe never came back."""
        for edge in edges:
            probe = self.of_edge.get(edge)
            if probe is not None and not probe.done and self._needed_bit_s(edge) is not None:
                self.fidelity.strain(f"the real path of edge {edge} could not be measured")

    def _again(self, edge: str) -> None:
        self.of_edge[edge].tries += 1
        self.send(edge, Ping(self.system.monotonic_ns()), bytes(PROBE_BYTES))

    def _needed_bit_s(self, edge: str) -> int | None:
        """The faster of the edge's two emulated links, in real bit/s; None if they are native."""
        capacities = [self.network.link(edge, direction).capacity for direction in ("up", "down")]
        rates = [usual_bit_s(capacity) for capacity in capacities if capacity is not None]
        return int(max(rates) * self.speed) if rates else None


class Downlink:
    """Downloads; runs in the pacing thread. Methods that return flows return finished ones."""

    def __init__(self, context: TransferContext, ahead: Callable[[str, int], int]) -> None:
        """``ahead(edge, task)``: bytes of the update that may follow its Offer at once."""
        self.context, self.training, self.ahead = context, context.training, ahead
        self.answers = Answers()
        # edge -> transfer -> moment of delivery
        self._delivered: defaultdict[str, OrderedDict[int, int]] = defaultdict(OrderedDict)

    # ------------------------------------------------------------------ the logic thread's requests
    def carry(self, edge: str, outgoing: Outgoing, now: int) -> None:
        """Start to send a model, unless it answers a closed request."""
        if self.answers.too_late(edge, outgoing.kind, outgoing.task):
            return
        context = self.context
        transfer, meta = self._transfer(edge, outgoing), len(outgoing.meta)
        flow = context.start_native(transfer, meta, outgoing, now)
        if flow is None:
            flow = context.start(transfer, meta, outgoing, now)
        flow.starts = (
            not flow.shaped and outgoing.kind == TASK and edge not in self.training.stamped
        )
        ahead = self.ahead(edge, outgoing.task) if flow.starts else 0
        context.send(edge, outgoing.offer(now, ahead, flow.starts))
        if not flow.shaped:  # nothing to wait for: the Offer's arrival is that of the first byte
            first, end = flow.release(context.pacer.network, context.clock.now())
            self.send_pieces(flow, first, end)

    def carry_all(self, wish: messages.CarryAll) -> None:
        """Start a broadcast: one transfer is emulated, and each receiver is offered a real copy."""
        context = self.context
        copies = [
            (self._transfer(edge, outgoing), outgoing, context.rtt_ns(edge))
            for edge, outgoing in wish.outgoings
        ]
        context.pacer.broadcast(copies, wish.slots, wish.number, wish.now, context.clock.now())
        for edge, outgoing in wish.outgoings:
            context.send(edge, outgoing.offer(wish.now))
            context.suspend_absent(edge, wish.now)

    def _transfer(self, edge: str, outgoing: Outgoing) -> Transfer:
        if outgoing.kind == TASK:
            self.context.allowances.given(edge, outgoing.task)
        return Transfer(outgoing.number, edge, "down", outgoing.size, outgoing.kind)

    def end(self, edge: str, note: ToEdge, now: int) -> None:
        """Drop the transfers that ``note`` ends."""
        for flow in self._ended(edge, note):
            self.context.drop(flow, now)

    def close(self, edge: str, task: int, now: int) -> None:
        """Close a request for a fresher model whose answer has not arrived in time.

        The answer's download ends, and the bytes carried so far count. The edge gets a TooLate.
        """
        note, network = self.answers.close(edge, task), self.context.pacer.network
        for flow in self._ended(edge, note):
            brought = flow.completion or network.carried(flow.transfer, now, DROPPED)
            self.context.tell(messages.Carried(brought, now))
            self.context.drop(flow, now)
        self.context.send(edge, Stamped(now, encode_note(note)))

    def answering(self, edge: str, task: int) -> bool:
        """Whether a fresher model for this task is being sent."""
        return any(
            flow.transfer.kind == FRESH and flow.side.task == task for flow in self._flows(edge)
        )

    def _ended(self, edge: str, note: ToEdge) -> list[Flow]:
        return [
            flow for flow in self._flows(edge) if ends(note, flow.transfer.kind, flow.side.task)
        ]

    def _flows(self, edge: str) -> list[Flow]:
        """The downloads of this edge."""
        flows = self.context.pacer.of_edge[edge].values()
        return [flow for flow in flows if isinstance(flow.side, Outgoing)]

    # ------------------------------------------------------------------ sessions
    def go_on(self, continuation: Continuation) -> None:
        """Offer again what was under way when the run was broken off.

        Copies of a broadcast count as delivered: their slots may have passed.
        """
        now = continuation.at_ns
        for edge, told in continuation.delivered.items():
            self._delivered[edge] = OrderedDict(told)
        for download, outgoing in continuation.downloads:
            if download.slotted:
                self.carry_all(messages.CarryAll(now, 0, [(download.edge, outgoing)], ()))
            else:
                self.carry(download.edge, outgoing, now)

    def entered(
        self, edge: str, held: dict[int, int], tasks: Collection[int], now: int
    ) -> list[Flow]:
        """Continue the downloads of an edge that has joined again.

        ``held``: received bytes by transfer. Flows that the edge does not know are dropped. The
        others continue at the byte that the edge needs next. ``tasks``: that the edge has. If it
        has one whose model is still under way, the coordinator was killed just after its delivery.
        """
        done = []
        for flow in self._flows(edge):
            number = flow.transfer.number
            if number not in held or held[number] > flow.body:
                if flow.transfer.kind == TASK and flow.side.task in tasks:
                    self._was_delivered(flow, now)
                self.context.drop(flow, now)
                continue
            self.context.pacer.resume(flow, held[number], now)
            if held[number] == flow.body and flow.last_byte_ns is None:
                done += self.context.pacer.last_byte(flow, now)
        return done

    def _was_delivered(self, flow: Flow, now: int) -> None:
        """The task has started at its edge, but this run does not know it."""
        transfer = flow.transfer
        if not flow.known:
            self.context.tell(messages.Carried(Completion(transfer, now, now, now), now))
        self.context.tell(messages.Heard(now, transfer.edge, Started(flow.side.task)))

    def tell_again(self, edge: str, held: dict[int, int]) -> None:
        """Repeat the deliveries of which the edge has not learned."""
        for number in held:
            if number in self._delivered[edge]:
                self.context.send(edge, Delivered(number, self._delivered[edge][number]))

    # ------------------------------------------------------------------ the wire
    def send_pieces(self, flow: Flow, first: int, end: int) -> None:
        """Send body bytes [first, end)."""
        for border in flow.cuts(first, end):
            while first < border:
                view = flow.side.piece(first, min(border - first, MAX_PIECE_BYTES))
                self.context.send(flow.transfer.edge, Piece(flow.transfer.number, first), view)
                first += len(view)

    def arrived(self, session: Session, arrived: Arrived) -> list[Flow]:
        """Process the edge's arrival stamps of a whole download.

        WireError if the stamps are impossible. The arrival of an unknown transfer, or one that is
        told again, changes nothing.
        """
        context = self.context
        flow = context.pacer.flows.get(arrived.transfer)
        if (
            flow is None
            or flow.transfer.edge != session.edge
            or not isinstance(flow.side, Outgoing)
            or flow.last_byte_ns is not None
        ):
            self.context.useless(session.edge, "the arrival of an unknown transfer")
            return []
        if not arrived.curve or arrived.curve[-1][0] != flow.body or flow.released < flow.body:
            raise WireError(
                f"transfer {arrived.transfer}: arrivals end at {arrived.curve[-1:]},"
                f" {flow.released} of {flow.body} bytes were sent"
            )
        now, at = context.clock.now(), 0
        for size, stamp in arrived.curve:
            at = now
            if session.rtt_ns != UNKNOWN_RTT:
                moment_ns = context.clock.at_monotonic(stamp - session.offset_ns)
                flow.arrived(size, moment_ns)  # one clock, so the time between two is exact
                at = min(moment_ns, now)
            context.check_ahead(flow, size, at, session)
        return context.pacer.last_byte(flow, at)

    def done(self, flow: Flow, at_ns: int) -> None:
        """Report the flow as delivered at ``at_ns``, to the edge and to the logic thread.

        An edge whose task has started knows it.
        """
        transfer, task = flow.transfer, flow.side.task
        if not flow.starts:
            told = self._delivered[transfer.edge]
            told[transfer.number] = at_ns
            while len(told) > REMEMBERED:
                told.popitem(last=False)
            self.context.send(transfer.edge, Delivered(transfer.number, at_ns))
        if transfer.kind == TASK:
            self.training.begins(transfer.edge, task, at_ns)
            self.context.tell(messages.Heard(at_ns, transfer.edge, Started(task)))


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


class Uplink:
    """Uploads; runs in the pacing thread. ``faults``: of a run with injected faults.

    ``gives_ahead``: the strategy does not schedule uploads, so an edge may send the first bytes of
    an update together with its Offer if nothing on its way is emulated.
    """

    def __init__(
        self,
        context: TransferContext,
        most_bytes: int,
        gives_ahead: bool = False,
        faults: FaultLives | None = None,
        resumed: bool = False,
    ) -> None:
        """``most_bytes``: of the body of one update."""
        self.context, self.training, self.most_bytes = context, context.training, most_bytes
        self.gives_ahead, self.faults, self.resumed = gives_ahead, faults, resumed
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
        if slots is None or not self.resumed or not isinstance(link, ChannelLink):
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
        self.context.allowances.count(edge, task, "offers")
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
        self.context.tell(messages.Heard(waiting.ready_ns, edge, _ready(waiting)))

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
        self.context.tell(messages.CameAhead(waiting.ready_ns, edge, ready, incoming, now, found))

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
        if self.faults is not None and len(body) and self.faults.take("corrupt", session.edge):
            body = bytearray(body)
            body[-1] ^= 0xFF  # its digest then fails, and the edge sends the update again
        waiting = self.waiting[session.edge].get(piece.transfer)
        if waiting is None:
            if not 0 < len(body) <= self._late_bytes[session.edge]:
                self.context.useless(session.edge, "bytes of an unknown transfer")
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
        twice = self.faults is not None and self.faults.take("duplicate", edge)
        # a copy, because the logic thread frees the body of the first one
        for each in (incoming, copy(incoming)) if twice else (incoming,):
            self.context.tell(messages.Whole(at_ns, edge, each))


def _ready(waiting: Waiting) -> Ready:
    return Ready(waiting.task, len(waiting.offer.meta) + waiting.offer.size)


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

    ``reports``: how often edges may report about their hosts. ``resumed``: the run goes on, so
    edges may know tasks that this process has never given. The others: see Uplink.
    """

    def __init__(
        self,
        context: TransferContext,
        probes: Probes,
        latency_ns: Mapping[str, int],
        most_bytes: int,
        reports: ReportAllowance,
        gives_ahead: bool = False,
        faults: FaultLives | None = None,
        resumed: bool = False,
    ) -> None:
        self.context, self.probes, self.latency_ns = context, probes, latency_ns
        self.pacer, self.training = context.pacer, context.training
        self.allowances, self.reports = context.allowances, reports
        self.uplink = Uplink(context, most_bytes, gives_ahead, faults, resumed)
        self.downlink = Downlink(context, self.uplink.allow_ahead)
        self.resumed = resumed
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
        for completion in self.pacer.take_broadcasts():
            self.context.tell(messages.Carried(completion, completion.due_ns))

    def _finish(self, flows: list[Flow]) -> None:
        for flow in flows:
            self.done(flow)

    def done(self, flow: Flow) -> None:
        """Report a flow that is due and complete."""
        at = flow.finished_ns()
        assert at is not None and flow.completion is not None
        if flow.broadcast is None and not flow.known:
            found = [] if flow.broken else stretches(flow.stamps)
            self.context.tell(messages.Carried(flow.completion, at, found))
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
            self.context.tell(
                messages.Measured(PING, answered.edge, None, [(sent_ns, ended_ns, 0)])
            )

    def _trained(self, edge: str, trained: Trained) -> None:
        self.allowances.count(edge, trained.task, "reports")
        clock = self.context.clock
        ended_ns, spent_ns = clock.now(), int(trained.spent_ns * clock.speed)
        if edge not in self.training.stamped and 0 < spent_ns <= ended_ns:
            stretch = (ended_ns - spent_ns, ended_ns, trained.samples)
            self.context.tell(messages.Measured(TRAINING, edge, trained.task, [stretch]))

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
                self.allowances.count(session.edge, message.task, "begins")
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
                    self.context.useless(session.edge, "a Pong with bytes")
            case _:
                raise WireError(f"{type(message).__name__} from an edge")

    def _host_said(self, edge: str, message: HostFacts | HostReport) -> None:
        self.context.tell(messages.HostSaid(self.context.clock.now(), edge, message))

    def _note(self, edge: str, stamped: Stamped) -> None:
        """Handle a note: the edge asks for a fresher model, or its training has failed.

        If a request is repeated in a new session while its answer is being sent, the coordinator
        does not get it again.
        """
        self.training.working.pop(edge, None)
        note, now = decode_note(stamped.note), self.context.clock.now()
        if not isinstance(note, (FreshRequest, TaskFailed)):
            raise WireError(f"{type(note).__name__} from an edge")
        self.allowances.count(edge, note.task, "notes")
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
