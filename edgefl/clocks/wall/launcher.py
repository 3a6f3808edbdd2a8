"""Launch a run on the wall clock: the warm parent, then for each strategy a coordinator process
and new edges.

This process has no network socket and no model. It starts the other processes, watches them, and
stops them cleanly.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson

from edgefl.clocks.ctrl_c import ctrl_c_held_back
from edgefl.clocks.ipc import Channel
from edgefl.clocks.network_addresses import ANY, ANY_IPV6, bare, is_loopback, tcp
from edgefl.clocks.process_messages import (
    BugFound,
    FleetReady,
    ForkEdges,
    InjectFault,
    Listening,
    PrepareFleet,
    ProcessExited,
    ProgressLine,
    RunEnded,
    RunRefused,
    StartRun,
    StartWorkers,
    StopRun,
    frozen_digest,
)
from edgefl.clocks.processes import END_PATIENCE_S, RunProcesses, end_in
from edgefl.clocks.setup.network import emulated_devices, with_patterns
from edgefl.clocks.setup.resumption import RunFolder, RunStage, check_data, remove_run, run_stage
from edgefl.clocks.wall.speed_check import auto_speed, too_fast
from edgefl.config.experiment import Experiment
from edgefl.config.faults import PROCESS_KINDS
from edgefl.errors import ProcessDied, UserError
from edgefl.record.files import SUMMARY
from edgefl.results.run_files import title
from edgefl.results.summary import one_line

POLL_S = 0.25
DATA_FILES = ("vocabulary.txt", "edges.csv")  # the warm parent may have written them to scratch


def stop(control: Channel, reason: str) -> None:
    """Ask a coordinator to end its run."""
    with suppress(BrokenPipeError):  # the coordinator has just ended
        control.send(StopRun(reason))


def first_answer(
    control: Channel,
    process: subprocess.Popen[bytes],
    name: str,
    say: Callable[[str], None],
) -> Any:
    """Return the first message that is no line for the user; those go to ``say``.

    Errors as in ``checked``; ProcessDied, too, if the process has ended.
    """
    try:
        while isinstance(message := checked(control.receive()), ProgressLine):
            say(message.line)
        return message
    except EOFError:
        raise ProcessDied(f"{name} died (exit status {process.wait()})") from None


def checked(message: Any) -> Any:
    """Return ``message``. UserError or ProcessDied if it reports that the run has failed."""
    match message:
        case RunRefused(reason):
            raise UserError(reason)
        case BugFound(blame):
            raise ProcessDied(blame, bug=True)
    return message


class RemoteEdges(Protocol):
    """The edges of other hosts."""

    @property
    def all_gone(self) -> bool:
        """Whether no edge can take part any more."""

    def listening(self, port: int) -> None:
        """The coordinator of the next run accepts edges at this port."""

    def inject(self, fault: InjectFault) -> None:
        """Carry out a fault of the config."""


class Interrupted(Exception):
    """The user ended the run. Its results so far are kept."""

    def __init__(self, summaries: list[dict[str, Any]]) -> None:
        super().__init__("interrupted")
        self.summaries = summaries


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """Options of a launch.

    ``fleet``: fork the edges here; otherwise wait for edges from other terminals or machines, or
    for ``remote``, which the caller starts there. ``resume``: go on with the runs in ``out``, and
    keep those that have finished; ``speed_auto``: their speed was chosen by the launcher.
    ``force``: run even if this host is too slow. ``within``: the directory for the results inside
    each strategy's directory, if several seeds run one after the other. ``first``: this is the
    first seed, which makes room for the runs. ``more``: another seed follows. ``folder``: shared by
    several seeds; None: the run claims its own. ``headline``: printed once the run is accepted,
    followed by the speed if the launcher has chosen it. ``processes``: those that load already;
    the run ends them.
    """

    out: Path
    base: Path | None
    keys: Path | None = None
    fleet: bool = True
    force: bool = False
    within: str = ""
    first: bool = True
    more: bool = False
    headline: str = ""
    folder: RunFolder | None = None
    remote: RemoteEdges | None = None
    resume: bool = False
    speed_auto: bool = False
    processes: RunProcesses | None = None


class WallRun:
    """A run of all strategies of an experiment, one after the other.

    ``say`` prints a line for the user. KeyboardInterrupt stops the run cleanly.
    """

    def __init__(
        self, experiment: Experiment, options: LaunchOptions, say: Callable[[str], None]
    ) -> None:
        self.experiment, self.options, self.say = experiment, options, say
        self.folder = options.folder or RunFolder(
            options.out, resume=options.resume, base=options.base
        )
        self.scratch = tempfile.TemporaryDirectory(
            prefix="edgefl-",
            ignore_cleanup_errors=True,  # after a second Ctrl-C the coordinator still writes there
        )
        self.processes = options.processes
        self.worked = False  # a strategy's run has begun
        self.interrupted = False  # Ctrl-C was pressed
        self.resumed = False  # this strategy's run was broken off, and goes on
        self.exits: set[str] = set()  # edges that died in this strategy's run
        self.speed_auto = options.speed_auto or experiment.speed == "auto"
        self.engines: tuple[str, ...] = ()  # of each strategy, once the warm parent has told it
        # later the port of the first coordinator: all strategies use it
        self.port = experiment.network.port
        # strategy -> why this host cannot keep up, from the check before the run
        self.strains: dict[str, str] = {}

    def run(self, watch: Callable[[int, Path, int], str | None]) -> list[dict[str, Any]]:
        """Run all strategies and return their summaries, in order.

        ``watch(index, directory, port)`` is called every POLL_S seconds while strategy ``index``
        runs, which ends for the reason that it returns, if it returns one. UserError if a run
        cannot begin, Interrupted if the user has ended it.
        """
        kinds = {entry.kind for entry in self.experiment.faults} & {*PROCESS_KINDS}
        if kinds and not self.options.fleet and self.options.remote is None:
            raise UserError(
                f"faults: {', '.join(PROCESS_KINDS)} need edges that this command starts:"
                " edgefl run"
            )
        if not self.options.fleet:
            self.experiment = with_patterns(self.experiment, self.options.base)
        summaries: list[dict[str, Any]] = []
        try:
            summaries += self._finished()
            todo = range(len(summaries), len(self.experiment.strategies))
            if not todo:
                return summaries
            ready = self._warm_up()
            self._choose_speed(ready)
            for index in todo:
                summary = self._run_strategy(index, ready.data_digest, watch)
                summaries.append(summary)
                self.say(one_line(summary, title(self.directory(index))))
                # the run may have ended by itself just then; no other run may follow it
                follows = self.options.more or index + 1 < len(self.experiment.strategies)
                if summary["finished"] == "interrupted" or (self.interrupted and follows):
                    raise Interrupted(summaries)
            return summaries
        except UserError:
            # remove the output directory if it has no results: for example, no edge has joined
            with suppress(OSError):  # missing, or not empty
                if not self.log.stat().st_size:
                    self.log.unlink()
                self.options.out.rmdir()
            raise
        except KeyboardInterrupt:
            if not summaries:
                raise
            raise Interrupted(summaries) from None  # between two strategies, or the second Ctrl-C
        finally:
            self._end()

    def _finished(self) -> list[dict[str, Any]]:
        """The summaries of the strategies that have finished, if the runs go on."""
        done = []
        if self.options.resume:
            for index in range(len(self.experiment.strategies)):
                directory = self.directory(index)
                if run_stage(directory) is not RunStage.finished:
                    break
                done.append(orjson.loads((directory / SUMMARY).read_bytes()))
        return done

    def directory(self, index: int) -> Path:
        return self.options.out / self.experiment.strategies[index].name / self.options.within

    @property
    def join(self) -> str:
        """The command that starts an edge, without its id; "" if the launcher starts the edges."""
        if self.options.fleet or self.options.remote is not None:
            return ""
        host = bare(self.experiment.network.host)
        words = (
            f"edgefl edge --connect {tcp('HOST' if host in (ANY, ANY_IPV6) else host, self.port)}"
        )
        if self.options.keys is not None:
            return f"{words} --keys DIR"
        return words if is_loopback(host) else f"{words} --insecure"

    @property
    def log(self) -> Path:
        """The file with stderr of the edges and the evaluator."""
        return self.options.out / ("_".join(filter(None, ("edges", self.options.within))) + ".log")

    # ------------------------------------------------------------------ processes
    def _warm_up(self) -> FleetReady:
        self.processes = processes = self.processes or RunProcesses()
        self._order(
            PrepareFleet(
                experiment=self.experiment.model_dump_json(),
                base=self.options.base,
                scratch=Path(self.scratch.name),
                fleet=self.options.fleet,
                calibrate=self.options.fleet and bool(emulated_devices(self.experiment)),
            )
        )
        ready: FleetReady = first_answer(
            processes.control, processes.warm, "the warm parent", self.say
        )
        processes.warmed_up = True
        self.engines = ready.engines
        return ready

    def _choose_speed(self, ready: FleetReady) -> None:
        """Choose the speed if the config says "auto", and check it.

        UserError names a speed that works if the emulated devices train faster than this host.
        With ``force`` the run goes on, and so does one that was broken off.
        """
        if self.experiment.speed == "auto":
            speed = auto_speed(self.experiment, self.options.base, ready)
            self.experiment = self.experiment.model_copy(update={"speed": speed})
        found = too_fast(self.experiment, self.options.base, ready)
        if found and not (self.options.force or self.options.resume):
            raise UserError(str(found[0]))
        self._announce()
        for each in found:
            self.strains[each.strategy] = each.strain
            why = "" if self.options.resume else " because of --force"
            self.say(f"continuing{why}: {each}")

    def _announce(self) -> None:
        speed = f"speed {self.experiment.chosen_speed:g} (auto)" if self.speed_auto else ""
        results = f"results in {self.options.out}" if self.options.headline else ""
        line = ", ".join(filter(None, (self.options.headline, speed, results)))
        if line:
            self.say(line)

    def _run_strategy(
        self, index: int, data_digest: str, watch: Callable[..., str | None]
    ) -> dict[str, Any]:
        assert self.processes is not None
        self.exits.clear()
        directory = self.directory(index)
        resume = self.options.resume and run_stage(directory) is RunStage.broken_off
        self.resumed = resume
        if resume:
            check_data(directory, data_digest, frozen_digest(Path(self.scratch.name)))
        first = not self.worked and self.options.first
        if first and self.folder.fd is None:
            self.folder.claim()
        control, process = self.processes.coordinator()
        accepted = False
        try:
            # it may still write after this process has died
            with suppress(BrokenPipeError):  # it has died: the next line says so
                control.send(self._start_run(index, data_digest, resume), fd=self.folder.fd)
            listening: Listening = first_answer(control, process, "the coordinator", self.say)
            accepted, self.port = True, listening.port
            try:
                self._start_edges(index, directory)
            except KeyboardInterrupt:
                self.interrupted = True
                stop(control, "interrupted")
            summary = self._watch(
                control, process, index, lambda: watch(index, directory, listening.port)
            )
            try:
                process.wait()
            except KeyboardInterrupt:  # the run has ended by itself: its summary counts
                self.interrupted = True
                process.wait()
            return summary
        except KeyboardInterrupt:
            if not (accepted and self.interrupted):  # a second Ctrl-C does not wait
                control.close()  # an accepted run stops cleanly, with its scratch folder
                end_in(END_PATIENCE_S if accepted else 0.0, process)
                if not (accepted or resume):
                    with suppress(UserError):
                        remove_run(directory)
            raise

    def _start_edges(self, index: int, directory: Path) -> None:
        """Make room for the run, which is accepted now, and start its workers and edges."""
        with ctrl_c_held_back():  # a message that is half sent would end the warm parent
            if not self.worked:  # not earlier: a refused run changes nothing
                self.worked = True
                for line in self.folder.begin(directory) if self.options.first else ():
                    self.say(line)
                log, speed = str(self.log), self.experiment.chosen_speed
                self._order(StartWorkers(log, speed, self.options.resume))
            for name in DATA_FILES:
                if (path := Path(self.scratch.name) / name).exists():
                    shutil.copyfile(path, directory / name)
            if self.options.fleet:
                self._fork(self.experiment.edges.ids(), index)
        if self.options.remote is not None:
            self.options.remote.listening(self.port)
        elif not self.options.fleet:
            self.say(
                f"waiting for {len(self.experiment.edges.ids())} edges on"
                f" {self.experiment.network.host}, port {self.port}"
            )

    def _start_run(self, index: int, data_digest: str, resume: bool) -> StartRun:
        network = self.experiment.network.model_copy(update={"port": self.port})
        experiment = self.experiment.model_copy(update={"network": network})
        strain = self.strains.get(self.experiment.strategies[index].name)
        return StartRun(
            experiment=experiment.model_dump_json(),
            index=index,
            directory=self.directory(index),
            base=self.options.base,
            scratch=Path(self.scratch.name),
            data_digest=data_digest,
            keys=self.options.keys,
            more=self.options.more or index + 1 < len(self.experiment.strategies),
            strains=() if strain is None else (strain,),
            speed_auto=self.speed_auto,
            resume=resume,
            engine=self.engines[index] if self.engines else "",
        )

    def _order(self, order: Any) -> None:
        """Send an order to the warm parent. ProcessDied if it has ended."""
        assert self.processes is not None
        try:
            self.processes.control.send(order)
        except BrokenPipeError:
            raise ProcessDied(f"the warm parent died (see {self.log})") from None

    def _fork(self, edges: list[str], index: int) -> None:
        address = tcp(self.experiment.network.host, self.port)
        self._order(ForkEdges(tuple(edges), address, index))

    def _end(self) -> None:
        try:
            if self.processes is not None:
                self.processes.end()
        finally:
            with ctrl_c_held_back():  # a folder that is half deleted would stay
                self.scratch.cleanup()
                for line in self.folder.undo():
                    self.say(line)
                if self.options.folder is None:
                    self.folder.release()

    # ------------------------------------------------------------------ while a strategy runs
    def _watch(
        self,
        control: Channel,
        process: subprocess.Popen[bytes],
        index: int,
        watch: Callable[[], str | None],
    ) -> dict[str, Any]:
        """Watch a strategy's run until it ends, and return its summary."""
        stopping = self.interrupted
        failed: OSError | None = None
        while True:
            try:
                match checked(control.receive(timeout_s=POLL_S)):
                    case InjectFault() as fault:
                        self._inject(fault, index)
                    case ProgressLine(line):
                        self.say(line)
                    case RunEnded(summary):
                        if failed is not None:
                            raise failed
                        return summary
                self._report_exits()
                if self._all_edges_died and not stopping:
                    stopping = True
                    stop(control, "no edge left")
                if failed is None:
                    try:
                        reason = watch()
                        if reason is not None and not stopping:
                            stopping = True
                            stop(control, reason)
                    except OSError as error:  # the output cannot be written: first stop cleanly
                        failed = error
                        if not stopping:
                            stopping = True
                            stop(control, "interrupted")
            except KeyboardInterrupt:
                if self.interrupted:
                    raise  # a second Ctrl-C ends at once
                self.interrupted = stopping = True
                stop(control, "interrupted")
            except EOFError:
                raise ProcessDied(f"the coordinator died (exit status {process.wait()})") from None

    def _inject(self, fault: InjectFault, index: int) -> None:
        """Carry out a fault. The coordinator decides when; the warm parent owns the processes."""
        if self.options.remote is not None:
            self.options.remote.inject(fault)
        elif fault.fault == "restart":
            self.exits.discard(fault.edge)  # also one that had died by itself
            self._fork([fault.edge], index)
        else:
            self._order(fault)

    @property
    def _all_edges_died(self) -> bool:
        if self.options.remote is not None:
            return self.options.remote.all_gone
        return self.options.fleet and len(self.exits) == len(self.experiment.edges.ids())

    def _report_exits(self) -> None:
        """Report processes that died; the run goes on. UserError if one cannot be started."""
        assert self.processes is not None
        try:
            while (message := self.processes.control.receive(timeout_s=0)) is not None:
                match checked(message):
                    case ProcessExited(name, status, edges):
                        self.exits.update(edges)
                        self.say(f"{name} died (exit status {status}; see {self.log})")
        except EOFError:  # the edges and the evaluator died with it
            raise ProcessDied(
                f"the warm parent died (exit status {self.processes.warm.wait()}; see {self.log})"
            ) from None
