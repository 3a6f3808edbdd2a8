"""What uplink and downlink share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgefl.hosts.wall.coordinator.flow import Flow
from edgefl.hosts.wall.coordinator.pacer import Pacer
from edgefl.hosts.wall.coordinator.session import UNKNOWN_RTT, Session
from edgefl.protocol.transfers import Incoming, Outgoing
from emulator.clock import Agenda, WallClock
from emulator.links.network import Transfer


@dataclass(frozen=True, slots=True)
class TransferContext:
    """What the transfers of the pacing thread work with.

    ``send(edge, message, body)`` sends to an edge. ``tell`` sends to the logic thread. ``agenda``
    holds emulated moments. ``sessions``: of the connected edges.
    """

    pacer: Pacer
    clock: WallClock
    agenda: Agenda[Any]
    send: Callable[..., None]
    tell: Callable[[Any], None]
    sessions: dict[str, Session]

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
