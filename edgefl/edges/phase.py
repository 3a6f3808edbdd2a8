"""The phases of an edge's work, and the transitions between them.

TRANSITIONS lists all allowed transitions. Any other one is a bug: the edge ignores late messages
and messages about other tasks before they reach this table.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from edgefl.errors import Bug

MOST_TOLD = 20  # transitions that the message of a bug shows


class Phase(Enum):
    """The phase of an edge's work on its task."""

    __hash__ = object.__hash__  # Enum's own is computed in Python, at each look into the table

    IDLE = "idle"  # it has no task
    TRAINING = "training"  # no request is open: it asks later, was answered, or never asks
    WAITING = "waiting"  # training pauses until the answer to its request
    REFRESHING = "refreshing"  # it continues training while its request is open
    HELD = "held"  # training has ended; the update is held until the answer


class PhaseEvent(Enum):
    """An event that changes the phase."""

    __hash__ = object.__hash__

    BEGUN = "task begun"  # it may replace a task that the coordinator has closed
    ASKED = "request sent, and training stands still"
    ASKED_ON = "request sent, and training goes on"
    FRESH = "answer: a fresher model"
    NOTHING_NEWER = "answer: nothing newer"
    TOO_LATE = "no answer in time"
    DONE = "run done"
    CANCELLED = "task cancelled"
    URGED = "run begun again, to end early"  # from IDLE: its update was offered for later


ANSWERED = {
    PhaseEvent.FRESH: Phase.TRAINING,
    PhaseEvent.NOTHING_NEWER: Phase.TRAINING,
    PhaseEvent.TOO_LATE: Phase.TRAINING,
}
OPEN = {PhaseEvent.BEGUN: Phase.TRAINING, PhaseEvent.CANCELLED: Phase.IDLE, **ANSWERED}
TRANSITIONS: dict[Phase, dict[PhaseEvent, Phase]] = {
    Phase.IDLE: {
        PhaseEvent.BEGUN: Phase.TRAINING,
        PhaseEvent.URGED: Phase.TRAINING,
    },
    Phase.TRAINING: {
        PhaseEvent.BEGUN: Phase.TRAINING,
        PhaseEvent.ASKED: Phase.WAITING,
        PhaseEvent.ASKED_ON: Phase.REFRESHING,
        PhaseEvent.DONE: Phase.IDLE,
        PhaseEvent.CANCELLED: Phase.IDLE,
        PhaseEvent.URGED: Phase.TRAINING,
    },
    Phase.WAITING: OPEN,
    Phase.REFRESHING: {PhaseEvent.DONE: Phase.HELD, **OPEN},
    Phase.HELD: OPEN,
}
ASKING = (Phase.WAITING, Phase.REFRESHING, Phase.HELD)  # a request is open


class PhaseMachine:
    """The phase of the edge ``name``, with its latest transitions."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.phase = Phase.IDLE
        self._told: deque[tuple[PhaseEvent, Phase]] = deque(maxlen=MOST_TOLD)

    def move(self, event: PhaseEvent) -> None:
        """Move to the phase to which ``event`` leads. Bug if the table has no such transition."""
        expected = TRANSITIONS[self.phase]
        if event not in expected:
            raise Bug(
                f"edge {self.name}: {event.value!r} in phase {self.phase.value!r}, expected one of"
                f" {', '.join(repr(each.value) for each in expected)}",
                [f"{told.value} -> {phase.value}" for told, phase in self._told],
            )
        self.phase = expected[event]
        self._told.append((event, self.phase))
