"""The table of an edge's phases: messages cause every transition in it, and every other one is
refused.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from builders import S, vector
from trainers import linear_trainer

from edgefl.actor import Output, Run
from edgefl.edges.edge import ASKING, TRANSITIONS, Edge, Phase, PhaseEvent, PhaseMachine
from edgefl.edges.training import TrainingPlan
from edgefl.errors import Bug
from edgefl.protocol.messages import (
    Acknowledged,
    Assignment,
    CancelTask,
    Fresh,
    NothingNewer,
    TooLate,
    UrgeTask,
)
from edgefl.strategies.base.strategy import LocalRule
from emulator.compute import Rate

PLAN = TrainingPlan(6, 2, 0.125)  # six steps of two samples


class AskingRule(LocalRule):
    def __init__(self, on_request: str) -> None:
        super().__init__(None)
        self.on_request = on_request

    def checkpoint(self, run: Any) -> int:
        return 2

    def merge(self, run: Any, fresh: Any, version: int) -> None:
        run.weights.copy_(torch.from_numpy(fresh))


class Walk:
    """An edge with two samples per second. ``kind``: its rule's ``on_request``, or "never"."""

    def __init__(self, kind: str) -> None:
        torch.set_num_threads(1)
        rule = LocalRule(None) if kind == "never" else AskingRule(kind)
        self.edge = Edge("a", linear_trainer(PLAN), rule, Rate(2.0))
        self.number, self.now = 6, 0
        self.job: Any = None
        self.told: list[tuple[Phase, PhaseEvent, Phase]] = []
        move = self.edge._phases.move

        def watched(event: PhaseEvent) -> None:
            before = self.edge.phase
            move(event)
            self.told.append((before, event, self.edge.phase))

        self.edge._phases.move = watched

    def task(self) -> None:
        self.number += 1
        self.hear(Assignment(self.number, 0, {"weights": vector(0, 0, 5)}))

    def train(self) -> None:
        """Do the edge's latest job."""
        job = self.job
        self.edge.trainer.advance(job.run, self.edge.rule, job.until_step)
        self.take(self.edge.job_done(job, None, self.now))

    def fresh(self) -> None:
        self.hear(Fresh(self.number, 3, {"weights": vector(8, 0, 4)}))

    def hear(self, message: Any) -> None:
        self.take(self.edge.receive(message, self.now))

    def take(self, outputs: list[Output]) -> None:
        self.job = next((out.job for out in outputs if isinstance(out, Run)), self.job)


Step = Callable[[Walk], None]
BEGIN: Step = Walk.task
TRAIN: Step = Walk.train
FRESH: Step = Walk.fresh
NOTHING: Step = lambda walk: walk.hear(NothingNewer(walk.number))
LATE: Step = lambda walk: walk.hear(TooLate(walk.number))
CANCEL: Step = lambda walk: walk.hear(CancelTask(walk.number))
URGE: Step = lambda walk: walk.hear(UrgeTask(walk.number))

TO: dict[Phase, tuple[str, list[Step]]] = {  # the kind of edge, and the steps that lead there
    Phase.IDLE: ("never", []),
    Phase.TRAINING: ("never", [BEGIN]),
    Phase.WAITING: ("wait", [BEGIN, TRAIN]),
    Phase.REFRESHING: ("train_on", [BEGIN, TRAIN]),
    Phase.HELD: ("train_on", [BEGIN, TRAIN, TRAIN]),
}
BY: dict[PhaseEvent, Step] = {
    PhaseEvent.BEGUN: BEGIN,
    PhaseEvent.ASKED: TRAIN,
    PhaseEvent.ASKED_ON: TRAIN,
    PhaseEvent.FRESH: FRESH,
    PhaseEvent.NOTHING_NEWER: NOTHING,
    PhaseEvent.TOO_LATE: LATE,
    PhaseEvent.DONE: TRAIN,
    PhaseEvent.CANCELLED: CANCEL,
    PhaseEvent.URGED: URGE,
}
SPECIAL: dict[tuple[Phase, PhaseEvent], tuple[str, list[Step]]] = {
    (Phase.TRAINING, PhaseEvent.ASKED): ("wait", [BEGIN]),
    (Phase.TRAINING, PhaseEvent.ASKED_ON): ("train_on", [BEGIN]),
    (Phase.IDLE, PhaseEvent.URGED): ("never", [BEGIN, TRAIN]),  # trained ahead of emulated time
}
LEGAL = [(phase, event) for phase, row in TRANSITIONS.items() for event in row]
ILLEGAL = [pair for pair in product(Phase, PhaseEvent) if pair not in LEGAL]


def name(value: Any) -> str:
    return value.name.lower()


@pytest.mark.parametrize(("phase", "event"), LEGAL, ids=name)
def test_messages_walk_every_transition_of_the_table(phase: Phase, event: PhaseEvent) -> None:
    kind, way = SPECIAL.get((phase, event), TO[phase])
    walk = Walk(kind)
    for step in way:
        step(walk)
    assert walk.edge.phase is phase and walk.edge.asking == (phase in ASKING)
    BY[event](walk)
    assert walk.told[len(way) :] == [(phase, event, TRANSITIONS[phase][event])]
    assert (walk.edge.task is None) == (walk.edge.run is None) == (walk.edge.phase is Phase.IDLE)


@pytest.mark.parametrize(("phase", "event"), ILLEGAL, ids=name)
def test_every_other_transition_is_a_bug(phase: Phase, event: PhaseEvent) -> None:
    machine = PhaseMachine("e003")
    machine.phase = phase
    with pytest.raises(Bug, match=f"^edge e003: '{event.value}' in phase '{phase.value}', exp"):
        machine.move(event)
    assert machine.phase is phase


def test_a_bug_says_what_was_expected_and_how_the_edge_came_there() -> None:
    walk = Walk("wait")
    BEGIN(walk)
    TRAIN(walk)
    with pytest.raises(Bug) as caught:
        walk.edge.job_done(walk.job, None, 4 * S)
    assert caught.value.message == (
        "edge a: 'run done' in phase 'waiting', expected one of 'task begun', 'task cancelled',"
        " 'answer: a fresher model', 'answer: nothing newer', 'no answer in time'"
    )
    assert caught.value.story == [
        "task begun -> training",
        "request sent, and training stands still -> waiting",
    ]


@pytest.mark.parametrize("phase", Phase, ids=name)
def test_what_is_about_another_task_is_no_event(phase: Phase) -> None:
    kind, way = TO[phase]
    walk = Walk(kind)
    for step in way:
        step(walk)
    others = (
        Fresh(99, 3, {"weights": vector(8, 0, 4)}),
        *(kind(99) for kind in (NothingNewer, TooLate, CancelTask, UrgeTask, Acknowledged)),
    )
    for message in others:
        assert walk.edge.receive(message, 0) == []
    assert walk.edge.phase is phase and len(walk.told) == len(way)


def test_a_model_that_comes_when_it_is_too_late_leaves_the_request_open() -> None:
    walk = Walk("train_on")
    BEGIN(walk)
    TRAIN(walk)
    walk.now = 5 * S  # the last step begins: no step would follow a merge
    FRESH(walk)
    NOTHING(walk)
    assert walk.edge.phase is Phase.REFRESHING
    LATE(walk)
    assert walk.edge.phase is Phase.TRAINING
