"""What the agent of a host decides about its edges; does no input or output.

A process may have several edges. Then it has the name of the first one, and they end with it.

Every method returns actions, in order. Times are seconds of a clock that never goes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from signal import SIGKILL

from edgefl.clocks.process_messages import InjectFault
from edgefl.exit_status import BAD_INPUT, NO_ANSWER, NOT_STARTED, OVER, REFUSED
from edgefl.plugins.launch.agent_messages import EdgeEnded, EdgeStarted

BACK_OFF_S = (1.0, 30.0)  # before the first restart, and at most
GRACE_S = 5.0  # from the request to end until the edge is killed
COORDINATOR_GRACE_S = 120.0  # it evaluates its last models and writes its files
SILENCE_S = 60.0  # without a message from the launcher, the connection counts as lost
# how long, if the launcher is gone, an edge may wait for a coordinator, and restarts for a launcher
ORPHAN_S = 30.0
STOPPED = "stopped"  # an end that the launcher asked for
DEATHS = {NO_ANSWER: "no answer from the coordinator", NOT_STARTED: "could not be started"}
# no reason to start it again
FOR_GOOD = {OVER: "the run is over", REFUSED: "refused", BAD_INPUT: "cannot take part"}


@dataclass(frozen=True, slots=True)
class SpawnEdge:
    """Start the process of this edge. ``edges``: of a process with several."""

    edge: str
    edges: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SignalEdge:
    """Send the edge's process "end", "kill", "freeze" or "thaw"."""

    edge: str
    signal: str


@dataclass(frozen=True, slots=True)
class OrderEdge:
    """Let the process of this name inject the fault into one of its edges."""

    edge: str
    fault: InjectFault


# the last two are for the launcher
Action = SpawnEdge | SignalEdge | OrderEdge | EdgeStarted | EdgeEnded


@dataclass(slots=True)
class EdgeLife:
    """A process. ``due_s``: when it is started again; ``waits_s``: since when its edges have no
    coordinator.

    ``edges``: that run in it, or will. ``asked``: its end was wanted by this agent, and why.
    """

    edges: tuple[str, ...]
    shared: bool
    restarts_left: int
    runs: bool = False
    restarts: int = 0
    due_s: float | None = None
    waits_s: float | None = None
    asked: str = ""


