"""The coordinator's open tasks with their phases and deadlines, and its alarms."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import numpy as np
from msgspec import Struct

from edgefl.protocol.messages import Assignment
from edgefl.strategies.base.events_and_decisions import Grant
from emulator.clock import Agenda, Ticket
from emulator.units import FOREVER, NS_PER_S

TASK_CLOSED, TASK_TIMED_OUT = "task closed", "task timed out"  # why a late update is not used
UNKNOWN_TASK = "unknown task"  # of a part of the run that was lost with the coordinator's journal
# how many tasks closed without an update are remembered; a late update of an older task counts as
# a duplicate
MOST_CLOSED = 10_000


class Phase(Enum):
    """How far an open task is. The value is the name of its deadline.

    After a resumption an edge comes back with an update that it had offered before. It offers that
    again, and the grant of the first offer holds.
    """

    __hash__ = object.__hash__  # Enum's own is computed in Python, at each look into the table

    DOWNLOAD = "download"
    TRAINING = "training"
    PAUSED = "pause"  # training stands still until the answer to its request
    OFFERED = "offer"  # the update waits for a grant of the uplink
    UPLOAD = "upload"
    OFFERED_BEFORE = "offer before the resumption"
    GRANTED_BEFORE = "upload before the resumption"


class TaskEvent(Enum):
    """What changes the phase of a task."""

    __hash__ = object.__hash__

    STARTED = "the edge has the model"
    ASKED = "the edge asks for a fresher model, and waits"
    ANSWERED = "the answer was sent"
    OFFERED = "the update is ready"
    GRANTED = "the update may be sent"
    BACK = "the edge is back after a resumption"
    SENT_AGAIN = "the model was sent again, because the edge had lost it"


AT_WORK = {
    TaskEvent.STARTED: Phase.TRAINING,
    TaskEvent.ASKED: Phase.PAUSED,
    TaskEvent.OFFERED: Phase.OFFERED,
    TaskEvent.SENT_AGAIN: Phase.DOWNLOAD,
}
# All transitions. An edge's other messages leave the phase as it is: it may send anything.
TRANSITIONS: dict[Phase, dict[TaskEvent, Phase]] = {
    Phase.DOWNLOAD: AT_WORK,
    Phase.TRAINING: AT_WORK,
    Phase.PAUSED: AT_WORK | {TaskEvent.ANSWERED: Phase.TRAINING},
    Phase.OFFERED: {
        TaskEvent.OFFERED: Phase.OFFERED,  # after a broken session: it is scheduled again
        TaskEvent.GRANTED: Phase.UPLOAD,
        TaskEvent.BACK: Phase.OFFERED_BEFORE,
    },
    Phase.UPLOAD: {
        TaskEvent.OFFERED: Phase.OFFERED,
        TaskEvent.BACK: Phase.GRANTED_BEFORE,
    },
    Phase.OFFERED_BEFORE: {
        TaskEvent.OFFERED: Phase.OFFERED,
        TaskEvent.GRANTED: Phase.GRANTED_BEFORE,
    },
    Phase.GRANTED_BEFORE: {TaskEvent.OFFERED: Phase.UPLOAD},
}
IN_TRAINING = (Phase.DOWNLOAD, Phase.TRAINING, Phase.PAUSED)
WAITING = (Phase.OFFERED, Phase.OFFERED_BEFORE)  # for a grant


@dataclass(slots=True)
class OpenTask:
    """A task from Assign until its update arrives, or it is closed or cancelled.

    ``base``: the model from which the edge started. ``message``: the Assignment that was sent.
    ``size_bytes``: of its update, once that was offered. ``granted``: the grant of the uplink.
    ``urged``: the edge was told to end its work early. ``pushes``: those that have arrived at the
    edge. ``pushed``: the models from which the edge may have begun anew, by version.

    Deadline: ``limit_ns`` of the present phase, the remaining time ``left_ns``, and since when that
    time runs (``since_ns``; None: it is stopped). ``held``: it goes on when the edge is back.
    """

    number: int
    edge: str
    version: int
    base: np.ndarray
    message: Assignment | None = field(default=None, repr=False)
    phase: Phase = Phase.DOWNLOAD
    size_bytes: int = 0
    granted: Grant | None = None
    urged: bool = False
    pushes: int = 0
    pushed: dict[int, np.ndarray] = field(default_factory=dict, repr=False)
    limit_ns: int = FOREVER
    left_ns: int = FOREVER
    since_ns: int | None = None
    held: bool = False

    def move(self, event: TaskEvent) -> bool:
        """Move to the phase to which ``event`` leads; False if it leads to none from here."""
        phase = TRANSITIONS[self.phase].get(event)
        if phase is not None:
            self.phase = phase
        return phase is not None

    def rebase(self, version: int) -> None:
        """The edge says that it has trained from this version: that of the task, or of a push."""
        if version in self.pushed:
            self.version, self.base = version, self.pushed[version]

    @property
    def stage(self) -> str:
        """The name of the deadline, for the user."""
        return self.phase.value.partition(" ")[0]


@dataclass(slots=True)
class Tasks:
    """Open tasks by number and by edge (one per edge), and tasks closed without an update.

    The update of a closed task may still arrive.
    """

    open: dict[int, OpenTask] = field(default_factory=dict)
    by_edge: dict[str, OpenTask] = field(default_factory=dict)
    # number -> edge, and why a late update is not used; the oldest first
    closed: OrderedDict[int, tuple[str, str]] = field(default_factory=OrderedDict)
    count: int = 0
    # edge -> numbers that it knows and this run has not given yet; the edge gets none of them
    foreign: dict[str, set[int]] = field(default_factory=dict)

    def add(self, edge: str, version: int, base: np.ndarray) -> OpenTask:
        while self.count in self.foreign.get(edge, ()):
            self.count += 1
        task = OpenTask(self.count, edge, version, base)
        self.count += 1
        self.open[task.number] = self.by_edge[edge] = task
        return task

    def of(self, edge: str, number: int) -> OpenTask | None:
        """The open task ``number`` if it belongs to this edge; otherwise None."""
        task = self.open.get(number)
        return task if task is not None and task.edge == edge else None

    def knows(self, edge: str, numbers: Collection[int]) -> list[int]:
        """An edge joins with these tasks. Returns those that this run has never given.

        There are some if the last part of the run's journal was lost, after a loss of power.
        """
        ahead = sorted(number for number in numbers if number >= self.count)
        if ahead:
            self.foreign[edge] = set(ahead)
        else:
            self.foreign.pop(edge, None)
        return ahead

    def at_work(self, edge: str, what: str) -> OpenTask:
        """The open task of this edge, to do ``what`` with it. ValueError if it has none."""
        if edge not in self.by_edge:
            raise ValueError(f"cannot {what} edge {edge!r}: it has no open task")
        return self.by_edge[edge]

    def remove(self, task: OpenTask, delivered: bool, late: str) -> None:
        """Remove an open task.

        If its update was not delivered, it is late from now on. ``late`` says why it is not used.
        """
        del self.open[task.number]
        del self.by_edge[task.edge]
        if not delivered:
            self.closed[task.number] = task.edge, late
            if len(self.closed) > MOST_CLOSED:
                self.closed.popitem(last=False)

    def settled(self, edge: str, number: int) -> bool:
        """Whether this task has ended with its update, so that only an acknowledgement was lost.

        A cancellation would make the edge forget what it has learned in this task.
        """
        return not (
            number in self.open or number in self.closed or number in self.foreign.get(edge, ())
        )

    def late(self, edge: str, number: int) -> str | None:
        """Why the late update of a task that is not open is not used.

        None if the task is not remembered, or from the second call on: then it is a duplicate.
        """
        if number in self.foreign.get(edge, ()):
            self.foreign[edge].discard(number)
            return UNKNOWN_TASK
        if self.closed.get(number, ("", ""))[0] != edge:
            return None
        return self.closed.pop(number)[1]


# ---------------------------------------------------------------------- alarms
class EvaluateAgain(Struct, frozen=True):
    """The interval of ``evaluation.every_s``, or of ``evaluation.edges.every_s``, is over."""

    of_edges: bool = False


class GraceOver(Struct, frozen=True):
    """The edge of a task has been lost for ``network.grace_s``."""

    task: int


class DeadlineOver(Struct, frozen=True):
    """The time of a task's phase, or of the whole task, is over."""

    task: int


