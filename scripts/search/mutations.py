"""Mistakes on purpose: each changes one rule of the program. The search has to find all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from edgefl.actor import Send
from edgefl.clocks.wall.coordinator import logic
from edgefl.clocks.wall.coordinator.logic import CheckpointWriter, Committer, Logic
from edgefl.clocks.wall.coordinator.sessions import Sessions
from edgefl.clocks.wall.coordinator.transfers import Transport
from edgefl.coordinator.coordinator import Coordinator
from edgefl.coordinator.tasks import Deadlines, GraceOver, OpenTask, Tasks
from edgefl.protocol.messages import Acknowledged
from edgefl.record.tables import RowFile
from edgefl.strategies.base.strategy import Strategy

Change = tuple[Any, str, Callable[..., Any]]  # class or module, name in it, replacement


def double_apply() -> list[Change]:
    """A task that has ended is found again: its update is applied twice if it arrives twice."""
    of, remove = Tasks.of, Tasks.remove

    def found(self: Tasks, edge: str, number: int) -> OpenTask | None:
        ended = _ended.get(id(self), {}).get(number)
        return of(self, edge, number) or (ended if ended and ended.edge == edge else None)

    def removed(self: Tasks, task: OpenTask, delivered: bool, late: str) -> None:
        _ended.setdefault(id(self), {})[task.number] = task
        if task.number in self.open:
            remove(self, task, delivered, late)

    _ended: dict[int, dict[int, OpenTask]] = {}
    return [(Tasks, "of", found), (Tasks, "remove", removed)]


def lost_acknowledgement() -> list[Change]:
    """An acknowledgement is not repeated: if it is lost, the edge keeps its update for ever."""

    def silent(method: Callable[..., Any]) -> Callable[..., Any]:
        def changed(self: Coordinator, *arguments: Any) -> list[Any]:
            outputs = method(self, *arguments)
            return [each for each in outputs if not _acknowledges(each)]

        return changed

    methods = ("_settled", "_joined")
    return [(Coordinator, name, silent(getattr(Coordinator, name))) for name in methods]


def _acknowledges(output: Any) -> bool:
    return isinstance(output, Send) and isinstance(output.message, Acknowledged)


def version_jump() -> list[Change]:
    """A lost edge counts as a version."""
    lost = Coordinator._lost

    def jumping(self: Coordinator, edge: str, now: int) -> list[Any]:
        if edge in self.present:
            self.version += 1
        return lost(self, edge, now)

    return [(Coordinator, "_lost", jumping)]


def task_never_closed() -> list[Change]:
    """No alarm closes the task of an edge that is lost."""
    lost = Coordinator._lost

    def patient(self: Coordinator, edge: str, now: int) -> list[Any]:
        outputs = lost(self, edge, now)
        task = self.tasks.by_edge.get(edge)
        if task is not None:
            self.alarms.drop(GraceOver(task.number))
        return outputs

    return [(Coordinator, "_lost", patient)]


def agenda_outlives_offers() -> list[Change]:
    """An offer that is forgotten leaves its entry in the agenda."""
    return [(Transport, "_not_ready", lambda self, flow: None)]


def late_hello() -> list[Change]:
    """A Hello ends another session of its edge that has not joined, for ever: it may be late."""
    replace = Sessions._replace

    def final(self: Sessions, session: Any, reason: str, final: bool) -> list[Any]:
        return replace(self, session, reason, True)

    return [(Sessions, "_replace", final)]


def acknowledged_before_journal() -> list[Change]:
    """What an item causes leaves before the item is in the journal."""
    commit = Committer.commit

    def early(self: Committer, then: Callable[[], None]) -> None:
        then()
        commit(self, lambda: None)

    return [(Committer, "commit", early)]


def restart_truncates() -> list[Change]:
    """A process that is started again empties the files with which it goes on."""
    begin = RowFile.__init__

    def emptied(self: RowFile, path: Any, disk: Any = None, *_: Any, **more: Any) -> None:
        begin(self, path, disk, **{**more, "keep_bytes": 0})

    return [(RowFile, "__init__", emptied)]


def early_checkpoint() -> list[Change]:
    """A checkpoint is taken before the item that it contains is in the journal."""
    keep, handled = Logic._keep, CheckpointWriter.handled

    def late(self: Logic, item: Any) -> None:
        if self.checkpoints is not None:
            handled(self.checkpoints, 0, self.wall_s)
        keep(self, item)

    def counted(self: CheckpointWriter, taken_ns: int, wall_s: float) -> None:
        self._handled_ns += taken_ns

    return [(Logic, "_keep", late), (CheckpointWriter, "handled", counted)]


def arrays_not_copied() -> list[Change]:
    """The arrays of a checkpoint go on changing until its thread has written them."""
    return [(logic, "encode", partial(logic.encode, copy=False))]


def deadline_restarts() -> list[Change]:
    """The time of a task begins anew when its edge returns."""

    def anew(self: Deadlines, task: OpenTask, now: int) -> None:
        if task.held:
            assert self.limits is not None
            task.left_ns = self.limits.total_ns or task.limit_ns
            self._set(task, now)

    return [(Deadlines, "back", anew)]


def another_state() -> list[Change]:
    """A strategy that goes on counts its draws from 0 again: it repeats random numbers."""
    restore = Strategy.restore

    def forgetful(self: Strategy, state: dict[str, Any]) -> None:
        restore(self, state)
        for name in ("triggers", "draws"):
            if hasattr(self, name):
                setattr(self, name, 0)

    return [(Strategy, "restore", forgetful)]


MUTATIONS: dict[str, Callable[[], list[Change]]] = {
    each.__name__: each
    for each in (
        double_apply,
        lost_acknowledgement,
        version_jump,
        task_never_closed,
        agenda_outlives_offers,
        late_hello,
        acknowledged_before_journal,
        restart_truncates,
        early_checkpoint,
        arrays_not_copied,
        deadline_restarts,
        another_state,
    )
}


@contextmanager
def mutated(name: str | None) -> Iterator[None]:
    """Run the program with this mutation; None: as it is."""
    changes = MUTATIONS[name]() if name is not None else []
    patches = [patch.object(*change) for change in changes]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()
