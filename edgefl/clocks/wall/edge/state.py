"""What an edge keeps on disk, so that it survives the end of its process (``--state DIR``).

::

    DIR/EDGE/update-N.safetensors   the update of task N, until it is acknowledged
             memory.safetensors     what the local rule remembers between tasks
             training.json          the task in training, so that its loss can be told
             in-use.lock            locked while a process of this edge runs

All of it belongs to one run, which each file names. Files are private, and written whole or not at
all. Each has a digest: a damaged file is dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import xxhash
from safetensors.numpy import load, save

from edgefl.clocks.wall.edge.transfers import OfferedUpdate
from edgefl.clocks.wall.system import Inbox, System
from edgefl.disk import PART, Disk
from edgefl.edges.edge import Edge
from edgefl.errors import UserError
from edgefl.protocol.messages import Update

MEMORY, TRAINING, LOCK = "memory.safetensors", "training.json", "in-use.lock"
UPDATE, ENDING = "update-", ".safetensors"
FORMAT = 1
Vectors = Mapping[str, np.ndarray]
END_PATIENCE_S = 20.0  # at the end of the process, to write what is left


@dataclass(frozen=True, slots=True, eq=False)
class KeptUpdate:
    """An update without acknowledgement, and what its offer needs.

    ``transfer``: its number. ``due_ns``: the emulated moment of its offer. ``learned``: what
    it adds to the edge's memory once it is acknowledged.
    """

    transfer: int
    due_ns: int
    update: Update
    learned: dict[str, np.ndarray]


@dataclass(slots=True)
class KeptState:
    """What was kept of one run. ``lost``: the task that was in training."""

    updates: list[KeptUpdate] = field(default_factory=list)
    memory: dict[str, np.ndarray] = field(default_factory=dict)
    lost: int | None = None


class StateFolder:
    """The files of one edge. Methods that write raise OSError as the system does."""

    def __init__(self, folder: Path, edge: str, disk: Disk) -> None:
        self.folder, self.disk = folder / edge, disk
        self._lock = -1

    def claim(self) -> None:
        """Make the folder, and lock it until this process ends.

        UserError if it cannot be written, or if another process of this edge uses it.
        """
        try:
            self.disk.make_folder(self.folder)
            self._lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise UserError(
                f"--state: {self.folder}: cannot be written ({error.strerror})"
            ) from None
        try:
            import fcntl  # not in Windows: there nothing is locked

            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            return
        except OSError:
            self.release()
            raise UserError(
                f"--state: {self.folder}: another process of this edge uses it"
            ) from None

    def release(self) -> None:
        """Unlock the folder."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # ------------------------------------------------------------------ reading
    def take(self, run: str, say: Callable[[str], None]) -> KeptState:
        """Return what was kept of this run, and remove all that is of another one.

        ``say`` is called with a line for what is dropped.
        """
        state, others = KeptState(), 0
        acknowledged: list[int] = []
        for name in self._names():
            try:
                meta, vectors = self._read(name)
            except Exception as error:  # whatever is in the file
                say(f"{self.folder / name}: is damaged ({error}): dropped")
                self._remove(name)
                continue
            if meta["run"] != run:
                others += name.startswith(UPDATE)
                self._remove(name)
            elif name == MEMORY:
                state.memory, acknowledged = vectors["memory"], meta["acknowledged"]
            elif name == TRAINING:
                state.lost = meta["task"]
            else:
                state.updates.append(_kept(meta, vectors))
        if others:
            say(f"{self.folder}: {others} update{'s' * (others > 1)} of another run: dropped")
        # the process ended between two steps: the memory has it already
        state.updates = [each for each in state.updates if each.update.number not in acknowledged]
        state.updates.sort(key=lambda each: each.transfer)
        return state

    def _names(self) -> list[str]:
        """The names of all whole files of a state; those that are not whole are removed."""
        names = self.disk.names(self.folder)
        for name in names:
            if name.endswith(PART):
                self._remove(name)
        return [name for name in names if name in (MEMORY, TRAINING) or _is_update(name)]

    def _read(self, name: str) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
        data = self.disk.read(self.folder / name)
        return (json.loads(data), {}) if name == TRAINING else _decoded(data)

    def _remove(self, name: str) -> None:
        with suppress(OSError):
            self.disk.remove(self.folder / name)

    # ------------------------------------------------------------------ writing
    def keep(self, run: str, kept: KeptUpdate) -> None:
        """Write an update."""
        update = kept.update
        meta = {
            "run": run,
            "transfer": kept.transfer,
            "due_ns": kept.due_ns,
            "task": update.number,
            "version": update.version,
            "numbers": update.numbers,
        }
        data = _encoded(meta, {"vectors": update.vectors, "learned": kept.learned})
        self.disk.replace(self._update(update.number), data, durable=True, private=True)

    def forget(self, task: int) -> None:
        """Remove the update of a task."""
        self.disk.remove(self._update(task))

    def remember(self, run: str, memory: Vectors, acknowledged: Sequence[int]) -> None:
        """Write what the local rule remembers. ``acknowledged``: the tasks that have changed it.

        If this fails, the old memory is removed: it would be that of an earlier task.
        """
        data = _encoded({"run": run, "acknowledged": list(acknowledged)}, {"memory": memory})
        try:
            self.disk.replace(self.folder / MEMORY, data, durable=True, private=True)
        except OSError:
            self._remove(MEMORY)
            raise

    def training(self, run: str, task: int | None) -> None:
        """Write which task is in training; None: none is."""
        if task is None:
            self.disk.remove(self.folder / TRAINING)
            return
        data = json.dumps({"run": run, "task": task}).encode()
        self.disk.replace(self.folder / TRAINING, data, private=True)

    def clear(self) -> None:
        """Remove all: the run is over."""
        for name in self._names():
            self._remove(name)

    def _update(self, task: int) -> Path:
        return self.folder / f"{UPDATE}{task}{ENDING}"