class EdgeLeaves(Struct, frozen=True):
    """An absence of ``edges.availability`` begins."""

    edge: str


class EdgeReturns(Struct, frozen=True):
    """An absence ends."""

    edge: str


class StrategyAlarm(Struct, frozen=True):
    """An alarm that the strategy has set."""

    name: str


Alarm = EvaluateAgain | GraceOver | DeadlineOver | EdgeLeaves | EdgeReturns | StrategyAlarm


@dataclass(slots=True)
class Alarms:
    """Alarms and their moments. Setting an equal one again moves it."""

    agenda: Agenda[Alarm] = field(default_factory=Agenda)
    at: dict[Alarm, tuple[int, Ticket]] = field(default_factory=dict)

    def set(self, alarm: Alarm, at_ns: int) -> None:
        self.drop(alarm)
        self.at[alarm] = at_ns, self.agenda.add(at_ns, alarm)

    def drop(self, alarm: Alarm) -> None:
        if alarm in self.at:
            self.agenda.cancel(self.at.pop(alarm)[1])

    def due(self, now: int) -> Iterator[Alarm]:
        """Yield the alarms that are due at ``now``.

        The caller's reaction to one may move or drop later ones.
        """
        for at_ns, alarm in self.agenda.pop_due(now):
            if alarm in self.at and self.at[alarm][0] == at_ns:
                del self.at[alarm]
                yield alarm


