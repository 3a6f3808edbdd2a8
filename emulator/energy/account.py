"""The energy of the edges of a run, from what they do and when; no clock, no input or output.

Sums are in whole femtojoules: exact, whatever the order of their parts.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

from emulator.energy.power import EdgePower
from emulator.units import FOREVER


@dataclass(slots=True)
class RunningTotal:
    """``fj`` is the energy up to ``at_ns``; from there on ``power_uw`` flows.

    Powers may change in the past, for example because a transfer is known only when it has ended.
    ``changes``: in the future, as (moment, microwatts); ``rising_uw`` is the sum of the positive
    ones.
    """

    fj: int = 0
    at_ns: int = 0
    power_uw: int = 0
    rising_uw: int = 0
    changes: list[tuple[int, int]] = field(default_factory=list)

    def change(self, power_uw: int, from_ns: int) -> None:
        """``power_uw`` more flows from ``from_ns`` on; less if it is negative."""
        if from_ns <= self.at_ns:
            self.fj += power_uw * (self.at_ns - from_ns)
            self.power_uw += power_uw
        else:
            heapq.heappush(self.changes, (from_ns, power_uw))
            self.rising_uw += max(power_uw, 0)

    def add(self, fj: int) -> None:
        """Add energy that has been used up by now."""
        self.fj += fj

    def at(self, now: int) -> int:
        """The energy up to ``now``, in femtojoules. ``now`` must not decrease."""
        while self.changes and self.changes[0][0] <= now:
            from_ns, power_uw = heapq.heappop(self.changes)
            self._advance(from_ns)
            self.power_uw += power_uw
            self.rising_uw -= max(power_uw, 0)
        self._advance(now)
        return self.fj

    def reaches(self, fj: int) -> int:
        """A moment by which the energy cannot be more than ``fj``; FOREVER if it stays below.

        It is the moment at which it is ``fj``, unless the power changes before that.
        """
        if self.fj >= fj:
            return self.at_ns
        most_uw = self.power_uw + self.rising_uw
        if most_uw <= 0:
            return FOREVER
        return min(FOREVER, self.at_ns - (self.fj - fj) // most_uw)

    def _advance(self, to_ns: int) -> None:
        if to_ns > self.at_ns:
            self.fj += self.power_uw * (to_ns - self.at_ns)
            self.at_ns = to_ns


IDLE, COMPUTE, SEND, RECEIVE, TAIL = "idle", "compute", "send", "receive", "tail"
STATES = (IDLE, COMPUTE, SEND, RECEIVE, TAIL)
OF_DIRECTION = {"up": SEND, "down": RECEIVE}


@dataclass(frozen=True, slots=True)
class Spent:
    """What an edge has used from ``began_ns`` to ``ended_ns`` in one state, above idle power."""

    edge: str
    state: str
    began_ns: int
    ended_ns: int
    fj: int


@dataclass(slots=True)
class EdgeAccount:
    """One edge: since when it is there, what it is doing, and its sums by state.

    ``computing``: its task and since when. ``quiet_ns``: the end of its latest transfer.
    """

    power: EdgePower
    since_ns: int
    computing: tuple[int, int] | None = None
    quiet_ns: int | None = None
    fj: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STATES, 0))
    ns: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STATES, 0))

    def spend(self, spent: Spent, active_ns: int) -> None:
        self.fj[spent.state] += spent.fj
        self.ns[spent.state] += active_ns


@dataclass(slots=True)
class EnergyAccount:
    """All edges of a run. Times are emulated ns.

    An edge that has joined uses its idle power until the run ends, whatever it waits for. What it
    uses on top is known when it ends; only computing counts in ``total`` while it lasts.
    """

    powers: Mapping[str, EdgePower]
    edges: dict[str, EdgeAccount] = field(default_factory=dict)
    total: RunningTotal = field(default_factory=RunningTotal)
    ended_ns: int | None = None

    def joined(self, edge: str, now: int) -> bool:
        """The edge is there from ``now`` on. False if it was before, or is not of this run."""
        if edge in self.edges or edge not in self.powers:
            return False
        self.edges[edge] = EdgeAccount(self.powers[edge], now)
        self.total.change(self.powers[edge].idle_uw, now)
        return True

    def compute_begins(self, edge: str, task: int, at_ns: int) -> list[Spent]:
        """Training of ``task`` begins or goes on; another task of this edge has ended."""
        of = self.edges.get(edge)
        if of is None or (of.computing is not None and of.computing[0] == task):
            return []
        spent = self.compute_ends(edge, None, at_ns)
        of.computing = task, at_ns
        self.total.change(of.power.compute_uw, at_ns)
        return spent

    def compute_ends(self, edge: str, task: int | None, at_ns: int) -> list[Spent]:
        """Training of ``task`` ends or pauses; None: whatever the edge computes."""
        of = self.edges.get(edge)
        if of is None or of.computing is None or task not in (None, of.computing[0]):
            return []
        began_ns, of.computing = of.computing[1], None
        at_ns = max(began_ns, at_ns)
        self.total.change(-of.power.compute_uw, at_ns)
        return self._spend(of, Spent(edge, COMPUTE, began_ns, at_ns, 0), of.power.compute_uw)

    def transferred(
        self,
        edge: str,
        direction: str,
        began_ns: int,
        ended_ns: int,
        size_bytes: int,
        active_ns: int | None = None,
    ) -> list[Spent]:
        """A transfer over the edge's radio has ended. ``active_ns``: less than its whole time."""
        of = self.edges.get(edge)
        if of is None:
            return []
        state, power = OF_DIRECTION[direction], of.power
        uw, fj_bit = (
            (power.send_uw, power.send_fj_bit)
            if state == SEND
            else (power.receive_uw, power.receive_fj_bit)
        )
        spent = self._tail(edge, of, began_ns)
        active_ns = ended_ns - began_ns if active_ns is None else active_ns
        fj = uw * active_ns + fj_bit * 8 * size_bytes
        self.total.add(fj)
        spent += self._spend(of, Spent(edge, state, began_ns, ended_ns, fj), 0, active_ns)
        if of.quiet_ns is None or ended_ns > of.quiet_ns:
            of.quiet_ns = ended_ns
        if power.tail_ns:
            self.total.change(power.tail_uw, of.quiet_ns)
            self.total.change(-power.tail_uw, of.quiet_ns + power.tail_ns)
        return spent

    def end(self, now: int) -> list[Spent]:
        """The run has ended: what still was going on counts up to ``now``."""
        if self.ended_ns is not None:
            return []
        self.ended_ns = now
        spent: list[Spent] = []
        for edge, of in self.edges.items():
            spent += [*self.compute_ends(edge, None, now), *self._tail(edge, of, now)]
        return spent

    def by_edge(self, now: int) -> dict[str, dict[str, tuple[int, int]]]:
        """Of each edge and state: femtojoules and ns up to ``now``, or to the end of the run."""
        until_ns = now if self.ended_ns is None else self.ended_ns
        found = {}
        for edge, of in sorted(self.edges.items()):
            idle_ns = max(0, until_ns - of.since_ns)
            sums = {state: (of.fj[state], of.ns[state]) for state in STATES}
            found[edge] = {**sums, IDLE: (of.power.idle_uw * idle_ns, idle_ns)}
        return found

    def _tail(self, edge: str, of: EdgeAccount, until_ns: int) -> list[Spent]:
        """Settle the time after the latest transfer, which ``until_ns`` may have cut short."""
        if of.quiet_ns is None or not of.power.tail_ns:
            return []
        began_ns, whole_ns = of.quiet_ns, of.quiet_ns + of.power.tail_ns
        ended_ns = min(max(began_ns, until_ns), whole_ns)
        if ended_ns < whole_ns:  # the total had its whole length
            self.total.change(-of.power.tail_uw, ended_ns)
            self.total.change(of.power.tail_uw, whole_ns)
        if ended_ns == began_ns:
            return []
        return self._spend(of, Spent(edge, TAIL, began_ns, ended_ns, 0), of.power.tail_uw)

    @staticmethod
    def _spend(
        of: EdgeAccount, spent: Spent, power_uw: int, active_ns: int | None = None
    ) -> list[Spent]:
        """Add ``spent``, and the energy of ``power_uw`` over its time, to the edge's sums."""
        whole_ns = spent.ended_ns - spent.began_ns
        fj = spent.fj + power_uw * whole_ns
        spent = Spent(spent.edge, spent.state, spent.began_ns, spent.ended_ns, fj)
        of.spend(spent, whole_ns if active_ns is None else active_ns)
        return [spent] if whole_ns or fj else []
