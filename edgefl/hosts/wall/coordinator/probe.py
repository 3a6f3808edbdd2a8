"""Check whether the real path to an edge is as fast as its emulated link.

When the edge joins, an unshaped payload is sent there and back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgefl.hosts.setup.network import usual_bit_s
from edgefl.hosts.wall.coordinator.session import UNKNOWN_RTT, Session
from edgefl.hosts.wall.system import OWN_SYSTEM, System
from edgefl.protocol.messages import Ping, Pong
from emulator.fidelity import Fidelity
from emulator.links.network import Network
from emulator.units import NS_PER_S

PROBE_BYTES = 1 << 17
TRIES = 3  # a probe that shared the path with other probes measures too little


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
