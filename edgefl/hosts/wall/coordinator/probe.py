"""Is the real path to an edge as fast as its emulated link? Measured when it joins: a payload
there and back, unshaped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from edgefl.hosts.setup.network import usual_bit_s
from edgefl.hosts.wall.coordinator.session import Session
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
    """``send(edge, message, body)``. A path slower than its emulated link (times ``speed``) is
    named in the verdict.
    """

    def __init__(
        self, network: Network, speed: float, fidelity: Fidelity, send: Callable[..., None]
    ) -> None:
        self.network, self.speed, self.fidelity, self.send = network, speed, fidelity, send
        self.of_edge: dict[str, Probe] = {}
        self._began_s = 0.0

    def begin(self, edge: str) -> None:
        """A short ping for the round trip, then the payload."""
        self._began_s = time.monotonic()
        self.of_edge[edge] = Probe()
        self.send(edge, Ping(time.monotonic_ns()))
        self._again(edge)

    def done(self, patience_s: float) -> bool:
        """Whether every edge that joined is measured, or the last one has had its time."""
        return (
            all(probe.done for probe in self.of_edge.values())
            or time.monotonic() - self._began_s > patience_s
        )

    def came(self, session: Session, pong: Pong, size: int) -> None:
        """The payload is back."""
        probe = self.of_edge.get(session.edge)
        if probe is None or probe.done or size != PROBE_BYTES:
            return
        taken_ns = max(time.monotonic_ns() - pong.sent_ns - session.rtt_ns, 1)
        probe.best_bit_s = max(probe.best_bit_s, 2 * 8 * size * NS_PER_S // taken_ns)
        needed = self._needed_bit_s(session.edge)
        if needed is None or probe.best_bit_s >= needed or probe.tries >= TRIES:
            probe.done = True
            if needed is not None:
                self.fidelity.slow_path(session.edge, probe.best_bit_s, needed)
            return
        self._again(session.edge)

    def judge(self, edges: list[str]) -> None:
        """At the end: a probe of one of ``edges`` that never came back speaks for itself."""
        for edge in edges:
            probe = self.of_edge.get(edge)
            if probe is not None and not probe.done and self._needed_bit_s(edge) is not None:
                self.fidelity.strain(f"the real path of edge {edge} could not be measured")

    def _again(self, edge: str) -> None:
        self.of_edge[edge].tries += 1
        self.send(edge, Ping(time.monotonic_ns()), bytes(PROBE_BYTES))

    def _needed_bit_s(self, edge: str) -> int | None:
        """The faster of the edge's two emulated links, in real bit/s; None if they are native."""
        capacities = [self.network.link(edge, direction).capacity for direction in ("up", "down")]
        rates = [usual_bit_s(capacity) for capacity in capacities if capacity is not None]
        return int(max(rates) * self.speed) if rates else None
