"""The coordinator's open tasks, their deadlines, and its alarms."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from edgefl.protocol.messages import Assignment
from edgefl.strategies.base.events_and_decisions import Grant
from emulator.clock import Agenda, Ticket
from emulator.units import FOREVER, NS_PER_S

TASK_CLOSED, TASK_TIMED_OUT = "task closed", "task timed out"  # why a late update is not used
UNKNOWN_TASK = "unknown task"  # of a part of the run that was lost with the coordinator's journal
# how many tasks closed without an update are remembered; a late update of an older task counts as
# a duplicate
MOST_CLOSED = 10_000
DOWNLOAD, TRAINING, UPLOAD = "download", "training", "upload"  # phases of a task


@dataclass(slots=True)
class OpenTask:
    """A task from Assign until its update arrives, or it is closed or cancelled.

    ``base``: the model from which the edge started. ``lost``: its edge is not connected now.
    ``ready``: its update, of ``size_bytes``, was offered. ``waits``: that update waits for a grant
    of the uplink. ``granted``: that grant, once it was given. ``urged``: the edge was told to end
    its work early. ``message``: the Assignment that was sent.

    Deadline: ``phase`` and its limit ``limit_ns``, the remaining time ``left_ns``, and since when
    that time runs (``since_ns``; None: it is stopped).
    """

    number: int
    edge: str
    version: int
    base: np.ndarray
    lost: bool = False
    ready: bool = False
    waits: bool = False
    granted: Grant | None = None
    urged: bool = False
    resumed: bool = False  # the edge came back after a resumption, and has offered nothing since
    asked: bool = False  # training pauses until the answer to its request
    message: Assignment | None = field(default=None, repr=False)
    size_bytes: int = 0
    phase: str = ""
    limit_ns: int = FOREVER
    left_ns: int = FOREVER
    since_ns: int | None = None
    goes_on: bool = False  # the deadline's time ran when the edge was lost


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

    def at_work(self, edge: str) -> OpenTask:
        """The open task of this edge. ValueError if it has none."""
        if edge not in self.by_edge:
            raise ValueError(f"cannot urge edge {edge!r}: it has no open task")
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


@dataclass(slots=True)
class Alarms:
    """Named moments. Setting a name again moves it."""

    agenda: Agenda[str] = field(default_factory=Agenda)
    at: dict[str, tuple[int, Ticket]] = field(default_factory=dict)

    def set(self, name: str, at_ns: int) -> None:
        if name in self.at:
            self.drop(name)
        self.at[name] = at_ns, self.agenda.add(at_ns, name)

    def drop(self, name: str) -> None:
        if name in self.at:
            self.agenda.cancel(self.at.pop(name)[1])

    def due(self, now: int) -> Iterator[str]:
        """Yield the names that are due at ``now``.

        The caller's reaction to one name may move or drop later ones.
        """
        for at_ns, name in self.agenda.pop_due(now):
            if name in self.at and self.at[name][0] == at_ns:
                del self.at[name]
                yield name


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
    """Sets the alarm "deadline NUMBER" while the time of a task counts; ``limits`` None: never.

    Download, training and upload count. Waiting for a grant, for slots or for the answer to a
    request does not count. The time of a lost edge does not count either: it has its own limit.
    """

    def __init__(self, alarms: Alarms, limits: TaskLimits | None) -> None:
        self.alarms, self.limits = alarms, limits

    def assigned(
        self, task: OpenTask, size_bytes: int, slots: tuple[int, ...] | None, now: int
    ) -> None:
        if self.limits is not None:
            if self.limits.total_ns is not None:
                task.left_ns = self.limits.total_ns
            self._run(
                task, DOWNLOAD, self.limits.download_ns(task.edge, size_bytes, slots, now), now
            )

    def started(self, task: OpenTask, samples: int, now: int, answer_bytes: int = 0) -> None:
        """Training has started, or it continues once the answer of ``answer_bytes`` arrives."""
        if self.limits is None or task.ready or task.message is None:
            return
        limit_ns = self.limits.training_ns(task.edge, samples, task.message, now)
        if answer_bytes:
            limit_ns += self.limits.download_ns(task.edge, answer_bytes, None, now)
        self._run(task, TRAINING, min(limit_ns, FOREVER), now)

    def granted(self, task: OpenTask, now: int) -> None:
        if self.limits is not None:
            self._run(task, UPLOAD, self.limits.upload_ns(task.edge, task.size_bytes, now), now)

    def stop(self, task: OpenTask, now: int) -> None:
        """Stop the task's time: it waits for something that its edge does not control."""
        task.goes_on = False
        if task.since_ns is not None:
            self.alarms.drop(f"deadline {task.number}")
            if task.left_ns < FOREVER:
                task.left_ns = max(0, task.left_ns - (now - task.since_ns))
            task.since_ns = None

    def lost(self, task: OpenTask, now: int) -> None:
        """The task's edge is lost: stop its time, because the grace time runs now."""
        runs = task.since_ns is not None
        self.stop(task, now)
        task.goes_on = runs

    def back(self, task: OpenTask, now: int) -> None:
        """The task's edge is back: continue with the remaining time."""
        if task.goes_on:
            self._set(task, now)

    def over(self, task: OpenTask) -> None:
        self.alarms.drop(f"deadline {task.number}")

    def reason(self, task: OpenTask) -> str:
        """Why the task is closed when its deadline passes."""
        assert self.limits is not None
        total_ns = self.limits.total_ns
        if total_ns is not None:
            return f"timed out: network.task_timeout_s = {total_ns / NS_PER_S:g}, in {task.phase}"
        return f"timed out: {task.phase} took more than {task.limit_ns / NS_PER_S:g} s"

    def _run(self, task: OpenTask, phase: str, limit_ns: int, now: int) -> None:
        assert self.limits is not None
        if task.since_ns is not None:
            self.stop(task, now)
        task.phase = phase
        if self.limits.total_ns is None:
            task.left_ns = task.limit_ns = limit_ns
        self._set(task, now)

    def _set(self, task: OpenTask, now: int) -> None:
        """Start the time of the task; if its edge is lost, ``back`` starts it."""
        if task.lost:
            task.goes_on = True
            return
        task.since_ns, task.goes_on = now, False
        if task.left_ns < FOREVER:
            self.alarms.set(f"deadline {task.number}", now + task.left_ns)
