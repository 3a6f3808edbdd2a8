"""Parallel runs: whole runs at the same time, each in its own forked process.

The runs are independent, so they need no common pool. Forked processes share the parent's data set
copy-on-write. Each has its own process group: a terminal's Ctrl-C reaches only the parent, which
passes it on. They die with the parent.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from edgefl.errors import Bug, UserError
from edgefl.hosts.ipc import Channel
from edgefl.hosts.process_messages import (
    BugFound,
    FirstStep,
    LastingLine,
    ProgressLine,
    RunEnded,
    RunRefused,
)
from edgefl.hosts.processes import fork
from edgefl.hosts.virtual.run import DelayedInterrupt
from emulator.errors import BadValue

POLL_S = 0.25


class LineReport(Protocol):
    def __call__(self, line: str, lasting: bool = False) -> None:
        """Show a line of progress, or one that stays."""


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

    ``work(job, report, begun)`` runs in the fork and returns a summary. It calls ``report`` with
    lines for the user, and ``begun()`` after its first step: from then on the job cannot be
    refused. The parent calls ``heard(job, line, lasting)`` for each line and ``ended(job,
    summary)`` at the end (None: the job died).
    """

    def __init__(
        self,
        workers: int,
        work: Callable[[int, LineReport, Callable[[], None]], dict[str, Any]],
        heard: Callable[[int, str, bool], None],
        ended: Callable[[int, dict[str, Any] | None], None],
    ) -> None:
        self.workers, self.work, self.heard, self.ended = workers, work, heard, ended
        self.outcome = RunsOutcome()
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
                    if interrupt.asked or self._refused:
                        self._waiting.clear()
                        self._end_in_order(all_of_them=interrupt.asked)
                    while self._waiting and len(self._running) < self.workers:
                        self._fork(self._waiting.popleft())
                    self._hear()
                self.outcome.interrupted = interrupt.asked
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

        def report(line: str, lasting: bool = False) -> None:
            channel.send(LastingLine(line) if lasting else ProgressLine(line))

        try:
            summary = self.work(job, report, begun)
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
            self._take(self._running[channel][1], message)

    def _died(self, job: int, status: int) -> None:
        self.outcome.died[job] = status
        self.ended(job, None)
        if status > 0:  # a bug, not a signal: the other jobs are likely to have it, too
            self._waiting.clear()

    def _take(self, job: int, message: Any) -> None:
        match message:
            case FirstStep():
                self._begun.add(job)
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
