"""Keeps the state of an edge on disk, in a thread: that of the socket must not wait for a disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from threading import Thread
from typing import Any

import numpy as np

from edgefl.edges.edge import Edge
from edgefl.hosts.wall.edge.state_folder import KeptState, KeptUpdate, StateFolder
from edgefl.hosts.wall.edge.transfers import OfferedUpdate
from edgefl.hosts.wall.system import Inbox, System
from edgefl.protocol.messages import Update

END_PATIENCE_S = 20.0  # at the end of the process, to write what is left


class StateKeeper(Thread):
    """Writes what the next process of an edge needs for the run ``run_id``.

    If files cannot be written, this is told once, and the edge goes on. Methods are called from one
    other thread.
    """

    def __init__(
        self, folder: StateFolder, run_id: str, say: Callable[[str], None], system: System
    ) -> None:
        super().__init__(name="state", daemon=True)
        self.folder, self.run_id, self.say, self.system = folder, run_id, say, system
        self._work: Inbox = system.inbox()  # of Callable[[], None], or None: end
        self._told = False  # that it cannot write
        # what the files have, or will have once all work is done
        self._kept: dict[int, Update] = {}
        self._memory: dict[str, np.ndarray] = {}
        self._training: int | None = None

    def take(self) -> KeptState:
        """Return what a former process has kept of the run, and begin to write."""
        state = self.folder.take(self.run_id, self.say)
        self._kept = {each.update.number: each.update for each in state.updates}
        self._memory, self._training = dict(state.memory), state.lost
        self.system.start(self)
        return state

    def look(self, edge: Edge[Any], uploads: Iterable[OfferedUpdate]) -> None:
        """Write what has changed since the last call. ``uploads``: of all updates of ``edge``."""
        gone = [task for task, update in self._kept.items() if edge.kept_update(task) is not update]
        if self._differs(edge.memory):  # before its updates are removed, so that nothing is lost
            self._memory = dict(edge.memory)
            self._put(self.folder.remember, self.run_id, self._memory, gone)
        for task in gone:
            del self._kept[task]
            self._put(self.folder.forget, task)
        for upload in uploads:
            self._keep(edge, upload)
        training = None if edge.task is None else edge.task.number
        if training != self._training:
            self._training = training
            self._put(self.folder.training, self.run_id, training)

    def _keep(self, edge: Edge[Any], upload: OfferedUpdate) -> None:
        task = upload.outgoing.task
        update = edge.kept_update(task)
        if update is None or task in self._kept:
            return
        self._kept[task] = update
        kept = KeptUpdate(upload.outgoing.number, upload.due_ns, update, edge.learned(task))
        self._put(self._write, kept)

    def _write(self, kept: KeptUpdate) -> None:
        # not if it was acknowledged before the disk had time for it
        if self._kept.get(kept.update.number) is kept.update:
            self.folder.keep(self.run_id, kept)

    def _differs(self, memory: dict[str, np.ndarray]) -> bool:
        return any(self._memory.get(name) is not vector for name, vector in memory.items())

    def end(self, over: bool) -> None:
        """Write what is left, and end. ``over``: the run is, so nothing of it is kept."""
        if over:
            self._kept.clear()
            self._put(self.folder.clear)
        self._work.put(None)
        self.system.join(self, END_PATIENCE_S)

    # ------------------------------------------------------------------ in the thread
    def _put(self, work: Callable[..., None], *values: Any) -> None:
        self._work.put(partial(work, *values))

    def run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except OSError as error:
                if not self._told:
                    self._told = True
                    self.say(
                        f"--state: {self.folder.folder}: cannot be written ({error.strerror});"
                        " going on without it: updates will be lost if this edge ends"
                    )
