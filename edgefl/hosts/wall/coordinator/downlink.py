"""Downloads of models: offered, sent in pieces as the emulated links allow, delivered."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection

from edgefl.hosts.exchange import Answers, ends
from edgefl.hosts.wall.coordinator.allowances import Allowances
from edgefl.hosts.wall.coordinator.context import TransferContext
from edgefl.hosts.wall.coordinator.continuation import Continuation
from edgefl.hosts.wall.coordinator.downloads import REMEMBERED
from edgefl.hosts.wall.coordinator.flow import Flow
from edgefl.hosts.wall.coordinator.session import UNKNOWN_RTT, Session
from edgefl.hosts.wall.coordinator.thread_messages import Carried, CarryAll, Heard
from edgefl.hosts.wall.coordinator.training_times import TrainingTimes
from edgefl.protocol.codec import encode_note
from edgefl.protocol.errors import WireError
from edgefl.protocol.messages import (
    DROPPED,
    FRESH,
    MAX_PIECE_BYTES,
    TASK,
    Arrived,
    Delivered,
    Piece,
    Stamped,
    Started,
    ToEdge,
)
from edgefl.protocol.transfers import Outgoing
from emulator.links.network import Completion, Transfer


class Downlink:
    """Downloads; runs in the pacing thread. Methods that return flows return finished ones."""

    def __init__(
        self,
        context: TransferContext,
        training: TrainingTimes,
        allowances: Allowances,
        ahead: Callable[[str, int], int],
        useless: Callable[[str, str], None],
    ) -> None:
        """``ahead(edge, task)``: bytes of the update that may follow its Offer at once.

        ``useless``: see Transport.
        """
        self.context, self.training, self.allowances = context, training, allowances
        self.ahead, self.useless = ahead, useless
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

    def carry_all(self, wish: CarryAll) -> None:
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
            self.allowances.given(edge, outgoing.task)
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
            self.context.tell(Carried(brought, now))
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
                self.carry_all(CarryAll(now, 0, [(download.edge, outgoing)], ()))
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
            self.context.tell(Carried(Completion(transfer, now, now, now), now))
        self.context.tell(Heard(now, transfer.edge, Started(flow.side.task)))

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
            self.useless(session.edge, "the arrival of an unknown transfer")
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
            self.context.tell(Heard(at_ns, transfer.edge, Started(task)))
