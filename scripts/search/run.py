"""One run under faults: the real coordinator and edges on the simulated machine, to the end."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import traceback
from dataclasses import dataclass
from typing import Any

import orjson

from edgefl.clocks.process_messages import ProgressLine
from edgefl.clocks.wall.coordinator.process import CoordinatorProcess
from edgefl.clocks.wall.edge.host import EdgeHost
from edgefl.errors import UserError
from edgefl.protocol.messages import Refused, Unreachable
from edgefl.record.files import CONFIG, SUMMARY
from search.disk import SimulatedDisk
from search.faults import COORDINATOR, Fault, plan
from search.invariants import Broken, Invariants
from search.machine import NS_PER_S, Process, Simulation, TurnsInACircle, running
from search.network import SimulatedNetwork
from search.scenario import EDGES, PORT, RUN, World
from search.story import Story
from search.system import SimulatedInbox, SimulatedSystem, Worker, evaluating, working

PATIENCE_S = 60.0
AGAIN_NS = NS_PER_S  # an edge that gives up is started again, as by systemd
REFUSED_NS = 10 * NS_PER_S  # one whose place a second process has taken: by its user
FULL, FAILED = os.strerror(errno.ENOSPC), os.strerror(errno.EIO)
MOST_S = 150.0  # after the last fault: by then the run has ended
BUILD_NS = 2 * NS_PER_S  # the longest time in which an edge loads its data
COMPUTE_NS = 20_000_000  # the longest real time of a slice of training


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run went. ``broken``: the invariant that does not hold, or None.

    ``told``: the latest lines of what has happened. ``checkpoints``: how many were due, written,
    and read by a process that went on with the run.
    """

    trace: str
    broken: str | None
    events: int
    simulated_s: float
    told: list[str]
    checkpoints: tuple[int, int, int]


class Control:
    """The coordinator's channel to its launcher."""

    def __init__(self, system: SimulatedSystem, said: list[str]) -> None:
        """``said`` gets the lines for the user."""
        self.sim, self.inbox, self.said = system.process.sim, SimulatedInbox(system.process), said

    def send(self, message: Any) -> None:
        if isinstance(message, ProgressLine):
            self.sim.tell("coordinator says:", message.line)
            self.said.append(message.line)

    def receive(self, timeout_s: float | None = None) -> Any:
        return self.inbox.get()


class SlowTurns:
    """A device's processor: each slice of training takes some real time."""

    def __init__(self, system: SimulatedSystem) -> None:
        self.system = system

    def take(self, due_ns: int) -> None:
        process = self.system.process
        running(process).block(process.sim.now_ns + process.sim.draw(COMPUTE_NS))

    def give(self) -> None:
        return None


DAMAGES = {"lose": SimulatedDisk.lose, "flip": SimulatedDisk.flip}


