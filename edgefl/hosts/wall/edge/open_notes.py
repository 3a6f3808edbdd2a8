"""What an edge has told about open work, and repeats in a new session. It has no I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from edgefl.edges.edge import Edge
from edgefl.protocol.messages import Stamped, Trained, Working

MOST_TRAINED = 8  # reports of trainings that are kept for the next session


@dataclass(slots=True)
class OpenNotes:
    """The notes of an edge that its coordinator may not have got.

    ``asked``: the latest request for a fresher model. ``failed``: failures, by task. ``working``:
    the training under way. ``trained``: trainings of a native device that ended without a session.
    """

    asked: Stamped | None = None
    failed: dict[int, Stamped] = field(default_factory=dict)
    working: Working | None = None
    trained: deque[Trained] = field(default_factory=lambda: deque(maxlen=MOST_TRAINED))

    def add_failed(self, task: int, note: Stamped, edge: Edge[Any]) -> None:
        """Add a failure, and forget those that are no longer open."""
        self.failed = {each: told for each, told in self.failed.items() if each in edge.failed}
        self.failed[task] = note

    def repeated(self, edge: Edge[Any]) -> Iterator[Any]:
        """Yield what a new session repeats."""
        task = None if edge.task is None else edge.task.number
        if self.working is not None and self.working.task == task and not edge.asking:
            yield self.working
        while self.trained:
            yield self.trained.popleft()
        if self.asked is not None and edge.asking:
            yield self.asked
        for number in edge.failed:
            yield self.failed[number]
