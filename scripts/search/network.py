"""A simulated network: connections between dealers and a router, as libzmq makes them.

A connection delivers whole messages in order. Two connections are not in order with each other.
When a connection breaks, what has not arrived is lost. The dealer connects again, under another
routing id, and sends what it still had in its queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from edgefl.protocol.codec import decode, unbundled
from edgefl.protocol.messages import WireError
from search.machine import NS_PER_S, Process, SimulatedThread, running

MS = 1_000_000
LATENCY_NS, JITTER_NS = 200_000, 800_000
BYTE_NS = 8  # 1 Gbit/s
RETRY_NS = 100 * MS  # libzmq tries again to connect
HANDSHAKE_BYTES = 64  # of a header's frames and flags
MOST_QUEUED = 10_000
UP, DOWN = "up", "down"  # towards the router; towards the dealer


@dataclass(frozen=True, slots=True)
class Frame:
    """One part of a message."""

    buffer: bytes


@dataclass(slots=True)
class Weather:
    """The state of the path to one edge: what faults have done to it.

    ``blocked_ns``: bytes of a direction arrive no earlier than this. ``slow_ns``: added to each
    message of connections that exist by ``slow_of``. ``refused_ns``: connections fail until then.
    ``cut_after``: by direction, bytes until the connection breaks.
    """

    blocked_ns: dict[str, int]
    cut_after: dict[str, int]
    slow_ns: int = 0
    slow_until_ns: int = 0
    slow_of: int = 0
    refused_ns: int = 0


class Connection:
    """One connection of a dealer with a router; each direction is an ordered pipe."""

    def __init__(self, network: SimulatedNetwork, dealer: SimulatedDealer, router: SimulatedRouter):
        self.network, self.dealer, self.router = network, dealer, router
        network.made += 1
        self.number = network.made
        self.routing = self.number.to_bytes(5, "big")
        self.open = True
        self._last_ns = {UP: 0, DOWN: 0}
        self.queued = {UP: 0, DOWN: 0}

    def send(self, direction: str, frames: tuple[bytes, ...]) -> None:
        sim, path = self.network.sim, self.network.path(self.dealer.edge)
        size = HANDSHAKE_BYTES + sum(map(len, frames))
        at_ns = sim.now_ns + LATENCY_NS + sim.draw(JITTER_NS) + size * BYTE_NS
        if sim.now_ns < path.slow_until_ns and self.number <= path.slow_of:
            at_ns += path.slow_ns
        at_ns = max(at_ns, self._last_ns[direction] + size * BYTE_NS, path.blocked_ns[direction])
        self._last_ns[direction] = at_ns
        left = path.cut_after.get(direction)
        if left is not None:
            path.cut_after[direction] = left - size
            if left < size:  # this message is cut in two: it does not arrive
                path.cut_after.clear()
                sim.at(at_ns, self.fail, f"cut at a byte of the way {direction}")
                self.queued[direction] += 1
                self._last_ns[direction] = 1 << 62  # nothing follows it
                return
        if at_ns >= 1 << 61:
            return  # behind the cut
        self.queued[direction] += 1
        sim.at(at_ns, self._arrive, direction, frames)

    def _arrive(self, direction: str, frames: tuple[bytes, ...]) -> None:
        self.queued[direction] -= 1
        self.network.sim.add_to_trace(b"".join(frames))
        if direction == UP:
            # a closed dealer's bytes still arrive, even late: they were in the system's hands
            if self.router.connections.get(self.routing) is not None:
                self.router.arrived(self.routing, frames)
        elif self.open and not self.dealer.closed:
            self.dealer.arrived(self, frames)

    def fail(self, why: str) -> None:
        """Break the connection: both ends learn it now, and what is under way is lost."""
        if self.open:
            self.open = False
            self.network.sim.tell("connection", self.number, "of", self.dealer.edge, "breaks:", why)
            self.router.connections.pop(self.routing, None)
            self.dealer.broken(self)


class SimulatedNetwork:
    """All connections. ``listening``: the router at each port."""

    def __init__(self, sim: Any) -> None:
        self.sim = sim
        self.made = 0
        self.listening: dict[int, SimulatedRouter] = {}
        self.paths: dict[str, Weather] = {}
        self.dealers: list[SimulatedDealer] = []
        # sees each message that leaves the coordinator: (edge, frames)
        self.seen: Callable[[str, tuple[bytes, ...]], None] = lambda edge, frames: None

    def path(self, edge: str) -> Weather:
        return self.paths.setdefault(edge, Weather({UP: 0, DOWN: 0}, {}))

    def connections(self, edge: str) -> list[Connection]:
        """The open connections of this edge's processes."""
        return [
            dealer.connection
            for dealer in self.dealers
            if dealer.edge == edge and dealer.connection is not None and dealer.connection.open
        ]

    def block(self, edge: str, directions: tuple[str, ...], until_ns: int) -> None:
        """Deliver nothing before ``until_ns``: TCP repeats it until then."""
        path = self.path(edge)
        for direction in directions:
            path.blocked_ns[direction] = max(path.blocked_ns[direction], until_ns)
        if UP in directions and DOWN in directions:
            path.refused_ns = max(path.refused_ns, until_ns)


