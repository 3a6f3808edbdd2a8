"""Many runs under the virtual clock, on the requested number of workers.

While at least as many runs as workers remain, each worker does whole runs, in parallel with the
others. The remaining runs are done one by one, with all workers training in each. In both cases
every run writes the same bytes as alone.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, Protocol

from edgefl.clocks.choices import EngineName, Power
from edgefl.clocks.ipc import Channel
from edgefl.clocks.process_messages import (
    BugFound,
    FirstStep,
    LastingLine,
    NewScores,
    ProgressLine,
    RunEnded,
    RunRefused,
    ScoresSeen,
)
from edgefl.clocks.processes import fork
from edgefl.clocks.setup.learning import Learning
from edgefl.clocks.setup.plan import options
from edgefl.clocks.virtual.pool.engine import Engine
from edgefl.clocks.virtual.pool.workers import ForkedBackend, WorkerBackend, WorkerPool
from edgefl.clocks.virtual.run import DelayedInterrupt, Saving, in_process, run_virtual
from edgefl.config.experiment import Experiment, Stop
from edgefl.errors import Bug, UserError
from edgefl.results.run_files import title
from edgefl.results.summary import INTERRUPTED, one_line
from emulator.errors import BadValue

POLL_S = 0.25


class JobReport:
    """What a job tells the parent."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def __call__(self, line: str, lasting: bool = False) -> None:
        """Show a line of progress, or one that stays."""
        self._channel.send(LastingLine(line) if lasting else ProgressLine(line))

    def scored(self) -> str | None:
        """Tell that metrics.csv has new rows; return why the run ends now, if it does."""
        self._channel.send(NewScores())
        return str(reason) if (reason := self._channel.receive().reason) else None


@dataclass(slots=True)
class RunsOutcome:
    """The outcome of the jobs, by their place in the list.

    A job that is not listed was never begun, or was stopped before its first event.
    """

    done: dict[int, dict[str, Any]] = field(default_factory=dict)
    died: dict[int, int] = field(default_factory=dict)  # -> exit status
    blamed: dict[int, str] = field(default_factory=dict)  # those with a bug -> in whose code
    interrupted: bool = False


