"""Injected faults of a run on the wall clock.

The pacing thread's agenda holds their moments, and the launcher carries them out. Injected faults
are excluded from the fidelity verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from edgefl.clocks.ipc import Channel
from edgefl.clocks.process_messages import InjectFault
from edgefl.clocks.wall.coordinator.pacing import Pacing
from edgefl.clocks.wall.coordinator.thread_messages import Interrupt, Noticed
from edgefl.config.faults import PROCESS_KINDS, told
from edgefl.exchange.fault_lives import Effect, FaultLives
from emulator.faults import Fault, Schedule
from emulator.units import FOREVER, NS_PER_S

# A frozen process is thawed so many wall seconds early. Its links and its emulated computing stay
# frozen until the exact moment.
HEAD_START_S = 0.1


class WallFaults:
    """Injects the faults of ``schedule``. ``control``: channel to the launcher.

    ``lives`` also tells the transport which updates are damaged or arrive twice.
    """

    def __init__(
        self,
        pacing: Pacing,
        schedule: Schedule,
        lives: FaultLives,
        control: Channel,
        since_ns: int = 0,
    ) -> None:
        """``since_ns``: a resumed run goes on there; faults before have happened."""
        self.pacing, self.schedule, self.lives, self.control = pacing, schedule, lives, control
        self._head_start_ns = int(HEAD_START_S * NS_PER_S * pacing.clock.speed)
        if since_ns:
            self._catch_up(since_ns)
        self._wait()

    def _catch_up(self, now: int) -> None:
        """Repeat what still holds of earlier faults: all edges have new processes."""
        frozen: dict[str, Fault] = {}
        for fault in self.schedule.pop_due(now):
            if fault.kind in PROCESS_KINDS:
                list(self.lives.strike(fault, now))
            if fault.kind == "freeze" and fault.until_ns > now:
                frozen[fault.target] = fault
        for edge in sorted(self.lives.down):
            self.pacing.agenda.add(now, lambda at_ns, edge=edge: self._ask("kill", edge))
        for fault in frozen.values():
            if fault.target not in self.lives.down:
                self.pacing.agenda.add(now, partial(self._freeze_again, fault))

    def _freeze_again(self, fault: Fault, now: int) -> None:
        self._ask("freeze", fault.target)
        self._freeze(fault, now)

    def _wait(self) -> None:
        if self.schedule.next_due() < FOREVER:
            self.pacing.agenda.add(self.schedule.next_due(), self._strike)

    def _strike(self, now: int) -> None:
        for fault in self.schedule.pop_due(now):
            self.pacing.tell(Noticed(now, "fault", told(fault)))
            effects = list(self.lives.strike(fault, now))
            if Effect.DIED in effects or Effect.CAME_BACK in effects:
                self._end_process(fault.target, now)
            if effects:
                self._ask(fault.kind, fault.target)
            if Effect.FROZE in effects or Effect.STAYS_FROZEN in effects:
                self._freeze(fault, now)
            if effects and self.lives.deserted:
                self.pacing.tell(Interrupt("no edge left"))
        self._wait()

    def _end_process(self, edge: str, now: int) -> None:
        """Forget the edge's work: it is late because of the fault, not because of the host."""
        self.pacing.transport.training.working.pop(edge, None)
        self.pacing.transport.gone(edge, now)

    def _freeze(self, fault: Fault, now: int) -> None:
        self.pacing.excused.add(fault.target)
        self._later(max(fault.until_ns - self._head_start_ns, now), fault.target, self._thaw)

    def _thaw(self, edge: str, now: int) -> None:
        if self.lives.frozen_until(edge) - self._head_start_ns > now:
            return  # a later freeze has extended it
        self._ask("thaw", edge)
        patience_ns = int(self.pacing.sessions.expected.liveness_ns * self.pacing.clock.speed)
        self._later(now + patience_ns, edge, self._excuse_no_more)

    def _excuse_no_more(self, edge: str, now: int) -> None:
        if self.lives.frozen_until(edge) < now:
            self.pacing.excused.discard(edge)

    def _ask(self, fault: str, edge: str) -> None:
        with suppress(OSError):  # the launcher has ended, and the run ends with it
            self.control.send(InjectFault(fault, edge))

    def _later(self, at_ns: int, edge: str, call: Callable[[str, int], None]) -> None:
        self.pacing.agenda.add(at_ns, self.lives.in_this_life(edge, call))