class _End:
    """What both ends share: received messages, and a thread that waits for them."""

    def __init__(self, network: SimulatedNetwork, process: Process) -> None:
        self.network, self.process, self.sim = network, process, network.sim
        self.closed = False
        self._received: deque[tuple[bytes, tuple[bytes, ...]]] = deque()
        self.waiting: SimulatedThread | None = None

    def wait(self, mailbox: Any, timeout_s: float | None) -> bool:
        """Wait for a message, an item in the mailbox, or the timeout, as ``Wire.wait`` does."""
        thread, sim = running(self.process), self.sim
        self.process.call("wait for the socket")
        until_ns = None if timeout_s is None else sim.now_ns + round(timeout_s * NS_PER_S)
        if self._received or mailbox.items:
            until_ns = sim.now_ns
        self.waiting = mailbox.waiting = thread
        thread.block(until_ns)
        self.waiting = mailbox.waiting = None
        return bool(mailbox.items)

    def _wake(self) -> None:
        if self.waiting is not None:
            self.waiting.wake()

    @property
    def has_messages(self) -> bool:
        return bool(self._received)


class SimulatedPoller:
    """Waits for many dealers and a mailbox. It is used like ``edgefl.clocks.wall.wire.Poller``."""

    def __init__(self, process: Process, mailbox: Any) -> None:
        self.process, self.mailbox, self.sim = process, mailbox, process.sim
        self._of: dict[SimulatedDealer, Any] = {}

    def add(self, dealer: SimulatedDealer, of: Any) -> None:
        self._of[dealer] = of

    def remove(self, dealer: SimulatedDealer) -> None:
        self._of.pop(dealer, None)

    def used(self, dealer: SimulatedDealer) -> None:
        return None

    def wait(self, timeout_s: float) -> tuple[bool, list[Any]]:
        thread = running(self.process)
        self.process.call("wait for the sockets")
        until_ns = self.sim.now_ns + round(timeout_s * NS_PER_S)
        if self.mailbox.items or any(dealer.has_messages for dealer in self._of):
            until_ns = self.sim.now_ns
        for dealer in self._of:
            dealer.waiting = thread
        self.mailbox.waiting = thread
        thread.block(until_ns)
        for dealer in self._of:
            dealer.waiting = None
        self.mailbox.waiting = None
        found = [of for dealer, of in self._of.items() if dealer.has_messages]
        return bool(self.mailbox.items), found

    def close(self) -> None:
        return None