def _is_update(name: str) -> bool:
    return name.startswith(UPDATE) and name.endswith(ENDING)


def _kept(meta: dict[str, Any], vectors: dict[str, dict[str, np.ndarray]]) -> KeptUpdate:
    update = Update(meta["task"], meta["version"], vectors["vectors"], meta["numbers"])
    return KeptUpdate(meta["transfer"], meta["due_ns"], update, vectors["learned"])


def _encoded(meta: dict[str, Any], groups: Mapping[str, Vectors]) -> bytes:
    """One file: named groups of vectors, a head of JSON, and a digest of both."""
    arrays = [vector for group in groups.values() for vector in group.values()]
    head = {
        **meta,
        "format": FORMAT,
        "groups": {name: list(group) for name, group in groups.items()},
    }
    text = np.frombuffer(json.dumps(head).encode(), np.uint8)
    whole = {f"vector {number}": array for number, array in enumerate(arrays)}
    return bytes(save({**whole, "head": text, "digest": _digest(text, arrays)}))


def _decoded(data: bytes) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """Return the head and the groups of vectors. ValueError if the digest is another one."""
    found = load(data)
    text, digest = found.pop("head"), found.pop("digest")
    arrays = [found[f"vector {number}"] for number in range(len(found))]
    if not np.array_equal(_digest(text, arrays), digest):
        raise ValueError("its digest is another one")
    head = json.loads(text.tobytes())
    if head["format"] != FORMAT:
        raise ValueError(f"format {head['format']}, expected {FORMAT}")
    rest = iter(arrays)
    groups = {name: {each: next(rest) for each in names} for name, names in head["groups"].items()}
    return head, groups


def _digest(text: np.ndarray, arrays: list[np.ndarray]) -> np.ndarray:
    state = xxhash.xxh3_128(text.data)
    for array in arrays:
        state.update(np.ascontiguousarray(array).view(np.uint8).data)
    return np.frombuffer(state.digest(), np.uint8)


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

    def look(self, edge: Edge, uploads: Iterable[OfferedUpdate]) -> None:
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

    def _keep(self, edge: Edge, upload: OfferedUpdate) -> None:
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
