"""Faults of a run on the wall clock: the pacing thread's agenda rings at their moments, the
launcher strikes, and the book knows that it was us.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress

from edgefl.config.faults import told
from edgefl.hosts.ipc import Channel
from edgefl.hosts.process_messages import InjectFault
from edgefl.hosts.wall.coordinator.faulty_transport import FaultyTransport
from edgefl.hosts.wall.coordinator.mailbox import Interrupt, Noticed
from edgefl.hosts.wall.coordinator.pacing import Pacing
from emulator.faults import Fault, Schedule
from emulator.units import FOREVER, NS_PER_S

# wall seconds by which a frozen process goes on early: its links and its computing stand still
# until the moment itself
HEAD_START_S = 0.1


class WallFaults:
    """``control``: to the launcher. ``revives``: whether any of ``schedule`` brings dead edges
    back.
    """

    def __init__(
        self,
        pacing: Pacing,
        transport: FaultyTransport,
        schedule: Schedule,
        revives: bool,
        control: Channel,
    ) -> None:
        self.pacing, self.transport, self.schedule, self.revives, self.control = (
            pacing,
            transport,
            schedule,
            revives,
            control,
        )
        self._head_start_ns = int(HEAD_START_S * NS_PER_S * pacing.clock.speed)
        self._down: set[str] = set()
        self._lives: defaultdict[str, int] = defaultdict(int)  # deaths and births so far
        self._frozen_until: defaultdict[str, int] = defaultdict(int)
        self._wait()

    def _wait(self) -> None:
        if self.schedule.next_due() < FOREVER:
            self.pacing.agenda.add(self.schedule.next_due(), self._strike)

    def _strike(self, now: int) -> None:
        for fault in self.schedule.pop_due(now):
            self.pacing.tell(Noticed(now, "fault", told(fault)))
            match fault.kind:
                case "kill":
                    self._kill(fault.target, now)
                case "restart":
                    self._restart(fault.target, now)
                case "freeze":
                    self._freeze(fault, now)
                case "duplicate":
                    self.transport.duplicate.add(fault.target)
                case "corrupt":
                    self.transport.corrupt.add(fault.target)
        self._wait()

    def _kill(self, edge: str, now: int) -> None:
        if edge in self._down:
            return
        self._down.add(edge)
        self._end_life(edge, now)
        self._ask("kill", edge)
        if not self.revives and len(self._down) == len(self.pacing.sessions.expected.edges):
            self.pacing.tell(Interrupt("no edge left"))

    def _restart(self, edge: str, now: int) -> None:
        self._down.discard(edge)
        self._end_life(edge, now)
        self._ask("restart", edge)

    def _end_life(self, edge: str, now: int) -> None:
        """What it had in hand is late through no fault of the host."""
        self._lives[edge] += 1
        self._frozen_until.pop(edge, None)
        self.pacing.working.pop(edge, None)
        self.transport.gone(edge, now)

    def _freeze(self, fault: Fault, now: int) -> None:
        edge = fault.target
        if edge in self._down:
            return
        self.pacing.excused.add(edge)
        self._frozen_until[edge] = max(self._frozen_until[edge], fault.until_ns)
        self._ask("freeze", edge)
        self._later(max(fault.until_ns - self._head_start_ns, now), edge, self._thaw)

    def _thaw(self, edge: str, now: int) -> None:
        if self._frozen_until[edge] - self._head_start_ns > now:
            return  # frozen again meanwhile
        self._ask("thaw", edge)
        patience_ns = int(self.pacing.sessions.expected.liveness_ns * self.pacing.clock.speed)
        self._later(
            now + patience_ns,
            edge,
            lambda edge, at: (
                self.pacing.excused.discard(edge) if self._frozen_until[edge] < at else None
            ),
        )

    def _ask(self, fault: str, edge: str) -> None:
        with suppress(OSError):  # the launcher is gone: so is the run
            self.control.send(InjectFault(fault, edge))

    def _later(self, at_ns: int, edge: str, call: Callable[[str, int], None]) -> None:
        """Unless the edge dies or is started anew before."""
        life = self._lives[edge]
        self.pacing.agenda.add(
            at_ns, lambda at: call(edge, at) if self._lives[edge] == life else None
        )
