"""The coordinator's process: it runs one strategy and never imports torch.

``CoordinatorProcess`` builds everything once, in the order in which an update passes it: socket,
run, sessions, logic, transfers, pacing. Its threads, and why each is one:

    main          pacing: the sockets and the emulated links; nothing slow may run here
    logic         the actor and the record; without paced links only if something is slow
    committer     with record.durability = "power", waits until the disk has the journal
    checkpoint    writes a checkpoint, which may take seconds
    background    compresses tables that have grown
    evaluator, jobs    each waits for its worker process
    control       waits for the launcher's order to stop
    connections   cuts off connections that take what is not theirs, in milliseconds
    libzmq's own, and with keys the Doorman (ZAP), which libzmq asks from its own thread

It has real-time priority if the system allows that.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, cast

import numpy as np
import orjson
import zmq
from msgspec.structs import replace
from safetensors.numpy import load_file

import edgefl
from edgefl.checkpoints.codec import CannotDecode, decode
from edgefl.checkpoints.files import Checkpoint, Checkpoints
from edgefl.clocks.ipc import Channel
from edgefl.clocks.process_messages import (
    SHARES,
    BugFound,
    InjectFault,
    Listening,
    ProgressLine,
    RunEnded,
    RunRefused,
    StartRun,
    frozen_digest,
)
from edgefl.clocks.processes import end_soon, keep_freed_memory, room_for_edges
from edgefl.clocks.setup.network import (
    DIRECTIONS,
    emulated_devices,
    latencies,
    network,
    shape_of,
)
from edgefl.clocks.setup.plan import fidelity
from edgefl.clocks.setup.resumption import digest_facts, writable
from edgefl.clocks.setup.rundir import OpenRun, RunSoFar, externals
from edgefl.clocks.wall import keys as curve
from edgefl.clocks.wall.connections import BURST, MOST_STRANGERS, Watch
from edgefl.clocks.wall.coordinator.logic import DISK_FULL, SMALL_BYTES, CheckpointWriter, Logic
from edgefl.clocks.wall.coordinator.pacing import Bundles, Pacing
from edgefl.clocks.wall.coordinator.run_logic import JobTable, RunLogic
from edgefl.clocks.wall.coordinator.sessions import (
    WHOLE_RUN,
    Expected,
    Quarantine,
    ReportAllowance,
    Sessions,
)
from edgefl.clocks.wall.coordinator.thread_messages import (
    Greedy,
    Interrupt,
    Noticed,
    Scored,
    Stranger,
)
from edgefl.clocks.wall.coordinator.transfers import (
    KERNEL,
    PROCESS,
    Probes,
    TrainingTimes,
    Transport,
)
from edgefl.clocks.wall.coordinator.workers import Evaluator, Jobs
from edgefl.clocks.wall.system import OWN_SYSTEM, Mailbox, System
from edgefl.config.experiment import Experiment
from edgefl.config.experiment import parts as group_parts
from edgefl.config.faults import PROCESS_KINDS, revives, schedule, told
from edgefl.config.file import FACTS, shared_digest, to_json
from edgefl.config.toml import parsed
from edgefl.disk import Disk, PatientDisk, WaitForRoom
from edgefl.errors import Bug, UserError, undamaged
from edgefl.exchange.machine import Effect, Exchange, FaultLives
from edgefl.exchange.pacer import BURST_OF_WINDOW, PacedFlow, Pacer, PiecePlan
from edgefl.protocol.codec import most_body
from edgefl.protocol.messages import Setup
from edgefl.record.files import CHECKPOINTS, CONFIG, EVENTS
from edgefl.record.journal import BLOBS, LINES, read, segment_name, segments, segments_from
from edgefl.record.record import JOURNAL
from edgefl.record.tables import Later, lost_rows, parts
from edgefl.strategies.base.catalog import own_modules
from edgefl.streams import Streams
from edgefl.vectors import Layout, aligned_copy
from emulator.clock import Agenda, WallClock
from emulator.faults import Fault, Schedule
from emulator.host import REAL_TIME, real_time_priority
from emulator.kernel_pacing import segment_for
from emulator.links.network import Network
from emulator.units import FOREVER, NS_PER_S, to_ns

SILENCE_SHARE = 1.25  # edge timeout / coordinator liveness timeout
SETTLE_S = 60.0  # patience at the end: without the end of a running evaluation
# time for the last messages to leave, besides that of models which are before them in a queue
GOODBYE_MS = 3000
# The grain is 2 ms with the default window of 50 ms. 100 links of 2 Mbit/s then need a third of a
# core instead of more than half.
GRAINS_PER_WINDOW = 25
# what waits in the kernel: so many windows, and this part of the time after which an edge is lost
FAR_WINDOWS, FAR_OF_LIVENESS = 4, 20
MOST_NAMES = 5  # of edges in the summary
LOGIC_PRIORITY, PACING_PRIORITY = 1, 2
EXIT_STATUS = {RunEnded: 0, BugFound: 1, RunRefused: 2}


def expected(job: StartRun, experiment: Experiment, layout: Layout, run_id: str) -> Expected:
    entry = experiment.strategies[job.index]
    section = experiment.network
    return Expected(
        edges=frozenset(experiment.edges.ids()),
        package=edgefl.__version__,
        config_digest=shared_digest(experiment, entry),
        layout_digest=layout.digest(),
        data_digest=job.data_digest,
        setup=Setup(
            to_json(experiment, entry),
            entry.strategy,
            to_ns(section.heartbeat_s),
            to_ns(SILENCE_SHARE * section.liveness_s),
            to_ns(section.report_s),
            run_id,
        ),
        keyed=job.keys is not None,
        heartbeat_ns=to_ns(section.heartbeat_s),
        liveness_ns=to_ns(section.liveness_s),
        max_sessions=section.max_edges,
        frozen_digest=frozen_digest(job.scratch),
    )


def run_id(job: StartRun, system: System) -> str:
    """The random name of the run, by which edges know it; that of a run that goes on."""
    if not job.resume:
        return f"{system.random_bits(64):016x}"
    path = job.directory / CONFIG
    try:
        text = system.disk.read(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    with undamaged(path):
        return str(parsed(text.decode())[FACTS]["run_id"])


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """A run's directory and its state.

    ``since``: the journal's segment that comes next. ``wall_s``: the wall seconds so far.
    ``sizes``: of the files at the checkpoint from which the run goes on.
    """

    run: OpenRun
    core: RunLogic
    checkpoints: Checkpoints
    since: int = 0
    wall_s: float = 0.0
    sizes: Mapping[str, int] | None = None

    def writer(
        self, evaluator: Evaluator | None, say: Callable[[str], None], system: System
    ) -> CheckpointWriter | None:
        """What takes checkpoints during the run; None if it has no journal."""
        journal, strategy = self.run.record.journal, self.run.coordinator.strategy
        if journal is None or not journal.inputs:
            return None
        made = externals(self.run)
        own = own_modules(type(strategy), type(strategy.selector))
        core, files = self.core, self.checkpoints
        return CheckpointWriter(core, journal, files, made, own, evaluator, say, self.sizes, system)


def open_run(
    job: StartRun,
    experiment: Experiment,
    weights: np.ndarray,
    layout: Layout,
    evaluates: bool,
    works: bool,
    disk: Disk,
    later: Later,
    say: Callable[[str], None],
) -> OpenedRun:
    """Open a new run, or the one to go on with, as it was at its newest checkpoint.

    ``evaluates`` and ``works``: there are such processes. ``say`` gets a line about each damaged
    checkpoint. UserError if the run cannot go on.
    """
    section, folder = experiment.record, job.directory / CHECKPOINTS
    files = Checkpoints(disk, folder, durable=section.durability == "power")

    def opened(checkpoint: Checkpoint | None, so_far: RunSoFar | None) -> OpenedRun:
        if so_far is not None:
            since = 0 if checkpoint is None else checkpoint.number
            _check_journal(job.directory, files.durable, disk, since, so_far.sizes, say)
        path = job.scratch / SHARES  # the warm parent has written it if it knows the split
        shares = orjson.loads(path.read_bytes()) if path.exists() else {}
        of_job = (experiment, job.index, job.directory, job.base, weights, layout, shares)
        with writable(job.directory, resumed=so_far is not None):
            run = OpenRun(*of_job, disk, so_far, inputs=True, later=later)
        core = RunLogic(run.coordinator, run.record, evaluates, JobTable() if works else None)
        if checkpoint is None:
            return OpenedRun(run, core, files)
        strategy = run.coordinator.strategy
        own = own_modules(type(strategy), type(strategy.selector))
        root = cast(dict[str, Any], decode(checkpoint.encoded, externals(run), own))
        core, run.record.wall_at = root["core"], root["wall_at"]
        run.coordinator = core.coordinator
        run.coordinator.lengthen()
        meta = checkpoint.meta
        return OpenedRun(run, core, files, checkpoint.number, meta["wall_s"], meta["sizes"])

    if not job.resume:
        return opened(None, None)
    if section.durability == "off":
        raise UserError(
            f"{job.directory}: record.durability is off, so there is no journal to go on with"
        )
    before = None
    while (checkpoint := files.latest(say, before)) is not None:
        try:
            so_far = RunSoFar.of(checkpoint.meta)
            if lost := lost_rows(job.directory, disk, so_far.sizes):
                raise CannotDecode(f"cannot be used: {lost}")
            return opened(checkpoint, so_far)
        except CannotDecode as reason:
            say(f"{folder}: checkpoint {checkpoint.number} {reason}; the one before is used")
            before = checkpoint.number
    return opened(None, RunSoFar({}, 0.0))


def _check_journal(
    directory: Path,
    power: bool,
    disk: Disk,
    since: int,
    sizes: Mapping[str, int],
    say: Callable[[str], None],
) -> None:
    """UserError if the journal has less than the run's events; not later, because then rows are
    dropped already.

    Rows of events reach the disk after their entries in the journal. ``sizes``: of the files
    when segment ``since`` began. ``power``: the journal survives a loss of power.
    """
    folder, events = directory / JOURNAL, directory / EVENTS
    begun = bool(parts(events, disk)) and EVENTS not in sizes
    if disk.exists(events) and (since == 0 or not power):
        begun = begun or disk.size(events) > sizes.get(EVENTS, 0)
    instead = f"bring it back from a copy, or remove {directory}, and it runs anew"
    known = segments(folder, disk)
    if known:
        segments_from(folder, disk, since)
    elif since or begun:
        raise UserError(f"{folder}: has no journal, but the run has begun: {instead}")
    if begun and next(read(folder, disk, since), None) is None:
        what = f"{segment_name(since)}{LINES}: has no whole entry"
        raise UserError(f"{folder / what}, but {EVENTS} has later rows: {instead}")
    last = segment_name(max(known, default=-1) + 1)
    if not disk.exists(folder / f"{last}{BLOBS}"):
        return
    if not power:  # its lines were made before it
        raise UserError(f"{folder}: parts of the journal are missing: {last}{LINES}")
    # before the first sync, a loss of power may take one of two new names
    say(f"{folder}: {last}{LINES} is missing; the run goes on from the part before it")


# ---------------------------------------------------------------------- injected faults
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
        self.pacing.excused.discard(edge)  # what would end the excuse is void in the new life
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


# ------------------------------------------------------------------ the process
class Background:
    """A thread for work that may wait, one piece after the other: it compresses grown tables.

    The thread starts with the first call.
    """

    def __init__(self, system: System = OWN_SYSTEM) -> None:
        self.system, self._waiting = system, system.inbox()
        self._thread: Thread | None = None

    def __call__(self, work: Callable[[], None]) -> None:
        self._waiting.put(work)
        if self._thread is None:
            self._thread = Thread(target=self._run, name="background", daemon=True)
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
    """Builds all parts of the coordinator, and runs them to the end."""

    def __init__(
        self,
        job: StartRun,
        control: Channel,
        evaluations: Channel | None,
        jobs: Channel | None = None,
        system: System = OWN_SYSTEM,
    ) -> None:
        self.job, self.control, self.system = job, control, system
        self.launcher = LauncherEnd(control, job.directory, system)
        self.experiment = experiment = Experiment.model_validate_json(job.experiment)
        section = experiment.network
        keys = None if job.keys is None else curve.load_server(job.keys)
        layout = Layout.from_json(orjson.loads((job.scratch / "layout.json").read_bytes()))
        weights = aligned_copy(load_file(job.scratch / "initial.safetensors")["weights"])
        self.files_left = room_for_edges(len(experiment.edges.ids()))
        # above the logic thread's priority: on one core, computing must not delay pacing
        self.priority = self._ask(PACING_PRIORITY)
        # ---- the socket
        self.context, quarantined = zmq_context(self.priority), Quarantine()
        self.doorman = None
        if keys is not None:
            self.doorman = curve.Doorman(self.context, keys, quarantined.edges)
            self.doorman.start()
        self.router, requests = system.router(self.context, keys), system.mailbox()
        self.watch = self._watch(weights.nbytes, requests)
        self.port = self.router.bind(section.host, section.port, self._segment())
        # ---- the run
        evaluator = None if evaluations is None else Evaluator(evaluations, job.scratch, system)
        self.background, say = Background(system), self.launcher.say
        disk = PatientDisk(system.disk, self.launcher.room(self._sleep, self._waited_for_room))
        workers = (evaluator is not None, jobs is not None)
        opened = open_run(job, experiment, weights, layout, *workers, disk, self.background, say)
        self.run, strategy = opened.run, opened.run.coordinator.strategy
        self.fidelity = fidelity(experiment)
        self.clock = WallClock(experiment.chosen_speed, system.monotonic_ns)
        # ---- the sessions
        self.run_id = run_id(job, system)
        incarnation = system.random_bits(32) + 1
        awaited = expected(job, experiment, layout, self.run_id)
        self.sessions = Sessions(awaited, incarnation, quarantined)
        # ---- the logic
        links = network(experiment, job.base, strategy.schedules_slots)
        worker = None if jobs is None else Jobs(jobs, job.scratch, self.clock.now, system)
        self.logic = Logic(
            opened.core,
            requests,
            self.fidelity,
            evaluator,
            worker,
            opened.writer(evaluator, say, system),
            at_start=lambda: self._ask(LOGIC_PRIORITY),
            between_turns=self._is_quick(weights.nbytes, links),
            wall_s=opened.wall_s,
            system=system,
        )
        waited_for = opened.core.coordinator.scores.cost_ns is not None
        if evaluator is not None:
            evaluator.listen(self._put_scores if waited_for else self.logic.put)
        if worker is not None:
            worker.listen(self.logic.put)
        # ---- the transfers
        edges = experiment.edges.ids()
        lives = FaultLives(edges, revives(experiment.faults)) if experiment.faults else None
        bundles, told, agenda = Bundles(self.router, self.sessions), list[Any](), Agenda[Any]()
        exchange: Exchange[PacedFlow] = Exchange(links, latencies(experiment))
        transport = Transport(
            Pacer(exchange, piece_plan(experiment), self.fidelity),
            self.clock,
            agenda,
            bundles.to_edge,
            told.append,
            self.sessions.by_edge,
            self.sessions.useless,
            TrainingTimes(self.fidelity, emulated_devices(experiment)),
            Probes(links, experiment.chosen_speed, self.fidelity, bundles.to_edge, system),
            most_body(weights.nbytes),
            ReportAllowance(to_ns(section.report_s), to_ns(section.liveness_s)),
            gives_ahead=not strategy.schedules_uplink,
            faults=lives,
            resumed=job.resume,
            kernel=self.router if self._kernel_paces() else None,
        )
        # ---- the pacing
        self.pacing = Pacing(
            self.router,
            self.sessions,
            self.clock,
            requests,
            bundles,
            agenda,
            transport,
            told,
            self.logic,
            section.join_timeout_s,
            job.more,
            self.run.record.journal is not None,
            system,
        )
        if job.resume:
            self._resume(opened)
        if lives is not None:
            planned = schedule(experiment.faults, edges, Streams(experiment.seed))
            since_ns = self.clock.now()  # it stands still until the run begins or goes on
            WallFaults(self.pacing, planned, lives, control, since_ns)

    def _put_scores(self, item: Any) -> None:
        """Pass on what the evaluator says; scores that somebody waits for have their moment."""
        if isinstance(item, Scored) and not item.of_edges:
            item = replace(item, now=self.clock.now())
        self.logic.put(item)

    def _is_quick(self, model_bytes: int, links: Network) -> bool:
        """Whether the pacing thread may handle the logic's items: a small model, and no paced link.

        A thread of its own makes the journal durable against a loss of power, too.
        """
        native = all(
            links.link(edge, way).capacity is None
            for edge in self.experiment.edges.ids()
            for way in DIRECTIONS
        )
        power = self.experiment.record.durability == "power"
        return native and not power and model_bytes <= SMALL_BYTES

    def _resume(self, opened: OpenedRun) -> None:
        """Repeat the inputs in the journal, and tell the pacing thread where the run goes on."""
        journal, core = self.run.record.journal, opened.core
        assert journal is not None  # otherwise it could not be opened
        with writable(self.job.directory, resumed=True):
            ended_unix_s = self.logic.replay(journal.replay(opened.since, self.launcher.say))
            self.run.record.flush()  # a display must not take these rows for new ones
        if core.judged is not None:
            self.fidelity.take_counts(core.judged.fidelity.counts())
            self.sessions.go_on(core.judged.wire, core.judged.quarantined)
        if core.began_unix_s is not None:
            self.pacing.go_on(core.continuation(ended_unix_s))
        self.logic.go_on()

    def _sleep(self, pause_s: float) -> None:
        """Wait for room on the disk. Sessions go on if the pacing thread itself waits."""
        if not self.logic.waits_here():
            self.system.sleep(pause_s)
            return
        until_s = self.system.monotonic_s() + pause_s
        while (rest_s := until_s - self.system.monotonic_s()) > 0:
            self.pacing.turn(rest_s)

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
        self.logic.start()
        self.pacing.run()
        strangers = self.watch.stop()
        self.router.close(GOODBYE_MS + round(1000 * self.pacing.behind_s))
        return self._end(strangers)

    def _raise_error(self) -> None:
        """Raise what has ended the logic, if anything has."""
        if self.logic.error is not None:
            with suppress(UserError):  # so that the user can read what led to the error
                self.run.record.flush()
            raise self.logic.error

    def _end(self, strangers: dict[str, int]) -> dict[str, Any]:
        self._raise_error()
        if not self.pacing.started and not self.run.coordinator.finished:
            if not self.job.resume:
                self.run.undo()
            joined = "come back" if self.job.resume else "joined"
            raise UserError(
                f"no edge has {joined} within {self.experiment.network.join_timeout_s:g} s"
                " (network.join_timeout_s)"
            )
        self.logic.join()
        wall_s = self.logic.elapsed_s()
        self.logic.settle(SETTLE_S)
        self._raise_error()  # the disk can refuse the last entries of the journal, too
        if not self.run.goes_on:
            self.run.record.hold(None)
        self.background.stop()
        if self.doorman is not None:
            self.doorman.stop()
        counts = {
            f"{sort} ({who})" if who != WHOLE_RUN else sort: n
            for (sort, who), n in sorted(self.sessions.counts.items())
        }
        self._judge_hosts()
        pacing = self._pacing()
        summary = self.fidelity.summary() | {
            "pacing": pacing,
            "wire": counts,
            "strangers": strangers,
            "quarantined": self.sessions.quarantined.edges,
        }
        core = self.logic.core
        if core.jobs is not None and self.run.coordinator.strategy.runs_jobs:
            summary["jobs"] = core.jobs.summary()
        pace = {
            "speed": self.experiment.chosen_speed,
            "speed_auto": self.job.speed_auto,
            "engine": self.job.engine,
            "began_unix_s": core.began_unix_s,
            **({"resumed": core.outages} if core.outages else {}),
        }
        return self.run.end("wall", core.now, wall_s, summary, pace, core.hosts.section())

    def _pacing(self) -> dict[str, Any]:
        """How many transfers on emulated links each pacer had."""
        transport = self.pacing.transport
        without = sorted(transport.without_kernel)
        wanted = self.experiment.network.pacing == KERNEL
        able = len(without) < len(self.experiment.edges.ids())
        if wanted and able and transport.paced[PROCESS] and not transport.paced[KERNEL]:
            self.launcher.say(
                'network.pacing = "kernel": it has paced none of the'
                f" {transport.paced[PROCESS]} transfers on emulated links: they were too small, or"
                " their links too slow or too fast, or of no constant rate"
            )
        if without and wanted:
            names = ", ".join(without[:MOST_NAMES]) + ", ..." * (len(without) > MOST_NAMES)
            self.fidelity.strain(
                f'network.pacing = "kernel", but the kernel cannot pace both ends of the'
                f" connections of {len(without)} edges: {names}"
            )
        return {**transport.paced, "edges_without_kernel": without[:MOST_NAMES]}

    def _judge_hosts(self) -> None:
        """Add what the hosts of edges have reported to the verdict.

        The trainings of emulated devices are measured themselves. So an overloaded host of such
        edges only explains a run that is strained.
        """
        edges = set(self.experiment.edges.ids())
        strained = self.fidelity.verdict == "strained"
        judged = edges if strained else edges - emulated_devices(self.experiment)
        for reason in self.logic.core.hosts.strains(judged):
            self.fidelity.strain(reason)

    def _watch(self, model_bytes: int, requests: Mailbox) -> Watch:
        edges = len(self.experiment.edges.ids())
        return self.system.watch(
            self.router,
            most_body(model_bytes),
            lambda routing, reason: requests.put(Greedy(routing, reason)),
            lambda reason: requests.put(Stranger(reason)),
            MOST_STRANGERS + edges,
            edges + self.files_left - min(BURST, self.files_left // 2),
            lambda: self._ask(LOGIC_PRIORITY),
        )

    def _kernel_paces(self) -> bool:
        """Whether the kernel may pace links of this run."""
        return self.system.paces and self.experiment.network.pacing != PROCESS

    def _segment(self) -> int | None:
        """The length of TCP segments, by the longest burst of the kernel on the slowest link.

        None: all links are native, or the kernel does not pace.
        """
        sections = [part.links for part in group_parts(self.experiment)]
        shapes = [shape_of(each) for each in sections if each.kind == "emulated"]
        if not shapes or not self._kernel_paces():
            return None
        plan = piece_plan(self.experiment)
        piece_ns = plan.length_ns(len(self.experiment.edges.ids()))
        burst_ns = min(piece_ns, int(BURST_OF_WINDOW * plan.window_ns))
        slowest_bit_s = min(min(shape.rates_bit_s.values()) for shape in shapes)
        return segment_for(slowest_bit_s * burst_ns // (8 * NS_PER_S))

    def _ask(self, level: int) -> str:
        """Ask for real-time priority for the calling thread, unless the config turns it off.

        Returns the priority that the thread has.
        """
        wanted = self.experiment.network.realtime == "auto"
        return real_time_priority(level) if wanted else "normal"


def piece_plan(experiment: Experiment) -> PiecePlan:
    """How the bytes of emulated links are paced."""
    section = experiment.network
    window_ns, piece_ns = (
        to_ns(ms / 1000 * experiment.chosen_speed) for ms in (section.window_ms, section.piece_ms)
    )
    # what waits in the kernel delays heartbeats, too
    patience_ns = to_ns(section.liveness_s / FAR_OF_LIVENESS * experiment.chosen_speed)
    far_ns = min(FAR_WINDOWS * window_ns, patience_ns)
    return PiecePlan(window_ns, piece_ns, max(window_ns // GRAINS_PER_WINDOW, 1), far_ns)


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
        process = CoordinatorProcess(start, control, evaluations, jobs)
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
