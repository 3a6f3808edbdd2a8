"""Helper of the transport tests: the coordinator's side of transfers in virtual time.

Lists replace the sockets.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from typing import Any

import numpy as np

from edgefl.clocks.wall.coordinator.sessions import ReportAllowance, Session
from edgefl.clocks.wall.coordinator.thread_messages import Heard
from edgefl.clocks.wall.coordinator.transfers import (
    Probes,
    TrainingTimes,
    Transport,
)
from edgefl.exchange.machine import Exchange
from edgefl.exchange.pacer import Pacer, PiecePlan
from edgefl.protocol.codec import Outgoing
from edgefl.protocol.messages import Arrived, Assignment, Credit, Join, Piece, Ping, Ready, Update
from edgefl.strategies.base.events_and_decisions import Grant
from emulator.capacity.rates import Constant
from emulator.clock import Agenda
from emulator.delay import Latency
from emulator.fidelity import Fidelity
from emulator.links.link import Link
from emulator.links.network import Network
from emulator.units import NS_PER_S

MS = 1_000_000
RATE = 2_000_000
AHEAD_NS = 1_000 * NS_PER_S  # by how much the edges' clocks are ahead of the coordinator's
MOST = 1 << 24
READY = Ready(1, 40_017)  # of the updates that the rig offers, with its size
GIVEN = 10  # tasks that both edges may name, although no model was sent


class Clock:
    """The host's clock, on which CLOCK_MONOTONIC and emulated time are equal."""

    speed = 1.0

    def __init__(self) -> None:
        self.ns = 0

    def now(self) -> int:
        return self.ns

    def at_monotonic(self, monotonic_ns: int) -> int:
        return monotonic_ns


