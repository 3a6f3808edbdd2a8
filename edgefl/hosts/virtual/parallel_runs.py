"""Parallel runs: whole runs at the same time, each in a forked process of its own. They need
nothing from each other, and so no common pool.

Forked processes share the parent's data set copy-on-write. Each has its own process group: a
terminal's Ctrl-C reaches only the parent, which passes it on. They die with the parent.
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
from typing import Any

from edgefl.errors import Bug, UserError
from edgefl.hosts.ipc import Channel
from edgefl.hosts.process_messages import (
    BugFound,
    FirstStep,
    ProgressLine,
    RunEnded,
    RunRefused,
)
from edgefl.hosts.processes import fork
from edgefl.hosts.virtual.run import DelayedInterrupt
from emulator.errors import BadValue

POLL_S = 0.25
Report = Callable[[str], None]


@dataclass(slots=True)
class RunsOutcome:
    """What came of the jobs, by their place in the list; a job that is nowhere was never begun
    or broke off before its first event.
    """

    done: dict[int, dict[str, Any]] = field(default_factory=dict)
    died: dict[int, int] = field(default_factory=dict)  # -> exit status
    blamed: dict[int, str] = field(default_factory=dict)  # of these, -> whose bug it was
    interrupted: bool = False


class ParallelRuns:
    """``work(job, report, begun)`` runs in the fork and returns a summary; ``report(line)`` there
    is ``heard(job, line)`` here, and the summary ``ended(job, summary)`` (None: it died).
    ``begun()`` says that the job has made its first step: its start refuses nothing any more.
    """

    def __init__(
        self,
        workers: int,
        work: Callable[[int, Report, Callable[[], None]], dict[str, Any]],
        heard: Callable[[int, str], None],
        ended: Callable[[int, dict[str, Any] | None], None],
    ) -> None:
        self.workers, self.work, self.heard, self.ended = workers, work, heard, ended
        self.outcome = RunsOutcome()
        self._waiting: deque[int] = deque()
        self._running: dict[Channel, tuple[int, int]] = {}  # -> pid, job
        self._begun: set[int] = set()
        self._refused: dict[int, str] = {}  # job -> what the user can correct
        self._told: set[int] = set()  # jobs that were told to end

    @property
    def busy(self) -> int:
        """Workers with a run in hand."""
        return len(self._running)

    def run(self, jobs: int) -> RunsOutcome:
        """All jobs in order, at most ``workers`` at a time. Ctrl-C ends those that run, in order,
        and begins no other; a second one kills. After a bug in one no other is begun; one that was
        killed leaves the others alone.

        UserError if a job found something that the user can correct; the others are ended in order.
        If several jobs did, it tells of the first one in the list, whichever was faster.
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
        """Tell running jobs to end, each once. After a refusal, a job that stands before it in the
        list may go on until it has begun, since it may have something to refuse, too.
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
            with suppress(KeyboardInterrupt):  # told to end, perhaps while it reports its end
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
                return self._child(job, theirs)
            return 0

        # a SIGINT waits until the child handles it: we send each job only one
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._running[ours] = fork("edgefl run", child), job
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        theirs.close()

    def _child(self, job: int, channel: Channel) -> int:
        """In the fork; returns its exit status."""
        told = False

        def begun() -> None:
            nonlocal told
            if not told:
                told = True
                channel.send(FirstStep())

        try:
            summary = self.work(job, lambda line: channel.send(ProgressLine(line)), begun)
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
                ):  # else it was told to stop, perhaps while it was refusing, too
                    self._died(job, status)
                continue
            self._take(self._running[channel][1], message)

    def _died(self, job: int, status: int) -> None:
        self.outcome.died[job] = status
        self.ended(job, None)
        if status > 0:  # a bug, and no signal: the others are likely to run into it, too
            self._waiting.clear()

    def _take(self, job: int, message: Any) -> None:
        match message:
            case FirstStep():
                self._begun.add(job)
            case ProgressLine():
                self.heard(job, message.line)
            case RunRefused():
                self._refused[job] = message.reason
            case BugFound():
                self.outcome.blamed[job] = message.blame
            case RunEnded():
                self.outcome.done[job] = message.summary
                self.ended(job, message.summary)

    def _bury(self, channel: Channel) -> int:
        """Wait for a fork that has ended, or is about to; returns its exit status."""
        pid, _ = self._running.pop(channel)
        channel.close()
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
