"""Deadlines of open tasks.

Download, training and upload count. Waiting for a grant, for slots or for the answer to a request
does not count. The time of a lost edge does not count either: it has its own limit.
"""

from __future__ import annotations

from typing import Protocol

from edgefl.coordinator.tasks import Alarms, OpenTask
from edgefl.protocol.messages import Assignment
from emulator.units import FOREVER, NS_PER_S

DOWNLOAD, TRAINING, UPLOAD = "download", "training", "upload"


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
    """Sets the alarm "deadline NUMBER" while the time of a task counts; ``limits`` None: never."""

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
