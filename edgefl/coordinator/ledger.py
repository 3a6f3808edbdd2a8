"""The ledger counts everything that happens in a run, and passes it to its record."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from edgefl.record.counters import Counters
from edgefl.record.energy import EnergyBook
from edgefl.record.record import Record
from edgefl.record.rows import Row, event_line, event_row, joined_lines
from edgefl.strategies.base.events_and_decisions import Decision, EdgeJoined, Event
from emulator.links.network import Completion

STORY_LENGTH = 20  # events shown with a bug


class Ledger:
    """Counts, keeps the latest events for reports of bugs, and passes all on to ``recorder``.

    ``energy`` None: the run has no model of its energy.
    """

    def __init__(self, recorder: Record, energy: EnergyBook | None = None) -> None:
        self.recorder, self.energy = recorder, energy
        self.counters = Counters()
        self._story: deque[tuple[int, Row]] = deque(maxlen=STORY_LENGTH)

    def begin(self, now: int, event: Event) -> dict[str, Any]:
        """Begin an event, before the strategy gets it. Returns its row."""
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
        """Record the strategy's decisions on an event.

        ``version``: before the event. ``row``: the event's ``event_row``. ``numbers``: the task
        numbers of each Assign.
        """
        whole = event_line(row, version, decisions, numbers)
        self.counters.take(whole)
        self.recorder.event(now, event, decisions, whole)
        if self.energy is not None:
            self._spend(self.energy, now, whole)

    def joined(self, now: int, version: int, events: Sequence[EdgeJoined]) -> None:
        """Record joined edges on which the strategy decided nothing."""
        if not events:
            return
        rows = joined_lines(events, version)
        self._story.extend((now, event_row(event)) for event in events[-STORY_LENGTH:])
        self.counters.joined(version, [event.edge for event in events])
        self.recorder.joined(now, events, rows)
        if self.energy is not None:
            for row in rows:
                self._spend(self.energy, now, row)

    def fact(self, now: int, fact: str, **values: Any) -> None:
        """Record something that is not an event for the strategy."""
        row = {"fact": fact, **values}
        self.counters.take(row)
        self.recorder.fact(now, row)
        if self.energy is not None:
            self._spend(self.energy, now, row)

    def link(self, completion: Completion, finished_ns: int) -> None:
        """Record the end of a transfer, and count its bytes."""
        self.counters.link(completion.transfer.direction, completion.transfer.size)
        self.recorder.link(completion, finished_ns)
        for fields in () if self.energy is None else self.energy.link(completion, finished_ns):
            self.recorder.energy(fields)

    def _spend(self, energy: EnergyBook, now: int, row: Row) -> None:
        for fields in energy.take(now, row):
            self.recorder.energy(fields)

    def story(self) -> list[str]:
        """The latest events, one line each."""
        return [f"{at} {row}" for at, row in self._story]
