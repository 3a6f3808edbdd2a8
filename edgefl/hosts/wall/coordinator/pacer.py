"""All flows of a run: which bytes may leave now, and which transfers are done. It sends nothing
itself.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from edgefl.hosts.exchange import heard_ns, offer_broadcast
from edgefl.hosts.wall.coordinator.flow import Flow, PiecePlan, make_flow
from edgefl.protocol.messages import MAX_PIECE_BYTES
from edgefl.protocol.transfers import Incoming, Outgoing
from emulator.fidelity import Fidelity
from emulator.links.network import Completion, Network, Transfer
from emulator.units import FOREVER


@dataclass(slots=True)
class Copies:
    """A broadcast over real sockets: one transfer is emulated, and a real copy for every receiver
    follows it. ``under_way``: flows of the copies, by the number of the transfer that carries them;
    ``sent``: those that have left the channel.
    """

    network: Network
    under_way: dict[int, list[Flow]] = field(default_factory=dict)
    sent: list[Completion] = field(default_factory=list)

    def flows(self, transfer: Transfer, own: Flow | None) -> list[Flow]:
        """The flows whose plan is that of ``transfer``: its ``own``, or its copies."""
        return self.under_way.get(transfer.number, []) if own is None else [own]

    def completed(self, completion: Completion) -> Iterator[tuple[Flow, Completion]]:
        """Each copy, with the moment at which it counts as heard."""
        self.sent.append(completion)
        for flow in self.under_way.pop(completion.transfer.number, []):
            due_ns = heard_ns(self.network, flow.transfer.edge, completion.due_ns)
            yield flow, replace(completion, transfer=flow.transfer, due_ns=due_ns)

    def take_sent(self) -> list[Completion]:
        """The broadcasts that have left the channel since the last call: rows of the link log."""
        sent, self.sent = self.sent, []
        return sent


def _known(flow: Flow, now: int) -> Flow:
    """A copy that counts as delivered ``now``: unshaped, and its bytes cost no emulated time."""
    flow.shaped, flow.known, flow.piece = False, True, MAX_PIECE_BYTES
    flow.completion = Completion(flow.transfer, now, now, now)
    return flow


class Pacer:
    """``now`` is emulated ns. Flows are known by transfer number; their release moments lie in
    one heap (stale entries are passed over).
    """

    def __init__(self, network: Network, pace: PiecePlan, fidelity: Fidelity) -> None:
        self.network, self.pace, self.fidelity = network, pace, fidelity
        self.flows: dict[int, Flow] = {}
        self.of_edge: defaultdict[str, dict[int, Flow]] = defaultdict(dict)
        self.copies = Copies(network)
        self.shaped_flows = 0
        self._heap: list[tuple[int, int]] = []
        self._transfers = 0
        self._host_now = 0  # the latest that was heard of

    def next_number(self) -> int:
        self._transfers += 1
        return self._transfers

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
        """Offer the transfer to its link at ``now``; the host, at ``host_now``, may be late: that
        shows as transfer lag, not as wake lag.

        ``slots``: those of its TDMA channel that it is granted.
        """
        self.network.offer(transfer, now)
        if slots is not None:
            self.network.grant(transfer, slots, now)
        return self._begin(
            make_flow(self.network, transfer, meta, side, self.pace, rtt_ns, now), now, host_now
        )

    def broadcast(
        self,
        copies: list[tuple[Transfer, Outgoing, int]],
        slots: tuple[int, ...],
        now: int,
        host_now: int,
    ) -> None:
        """One transfer in ``slots`` for all ``copies``, (transfer, side, rtt) each; without
        slots the receivers have it already.
        """
        flows = [
            make_flow(self.network, transfer, len(side.meta), side, self.pace, rtt_ns, now)
            for transfer, side, rtt_ns in copies
        ]
        if slots:
            sizes = [flow.transfer.size for flow in flows]
            carrier = offer_broadcast(self.network, self.next_number(), sizes, slots, now)
            self.copies.under_way[carrier.number] = flows
        for flow in flows:
            if slots:
                flow.broadcast = carrier
            self._begin(flow if slots else _known(flow, now), now, host_now)

    def _begin(self, flow: Flow, now: int, host_now: int) -> Flow:
        transfer = flow.transfer
        self.flows[transfer.number] = self.of_edge[transfer.edge][transfer.number] = flow
        self.shaped_flows += flow.shaped
        if flow.body == 0:
            flow.last_byte_ns = now
        self._replan(flow, host_now)
        return flow

    def next_due(self) -> int:
        """The next moment at which ``release`` or ``completed`` has something to do."""
        self._replan_shared()
        while self._heap and self._stale(self._heap[0]):
            heapq.heappop(self._heap)
        return min(self._heap[0][0] if self._heap else FOREVER, self.network.next_due())

    def release(self, now: int) -> Iterator[tuple[Flow, int, int]]:
        """(flow, from, to): body bytes to send or to credit now. How late each is counts as wake
        lag.
        """
        self._replan_shared()
        self._hear(now)
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if self._stale(entry):
                continue
            flow = self.flows[entry[1]]
            if flow.shaped:
                self.fidelity.wake(now - entry[0])
            first, end = flow.release(self.network, now)
            if flow.release_at < FOREVER:
                heapq.heappush(self._heap, (flow.release_at, entry[1]))
            yield flow, first, end

    def completed(self, now: int) -> list[Flow]:
        """Flows whose due moment has come and whose bytes are there: they are done, and
        forgotten here.
        """
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
        """Bytes of an uplink flow arrived: a native link's window moves on."""
        if not flow.shaped and flow.release_at == FOREVER:
            self._replan(flow, now)

    def last_byte(self, flow: Flow, at_ns: int) -> list[Flow]:
        """The flow's last byte arrived at emulated ``at_ns``; done if it was due already."""
        flow.last_byte_ns = at_ns
        return [self._finish(flow)] if flow.completion is not None else []

    def suspend(self, edge: str, now: int) -> None:
        """The edge's session broke: its links stand still."""
        for flow in self.of_edge[edge].values():
            flow.suspended = True
            if (
                flow.completion is None and flow.broadcast is None
            ):  # a broadcast goes on without this one
                received = flow.side.received if isinstance(flow.side, Incoming) else flow.released
                self.network.suspend(flow.transfer, flow.meta + received, now)
            self._replan(flow, now)

    def resume(self, flow: Flow, body_bytes: int, now: int) -> None:
        """Go on from what the receiver has: ``body_bytes``."""
        flow.released, flow.suspended = body_bytes, False
        flow.due_at.clear()
        if flow.completion is None and flow.broadcast is None:
            self.network.suspend(flow.transfer, flow.meta + body_bytes, now)
            self.network.resume(flow.transfer, now)
        self._replan(flow, now)
        self._replan_behind(flow, now)

    def drop(self, flow: Flow, now: int, host_now: int) -> None:
        """Cancel this transfer; its link goes on at ``now`` (the host may be late, as in
        ``start``).
        """
        if flow.completion is None and flow.broadcast is None:
            self.network.cancel(flow.transfer, now)
        self._forget(flow)
        self._replan_behind(flow, host_now)

    def count_late(self, flow: Flow, now: int) -> None:
        """The run ends at ``now``: if the flow is due and its bytes are not there, it is late by
        so much already.
        """
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
            # a shared medium that heard of it late made it due later
            late_in_all_ns = max(late, 0) + completion.shifted_ns
            self.fidelity.transfer(late_in_all_ns, completion.due_ns - completion.offered_ns)
            self.fidelity.lead(max(-late, 0))
        return flow

    def _forget(self, flow: Flow) -> None:
        if self.flows.pop(flow.transfer.number, None) is not None:
            self.shaped_flows -= flow.shaped
        self.of_edge[flow.transfer.edge].pop(flow.transfer.number, None)

    def _hear(self, host_now: int) -> None:
        self._host_now = max(self._host_now, host_now)

    def _replan_shared(self) -> None:
        """Transfers of other edges move too, where they share a medium or a link was changed."""
        for transfer in self.network.take_replanned():
            for flow in self.copies.flows(transfer, self.flows.get(transfer.number)):
                if (
                    flow.completion is None and flow.release_at > self._host_now
                ):  # else it goes at once anyway
                    self._replan(flow, self._host_now)

    def _replan(self, flow: Flow, host_now: int) -> None:
        self._hear(host_now)
        flow.plan_release(self.network)
        flow.release_at = max(flow.release_at, host_now)
        if flow.release_at < FOREVER:
            heapq.heappush(self._heap, (flow.release_at, flow.transfer.number))

    def _replan_behind(self, flow: Flow, host_now: int) -> None:
        """The link's other transfers may start at other moments now."""
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