@dataclass(slots=True)
class Supervisor:
    """The edges of one host, from their start to the end of the last one."""

    heard_s: float = 0.0
    connected: bool = True
    lost_s: float = 0.0  # since when, if it is not connected
    grace_s: float = GRACE_S
    lives: dict[str, EdgeLife] = field(default_factory=dict)  # by the name of the process
    process_of: dict[str, str] = field(default_factory=dict)  # by edge, the name of its process
    _stopping_s: float | None = None

    # ------------------------------------------------------------------ the launcher's orders
    def start(self, groups: Sequence[tuple[str, ...]], restarts: int) -> list[Action]:
        """Start a process for each of these groups of edges, unless it was started before.

        Each may be restarted so often.
        """
        if self._stopping_s is not None:
            return []
        new = [group for group in groups if group[0] not in self.lives]
        self.lives |= {group[0]: EdgeLife(group, len(group) > 1, restarts) for group in new}
        self.process_of |= {edge: group[0] for group in new for edge in group}
        return [self._spawn(group[0]) for group in new]

    def _spawn(self, name: str) -> SpawnEdge:
        life = self.lives[name]
        return SpawnEdge(name, life.edges if life.shared else ())

    def inject(self, fault: InjectFault) -> list[Action]:
        """Carry out a fault of the config: it is no failure, so it costs no restart."""
        name = self.process_of.get(fault.edge, "")
        life = self.lives.get(name)
        if life is None or self._stopping_s is not None:
            return []
        if life.shared:
            return self._inject_into_one(name, life, fault)
        if fault.fault == "restart":
            if not life.runs:
                life.due_s, life.asked = None, ""
                return [SpawnEdge(fault.edge)]
            # starts again as soon as the old process has ended
            life.due_s, life.asked = 0.0, "fault: restart"
            return [SignalEdge(fault.edge, "kill")]
        if fault.fault == "kill":
            life.due_s, life.asked = None, "fault: kill"
        return [SignalEdge(fault.edge, fault.fault)] if life.runs else []

    def _inject_into_one(self, name: str, life: EdgeLife, fault: InjectFault) -> list[Action]:
        actions: list[Action] = [OrderEdge(name, fault)] if life.runs else []
        if fault.fault == "restart" and (not life.runs or not life.edges):
            # its neighbours have ended, and the process with them, or it does so now
            life.edges = (fault.edge,)
            life.due_s = 0.0 if life.runs else None
            return [] if life.runs else [self._spawn(name)]
        if fault.fault == "restart":
            wanted = {*life.edges, fault.edge}
            life.edges = tuple(edge for edge, of in self.process_of.items() if of == name)
            life.edges = tuple(edge for edge in life.edges if edge in wanted)
            return actions
        if fault.edge not in life.edges:
            return []
        if fault.fault == "kill":
            self.ended_alone(name, fault.edge)
            actions.append(EdgeEnded(fault.edge, -SIGKILL, "fault: kill", None))
        return actions

    def ended_alone(self, name: str, edge: str) -> None:
        """One edge of several has ended for good. The others go on."""
        life = self.lives[name]
        life.edges = tuple(each for each in life.edges if each != edge)

    def stop(self, now_s: float, at_once: bool = False) -> list[Action]:
        """Ask all edges to end; those that do not are killed after ``grace_s``, or at once."""
        if self._stopping_s is None or at_once:
            self._stopping_s = now_s
        for life in self.lives.values():
            life.due_s, life.asked = None, life.asked or STOPPED
        running = (edge for edge, life in self.lives.items() if life.runs)
        return [SignalEdge(edge, "kill" if at_once else "end") for edge in running]

    # ------------------------------------------------------------------ the connection
    def heard(self, now_s: float) -> None:
        """A message from the launcher has arrived, or a new connection."""
        self.heard_s, self.connected = now_s, True

    def disconnected(self, now_s: float) -> None:
        """The connection is lost. Edges go on: they end with the run.

        An edge that waits for a coordinator gets ORPHAN_S from now. Restarts wait for a launcher.
        """
        if self.connected:
            self.connected, self.lost_s = False, now_s
            for life in self.lives.values():
                life.waits_s = None if life.waits_s is None else now_s

    # ------------------------------------------------------------------ the edges' processes
    def spawned(self, edge: str, pid: int, now_s: float) -> list[Action]:
        life = self.lives[edge]
        life.runs, life.due_s, life.waits_s = True, None, now_s
        return [EdgeStarted(edge, pid, life.edges if life.shared else ())]

    def waits(self, edge: str, waits: bool, now_s: float) -> None:
        """An edge looks for the coordinator, or has found it."""
        self.lives[edge].waits_s = now_s if waits else None

    def exited(self, edge: str, status: int, now_s: float) -> list[Action]:
        """An edge's process has ended, or the system has refused it (NOT_STARTED).

        ``status``: as ``os.waitstatus_to_exitcode`` returns it.
        """
        life = self.lives[edge]
        life.runs, life.waits_s = False, None
        asked, life.asked = life.asked, ""
        if asked and not (asked == STOPPED and status == OVER):  # else it was over before
            why = asked
        elif status in FOR_GOOD:
            why = FOR_GOOD[status]
        else:
            died = (
                f"killed by signal {-status}" if status < 0 else f"died with exit status {status}"
            )
            why = DEATHS.get(status, died)
            if self._stopping_s is None and life.restarts_left > 0:
                pause_s = min(BACK_OFF_S[0] * 2**life.restarts, BACK_OFF_S[1])
                life.restarts_left, life.restarts = life.restarts_left - 1, life.restarts + 1
                life.due_s = now_s + pause_s
        again = None if life.due_s is None else max(0.0, life.due_s - now_s)
        if life.shared and not life.edges:  # each had ended before
            return []
        return [EdgeEnded(edge, status, why, again, life.edges if life.shared else ())]

    def tick(self, now_s: float) -> list[Action]:
        """What is due: restarts, and the end of edges that do not end by themselves."""
        if self.connected and now_s - self.heard_s > SILENCE_S:
            self.disconnected(now_s)
        actions: list[Action] = []
        alone = not self.connected and now_s - self.lost_s >= ORPHAN_S
        alone = alone and not any(life.runs for life in self.lives.values())
        for edge, life in self.lives.items():
            if alone:
                life.due_s = None  # no launcher came for the restart
            elif not life.runs:
                if self.connected and life.due_s is not None and now_s >= life.due_s:
                    life.due_s = None
                    actions.append(self._spawn(edge))
            elif self._stopping_s is not None:
                if now_s - self._stopping_s >= self.grace_s:
                    actions.append(SignalEdge(edge, "kill"))
            elif not self.connected and self._waited_s(life, now_s) >= ORPHAN_S:
                life.asked = "no launcher and no coordinator"
                actions.append(SignalEdge(edge, "kill"))
        return actions

    def _waited_s(self, life: EdgeLife, now_s: float) -> float:
        return 0.0 if life.waits_s is None else now_s - life.waits_s

    @property
    def over(self) -> bool:
        """Whether nothing runs, and no order can come any more."""
        if any(life.runs or life.due_s is not None for life in self.lives.values()):
            return False
        return self._stopping_s is not None or not self.connected

    @property
    def running(self) -> tuple[str, ...]:
        return tuple(edge for life in self.lives.values() if life.runs for edge in life.edges)
