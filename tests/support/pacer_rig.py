"""A pacer over links with round numbers."""

from __future__ import annotations

from itertools import count

import numpy as np

from edgefl.exchange.machine import Exchange
from edgefl.exchange.pacer import PacedFlow, Pacer, PiecePlan
from edgefl.protocol.codec import Outgoing
from edgefl.protocol.messages import Assignment
from emulator.capacity.rates import Constant
from emulator.delay import Latency
from emulator.fidelity import Fidelity
from emulator.links.link import Link
from emulator.links.network import Network, Transfer
from emulator.units import FOREVER, NS_PER_S

MS = 1_000_000
PIECE_NS = 15 * MS
MBIT = 1_000_000


class Rig:
    """Edges on equal links, and a host that wakes at the requested time or later."""

    def __init__(
        self,
        rate_bit_s: int | None = 2 * MBIT,
        latency_ns: int = 0,
        window_ns: int = 50 * MS,
        edges: str = "a",
        grain_ns: int = 1,
    ) -> None:
        self.network, self.fidelity = Network(), Fidelity()
        for edge in edges:
            for direction in ("up", "down"):
                self.network.add_link(
                    edge, direction, Link(rate_bit_s and Constant(rate_bit_s), Latency(latency_ns))
                )
        self.exchange = Exchange(self.network, {})
        pace = PiecePlan(window_ns, PIECE_NS, grain_ns)
        self.pacer = Pacer(self.exchange, pace, self.fidelity)
        self.now, self.numbers = 0, count(1)
        self.sent: list[tuple[int, int, int, int]] = []  # (time, transfer, from, to)
        self.done: list[PacedFlow] = []

    def start(
        self,
        elements: int,
        edge: str = "a",
        at: int | None = None,
        rtt_ns: int = 0,
        vectors: int = 1,
    ) -> PacedFlow:
        """Start a downlink transfer that was offered at ``at``; the host learns it now."""
        named = {str(n): np.zeros(elements, np.float32) for n in range(vectors)}
        outgoing = Outgoing(next(self.numbers), Assignment(1, 0, named), "digest")
        transfer = Transfer(outgoing.number, edge, "down", outgoing.size, outgoing.kind)
        flow = PacedFlow(transfer, 1, outgoing, meta=len(outgoing.meta))
        self.pacer.begin(flow, rtt_ns, self.now if at is None else at, self.now)
        return flow

    def step(self, late_ns: int = 0) -> bool:
        """Wake for the next event, ``late_ns`` too late; return False if there is none."""
        due = self.pacer.next_due()
        if due == FOREVER:
            return False
        self.now = max(self.now, due + late_ns)
        self.sent += [
            (self.now, flow.transfer.number, first, end)
            for flow, first, end in self.pacer.release(self.now)
        ]
        self.done += self.pacer.carried(self.now)
        return True

    def until(self, t_ns: int) -> None:
        """Continue until ``t_ns``, and set the clock to it."""
        while self.pacer.next_due() <= t_ns:
            self.step()
        self.now = t_ns

    def ahead(self, flow: PacedFlow) -> int:
        """Return how many bytes the flow is ahead of its curve now."""
        return flow.meta + flow.released - self.network.progress(flow.transfer, self.now)

    def allowed(self, flow: PacedFlow, rate_bit_s: int) -> int:
        """Return the smaller of the window and a quarter, but at least one piece.

        The meta, which is sent first, is included.
        """
        window = self.pacer.pace.window_ns * rate_bit_s // (8 * NS_PER_S) + 1
        return max(min(window, flow.transfer.size // 4), flow.meta + flow.piece)
