"""The coordinator's state: the tasks that it gave out, and its alarms."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from edgefl.protocol.messages import Assignment
from emulator.agenda import Agenda, Ticket
from emulator.units import FOREVER

TASK_CLOSED, TASK_TIMED_OUT = "task closed", "task timed out"  # why a late update is not used
# tasks closed without an update that are remembered: a late update of an older one passes for a
# duplicate
MOST_CLOSED = 10_000


@dataclass(slots=True)
class OpenTask:
    """A task from Assign until its update, its closing, or its cancelling; ``base`` is the model
    that the edge started from.

    ``lost``: its edge is not there at present; ``ready``: its update was offered, of
    ``size_bytes``; ``waits``: and the strategy has not granted the uplink. ``message``: what the
    edge was sent.

    Of its deadline: the ``phase`` and its limit, the time that is left, and since when it runs
    (None: it stands still).
    """

    number: int
    edge: str
    version: int
    base: np.ndarray
    lost: bool = False
    ready: bool = False
    waits: bool = False
    asked: bool = False  # it stands still until the answer to its request
    message: Assignment | None = field(default=None, repr=False)
    size_bytes: int = 0
    phase: str = ""
    limit_ns: int = FOREVER
    left_ns: int = FOREVER
    since_ns: int | None = None
    goes_on: bool = False  # it ran when the edge was lost


@dataclass(slots=True)
class Tasks:
    """Open tasks by number and by edge (one each), and those that were closed without an update,
    which may still come.
    """

    open: dict[int, OpenTask] = field(default_factory=dict)
    by_edge: dict[str, OpenTask] = field(default_factory=dict)
    # number -> edge, and what is to be recorded of a late update; the oldest first
    closed: OrderedDict[int, tuple[str, str]] = field(default_factory=OrderedDict)
    count: int = 0

    def add(self, edge: str, version: int, base: np.ndarray) -> OpenTask:
        task = OpenTask(self.count, edge, version, base)
        self.count += 1
        self.open[task.number] = self.by_edge[edge] = task
        return task

    def of(self, edge: str, number: int) -> OpenTask | None:
        """The open task ``number`` if it is this edge's."""
        task = self.open.get(number)
        return task if task is not None and task.edge == edge else None

    def at_work(self, edge: str) -> OpenTask:
        """The open task of this edge. ValueError if it has none."""
        if edge not in self.by_edge:
            raise ValueError(f"cannot urge edge {edge!r}: it has no open task")
        return self.by_edge[edge]

    def remove(self, task: OpenTask, delivered: bool, late: str) -> None:
        """The task is over; without a delivery, its update is late from now on, and ``late`` says
        why it is not used.
        """
        del self.open[task.number]
        del self.by_edge[task.edge]
        if not delivered:
            self.closed[task.number] = task.edge, late
            if len(self.closed) > MOST_CLOSED:
                self.closed.popitem(last=False)

    def late(self, edge: str, number: int) -> str | None:
        """Why the update of a task that was closed without one is not used, the first time it
        comes; later it is a duplicate: None.
        """
        if self.closed.get(number, ("", ""))[0] != edge:
            return None
        return self.closed.pop(number)[1]


@dataclass(slots=True)
class Alarms:
    """Named moments: the same name set again moves it."""

    agenda: Agenda[str] = field(default_factory=Agenda)
    at: dict[str, tuple[int, Ticket]] = field(default_factory=dict)

    def set(self, name: str, at_ns: int) -> None:
        self.drop(name)
        self.at[name] = at_ns, self.agenda.add(at_ns, name)

    def drop(self, name: str) -> None:
        if name in self.at:
            self.agenda.cancel(self.at.pop(name)[1])

    def due(self, now: int) -> Iterator[str]:
        """The names that ring at ``now``, one after the other: each may still move or drop those
        behind it.
        """
        for at_ns, name in self.agenda.pop_due(now):
            if name in self.at and self.at[name][0] == at_ns:
                del self.at[name]
                yield name
