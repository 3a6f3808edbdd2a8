"""A broadcast over real sockets: one transfer is emulated, and a real copy for every receiver
travels behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from edgefl.hosts.setup import broadcast
from edgefl.hosts.wall.coordinator.flow import Flow
from edgefl.hosts.wall.coordinator.mailbox import CarryAll
from edgefl.protocol.messages import MAX_PIECE_BYTES
from emulator.links.network import Completion, Network, Transfer

if TYPE_CHECKING:
    from edgefl.hosts.wall.coordinator.transport import Transport


@dataclass(slots=True)
class Copies:
    """``under_way``: flows of the copies, by the number of the transfer that carries them;
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
            edge = flow.transfer.edge
            yield (
                flow,
                replace(
                    completion,
                    transfer=flow.transfer,
                    due_ns=broadcast.heard_ns(self.network, edge, completion.due_ns),
                ),
            )

    def take_sent(self) -> list[Completion]:
        """The broadcasts that have left the channel since this was asked last: rows of the link
        log.
        """
        sent, self.sent = self.sent, []
        return sent


def known(flow: Flow, now: int) -> Flow:
    """A copy of what its receiver counts as having had by ``now``: its bytes go at once, and how
    long they take is nobody's time.
    """
    flow.shaped, flow.known, flow.piece = False, True, MAX_PIECE_BYTES
    flow.completion = Completion(flow.transfer, now, now, now)
    return flow


def carry_all(transport: Transport, wish: CarryAll) -> None:
    """Start a broadcast, and offer each receiver its copy."""
    pacer, copies = transport.pacer, []
    for edge, outgoing in wish.outgoings:
        outgoing.number = pacer.next_number()
        transport.task_of[outgoing.number] = outgoing.task
        copies.append(
            (
                Transfer(outgoing.number, edge, "down", outgoing.size, outgoing.kind),
                outgoing,
                transport.rtt_ns(edge),
            )
        )
    pacer.broadcast(copies, wish.slots, wish.now, transport.clock.now())
    for edge, outgoing in wish.outgoings:
        transport.send(edge, outgoing.offer(wish.now))
        if edge not in transport.sessions:
            pacer.suspend(edge, wish.now)
