"""All flows of a run: which bytes may be sent now, and which transfers are done.

This module sends nothing itself.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from edgefl.hosts.exchange import heard_ns, offer_broadcast
from edgefl.hosts.wall.coordinator.flow import Flow, PiecePlan, make_flow, native_flow
from edgefl.protocol.messages import MAX_PIECE_BYTES
from edgefl.protocol.transfers import Incoming, Outgoing
from emulator.fidelity import Fidelity
from emulator.links.network import Completion, Network, Transfer
from emulator.units import FOREVER


@dataclass(slots=True)
class Copies:
    """Broadcasts over real sockets: one emulated transfer, and a real copy for each receiver.

    ``under_way``: flows of the copies, by the number of the transfer that carries them. ``sent``:
    broadcasts that have left the channel.
    """

    network: Network
    under_way: dict[int, list[Flow]] = field(default_factory=dict)
    sent: list[Completion] = field(default_factory=list)

    def flows(self, transfer: Transfer, own: Flow | None) -> list[Flow]:
        """The flows that follow the plan of ``transfer``: its ``own`` flow, or its copies."""
        return self.under_way.get(transfer.number, []) if own is None else [own]

    def completed(self, completion: Completion) -> Iterator[tuple[Flow, Completion]]:
        """Yield each copy with its completion, due when the receiver hears it."""
        self.sent.append(completion)
        for flow in self.under_way.pop(completion.transfer.number, []):
            due_ns = heard_ns(self.network, flow.transfer.edge, completion.due_ns)
            yield flow, replace(completion, transfer=flow.transfer, due_ns=due_ns)

    def take_sent(self) -> list[Completion]:
        """Return broadcasts that have left the channel since the last call, for the link log."""
        sent, self.sent = self.sent, []
        return sent


def _known(flow: Flow, now: int) -> Flow:
    """Mark a copy as delivered ``now``: it is unshaped and costs no emulated time."""
    flow.shaped, flow.known, flow.piece = False, True, MAX_PIECE_BYTES
    flow.completion = Completion(flow.transfer, now, now, now)
    return flow


class Pacer:
    """Plans all flows of a run, by transfer number. ``now`` is emulated ns.

    The moments of release are in one heap; stale entries are skipped.
    """

    def __init__(self, network: Network, pace: PiecePlan, fidelity: Fidelity) -> None:
        self.network, self.pace, self.fidelity = network, pace, fidelity
        self.flows: dict[int, Flow] = {}
        self.of_edge: defaultdict[str, dict[int, Flow]] = defaultdict(dict)
        self.copies = Copies(network)
        self.shaped_flows = 0
        self.native_bit_s: dict[tuple[str, str], int] = {}  # (edge, direction) -> last measured
        self._heap: list[tuple[int, int]] = []
        self._host_now = 0  # the latest host time that a caller gave

    @property
    def grain_ns(self) -> int:
        """The emulated time between two wake-ups for pieces that can wait."""
        return self.pace.rounded_to_ns(self.shaped_flows)

    def start(
        self,
        transfer: Transfer,
        meta: int,
        side: Outgoing | Incoming,
        rtt_ns: int,
        now: int,
        host_now: int,
        slots: tuple[int, ...] | None = None,
    ) -> Flow:
        """Offer the transfer to its link at ``now``.

        ``host_now`` may be later: this counts as transfer lag, not as wake lag. ``slots``: slots
        of the TDMA channel that are granted to the transfer.
        """
        self.network.offer(transfer, now)
        if slots is not None:
            self.network.grant(transfer, slots, now)
        measured = self.native_bit_s.get((transfer.edge, transfer.direction))
        flow = make_flow(self.network, transfer, meta, side, self.pace, rtt_ns, now, measured)
        return self._begin(flow, now, host_now)

    def start_native(self, transfer: Transfer, meta: int, side: Outgoing, now: int) -> Flow:
        """Begin a download on an idle native link: it is due now, so the network need not know."""
        measured = self.native_bit_s.get((transfer.edge, transfer.direction))
        flow = native_flow(transfer, meta, side, self.pace, measured)
        flow.completion, flow.release_at = Completion(transfer, now, now, now), now
        self.flows[transfer.number] = self.of_edge[transfer.edge][transfer.number] = flow
        return flow

    def broadcast(
        self,
        copies: list[tuple[Transfer, Outgoing, int]],
        slots: tuple[int, ...],
        number: int,
        now: int,
        host_now: int,
    ) -> None:
        """Start transfer ``number`` in ``slots`` for all ``copies``, each (transfer, side, rtt).

        Without slots the copies count as delivered.
        """
        flows = [
            make_flow(self.network, transfer, len(side.meta), side, self.pace, rtt_ns, now)
            for transfer, side, rtt_ns in copies
        ]
        if slots:
            sizes = [flow.transfer.size for flow in flows]
            carrier = offer_broadcast(self.network, number, sizes, slots, now)
            self.copies.under_way[carrier.number] = flows
        for flow in flows:
            if slots:
                flow.broadcast = carrier
            self._begin(flow if slots else _known(flow, now), now, host_now)

    def _begin(self, flow: Flow, now: int, host_now: int) -> Flow:
        transfer = flow.transfer
        self.flows[transfer.number] = self.of_edge[transfer.edge][transfer.number] = flow
        self.shaped_flows += flow.shaped
        flow.lengthen(self.pace.length_ns(self.shaped_flows))
        flow.grain_ns = self.grain_ns
        if flow.body == 0:
            flow.last_byte_ns = now
        self._replan(flow, host_now)
        return flow

    def next_due(self) -> int:
        """The next moment at which ``release`` or ``completed`` has work."""
        self._replan_shared()
        while self._heap and self._stale(self._heap[0]):
            heapq.heappop(self._heap)
        return min(self._heap[0][0] if self._heap else FOREVER, self.network.next_due())

    @property
    def has_pieces(self) -> bool:
        """Whether a piece waits for its moment."""
        return bool(self._heap)

    def is_due(self, now: int) -> bool:
        """Whether ``release`` may have work at ``now``; cheap."""
        return bool(self._heap) and self._heap[0][0] <= now

    def release(self, now: int) -> Iterator[tuple[Flow, int, int]]:
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
            flow = self.flows[entry[1]]
            if flow.shaped:
                self.fidelity.wake(now - entry[0])
            flow.grain_ns = grain_ns
            first, end = flow.release(self.network, now)
            if flow.lengthen(length_ns):
                self._replan(flow, now)
            elif flow.release_at < FOREVER:
                heapq.heappush(self._heap, (flow.release_at, entry[1]))
            yield flow, first, end

    def completed(self, now: int) -> list[Flow]:
        """Remove and return the flows that are done: due by ``now``, with all bytes received."""
        done = []
        for completion in self.network.pop_due(now):
            own = self.flows.get(completion.transfer.number)
            for flow, one in (
                [(own, completion)] if own is not None else self.copies.completed(completion)
            ):
                flow.completion = one
                if flow.last_byte_ns is not None and flow.transfer.number in self.flows:
                    done.append(self._finish(flow))
        return done

    def took(self, flow: Flow, now: int) -> None:
        """Bytes of an uplink flow have arrived: move the window of a native link."""
        if not flow.shaped and flow.release_at == FOREVER:
            self._replan(flow, now)

    def last_byte(self, flow: Flow, at_ns: int) -> list[Flow]:
        """The flow's last byte arrived at emulated ``at_ns``. Returns the flow if it is done."""
        flow.last_byte_ns = at_ns
        return [self._finish(flow)] if flow.completion is not None else []

    def suspend(self, edge: str, now: int) -> None:
        """Suspend the edge's links, because its session is broken."""
        for flow in self.of_edge[edge].values():
            flow.suspended = flow.broken = True
            if (
                flow.completion is None and flow.broadcast is None
            ):  # a broadcast continues without this receiver
                received = flow.side.received if isinstance(flow.side, Incoming) else flow.released
                self.network.suspend(flow.transfer, flow.meta + received, now)
            self._replan(flow, now)

    def resume(self, flow: Flow, body_bytes: int, now: int) -> None:
        """Continue after the first ``body_bytes`` bytes, which the receiver has."""
        flow.released, flow.suspended = body_bytes, False
        flow.due_at.clear()
        if flow.completion is None and flow.broadcast is None:
            self.network.suspend(flow.transfer, flow.meta + body_bytes, now)
            self.network.resume(flow.transfer, now)
        self._replan(flow, now)
        self._replan_behind(flow, now)

    def drop(self, flow: Flow, now: int, host_now: int) -> None:
        """Cancel this transfer at ``now``; the host may be late, as in ``start``."""
        if flow.completion is None and flow.broadcast is None:
            self.network.cancel(flow.transfer, now)
        self._forget(flow)
        self._replan_behind(flow, host_now)

    def count_late(self, flow: Flow, now: int) -> None:
        """At the end of the run, count the lag of a flow that is due and incomplete."""
        completion = flow.completion
        if flow.shaped and completion is not None and flow.last_byte_ns is None:
            self.fidelity.transfer(
                now - completion.due_ns, completion.due_ns - completion.offered_ns
            )

    def _finish(self, flow: Flow) -> Flow:
        self._forget(flow)
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
        return flow

    def _forget(self, flow: Flow) -> None:
        if self.flows.pop(flow.transfer.number, None) is not None:
            self.shaped_flows -= flow.shaped
        self.of_edge[flow.transfer.edge].pop(flow.transfer.number, None)

    def _hear(self, host_now: int) -> None:
        self._host_now = max(self._host_now, host_now)

    def _replan_shared(self) -> None:
        """Replan transfers whose plan another transfer has changed, on a shared medium or link."""
        for transfer in self.network.take_replanned():
            for flow in self.copies.flows(transfer, self.flows.get(transfer.number)):
                if (
                    flow.completion is None and flow.release_at > self._host_now
                ):  # otherwise it is sent at once anyway
                    self._replan(flow, self._host_now)

    def _replan(self, flow: Flow, host_now: int) -> None:
        self._hear(host_now)
        flow.plan_release(self.network)
        flow.release_at = max(flow.release_at, host_now)
        if flow.release_at < FOREVER:
            heapq.heappush(self._heap, (flow.release_at, flow.transfer.number))

    def _replan_behind(self, flow: Flow, host_now: int) -> None:
        """Replan the link's other transfers: they may start at other moments now."""
        for other in self.of_edge[flow.transfer.edge].values():
            if (
                other is not flow
                and other.transfer.direction == flow.transfer.direction
                and other.completion is None
            ):
                self._replan(other, host_now)

    def _stale(self, entry: tuple[int, int]) -> bool:
        flow = self.flows.get(entry[1])
        return flow is None or flow.release_at != entry[0]
