"""The edge's thread that watches its host.

It is not the thread of the socket: asking a system may take long.
"""

from __future__ import annotations

import errno
import hashlib
import socket
import sys
from collections import deque
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

from edgefl.config.experiment import SHORTEST_REPORT_S
from edgefl.hosts.wall.edge.machine import Machine
from edgefl.protocol.host_reports import HostFacts, HostReport
from emulator.units import NS_PER_S

FIRST_REPORT_S = 0.5  # shares of the processor need some time to be measured


class HostClaim:
    """One process of a host speaks for it: the first one that claims ``key``.

    When this process ends, the system frees the claim and another process takes over. Only Linux
    has such names, which leave no file; on other systems each process speaks for its host.
    """

    def __init__(self, key: str) -> None:
        self.name = f"\0edgefl-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        self._socket: socket.socket | None = None

    def take(self) -> bool:
        """Whether this process speaks for the host now."""
        if self._socket is not None or sys.platform != "linux":
            return True
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(self.name)
        except OSError as error:
            claim.close()
            return error.errno != errno.EADDRINUSE
        self._socket = claim
        return True

    def release(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None


class Reporter(Thread):
    """Watches the host on which an edge runs, once it has begun.

    ``address``: of the coordinator. ``machine`` makes what it asks.
    """

    def __init__(self, address: str, machine: Callable[[str], Machine] = Machine) -> None:
        super().__init__(name="reporter", daemon=True)
        self.address, self.machine = address, machine
        self.period_s = SHORTEST_REPORT_S
        self._facts: HostFacts | None = None
        self._latest: deque[HostReport] = deque(maxlen=1)
        self._session: int | None = None  # that has the facts
        self._run = ""  # its id
        self._ended = Event()

    def begin(self, run: str, period_ns: int) -> None:
        """Begin to report to the run with this id every ``period_ns``; 0: do not report."""
        if period_ns:
            self.period_s = max(period_ns / NS_PER_S, SHORTEST_REPORT_S)
            self._run = run
            self.start()

    def run(self) -> None:
        machine = self.machine(self.address)
        self._facts = facts = machine.facts()
        claim = HostClaim(f"{self.address} {self._run} {facts.machine}")
        machine.report()  # begins to count
        pause_s = FIRST_REPORT_S
        while not self._ended.wait(pause_s):
            pause_s = self.period_s
            self._latest.append(machine.report(claim.take()))
        claim.release()

    def due(self, session: int) -> list[Any]:
        """Messages for this session: the facts first, then the latest report if it is new."""
        if self._facts is None:
            return []
        found: list[Any] = []
        if session != self._session:
            self._session = session
            found.append(self._facts)
        if self._latest:
            found.append(self._latest.popleft())
        return found

    def end(self) -> None:
        self._ended.set()