class ParallelRuns:
    """Runs jobs in forked processes, at most ``workers`` at a time.

    The runs are independent, so they need no common pool. The forks share the parent's data set
    copy-on-write. Each has its own process group: a terminal's Ctrl-C reaches only the parent,
    which passes it on. They die with the parent.

    ``work(job, report, begun)`` runs in the fork and returns a summary. It calls ``report`` with
    lines for the user, and ``begun()`` after its first step: from then on the job cannot be
    refused. The parent calls ``heard(job, line, lasting)`` for each line and ``ended(job,
    summary)`` at the end (None: the job died). ``scored(job)``: see ``run_virtual``; a job calls it
    as ``report.scored()``. For the reason "interrupted" all jobs end.
    """

    def __init__(
        self,
        workers: int,
        work: Callable[[int, JobReport, Callable[[], None]], dict[str, Any]],
        heard: Callable[[int, str, bool], None],
        ended: Callable[[int, dict[str, Any] | None], None],
        scored: Callable[[int], str | None] = lambda job: None,
    ) -> None:
        self.workers, self.work, self.heard, self.ended = workers, work, heard, ended
        self.outcome, self.scored = RunsOutcome(), scored
        self._stopping = False  # ``scored`` has ended all jobs
        self._waiting: deque[int] = deque()
        self._running: dict[Channel, tuple[int, int]] = {}  # -> pid, job
        self._begun: set[int] = set()
        self._refused: dict[int, str] = {}  # job -> the error that the user can correct
        self._told: set[int] = set()  # jobs that were asked to end

    @property
    def busy(self) -> int:
        """How many workers run a job now."""
        return len(self._running)

    def run(self, jobs: int) -> RunsOutcome:
        """Run all jobs in order, at most ``workers`` at a time.

        After Ctrl-C no job is begun, and running jobs end in order; a second Ctrl-C kills them.
        After a bug in one job no other job is begun. If a job is killed, the others go on.
        UserError if a job finds an error that the user can correct; the others then end in order.
        If several jobs find one, the error of the first in the list is raised.
        """
        self._waiting.extend(range(jobs))
        try:
            with DelayedInterrupt() as interrupt:
                while self._waiting or self._running:
                    stopping = interrupt.asked or self._stopping
                    if stopping or self._refused:
                        self._waiting.clear()
                        self._end_in_order(all_of_them=stopping)
                    while self._waiting and len(self._running) < self.workers:
                        self._fork(self._waiting.popleft())
                    self._hear()
                self.outcome.interrupted = interrupt.asked or self._stopping
        finally:
            for pid, _ in self._running.values():
                _signal(pid, signal.SIGKILL)
            for channel in list(self._running):
                self._bury(channel)
        if self._refused:
            raise UserError(self._refused[min(self._refused)])
        return self.outcome

    def _end_in_order(self, all_of_them: bool) -> None:
        """Ask running jobs to end, each once.

        After a refusal, an earlier job of the list may go on until it has begun, because it may be
        refused, too.
        """
        for pid, job in self._running.values():
            may_refuse = job not in self._begun and job < min(self._refused, default=0)
            if job not in self._told and (all_of_them or not may_refuse):
                self._told.add(job)
                _signal(pid, signal.SIGINT)

    def _fork(self, job: int) -> None:
        ours, theirs = Channel.pair()

        def child() -> int:
            ours.close()
            os.setpgid(0, 0)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with suppress(KeyboardInterrupt):  # asked to end, perhaps while it reports its end
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
                return self._child(job, theirs)
            return 0

        # a SIGINT must wait until the child handles it, because each job gets only one
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._running[ours] = fork("edgefl run", child), job
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        theirs.close()

    def _child(self, job: int, channel: Channel) -> int:
        """Run the job in the fork. Returns the exit status."""
        told = False

        def begun() -> None:
            nonlocal told
            if not told:
                told = True
                channel.send(FirstStep())

        try:
            summary = self.work(job, JobReport(channel), begun)
            channel.send(RunEnded(summary))
        except (UserError, BadValue) as error:
            channel.send(RunRefused(str(error)))
        except Bug as bug:
            print(bug.tell(), file=sys.stderr)
            channel.send(BugFound(bug.blame()))
            return 1
        return 0

    def _hear(self) -> None:
        for channel in select.select(list(self._running), [], [], POLL_S)[0]:
            try:
                message = channel.receive()
            except EOFError:
                _pid, job = self._running[channel]
                status = self._bury(channel)
                if (
                    status and not self._refused
                ):  # otherwise it was asked to end, perhaps while it reported a refusal
                    self._died(job, status)
                continue
            self._take(self._running[channel][1], message, channel)

    def _died(self, job: int, status: int) -> None:
        self.outcome.died[job] = status
        self.ended(job, None)
        if status > 0:  # a bug, not a signal: the other jobs are likely to have it, too
            self._waiting.clear()

    def _take(self, job: int, message: Any, channel: Channel) -> None:
        match message:
            case FirstStep():
                self._begun.add(job)
            case NewScores():
                reason = self.scored(job)
                if reason == INTERRUPTED:
                    self._stopping = True
                    self._told.add(job)
                with suppress(BrokenPipeError):  # it has died meanwhile
                    channel.send(ScoresSeen(reason))
            case ProgressLine() | LastingLine():
                self.heard(job, message.line, isinstance(message, LastingLine))
            case RunRefused():
                self._refused[job] = message.reason
            case BugFound():
                self.outcome.blamed[job] = message.blame
            case RunEnded():
                self.outcome.done[job] = message.summary
                self.ended(job, message.summary)

    def _bury(self, channel: Channel) -> int:
        """Wait for a fork that has ended or is about to end. Returns its exit status."""
        pid, _ = self._running.pop(channel)
        channel.close()
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


