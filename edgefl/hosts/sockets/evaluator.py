"""Evaluation in a process of its own, on snapshots: the coordinator hands a file over and goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from edgefl.hosts.channel import Channel
from edgefl.hosts.sockets.mailbox import Evaluated
from edgefl.jobs import Evaluate
from edgefl.vectors import aligned_copy

Scores = tuple[float | None, float, float]


class Evaluator:
    """The coordinator's end: ``submit`` writes a snapshot; results reach ``tell`` from a thread that waits for them."""

    def __init__(self, channel: Channel, scratch: Path, tell: Callable[[Any], None]) -> None:
        self.channel, self.scratch, self.tell = channel, scratch, tell
        Thread(target=self._listen, name="evaluations", daemon=True).start()

    def submit(self, job: Evaluate) -> None:
        path = self.scratch / f"snapshot-{job.version}.f32"
        job.weights.tofile(path)
        self.channel.send(version=job.version, at_ns=job.at_ns, file=str(path))

    def _listen(self) -> None:
        try:
            while True:
                result = self.channel.receive()
                self.tell(Evaluated(result["version"], tuple(result["scores"])))
        except (EOFError, OSError):
            return


def serve(channel: Channel, evaluate: Callable[[Evaluate], Scores]) -> None:
    """The evaluating process: one snapshot after the other, until the channel closes."""
    while True:
        try:
            order = channel.receive()
        except EOFError:
            return
        path = Path(order["file"])
        weights = aligned_copy(np.fromfile(path, dtype=np.float32))
        path.unlink()
        scores = evaluate(Evaluate(order["version"], order["at_ns"], weights, 0, 0))
        channel.send(version=order["version"], scores=list(scores))
