"""The coordinator's process: it runs one strategy and never imports torch.

It has real-time priority if the system allows that.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import orjson
import zmq
from safetensors.numpy import load_file

from edgefl.clocks.ipc import Channel
from edgefl.clocks.process_messages import (
    BugFound,
    Listening,
    ProgressLine,
    RunEnded,
    RunRefused,
    StartRun,
    frozen_digest,
)
from edgefl.clocks.processes import end_soon, keep_freed_memory
from edgefl.clocks.room import WaitForRoom
from edgefl.clocks.setup.devices import emulated_devices
from edgefl.clocks.setup.network import latencies, network
from edgefl.clocks.setup.plan import fidelity
from edgefl.clocks.setup.resumption import digest_facts
from edgefl.clocks.setup.rundir import writable
from edgefl.clocks.wall import keys as curve
from edgefl.clocks.wall.connections import BURST, MOST_STRANGERS, Watch
from edgefl.clocks.wall.coordinator.faults import WallFaults
from edgefl.clocks.wall.coordinator.limits import ReportAllowance
from edgefl.clocks.wall.coordinator.logic import DISK_FULL, SMALL_BYTES, Logic, OneThread
from edgefl.clocks.wall.coordinator.opening import (
    CoordinatorTask,
    OpenedRun,
    RunOpener,
    coordinator_task,
    expected,
    run_id,
)
from edgefl.clocks.wall.coordinator.pacing import Pacing
from edgefl.clocks.wall.coordinator.sessions import WHOLE_RUN, Sessions
from edgefl.clocks.wall.coordinator.thread_messages import Greedy, Interrupt, Noticed, Stranger
from edgefl.clocks.wall.coordinator.transfers import (
    Probes,
    TrainingTimes,
    Transport,
)
from edgefl.clocks.wall.coordinator.workers import Evaluator, Jobs
from edgefl.clocks.wall.run_processes import room_for_edges
from edgefl.clocks.wall.system import OWN_SYSTEM, System, TurnOutbox
from edgefl.config.faults import revives, schedule
from edgefl.disk import PatientDisk
from edgefl.errors import Bug, UserError
from edgefl.exchange.fault_lives import FaultLives
from edgefl.exchange.machine import Exchange
from edgefl.exchange.pacer import PacedFlow, Pacer, PiecePlan
from edgefl.protocol.transfers import most_body
from edgefl.results.summary import BROKEN_OFF
from edgefl.streams import Streams
from edgefl.vectors import Layout, aligned_copy
from emulator.clock import WallClock
from emulator.host import REAL_TIME, real_time_priority
from emulator.units import to_ns

SETTLE_S = 60.0  # patience at the end: without the end of a running evaluation
# time for the last messages to leave, besides that of models which are before them in a queue
GOODBYE_MS = 3000
# The grain is 2 ms with the default window of 50 ms. 100 links of 2 Mbit/s then need a third of a
# core instead of more than half.
GRAINS_PER_WINDOW = 25
LOGIC_PRIORITY, PACING_PRIORITY = 1, 2
EXIT_STATUS = {RunEnded: 0, BugFound: 1, RunRefused: 2}


class LaterThread:
    """Does work that may wait, one piece after the other: it compresses tables that have grown.

    The thread starts with the first call.
    """

    def __init__(self, system: System = OWN_SYSTEM) -> None:
        self.system, self._waiting = system, system.inbox()
        self._thread: Thread | None = None

    def __call__(self, work: Callable[[], None]) -> None:
        self._waiting.put(work)
        if self._thread is None:
            self._thread = Thread(target=self._run, name="later", daemon=True)
            self.system.start(self._thread)

    def stop(self) -> None:
        """Return when all is done."""
        if self._thread is not None:
            self._waiting.put(None)
            self.system.join(self._thread)
            self._thread = None

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            work()


class LauncherEnd:
    """The coordinator's end of the channel to its launcher: orders to stop, lines for the user.

    ``directory``: of the run, for messages.
    """

    def __init__(self, channel: Channel, directory: Path, system: System) -> None:
        self.channel, self.directory, self.system = channel, directory, system
        self.may_wait = False  # an order to end can be heard, and there was none

    def obey(self, tell: Callable[[Any], None]) -> None:
        """Start the thread that passes orders to end to ``tell``."""
        self.may_wait = True
        self.system.start(Thread(target=self._obey, args=(tell,), name="control", daemon=True))

    def say(self, line: str) -> None:
        """Give the launcher a line for the user."""
        with suppress(OSError):  # the launcher has ended
            self.channel.send(ProgressLine(line))

    def room(
        self, sleep: Callable[[float], None], waited: Callable[[Path, float], None]
    ) -> WaitForRoom:
        """How the run waits while its disk is full: until it shall end.

        ``waited`` gets the file and the seconds, once there is room again.
        """
        now_s = self.system.monotonic_s
        return WaitForRoom(self.say, now_s, sleep, lambda: not self.may_wait, waited)

    def _obey(self, tell: Callable[[Any], None]) -> None:
        """End the run when the launcher asks for it or dies.

        If it dies, the process ends soon, even if a thread hangs.
        """
        try:
            while True:
                order = self.channel.receive()
                self.may_wait = False
                tell(Interrupt(order.reason))
        except (EOFError, OSError):
            self.may_wait = False
            end_soon()
            tell(Interrupt("launcher gone"))
            with suppress(OSError):  # the terminal may have closed, too
                print(
                    f"edgefl: {self.directory}: the launcher has ended, so the run ends",
                    file=sys.stderr,
                    flush=True,
                )


class CoordinatorProcess:
    """Builds sessions, pacing, logic and evaluation, and connects them."""

    def __init__(
        self,
        job: CoordinatorTask,
        control: Channel,
        evaluations: Channel | None,
        jobs: Channel | None = None,
        system: System = OWN_SYSTEM,
    ) -> None:
        self.job, self.control, self.system = job, control, system
        self.launcher = LauncherEnd(control, job.directory, system)
        experiment = job.experiment
        layout = Layout.from_json(orjson.loads((job.scratch / "layout.json").read_bytes()))
        weights = aligned_copy(load_file(job.scratch / "initial.safetensors")["weights"])
        self.files_left = room_for_edges(len(experiment.edges.ids()))
        # above the logic thread's priority: on one core, computing must not delay pacing
        self.priority = self._ask(PACING_PRIORITY)
        self.context = zmq_context(self.priority)
        self.doorman = curve.Doorman(self.context, job.keys) if job.keys is not None else None
        if self.doorman is not None:
            self.doorman.start()
        self.router, self.said = system.router(self.context, job.keys), system.mailbox()
        self.watch = self._watch(weights.nbytes)
        self.port = self.router.bind(experiment.network.host, experiment.network.port)
        evaluator = None if evaluations is None else Evaluator(evaluations, job.scratch, system)
        self.one_thread: OneThread | None = None
        room = self.launcher.room(self._sleep, self._waited_for_room)
        disk = PatientDisk(system.disk, room)
        self.background = LaterThread(system)
        workers = (bool(evaluator), bool(jobs))
        later, say = self.background, self.launcher.say
        opened = RunOpener(job, weights, layout, *workers, disk, later, say).open()
        self.run = opened.run
        self.fidelity = fidelity(experiment)
        self.clock = WallClock(experiment.chosen_speed, system.monotonic_ns)
        self.run_id = run_id(job, system)
        found = expected(job, layout, self.run_id)
        self.sessions = Sessions(found, incarnation=system.random_bits(32) + 1)
        if self.doorman is not None:
            self.doorman.shut_out = self.sessions.quarantined.edges
        self.done_s = 0.0  # wall seconds of the run before it was broken off
        self.logic = self._logic(opened, evaluator, jobs)
        self.pacing = self._pacing(weights)
        self.pacing.reports_verdict = self.run.record.journal is not None
        if weights.nbytes <= SMALL_BYTES and not self.logic.committer.power and self._unpaced():
            self.one_thread = OneThread(self.logic, self.pacing, self.pacing.turn_ends, system)
        if job.resume:
            self._resume(opened)
        if experiment.faults:
            self._inject_faults()

    def _logic(self, opened: OpenedRun, evaluator: Evaluator | None, jobs: Channel | None) -> Logic:
        worker = None if jobs is None else Jobs(jobs, self.job.scratch, self.clock.now, self.system)
        logic = Logic(
            opened.core,
            self.said,
            self.fidelity,
            evaluator,
            worker,
            begun=lambda: self.run.start_wall(self.done_s),
            at_start=lambda: self._ask(LOGIC_PRIORITY),
            system=self.system,
        )
        logic.checkpoints = opened.writer(evaluator, self.launcher.say, self.system)
        for end in (evaluator, worker):
            if end is not None:
                end.listen(logic.put)
        return logic

    def _resume(self, opened: OpenedRun) -> None:
        """Repeat the inputs in the journal, and tell the pacing thread where the run goes on."""
        journal, core = self.run.record.journal, opened.core
        assert journal is not None  # otherwise it could not be opened
        self.logic.wall_s = opened.wall_s
        self.pacing.transport.resumed = True  # edges may know tasks that this history never gave
        with writable(self.job.directory, resumed=True):
            ended_unix_s = self.logic.replay(journal.replay(opened.since, self.launcher.say))
            self.run.record.flush()  # a display must not take these rows for new ones
        self.done_s = self.logic.wall_s
        self.run.start_wall(self.done_s)
        if core.judged is not None:
            self.fidelity.take_counts(core.judged.fidelity.counts())
            self.sessions.go_on(core.judged.wire, core.judged.quarantined)
        if core.began_unix_s is not None:
            self.pacing.go_on(core.continuation(ended_unix_s))
        self.logic.go_on()
        self.pacing.over = core.ended  # killed between its end and its summary

    def _sleep(self, pause_s: float) -> None:
        (self.system if self.one_thread is None else self.one_thread).sleep(pause_s)

    def _waited_for_room(self, path: Path, waited_s: float) -> None:
        values = {"file": path.name, "waited_s": round(waited_s, 3)}
        self.logic.put(Noticed(self.clock.now(), DISK_FULL, values))

    def main(self) -> dict[str, Any]:
        """Run until the end, and return the summary."""
        self.fidelity.host |= {
            "open_files_left": self.files_left,
            "coordinator_priority": self.priority,
        }
        for reason in self.job.strains:
            self.fidelity.strain(reason)
        if not self.job.resume:
            facts = {"run_id": self.run_id, "port": self.port}
            facts |= digest_facts(self.job.data_digest, frozen_digest(self.job.scratch))
            self.run.begin("wall", self.fidelity, facts)
        self.system.start(self.watch)
        self.control.send(Listening(self.port))
        self.launcher.obey(self.logic.put)
        if self.one_thread is None:
            self.system.start(self.logic)
        self.pacing.run()
        self.strangers = self.watch.stop()
        self.router.close(GOODBYE_MS + round(1000 * self.pacing.behind_s))
        return self._end()

    def _end(self) -> dict[str, Any]:
        if self.logic.error is not None:
            with suppress(UserError):  # so that the user can read what led to the error
                self.run.record.flush()
            raise self.logic.error
        if not self.pacing.started and not self.run.coordinator.finished:
            if not self.job.resume:
                self.run.undo()
            joined = "come back" if self.job.resume else "joined"
            raise UserError(
                f"no edge has {joined} within {self.job.experiment.network.join_timeout_s:g} s"
                " (network.join_timeout_s)"
            )
        thread = self.logic if self.one_thread is None else self.one_thread.thread
        if thread is not None:
            self.system.join(thread)
        wall_s = self.run.wall_s
        self.logic.settle(SETTLE_S)
        if self.run.coordinator.finished not in BROKEN_OFF:
            self.run.record.hold(None)
        self.background.stop()
        if self.doorman is not None:
            self.doorman.stop()
        counts = {
            f"{sort} ({who})" if who != WHOLE_RUN else sort: n
            for (sort, who), n in sorted(self.sessions.counts.items())
        }
        self._judge_hosts()
        summary = self.fidelity.summary() | {
            "wire": counts,
            "strangers": self.strangers,
            "quarantined": self.sessions.quarantined.edges,
        }
        core = self.logic.core
        if core.jobs is not None and self.run.coordinator.strategy.runs_jobs:
            summary["jobs"] = core.jobs.summary()
        pace = {
            "speed": self.job.experiment.chosen_speed,
            "speed_auto": self.job.speed_auto,
            "engine": self.job.engine,
            "began_unix_s": core.began_unix_s,
            **({"resumed": core.outages} if core.outages else {}),
        }
        return self.run.end("wall", core.now, wall_s, summary, pace, core.hosts.section())

    def _judge_hosts(self) -> None:
        """Add what the hosts of edges have reported to the verdict.

        The trainings of emulated devices are measured themselves. So an overloaded host of such
        edges only explains a run that is strained.
        """
        edges = set(self.job.experiment.edges.ids())
        strained = self.fidelity.verdict == "strained"
        judged = edges if strained else edges - emulated_devices(self.job.experiment)
        for reason in self.logic.core.hosts.strains(judged):
            self.fidelity.strain(reason)

    def _watch(self, model_bytes: int) -> Watch:
        edges = len(self.job.experiment.edges.ids())
        return self.system.watch(
            self.router,
            most_body(model_bytes),
            lambda routing, reason: self.said.put(Greedy(routing, reason)),
            lambda reason: self.said.put(Stranger(reason)),
            MOST_STRANGERS + edges,
            edges + self.files_left - min(BURST, self.files_left // 2),
            lambda: self._ask(LOGIC_PRIORITY),
        )

    def _ask(self, level: int) -> str:
        """Ask for real-time priority for the calling thread, unless the config turns it off.

        Returns the priority that the thread has.
        """
        wanted = self.job.experiment.network.realtime == "auto"
        return real_time_priority(level) if wanted else "normal"

    def _unpaced(self) -> bool:
        """Whether no link is emulated."""
        native = self.pacing.transport.native
        return all(all(native(edge)) for edge in self.job.experiment.edges.ids())

    def _inject_faults(self) -> None:
        experiment = self.job.experiment
        edges = experiment.edges.ids()
        planned = schedule(experiment.faults, edges, Streams(experiment.seed))
        lives = FaultLives(edges, revives(experiment.faults))
        since_ns = self.clock.now()  # it stands still until the run begins or goes on
        faults = WallFaults(self.pacing, planned, lives, self.control, since_ns)
        self.pacing.transport.faults = faults

    def _pacing(self, weights: np.ndarray) -> Pacing:
        experiment = self.job.experiment
        section, links = (
            experiment.network,
            network(experiment, self.job.base, self.run.coordinator.strategy.schedules_slots),
        )
        window_ns, piece_ns = (
            to_ns(ms / 1000 * experiment.chosen_speed)
            for ms in (section.window_ms, section.piece_ms)
        )
        pace = PiecePlan(window_ns, piece_ns, max(window_ns // GRAINS_PER_WINDOW, 1))
        tell = TurnOutbox(self.logic.inbox.put)
        pacing = Pacing(
            self.router,
            self.sessions,
            self.clock,
            self.said,
            tell,
            section.join_timeout_s,
            self.job.more,
            self.system,
        )
        pacing.turn_ends = tell.send
        probes = Probes(links, experiment.chosen_speed, self.fidelity, pacing.send, self.system)
        exchange: Exchange[PacedFlow] = Exchange(links, latencies(experiment))
        pacing.transport = Transport(
            Pacer(exchange, pace, self.fidelity),
            self.clock,
            pacing.agenda,
            pacing.send,
            tell,
            self.sessions.by_edge,
            self.sessions.useless,
            TrainingTimes(self.fidelity, emulated_devices(experiment)),
            probes,
            most_body(weights.nbytes),
            ReportAllowance(to_ns(section.report_s), to_ns(section.liveness_s)),
            gives_ahead=not self.run.coordinator.strategy.schedules_uplink,
        )
        return pacing


def zmq_context(priority: str) -> zmq.Context:
    """A ZeroMQ context whose threads, which move the bytes, have the pacing thread's priority."""
    context = zmq.Context()
    if priority == REAL_TIME:
        context.set(zmq.THREAD_SCHED_POLICY, os.SCHED_FIFO)
        context.set(zmq.THREAD_PRIORITY, PACING_PRIORITY)
    return context


