"""Evaluation in a process of its own, on snapshots: the coordinator hands a file over and goes
on.
"""

from __future__ import annotations

import os
import queue
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from edgefl.hosts.wall.coordinator.mailbox import Evaluated, EvaluatorGone
from edgefl.hosts.wall.ipc import Channel
from edgefl.jobs import Evaluate
from edgefl.vectors import aligned_copy

Scores = tuple[float | None, ...]


class Evaluator:
    """The coordinator's end: ``submit`` writes a snapshot; orders go out and results come back in
    threads of their own.

    Evaluation may lag behind as far as it likes: the channel holds some hundred orders, and nobody
    may wait for it.
    """

    def __init__(self, channel: Channel, scratch: Path) -> None:
        self.channel, self.scratch = channel, scratch
        self._orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._pending: set[str] = (
            set()
            # files under evaluation: a late result of an earlier strategy's coordinator is none of
            # them
        )

    def listen(self, tell: Callable[[Any], None]) -> None:
        """Pass every result to ``tell`` from now on."""
        Thread(target=self._listen, args=(tell,), name="evaluations", daemon=True).start()
        Thread(target=self._send, name="snapshots", daemon=True).start()

    def submit(self, job: Evaluate) -> None:
        path = self.scratch / f"snapshot-{os.getpid()}-{job.version}.f32"
        job.weights.tofile(path)
        self._pending.add(str(path))
        self._orders.put({"version": job.version, "at_ns": job.at_ns, "file": str(path)})

    def _send(self) -> None:
        with suppress(ConnectionError):  # it is gone, as ``tell`` hears too
            while True:
                self.channel.send(**self._orders.get())

    def _listen(self, tell: Callable[[Any], None]) -> None:
        try:
            while True:
                result = self.channel.receive()
                if result["file"] in self._pending:
                    self._pending.discard(result["file"])
                    tell(
                        Evaluated(
                            result["version"],
                            tuple(
                                None if text is None else float(text) for text in result["scores"]
                            ),
                        )
                    )
        except (EOFError, OSError):
            tell(EvaluatorGone())


def serve(channel: Channel, evaluate: Callable[[Evaluate], Scores]) -> None:
    """The evaluating process: one snapshot after the other, until the channel closes."""
    for order in channel.messages():
        path = Path(order["file"])
        weights = aligned_copy(np.fromfile(path, dtype=np.float32))
        path.unlink()
        scores = evaluate(Evaluate(order["version"], order["at_ns"], weights, 0, 0))
        texts = [None if score is None else repr(score) for score in scores]  # JSON has no nan
        channel.send(version=order["version"], file=order["file"], scores=texts)