class Lines(Protocol):
    """Where the progress of runs is shown."""

    def ticker(
        self, stop: Stop, say: Callable[[str], None], pool: Any = None
    ) -> Callable[[int, Any], None]:
        """Make a function that is called after every step of a run, and reports with ``say``."""
        ...

    def show(self, name: str, text: str) -> None:
        """Show the new progress of the run ``name``."""
        ...

    def say(self, text: str) -> None:
        """Print a line that stays."""
        ...

    def end(self, name: str, text: str) -> None:
        """End the progress of the run ``name`` with a line that stays."""
        ...

    def died(self, text: str) -> None:
        """Tell that a run has died."""
        ...


@dataclass(frozen=True, slots=True)
class BatchRun:
    """One strategy with one seed, in its own directory.

    ``learned`` returns its data and model; it may be called in another process. Runs that share
    this function also share a pool. ``resume``: the run was broken off and goes on.
    """

    experiment: Experiment
    index: int
    directory: Path
    learned: Callable[[], Learning]
    resume: bool = False

    @property
    def name(self) -> str:
        return title(self.directory)


class RunBatch:
    """Does all ``runs``, or those until a Ctrl-C.

    ``begin`` is called once, when no check of all runs together can fail any more. ``scored`` gets
    the directory of a run whose metrics.csv has new rows, see ``run_virtual``. After ``run``,
    ``interrupted`` says whether a Ctrl-C ended it.
    """

    def __init__(
        self,
        runs: Sequence[BatchRun],
        power: Power,
        lines: Lines,
        begin: Callable[[], None] = lambda: None,
        scored: Callable[[Path], str | None] | None = None,
    ) -> None:
        self.runs, self.power, self.lines, self.begin = runs, power, lines, begin
        self.scored = scored
        self.interrupted = False

    def run(self) -> bool:
        """Do the runs; False if one died, after a message.

        UserError if a run finds an error that the user can correct.
        """
        for run in self.runs:
            ray = self.power.engine is EngineName.ray
            check_one_worker(run.experiment, self.power.workers, ray)
        parallel = len(self.runs) // self.power.workers * self.power.workers if self._forks else 0
        whole, go_on = self._in_parallel(self.runs[:parallel]) if parallel else (True, True)
        if go_on:
            self._one_by_one(self.runs[parallel:])
        return whole

    @property
    def _forks(self) -> bool:
        return self.power.engine is EngineName.local and self.power.workers > 1

    # ------------------------------------------------------------------ a worker for each run
    def _in_parallel(self, runs: Sequence[BatchRun]) -> tuple[bool, bool]:
        """Do the runs in parallel; return (no run died, the remaining runs may begin).

        The remaining runs do not begin after a Ctrl-C or a bug.
        """

        def work(number: int, report: JobReport, begun: Any) -> dict[str, Any]:
            run = runs[number]
            tick = self.lines.ticker(run.experiment.stop, report)

            def after_step(now_ns: int, opened: Any) -> None:
                begun()
                tick(now_ns, opened)

            saving = Saving(say=partial(report, lasting=True))
            given = (run.learned(), run.index, run.directory, after_step, None, run.resume, saving)
            return run_virtual(*given, None if self.scored is None else report.scored)

        def heard(number: int, line: str, lasting: bool) -> None:
            busy = f"{parallel.busy} of {parallel.workers} workers busy"
            if lasting:
                self.lines.say(line)
            else:
                self.lines.show(runs[number].name, f"{line}, {busy}")

        def ended(number: int, summary: dict[str, Any] | None) -> None:
            name = runs[number].name
            self.lines.end(name, f"{name}: died" if summary is None else one_line(summary, name))

        self.begin()

        def scored(number: int) -> str | None:
            return None if self.scored is None else self.scored(runs[number].directory)

        parallel = ParallelRuns(self.power.workers, work, heard, ended, scored)
        outcome = parallel.run(len(runs))
        for number, status in outcome.died.items():
            lies = f"its files are in {runs[number].directory}"
            blamed = f": {outcome.blamed[number]}" if number in outcome.blamed else ""
            self.lines.died(f"{runs[number].name} died (exit status {status}); {lies}{blamed}")
        self.interrupted = outcome.interrupted
        bug = any(status > 0 for status in outcome.died.values())
        left = [
            run.name
            for number, run in enumerate(self.runs)
            if number not in outcome.done and number not in outcome.died
        ]
        if bug and left:
            self.lines.died(f"not run because of this: {', '.join(left)}")
        return not outcome.died, not (bug or outcome.interrupted)

    # ------------------------------------------------------------------ all workers for one run
    def _one_by_one(self, runs: Sequence[BatchRun]) -> None:
        power = self.power
        cluster: AbstractContextManager[None] = nullcontext()
        if runs and power.engine is EngineName.ray:
            from edgefl.clocks.virtual.pool.ray import one_cluster  # an extra

            cluster = one_cluster(power.workers, power.ray_address)
        with cluster:
            for load, alike in groupby(runs, key=lambda run: run.learned):
                learned = load()
                with open_pool(
                    learned, power.workers, power.engine.value, power.ray_address
                ) as pool:
                    if pool.note:
                        self.lines.say(pool.note)
                    if not self._in_order(learned, alike, pool):
                        return

    def _in_order(self, learned: Learning, runs: Iterable[BatchRun], pool: Engine) -> bool:
        """Do the runs of one data and model in order; False after a Ctrl-C."""
        self.begin()
        for run in runs:
            tick = self.lines.ticker(run.experiment.stop, partial(self.lines.show, run.name), pool)
            saving = Saving(say=self.lines.say)
            given = (learned, run.index, run.directory, tick, pool, run.resume, saving)
            scored = None if self.scored is None else partial(self.scored, run.directory)
            summary = run_virtual(*given, scored)
            self.lines.end(run.name, one_line(summary, run.name))
            self.interrupted = summary["finished"] == INTERRUPTED
            if self.interrupted:
                return False
        return True