def run_to_end(
    start: StartRun, control: Channel, evaluations: Channel | None, jobs: Channel | None
) -> int:
    """Run one strategy and tell the launcher how it ended. Returns the exit status."""
    process: CoordinatorProcess | None = None
    end: RunEnded | RunRefused | BugFound
    try:
        process = CoordinatorProcess(coordinator_task(start), control, evaluations, jobs)
        keep_freed_memory(of_any_size=True)  # updates of one size; the read file is freed
        gc.freeze()  # what was made so far stays; passing over it again would delay pieces
        end = RunEnded(process.main())
    except UserError as error:
        end = RunRefused(str(error))
    except Bug as bug:
        print(bug.tell(), file=sys.stderr, flush=True)
        end = BugFound(bug.blame())
    try:
        control.send(end)
    finally:
        if process is not None and process.router.socket.closed:
            # Wait until the last messages have left, as long as ``close`` allows. Without this,
            # Python ends at once, and libzmq's thread with it.
            process.context.destroy(linger=0)
    return EXIT_STATUS[type(end)]


def main(control_fd: int, evaluations_fd: int = -1, jobs_fd: int = -1) -> int:
    """Run one strategy for the launcher. Returns the exit status, see EXIT_STATUS."""
    keep_freed_memory()
    sys.setswitchinterval(0.0002)  # the pacing thread shares the interpreter with the logic thread
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = Channel.inherited(control_fd)
    evaluations, jobs = (
        Channel.inherited(fd) if fd >= 0 else None for fd in (evaluations_fd, jobs_fd)
    )
    try:
        start: StartRun = control.receive()
    except EOFError:
        return 1  # the launcher has ended
    try:
        return run_to_end(start, control, evaluations, jobs)
    except ConnectionError:  # the launcher has ended; the results are in the run directory
        shutil.rmtree(start.scratch, ignore_errors=True)
        return 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
