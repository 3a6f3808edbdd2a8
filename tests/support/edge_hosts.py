"""An edge host with a scripted edge."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from processes import EchoTrainer

from edgefl.clocks.wall.edge.host import EdgeHost
from edgefl.clocks.wall.edge.work import EdgeSide, EdgeWork, OwnMachine
from edgefl.clocks.wall.system import System
from edgefl.edges.edge import Edge
from edgefl.protocol.codec import decode, encode, unbundled
from edgefl.protocol.messages import Hello, Setup, WireError
from edgefl.strategies.base.strategy import LocalRule
from emulator.compute import Rate

NS_PER_S = 1_000_000_000
SETUP = Setup('{"seed": 1}', "fedavg")


class Clock(System):
    """A machine whose time advances only by waiting and sleeping. ``dealer``: its socket."""

    def __init__(self, dealer: Any = None) -> None:
        self.s, self.given = 1000.0, dealer
        self.slept: list[float] = []
        self.asleep_s = 0.0  # how long the machine has slept

    def monotonic_s(self) -> float:
        return self.s

    def monotonic_ns(self) -> int:
        return int(self.s * NS_PER_S)

    def passed_ns(self) -> int:
        return self.monotonic_ns() + round(self.asleep_s * NS_PER_S)

    def sleep(self, pause_s: float) -> None:
        self.slept.append(pause_s)
        self.s += pause_s

    def dealer(self, context: Any, keys: Any, address: str) -> Any:
        return self.given

    def poller(self, mailbox: Any) -> Any:
        return self.given


class Script:
    """Replacement of ``Dealer`` and ``Poller``: each read of the socket returns the next
    (message, incarnation), or (message, incarnation, body).

    It does not depend on what the edge sent. None: no message.
    """

    def __init__(self, *words: tuple[Any, ...] | None) -> None:
        self.words = list(words)
        self.clock = Clock(self)
        self.said: list[Any] = []
        self.waits: list[float] = []
        self.number = self.hung_up = 0
        self.cut: list[bool] = []  # whether the connection has closed, at each look
        self.given_up_after: int | None = None  # messages; then the connection takes none
        self.work: EdgeWork  # the edge's part in the run, which the host drops at its end

    def wait(self, timeout_s: float) -> tuple[bool, list[Any]]:
        self.waits.append(timeout_s)
        self.clock.s += timeout_s
        return True, [self.edge_host]

    def add(self, dealer: Any, of: Any) -> None:
        return None

    def remove(self, dealer: Any) -> None:
        return None

    def used(self, dealer: Any) -> None:
        return None

    def joined(self) -> None:
        return None

    def receive(self) -> Iterator[list[Any]]:
        if self.edge_host.work is not None:
            self.work = self.edge_host.work
        if self.words and (word := self.words.pop(0)) is not None:
            message, incarnation, *body = word
            frames = [encode(message, incarnation, self.number), *body]
            yield [SimpleNamespace(buffer=memoryview(frame)) for frame in frames]

    def send(self, header: bytes, body: Any = None) -> bool:
        return all(self._sent(each) for each in unbundled(memoryview(header)))

    def _sent(self, header: memoryview) -> bool:
        try:
            message, _, self.number = decode(header)
        except WireError:  # a moment beyond the limits: a coordinator would end the session
            return True
        if isinstance(message, Hello):  # the first one on a new connection
            self.given_up_after = None if self.said else self.given_up_after
        elif self.given_up_after is not None and len(self.said) >= self.given_up_after:
            return False
        self.said.append(message)
        return True

    def turned_away(self) -> None:
        return None

    def cut_off(self) -> bool:
        return self.cut.pop(0) if self.cut else False

    def close(self) -> None:
        return None

    def host(self) -> EdgeHost:
        address = "tcp://192.0.2.1:1"
        self.edge_host = EdgeHost(
            "e000", address, None, lambda setup: side(), OwnMachine(), self.clock
        )
        return self.edge_host


def side(trainer: Any = None) -> EdgeSide:
    return EdgeSide(
        Edge("e000", trainer or EchoTrainer(), LocalRule(None), Rate(1000.0)),
        "c",
        "l",
        "d",
        10,
        1.0,
        1 << 20,
    )