# ---------------------------------------------------------------------- workers
def check_one_worker(experiment: Experiment, workers: int, ray: bool) -> None:
    """UserError if tasks are to be merged, and trained by several workers or on Ray, too."""
    at_once = experiment.training.tasks_at_once
    if (at_once or 1) > 1 and (workers > 1 or ray):
        found = "--engine ray" if ray else f"--workers {workers}"
        raise UserError(
            f"training.tasks_at_once = {at_once}: expected only with one worker, which trains tasks"
            f" together, found {found}"
        )


@contextmanager
def open_pool(
    learned: Learning,
    workers: int,
    engine: Literal["local", "ray"] = "local",
    ray_address: str | None = None,
) -> Iterator[Engine]:
    """Open an engine for runs of this experiment, one after the other, until the block ends.

    ``local``: forked workers; with 0 or 1 worker, this process. ``ray``: actors on the cluster at
    ``ray_address`` ("auto": this machine's cluster; None: a cluster started for this block).
    """
    if workers < 0:
        raise UserError(f"--workers {workers}: expected 1 or more")
    check_one_worker(learned.experiment, workers, engine == "ray")
    if engine == "local" and workers <= 1:
        yield in_process(learned)
        return
    backend: WorkerBackend
    if engine == "ray":
        # an extra that may not be installed
        from edgefl.clocks.virtual.pool.ray import RayBackend

        workers = max(workers, 1)
        backend = RayBackend(learned, workers, ray_address)
    elif sys.platform.startswith("linux"):
        backend = ForkedBackend(learned)
    else:
        why = f"no workers: they need Linux, and this is {sys.platform}"
        yield in_process(learned, f"{why}; training in this process")
        return
    pool = WorkerPool(backend, workers, _idle(learned, workers))
    try:
        yield pool
    finally:
        pool.close()


def _idle(learned: Learning, workers: int) -> str | None:
    """A note if there are more workers than devices that train at one time in any strategy."""
    edges = len(learned.shards)
    chosen = [options(entry, learned.base) for entry in learned.experiment.strategies]
    most = max(found.concurrency(values, edges) for found, values in chosen)
    return (
        f"{workers} workers, but at most {most} devices train at one time: the other workers are"
        " mostly idle"
        if workers > most
        else None
    )
