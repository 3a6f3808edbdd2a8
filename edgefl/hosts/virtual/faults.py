"""The virtual host of a run with faults: edges that die, come back and freeze, at their moments and
to the nanosecond.

Cuts, slow stretches and what a freeze does to links and computing lie in the capacities and
devices; here they are only recorded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from edgefl.actor import COORDINATOR, Broadcast, Send
from edgefl.config.faults import told
from edgefl.coordinator.coordinator import Coordinator
from edgefl.edges.edge import Edge
from edgefl.hosts.virtual.host import VirtualHost
from edgefl.hosts.virtual.pool.engine import Engine
from edgefl.protocol.messages import Assignment, Fresh, Joined, ToCoordinator, Update
from edgefl.strategies.base.events import EdgeLost
from emulator.faults import Fault, Schedule
from emulator.links.network import Completion, Network
from emulator.units import FOREVER


class FaultyVirtualHost(VirtualHost):
    """``fresh(edge)``: an edge that has just started. ``liveness_ns``, emulated: an edge that was
    not heard for so long is lost.

    ``revives``: whether any of ``schedule`` brings dead edges back.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        edges: Mapping[str, Edge],
        network: Network,
        latency_ns: Mapping[str, int],
        pool: Engine,
        schedule: Schedule,
        revives: bool,
        fresh: Callable[[str], Edge],
        liveness_ns: int,
    ) -> None:
        super().__init__(coordinator, edges, network, latency_ns, pool)
        self.schedule, self.revives, self.fresh, self.liveness_ns = (
            schedule,
            revives,
            fresh,
            liveness_ns,
        )
        self._samples: Mapping[str, int] = {}
        self._down: set[str] = set()
        self._lost: set[str] = set()
        self._marked: dict[str, set[str]] = {
            "duplicate": set(),
            "corrupt": set(),
        }  # edges whose next update is to suffer
        self._lives: defaultdict[str, int] = defaultdict(
            int
        )  # deaths so far: what was planned for an earlier life is void
        self._frozen_until: defaultdict[str, int] = defaultdict(int)

    def run(
        self, samples: Mapping[str, int], progress: Callable[[int], None] | None = None
    ) -> None:
        self._samples = samples
        self._agenda.add(self.schedule.next_due(), self._faults)
        super().run(samples, progress)

    def _step(self) -> None:
        others = min(self.network.next_due(), self.coordinator.next_due())
        only_faults = len(self._agenda) == 1 and not (self._down and self.revives)  # are left
        if only_faults and (others >= FOREVER or self._deserted):
            self._do(
                COORDINATOR,
                self.coordinator.finish("nothing left to do", self.clock.now()),
                self.clock.now(),
            )
            return
        super()._step()

    @property
    def _deserted(self) -> bool:
        """Nobody will ever do anything again, but alarms that repeat, evaluations say, would
        ring for ever: no moment ends this run.
        """
        endless = self.coordinator.experiment.stop.emulated_s is None
        return (
            endless
            and len(self._down) == len(self.edges)
            and not self.coordinator.tasks.open
            and self.network.next_due() >= FOREVER
        )

    def _faults(self, now: int) -> None:
        for fault in self.schedule.pop_due(now):
            if self._ended:
                return
            self.coordinator.record.fact(now, "fault", **told(fault))
            match fault.kind:
                case "kill":
                    self._kill(fault.target, now)
                case "restart":
                    self._kill(fault.target, now)
                    self._revive(fault.target, now)
                case "freeze":
                    self._freeze(fault, now)
                case "duplicate" | "corrupt":
                    self._marked[fault.kind].add(fault.target)
        self._agenda.add(self.schedule.next_due(), self._faults)

    def _kill(self, edge: str, now: int) -> None:
        """Its run, its memory and its transfers are gone; the coordinator hears of it when it
        has missed it for long enough.
        """
        if edge in self._down:
            return
        self._down.add(edge)
        self._lives[edge] += 1
        self._frozen_until.pop(edge, None)
        self.edges[edge] = self.fresh(
            edge
        )  # knows of no task: what still reaches it means nothing to it
        self._let_go(edge)
        for transfer, _ in self._moving.pop(edge, {}).values():
            self.network.cancel(transfer, now)
        self._later(now + self.liveness_ns, edge, self._miss)

    def _revive(self, edge: str, now: int) -> None:
        """A process with nothing in hand joins: its session takes the place of the former one,
        if that was not missed yet.
        """
        self._down.discard(edge)
        self._lives[edge] += 1
        self._offered.pop(edge, None)
        self._miss(edge, now)
        self._join(edge, [], now)

    def _freeze(self, fault: Fault, now: int) -> None:
        edge = fault.target
        if edge in self._down:
            return
        if self._frozen_until[edge] <= now:
            self._lives[edge] += 0
            self._later(now + self.liveness_ns, edge, self._miss_frozen)
        self._frozen_until[edge] = max(self._frozen_until[edge], fault.until_ns)
        self._later(fault.until_ns, edge, self._thaw)

    def _miss_frozen(self, edge: str, now: int) -> None:
        if self._frozen_until[edge] > now:
            self._miss(edge, now)

    def _thaw(self, edge: str, now: int) -> None:
        """It goes on where it stood; if it was missed, in a new session that tells what it has
        in hand.
        """
        if self._frozen_until[edge] <= now and edge in self._lost:
            coming = [
                message.number
                for transfer, message in self._moving[edge].values()
                if transfer.direction == "down"
            ]
            self._join(edge, sorted({*self.edges[edge].open_tasks, *coming}), now)

    def _miss(self, edge: str, now: int) -> None:
        if edge not in self._lost:
            self._lost.add(edge)
            self._tell(edge, EdgeLost(edge), now)

    def _join(self, edge: str, tasks: list[int], now: int) -> None:
        self._lost.discard(edge)
        self._tell(edge, Joined(self._samples[edge], tasks), now)

    def _tell(self, edge: str, message: ToCoordinator, now: int) -> None:
        self._do(COORDINATOR, self.coordinator.receive(edge, message, now), now)

    def _later(self, at_ns: int, edge: str, call: Callable[[str, int], None]) -> None:
        """Unless the edge dies or comes back before."""
        life = self._lives[edge]
        self._agenda.add(at_ns, lambda at: call(edge, at) if self._lives[edge] == life else None)

    def _arrived(
        self, completion: Completion, message: Assignment | Fresh | Update | Broadcast, now: int
    ) -> None:
        """An update that came damaged ends its session, and is offered again in the next; one
        that comes twice is used once.
        """
        edge = completion.transfer.edge
        if isinstance(message, Update) and edge in self._marked["corrupt"]:
            self._marked["corrupt"].discard(edge)
            self.coordinator.record.link(completion, now)
            self._miss(edge, now)
            self._join(edge, self.edges[edge].open_tasks, now)
            self._do(edge, [Send(COORDINATOR, message)], now)
            return
        super()._arrived(completion, message, now)
        if isinstance(message, Update) and edge in self._marked["duplicate"]:
            self._marked["duplicate"].discard(edge)
            self._tell(edge, message, now)

    def _carry(
        self,
        edge: str,
        direction: str,
        message: Any,
        now: int,
        slots: tuple[int, ...] | None = None,
    ) -> None:
        if edge not in self._down:
            super()._carry(edge, direction, message, now, slots)

    def _given(self, send: Send, now: int) -> None:
        if send.to not in self._down:
            super()._given(send, now)