# ---------------------------------------------------------------------- deadlines
class TaskLimits(Protocol):
    """Time limits of a task's phases, in emulated ns; FOREVER if nothing is known."""

    total_ns: int | None
    """The limit of all phases together, if the config gives one; None: one limit per phase."""

    def download_ns(
        self, edge: str, size_bytes: int, slots: tuple[int, ...] | None, now: int
    ) -> int: ...

    def training_ns(self, edge: str, samples: int, task: Assignment, now: int) -> int: ...

    def upload_ns(self, edge: str, size_bytes: int, now: int) -> int: ...


class Deadlines:
    """Sets a ``DeadlineOver`` while the time of a task counts; ``limits`` None: never.

    Download, training and upload count. Waiting for a grant, for slots or for the answer to a
    request does not count. The time of a lost edge does not count either: it has its own limit.
    ``present``: the edges that are connected.
    """

    def __init__(self, alarms: Alarms, limits: TaskLimits | None, present: Collection[str]) -> None:
        self.alarms, self.limits, self.present = alarms, limits, present

    def assigned(
        self, task: OpenTask, size_bytes: int, slots: tuple[int, ...] | None, now: int
    ) -> None:
        if self.limits is not None:
            if self.limits.total_ns is not None:
                task.left_ns = self.limits.total_ns
            self._run(task, self.limits.download_ns(task.edge, size_bytes, slots, now), now)

    def started(self, task: OpenTask, samples: int, now: int, answer_bytes: int = 0) -> None:
        """Training has started, or it continues once the answer of ``answer_bytes`` arrives."""
        if self.limits is None or task.message is None:
            return
        limit_ns = self.limits.training_ns(task.edge, samples, task.message, now)
        if answer_bytes:
            limit_ns += self.limits.download_ns(task.edge, answer_bytes, None, now)
        self._run(task, min(limit_ns, FOREVER), now)

    def granted(self, task: OpenTask, now: int) -> None:
        if self.limits is not None:
            self._run(task, self.limits.upload_ns(task.edge, task.size_bytes, now), now)

    def stop(self, task: OpenTask, now: int) -> None:
        """Stop the task's time: it waits for something that its edge does not control."""
        task.held = False
        if task.since_ns is not None:
            self.over(task)
            if task.left_ns < FOREVER:
                task.left_ns = max(0, task.left_ns - (now - task.since_ns))
            task.since_ns = None

    def lost(self, task: OpenTask, now: int) -> None:
        """The task's edge is lost: hold its time, because the grace time runs now."""
        runs = task.since_ns is not None
        self.stop(task, now)
        task.held = runs

    def back(self, task: OpenTask, now: int) -> None:
        """The task's edge is back: continue with the remaining time."""
        if task.held:
            self._set(task, now)

    def over(self, task: OpenTask) -> None:
        self.alarms.drop(DeadlineOver(task.number))

    def reason(self, task: OpenTask) -> str:
        """Why the task is closed when its deadline passes."""
        assert self.limits is not None
        total_ns = self.limits.total_ns
        if total_ns is not None:
            return f"timed out: network.task_timeout_s = {total_ns / NS_PER_S:g}, in {task.stage}"
        return f"timed out: {task.stage} took more than {task.limit_ns / NS_PER_S:g} s"

    def _run(self, task: OpenTask, limit_ns: int, now: int) -> None:
        assert self.limits is not None
        self.stop(task, now)
        if self.limits.total_ns is None:
            task.left_ns = task.limit_ns = limit_ns
        self._set(task, now)

    def _set(self, task: OpenTask, now: int) -> None:
        """Start the time of the task; if its edge is lost, ``back`` starts it."""
        task.held = task.edge not in self.present
        if not task.held:
            task.since_ns = now
            if task.left_ns < FOREVER:
                self.alarms.set(DeadlineOver(task.number), now + task.left_ns)
