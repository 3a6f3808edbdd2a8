"""What the agent of a host decides about its edges; does no input or output.

Every method returns actions, in order. Times are seconds of a clock that never goes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from edgefl.clocks.process_messages import InjectFault
from edgefl.exit_status import BAD_INPUT, NO_ANSWER, NOT_STARTED, OVER, REFUSED
from edgefl.plugins.launch.agent_messages import EdgeEnded, EdgeStarted

BACK_OFF_S = (1.0, 30.0)  # before the first restart, and at most
GRACE_S = 5.0  # from the request to end until the edge is killed
COORDINATOR_GRACE_S = 120.0  # it evaluates its last models and writes its files
SILENCE_S = 60.0  # without a message from the launcher, the connection counts as lost
ORPHAN_S = 30.0  # an edge without a coordinator may wait this long if the launcher is gone
STOPPED = "stopped"  # an end that the launcher asked for
DEATHS = {NO_ANSWER: "no answer from the coordinator", NOT_STARTED: "could not be started"}
# no reason to start it again
FOR_GOOD = {OVER: "the run is over", REFUSED: "refused", BAD_INPUT: "cannot take part"}


@dataclass(frozen=True, slots=True)
class SpawnEdge:
    """Start the process of this edge."""

    edge: str


@dataclass(frozen=True, slots=True)
class SignalEdge:
    """Send the edge's process "end", "kill", "freeze" or "thaw"."""

    edge: str
    signal: str


Action = SpawnEdge | SignalEdge | EdgeStarted | EdgeEnded  # the last two are for the launcher


@dataclass(slots=True)
class EdgeLife:
    """One edge. ``due_s``: when it is started again; ``waits_s``: since when it has no coordinator.

    ``asked``: its end was wanted by this agent, and why.
    """

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
    grace_s: float = GRACE_S
    lives: dict[str, EdgeLife] = field(default_factory=dict)
    _stopping_s: float | None = None

    # ------------------------------------------------------------------ the launcher's orders
    def start(self, edges: Sequence[str], restarts: int) -> list[Action]:
        """Start these edges, unless they were started before. Each may be restarted so often."""
        if self._stopping_s is not None:
            return []
        new = [edge for edge in edges if edge not in self.lives]
        self.lives |= {edge: EdgeLife(restarts) for edge in new}
        return [SpawnEdge(edge) for edge in new]

    def inject(self, fault: InjectFault) -> list[Action]:
        """Carry out a fault of the config: it is no failure, so it costs no restart."""
        life = self.lives.get(fault.edge)
        if life is None or self._stopping_s is not None:
            return []
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

        An edge that waits for a coordinator gets ORPHAN_S from now.
        """
        if self.connected:
            self.connected = False
            for life in self.lives.values():
                life.due_s = None
                life.waits_s = None if life.waits_s is None else now_s

    # ------------------------------------------------------------------ the edges' processes
    def spawned(self, edge: str, pid: int, now_s: float) -> list[Action]:
        life = self.lives[edge]
        life.runs, life.due_s, life.waits_s = True, None, now_s
        return [EdgeStarted(edge, pid)]

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
            if self._stopping_s is None and self.connected and life.restarts_left > 0:
                pause_s = min(BACK_OFF_S[0] * 2**life.restarts, BACK_OFF_S[1])
                life.restarts_left, life.restarts = life.restarts_left - 1, life.restarts + 1
                life.due_s = now_s + pause_s
        again = None if life.due_s is None else max(0.0, life.due_s - now_s)
        return [EdgeEnded(edge, status, why, again)]

    def tick(self, now_s: float) -> list[Action]:
        """What is due: restarts, and the end of edges that do not end by themselves."""
        if self.connected and now_s - self.heard_s > SILENCE_S:
            self.disconnected(now_s)
        actions: list[Action] = []
        for edge, life in self.lives.items():
            if not life.runs:
                if life.due_s is not None and now_s >= life.due_s:
                    life.due_s = None
                    actions.append(SpawnEdge(edge))
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
        return tuple(edge for edge, life in self.lives.items() if life.runs)