class SimulatedRouter(_End):
    """The coordinator's end. It is used like ``edgefl.clocks.wall.wire.Router``."""

    def __init__(self, network: SimulatedNetwork, process: Process) -> None:
        super().__init__(network, process)
        self.connections: dict[bytes, Connection] = {}
        self.by_fd: dict[int, Any] = {}
        self.full: list[bytes] = []
        self.port = 0
        process.at_end.append(self._gone)

    def bind(self, host: str, port: int, segment: int | None = None) -> int:
        """Listen on this port (0: 5000)."""
        self.process.call("bind")
        self.port = port or 5000
        self.network.listening[self.port] = self
        return self.port

    def send(self, routing: bytes, header: bytes, body: Any = None) -> bool:
        self.process.call("send")
        connection = self.connections.get(routing)
        if connection is None:
            return False
        if connection.queued[DOWN] > MOST_QUEUED:
            self.full.append(routing)
            return False
        frames = (header,) if body is None else (header, bytes(body))
        self.network.seen(connection.dealer.edge, frames)
        connection.send(DOWN, frames)
        return True

    def receive(self, most: int) -> Iterator[tuple[bytes, str | None, list[Frame]]]:
        for _ in range(min(most, len(self._received))):
            self.process.call("receive")
            routing, frames = self._received.popleft()
            yield routing, None, [Frame(part) for part in frames]

    def arrived(self, routing: bytes, frames: tuple[bytes, ...]) -> None:
        if self.process.alive:
            self._received.append((routing, frames))
            self._wake()

    def take_full(self) -> list[bytes]:
        full, self.full = self.full, []
        return full

    def greeted(self, routing: bytes) -> None:
        return None

    def joined(self, routing: bytes) -> None:
        return None

    def cut(self, routing: bytes) -> None:
        connection = self.connections.get(routing)
        if connection is not None:
            self.sim.after(LATENCY_NS, connection.fail, "the coordinator has closed it")

    def forget_others(self, routings: Any) -> None:
        return None

    def close(self, linger_ms: int = 0) -> None:
        """Stop to listen. What was sent still arrives."""
        self.closed = True
        if self.network.listening.get(self.port) is self:
            del self.network.listening[self.port]
        self.sim.after(linger_ms * MS, self._close_all)

    def _close_all(self) -> None:
        for connection in list(self.connections.values()):
            connection.fail("the coordinator has ended")

    def _gone(self) -> None:
        """The process has ended: the system closes its sockets."""
        if not self.closed:
            self.close()


class SimulatedDealer(_End):
    """An edge's end. It is used like ``edgefl.clocks.wall.wire.Dealer``."""

    def __init__(self, network: SimulatedNetwork, process: Process, address: str) -> None:
        super().__init__(network, process)
        self.edge = process.name.partition("#")[0]
        self.port = int(address.rpartition(":")[2])
        self.hung_up = 0
        self.connection: Connection | None = None
        self._unsent: deque[tuple[bytes, ...]] = deque()
        self._cut_off = False
        self.hello: tuple[bytes, ...] | None = None  # its first message
        network.dealers = [each for each in network.dealers if not each.closed]
        network.dealers.append(self)
        process.at_end.append(self.close)
        self.sim.after(LATENCY_NS, self._connect)

    def _connect(self) -> None:
        if self.closed or (self.connection is not None and self.connection.open):
            return
        router = self.network.listening.get(self.port)
        if router is None or self.sim.now_ns < self.network.path(self.edge).refused_ns:
            self.sim.after(RETRY_NS + self.sim.draw(MS), self._connect)
            return
        self.connection = made = Connection(self.network, self, router)
        router.connections[made.routing] = made
        while self._unsent:
            made.send(UP, self._unsent.popleft())

    def send(self, header: bytes, body: Any = None) -> bool:
        self.process.call("send")
        frames = (header,) if body is None else (header, bytes(body))
        if self.hello is None:
            self.hello = frames
            with suppress(WireError):  # several edges may share the process
                self.edge = decode(unbundled(memoryview(header))[0])[0].edge
        if self.connection is not None and self.connection.open:
            self.connection.send(UP, frames)
        else:
            self._unsent.append(frames)
        return True

    def receive(self) -> Iterator[list[Frame]]:
        while self._received and not self.closed:
            self.process.call("receive")
            _, frames = self._received.popleft()
            yield [Frame(part) for part in frames]

    def arrived(self, connection: Connection, frames: tuple[bytes, ...]) -> None:
        if self.process.alive and connection is self.connection:
            self._received.append((connection.routing, frames))
            self._wake()

    def broken(self, connection: Connection) -> None:
        if not self.closed and connection is self.connection:
            self._cut_off = True
            self.sim.after(RETRY_NS + self.sim.draw(MS), self._connect)

    def turned_away(self) -> None:
        return None

    def joined(self) -> None:
        return None

    def cut_off(self) -> bool:
        return self._cut_off

    def close(self, linger_ms: int = 0) -> None:
        """Close the connection; what was sent on it still arrives."""
        if self.closed:
            return
        self.closed = True
        connection = self.connection
        if connection is not None and connection.open:
            at_ns = max(connection._last_ns[UP], self.sim.now_ns + LATENCY_NS)
            if at_ns < 1 << 61:
                self.sim.at(at_ns + 1, connection.fail, "the edge has closed it")