class Run:
    """A coordinator and its edges under the faults of a story.

    ``coordinator``: of the process that runs now. ``hosts``: of the edges' latest processes.
    """

    def __init__(self, world: World, story: Story, verbose: bool = False) -> None:
        self.world, self.story = world, story
        self.sim = Simulation(story.seed, verbose)
        self.network = SimulatedNetwork(self.sim)
        self.disk = SimulatedDisk(self.sim)
        self.processes: dict[str, Process] = {}
        self.coordinator: CoordinatorProcess | None = None
        self.hosts: dict[str, EdgeHost] = {}
        self.summary: dict[str, Any] | None = None
        self.worker: Worker | None = None
        # why the run cannot go on: what it needs was lost with the power, or is damaged
        self.gave_up: str | None = None
        self.heard: list[str] = []  # lines for the user of the latest coordinator's process
        self.attempts: list[list[str]] = []  # those of all processes since a state was checked
        self.twins: set[str] = set()  # edges of which there were two processes
        self.left: set[str] = set()  # edges that were told that the run is over
        self.errors: list[BaseException] = []
        self.restarts: dict[Process, Fault] = {}  # edges to be started again once they are dead
        self.said = io.StringIO()  # what the processes have printed
        self.watch = Invariants(self, story)
        self.sim.after_event = self.watch.check

    def play(self) -> Outcome:
        """Run to the end."""
        with self.world.during(self.story.scenario, lambda: self.sim.now_ns / NS_PER_S):
            return self._played()

    def _played(self) -> Outcome:
        plan(self, self.story.faults)
        self.start_coordinator()
        for edge in EDGES:
            self.start_edge(edge)
        last_s = max((fault.at_s + fault.for_s for fault in self.story.faults), default=0.0)
        with contextlib.redirect_stderr(self.said):
            try:
                self.sim.run(lambda: self.over, round((last_s + MOST_S) * NS_PER_S))
                self._check()
            except (Broken, TurnsInACircle) as broken:
                return self._outcome(str(broken))
            except Exception as error:
                return self._outcome(f"the search itself fails: {error!r}")
            finally:
                for process in self.processes.values():
                    process.at_end.clear()
                    process.kill()
                self.sim.after_event = lambda: None
                self.sim.run(lambda: False, self.sim.now_ns)
        return self._outcome(None)

    @property
    def over(self) -> bool:
        return self.summary is not None or bool(self.errors) or self.gave_up is not None

    def _check(self) -> None:
        for error in self.errors:
            if isinstance(error, Broken):
                raise error
            shown = "".join(traceback.format_exception(error))
            self.said.write(shown)
            raise Broken(f"{type(error).__name__}: {error}")
        if self.gave_up is None:
            self.watch.check_end()

    def _outcome(self, broken: str | None) -> Outcome:
        sim = self.sim
        counts = self.watch.due, self.watch.written, self.watch.read
        return Outcome(sim.trace, broken, sim.events, sim.now_ns / NS_PER_S, list(sim.told), counts)

    # ------------------------------------------------------------------ the coordinator
    def start_coordinator(self) -> None:
        process = Process(self.sim, COORDINATOR)
        self.processes[COORDINATOR] = process
        system = SimulatedSystem(process, self.network, self.disk)
        process.start(lambda: self._coordinate(system), "main")
        process.at_end.append(lambda: self._coordinator_ended(process))

    def _coordinator_ended(self, process: Process) -> None:
        """A run that cannot begin on a full disk is started again, as by its user."""
        made, fault = self.coordinator, self.restarts.pop(process, None)
        if process.killed and fault is not None:
            self._coordinator_died(fault)
            return
        if isinstance(process.error, UserError):
            begun, words = made is not None and made.pacing.started, str(process.error)
            fails = any(FAILED in line for line in (words, *self.heard))
            if fails or (FULL in words and not begun):
                self.sim.tell("coordinator has to stop:", words)
                self.watch.died(None)
                self.coordinator = None
                self.sim.after(AGAIN_NS, self.start_coordinator)
                return
            if self.story.forgets and made is None:
                self.sim.tell("coordinator cannot go on:", words)
                self.gave_up = words
                return
        self._take_error(process)

    def _coordinate(self, system: SimulatedSystem) -> None:
        self.sim.tell("coordinator starts")
        scenario = self.story.scenario
        if system.disk.exists(RUN / SUMMARY):  # it died after its end
            self.summary = orjson.loads(system.disk.read(RUN / SUMMARY))
            return
        resume = system.disk.exists(RUN / CONFIG)
        self._edges_come_back()
        task, learned = (
            self.world.coordinator_task(scenario, resume),
            self.world.learned(scenario),
        )
        self.worker = working(system, learned) if learned.runs_jobs else None
        evaluator = evaluating(system, learned)
        self.heard = []
        self.attempts.append(self.heard)
        control = Control(system, self.heard)
        made = CoordinatorProcess(task, control, evaluator, self.worker, system)
        self.watch.recorded_by(made)
        self.attempts.clear()
        self.coordinator = made
        self.summary = made.main()
        self.sim.tell("coordinator ends:", self.summary["finished"])

    def _edges_come_back(self) -> None:
        """Edges that have heard the run's end are started again with it: as by its user."""
        for name in sorted(self.left):
            self.start_edge(name)
        self.left.clear()

    def _coordinator_died(self, fault: Fault) -> None:
        """The process was killed: it is started again, and goes on."""
        if fault.way == "power":
            self.disk.lose_power()
        if fault.kind in DAMAGES:
            path = DAMAGES[fault.kind](self.disk, RUN / fault.way)
            self.sim.tell("disk:", fault.kind, path)
        self.watch.died(fault)
        self.coordinator = None
        self.sim.after(round(fault.for_s * NS_PER_S), self.start_coordinator)

    # ------------------------------------------------------------------ edges
    def start_edge(self, name: str, twin: bool = False) -> Process:
        process = Process(self.sim, f"{name}#twin" if twin else name)
        if twin:
            self.twins.add(name)
        else:
            self.processes[name] = process
        system = SimulatedSystem(process, self.network, self.disk)
        process.start(lambda: self._edge(name, system), "main")
        process.at_end.append(lambda: self._take_error(process))
        process.at_end.append(lambda: self._edge_ended(process))
        return process

    def _edge(self, name: str, system: SimulatedSystem) -> None:
        self.sim.tell(system.process.name, "starts")

        def build(setup: Any) -> Any:
            running(system.process).block(self.sim.now_ns + self.sim.draw(BUILD_NS))
            return self.world.edge_side(self.story.scenario, name, setup)

        address = f"tcp://192.0.2.1:{PORT}"
        host = EdgeHost(name, address, None, build, SlowTurns(system), system)
        self.hosts[system.process.name] = host
        again_ns = AGAIN_NS
        try:
            if not host.run(PATIENCE_S).more:
                self.left.add(name)
                return
        except Unreachable as reason:
            self.sim.tell(name, "gives up:", reason)
        except Refused as reason:
            self.sim.tell(name, "is refused:", reason)
            if name not in self.twins:
                raise Broken(f"edge {name} is refused for ever: {reason}") from None
            again_ns = REFUSED_NS
        if system.process is self.processes[name]:
            self.sim.after(again_ns, self.start_edge, name)

    def _edge_ended(self, process: Process) -> None:
        self.hosts.pop(process.name, None)
        fault = self.restarts.pop(process, None)
        if fault is not None and process.killed:
            self.sim.after(round(fault.for_s * NS_PER_S), self.start_edge, fault.target)

    def _take_error(self, process: Process) -> None:
        if process.error is not None:
            self.errors.append(process.error)
