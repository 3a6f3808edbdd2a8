"""Everything that happens in a run passes here: it is counted, then handed to a recorder, which
writes it down or does not.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from edgefl.jobs import Evaluate
from edgefl.record.counters import Counters
from edgefl.record.rows import Row, event_line, event_row
from edgefl.strategies.base.decisions import Decision
from edgefl.strategies.base.events import Event
from emulator.links.network import Completion

STORY_LENGTH = 20  # events shown with a bug


class Recorder(Protocol):
    """What a run is recorded by: ``edgefl.record.record.Record`` writes files."""

    def event(self, now: int, event: Event, decisions: list[Decision], row: Row) -> None:
        """An event given to the strategy and what was decided; ``row``: both for events.jsonl."""

    def fact(self, now: int, row: Row) -> None:
        """What happened that is no event for the strategy."""

    def link(self, completion: Completion, finished_ns: int) -> None:
        """A transfer ended."""

    def snapshot(self, version: int) -> None:
        """This version is going to be evaluated: its moment is now."""

    def metrics(
        self,
        job: Evaluate,
        train_loss: float | None,
        test_loss: float,
        accuracy: float,
        *by_label: float,
    ) -> None:
        """An evaluation ended with these ``edgefl.jobs.Scores``."""


class Ledger:
    """Counts, keeps the latest events for the story behind a bug, and passes on to ``recorder``."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.counters = Counters()
        self._story: deque[tuple[int, Row]] = deque(maxlen=STORY_LENGTH)

    def begin(self, now: int, event: Event) -> dict[str, Any]:
        """An event is about to be given to the strategy; its row."""
        row = event_row(event)
        self._story.append((now, row))
        return row

    def event(
        self,
        now: int,
        version: int,
        event: Event,
        row: Row,
        decisions: list[Decision],
        numbers: list[list[int]],
    ) -> None:
        """The strategy, at ``version``, has decided on an event (``row``: its ``event_row``);
        ``numbers``: each Assign's task numbers.
        """
        whole = event_line(row, version, decisions, numbers)
        self.counters.take(whole)
        self.recorder.event(now, event, decisions, whole)

    def fact(self, now: int, fact: str, **values: Any) -> None:
        """What happened that is no event for the strategy."""
        row = {"fact": fact, **values}
        self.counters.take(row)
        self.recorder.fact(now, row)

    def link(self, completion: Completion, finished_ns: int) -> None:
        """A transfer ended; its bytes count from now on."""
        self.counters.link(completion.transfer.direction, completion.transfer.size)
        self.recorder.link(completion, finished_ns)

    def story(self) -> list[str]:
        """The latest events, a line each."""
        return [f"{at} {row}" for at, row in self._story]
