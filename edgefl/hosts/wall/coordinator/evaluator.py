"""Evaluation in a separate process, on snapshots that the coordinator writes to files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, cast

import numpy as np

from edgefl.errors import TEMPORARY, written
from edgefl.hosts.ipc import Channel
from edgefl.hosts.process_messages import EvaluateSnapshot, SnapshotScores
from edgefl.hosts.wall.coordinator.thread_messages import Evaluated, EvaluatorGone
from edgefl.hosts.wall.system import OWN_SYSTEM, Inbox, System
from edgefl.jobs import Evaluate, Scores
from edgefl.vectors import aligned_copy


class Evaluator:
    """The coordinator's end. ``submit`` writes a snapshot; two threads send orders and receive
    results.

    Evaluation may lag behind: the channel holds some hundred orders, and ``submit`` never blocks.
    """

    def __init__(self, channel: Channel, scratch: Path, system: System = OWN_SYSTEM) -> None:
        self.channel, self.scratch, self.system = channel, scratch, system
        self._orders: Inbox = system.inbox()  # of EvaluateSnapshot
        # files under evaluation; identifies late results for an earlier strategy's coordinator
        self._pending: set[str] = set()
        self._unwritten: dict[int, np.ndarray] = {}  # weights of snapshots that are no files yet

    def listen(self, tell: Callable[[Any], None]) -> None:
        """Start the threads, which pass every result to ``tell``."""
        for work in (partial(self._listen, tell), self._send):
            self.system.start(Thread(target=work, name="evaluations", daemon=True))

    def expect(self, job: Evaluate) -> None:
        """Its snapshot will be submitted, maybe later by another thread."""
        self._unwritten[job.version] = job.weights

    def submit(self, job: Evaluate) -> None:
        """Write a snapshot, and order its evaluation. UserError if there is no room for it."""
        path = self._path(job.version)
        try:
            with written(f"{path}:", TEMPORARY):
                path.write_bytes(job.weights.data)
        finally:
            self._unwritten.pop(job.version, None)
        self._pending.add(str(path))
        self._orders.put(EvaluateSnapshot(job.version, job.at_ns, str(path)))

    def snapshot(self, version: int) -> np.ndarray | None:
        """The weights of an evaluation under way; None if there is no file any more."""
        weights = self._unwritten.get(version)
        if weights is not None:
            return weights
        try:
            return aligned_copy(np.fromfile(self._path(version), dtype=np.float32))
        except OSError:
            return None

    def handled(self, version: int) -> None:
        """The result is in the journal: a resumed run will not need the snapshot."""
        self._path(version).unlink(missing_ok=True)

    def _path(self, version: int) -> Path:
        return self.scratch / f"snapshot-{os.getpid()}-{version}.f32"

    def _send(self) -> None:
        with suppress(ConnectionError):  # the evaluator has ended; ``_listen`` reports that
            while True:
                self.channel.send(self._orders.get())

    def _listen(self, tell: Callable[[Any], None]) -> None:
        try:
            while True:
                result: SnapshotScores = self.channel.receive()
                if result.file in self._pending:
                    self._pending.discard(result.file)
                    tell(Evaluated(result.version, numbers(result.scores)))
        except (EOFError, OSError):
            tell(EvaluatorGone())


def serve(channel: Channel, evaluate: Callable[[Evaluate], Scores]) -> None:
    """Run the evaluator process: evaluate snapshots one by one until the channel closes."""

    def scores(order: EvaluateSnapshot) -> SnapshotScores:
        path = Path(order.file)
        weights = aligned_copy(np.fromfile(path, dtype=np.float32))
        found = evaluate(Evaluate(order.version, order.at_ns, weights, 0, 0))
        return SnapshotScores(order.version, order.file, texts(found))

    channel.serve(scores)


def texts(scores: Scores) -> tuple[str | None, ...]:
    """Scores as texts: JSON has no nan."""
    return tuple(None if score is None else repr(score) for score in scores)


def numbers(found: Iterable[str | None]) -> Scores:
    """The scores of ``texts``."""
    return cast(Scores, tuple(None if text is None else float(text) for text in found))
