"""Injected faults of a run under the virtual clock, exact to the nanosecond: edges die, come back
and freeze.

The capacities and devices model link cuts, slow periods, and the effect of a freeze on links and
computing. This module only records these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edgefl.config.faults import told
from edgefl.edges.edge import Edge
from edgefl.hosts.fault_lives import Effect, FaultLives
from edgefl.hosts.virtual.host import VirtualHost
from edgefl.protocol.messages import Joined, Update
from edgefl.strategies.base.events import EdgeLost
from emulator.faults import Fault, Schedule
from emulator.units import FOREVER


class VirtualFaults:
    """Injects the faults of ``schedule`` into the edges of ``host``.

    ``fresh(edge)`` makes an edge that has just started. ``liveness_ns`` (emulated): after this
    silence an edge is lost. ``samples``: by edge.
    """

    def __init__(
        self,
        host: VirtualHost,
        schedule: Schedule,
        lives: FaultLives,
        fresh: Callable[[str], Edge],
        liveness_ns: int,
        samples: Mapping[str, int],
    ) -> None:
        self.host, self.schedule, self.lives, self.fresh = host, schedule, lives, fresh
        self.liveness_ns, self.samples = liveness_ns, samples
        self._lost: set[str] = set()  # edges that the coordinator has lost
        self._wait()

    # ------------------------------------------------------------------ the host's questions
    def nothing_left(self) -> bool:
        """Whether only faults are left and no edge comes back, or all edges are down for good."""
        host = self.host
        if len(host.agenda) > 1 or self.lives.some_return:
            return False
        others = min(host.network.next_due(), host.coordinator.next_due())
        return others >= FOREVER or self._deserted

    @property
    def _deserted(self) -> bool:
        """Whether all edges are down for good in a run without a stop time.

        Such a run must end here: repeated alarms (periodic evaluation) would keep it going.
        """
        coordinator = self.host.coordinator
        return (
            coordinator.experiment.stop.emulated_s is None
            and self.lives.deserted
            and not coordinator.tasks.open
            and self.host.network.next_due() >= FOREVER
        )

    def is_down(self, edge: str) -> bool:
        return edge in self.lives.down

    def spoils(self, edge: str, update: Update, now: int) -> bool:
        if not self.lives.take("corrupt", edge):
            return False
        self._miss(edge, now)
        self._join(edge, self.host.edges[edge].open_tasks, now)
        self.host.offer(edge, update, now)
        return True

    def repeats(self, edge: str) -> bool:
        return self.lives.take("duplicate", edge)

    # ------------------------------------------------------------------ the faults
    def _wait(self) -> None:
        self.host.agenda.add(self.schedule.next_due(), self._strike)

    def _strike(self, now: int) -> None:
        for fault in self.schedule.pop_due(now):
            if self.host.ended:
                return
            self.host.coordinator.record.fact(now, "fault", **told(fault))
            for effect in self.lives.strike(fault, now):
                self._carry_out(effect, fault, now)
        self._wait()

    def _carry_out(self, effect: Effect, fault: Fault, now: int) -> None:
        edge = fault.target
        match effect:
            case Effect.DIED:  # the coordinator learns of it after the liveness timeout
                self.host.replace(edge, self.fresh(edge), now)
                self._later(now + self.liveness_ns, edge, self._miss)
            case Effect.CAME_BACK:  # in a new session, which ends a former one that is still open
                self.host.forget_offers(edge)
                self._miss(edge, now)
                self._join(edge, [], now)
            case Effect.FROZE:
                self._later(now + self.liveness_ns, edge, self._miss_frozen)
                self._later(fault.until_ns, edge, self._thaw)
            case Effect.STAYS_FROZEN:
                self._later(fault.until_ns, edge, self._thaw)

    def _miss_frozen(self, edge: str, now: int) -> None:
        if self.lives.frozen_until(edge) > now:
            self._miss(edge, now)

    def _thaw(self, edge: str, now: int) -> None:
        """The edge continues its work. If it was lost, it joins again with its open tasks."""
        if self.lives.frozen_until(edge) <= now and edge in self._lost:
            self._join(edge, self.host.open_tasks(edge), now)

    def _miss(self, edge: str, now: int) -> None:
        if edge not in self._lost:
            self._lost.add(edge)
            self.host.tell(edge, EdgeLost(edge), now)

    def _join(self, edge: str, tasks: list[int], now: int) -> None:
        self._lost.discard(edge)
        self.host.tell(edge, Joined(self.samples[edge], tasks), now)

    def _later(self, at_ns: int, edge: str, call: Callable[[str, int], None]) -> None:
        self.host.agenda.add(at_ns, self.lives.in_this_life(edge, call))