class Rig:
    """The coordinator's side for edges a and b.

    ``sent[edge]``: (time, message, body size), without pings; ``told``: messages to the logic
    thread.
    """

    def __init__(
        self, rate: int | None = RATE, latency_ns: int = 0, stamped: bool = True, **options: Any
    ) -> None:
        """``options``: of Transport."""
        self.clock, self.agenda, self.fidelity, self.network = (
            Clock(),
            Agenda(),
            Fidelity(),
            Network(),
        )
        for edge in "ab":
            for direction in ("up", "down"):
                self.network.add_link(
                    edge, direction, Link(rate and Constant(rate), Latency(latency_ns))
                )
        self.exchange = Exchange(self.network, dict.fromkeys("ab", latency_ns))
        self.pacer = Pacer(self.exchange, PiecePlan(50 * MS, 15 * MS), self.fidelity)
        self.sessions: dict[str, Session] = {}
        self.numbers = count(1)  # of transfers
        self.sent: defaultdict[str, list[tuple[int, Any, int]]] = defaultdict(list)
        self.told: list[Any] = []
        probes = Probes(self.network, 1.0, self.fidelity, self.send)
        self.useless: list[tuple[str, str]] = []
        self.transport = Transport(
            self.pacer,
            self.clock,
            self.agenda,
            lambda *frame: self.send(*frame),  # a test may replace it
            self.told.append,
            self.sessions,
            lambda edge, what: self.useless.append((edge, what)),
            TrainingTimes(self.fidelity, "ab" if stamped else ""),
            probes,
            MOST,
            ReportAllowance(2 * NS_PER_S, 4 * NS_PER_S),
            **options,
        )
        for edge in "ab":
            for task in range(GIVEN):
                self.transport.allowances.given(edge, task)
            self.joins(edge)

    def send(self, edge: str, message: Any, body: Any = None) -> None:
        if edge in self.sessions and not isinstance(message, Ping):
            self.sent[edge].append((self.clock.ns, message, 0 if body is None else len(body)))

    def joins(
        self,
        edge: str,
        tasks: list[int] | None = None,
        held: list[list[int]] | None = None,
        begins: list[list[int]] | None = None,
    ) -> list[int]:
        session = Session(edge.encode(), edge, 1, 0, joined=True)
        session.answered(0, 0, AHEAD_NS)
        self.sessions[edge] = session
        join = Join("c", "l", "d", 1, tasks or [], held or [], begins=begins or [])
        return self.transport.entered(session, join)

    def breaks(self, edge: str) -> None:
        del self.sessions[edge]
        self.transport.gone(edge, self.clock.ns)

    def until(self, t_ns: int) -> None:
        while (due := min(self.agenda.next_due(), self.pacer.next_due())) <= t_ns:
            self.clock.ns = max(self.clock.ns, due)
            for at, item in self.agenda.pop_due(self.clock.ns):
                if callable(item):
                    item(at)
                else:
                    self.told.append(Heard(at, *item))
            self.transport.release(self.clock.ns)
            self.transport.complete(self.clock.ns)
        self.clock.ns = t_ns

    def says(self, edge: str, message: Any, body: Any = None) -> None:
        self.transport.frame(self.sessions[edge], message, body)

    # ------------------------------------------------------------------ downlink
    def carry(
        self, edge: str = "a", number: int = 1, kind: type = Assignment, elements: int = 10_000
    ) -> Outgoing:
        outgoing = Outgoing(
            next(self.numbers), kind(number, 0, {"weights": np.zeros(elements, np.float32)})
        )
        self.transport.carry(edge, outgoing, self.clock.ns)
        return outgoing

    def arrived(self, edge: str, outgoing: Outgoing, at_ns: int | None = None) -> None:
        """Let the edge report that its last byte arrived at ``at_ns``."""
        stamp = (self.clock.ns if at_ns is None else at_ns) + AHEAD_NS
        self.says(edge, Arrived(outgoing.number, [[outgoing.body, stamp]]))

    # ------------------------------------------------------------------ uplink
    def offer(
        self,
        edge: str = "a",
        task: int = 1,
        due_ns: int = 0,
        number: int = 5,
        value: float = 0.0,
        elements: int = 10_000,
    ) -> Outgoing:
        outgoing = Outgoing(
            number, Update(task, 0, {"weights": np.full(elements, value, np.float32)})
        )
        self.says(edge, outgoing.offer(due_ns))
        return outgoing

    def grant(self, grant: Grant, now: int) -> None:
        self.transport.grant(grant, next(self.numbers), now)

    def granted(self, task: int = 1) -> Outgoing:
        """Return an offer of edge a that may be sent from now on."""
        outgoing = self.offer(task=task, due_ns=self.clock.ns)
        self.grant(Grant("a", task), self.clock.ns)
        return outgoing

    def pays(self, edge: str = "a") -> list[tuple[int, int, int]]:
        """Return the credits so far: (time, offset, limit)."""
        return [
            (at, message.offset, message.limit)
            for at, message, _ in self.sent[edge]
            if isinstance(message, Credit)
        ]

    def upload(self, outgoing: Outgoing, first: int, end: int, edge: str = "a") -> None:
        while first < end:
            view = outgoing.piece(first, min(end - first, MOST))
            self.says(edge, Piece(outgoing.number, first), view)
            first += len(view)

    def answers(self, outgoing: Outgoing, t_ns: int) -> None:
        """Let the edge send each byte as soon as it has credit, until ``t_ns``."""
        sent = None
        while (due := self.pacer.next_due()) <= t_ns:
            seen = len(self.pays())
            self.until(due)
            for _, offset, limit in self.pays()[seen:]:
                sent = offset if sent is None else sent
                self.upload(outgoing, sent, limit)
                sent = limit
        self.until(t_ns)

    @property
    def downloads(self) -> dict[int, int]:
        """Return the task of each flow on the downlink."""
        flows = self.exchange.flows.items()
        return {n: flow.task for n, flow in flows if flow.transfer.direction == "down"}

    @property
    def uploads(self) -> dict[int, int]:
        """Return the edge's own transfer number of each flow on the uplink."""
        flows = self.exchange.flows.items()
        return {n: flow.offer for n, flow in flows if flow.transfer.direction == "up"}

    def heard(self, kind: type) -> list[Any]:
        return [item for item in self.told if isinstance(item, kind)]


def take(size: int) -> int:
    return -(-size * 8 * NS_PER_S // RATE)
