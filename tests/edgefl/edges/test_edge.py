"""The edge in scripted sequences: a fake trainer, and a device with 10 samples per second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from builders import Desk, S, make, plain, vector
from own_strategies import Fresher
from trainers import linear_trainer

from edgefl.actor import COORDINATOR, Output, Run, Send
from edgefl.edges.edge import ASKING, TRANSITIONS, Edge, Phase, PhaseEvent, PhaseMachine
from edgefl.edges.training import Merge, TrainingFailure, TrainingPlan
from edgefl.errors import Bug
from edgefl.protocol.messages import (
    Acknowledged,
    Assignment,
    CancelTask,
    Fresh,
    FreshRequest,
    NothingNewer,
    Pushed,
    TooLate,
    Update,
    UrgeTask,
)
from edgefl.results.read import read_events
from edgefl.strategies.base.strategy import LocalRule
from emulator.compute import Device, Native, Rate


@dataclass(slots=True, eq=False)
class FakeRun:
    """Six steps of ten samples."""

    task: Assignment
    checkpoints: tuple[int, ...]
    steps: int = 6
    step: int = 0
    merged: list[int] = field(default_factory=list)
    failure: TrainingFailure | None = None

    @property
    def checkpoint(self) -> int | None:
        return self.checkpoints[0] if self.checkpoints else None

    def work_until(self, step: int) -> int:
        return 10 * (step - self.step)


class FakeTrainer:
    """Weights do not change; ``remembered`` counts the finished tasks."""

    def __init__(self, checkpoint: int | None) -> None:
        self.checkpoint = checkpoint

    def begin(self, task: Assignment, rule: LocalRule, memory: dict[str, Any]) -> FakeRun:
        return FakeRun(task, () if self.checkpoint is None else (self.checkpoint,))

    def advance(self, run: FakeRun, rule: LocalRule, until_step: int) -> None:
        run.step = min(until_step, run.steps)

    def merge_at(self, run: FakeRun, merge: Merge) -> None:
        run.merged.append(merge.model.version)

    def payload(
        self, run: FakeRun, rule: LocalRule
    ) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        return {"weights": run.task.vectors["weights"]}, {"samples": 10.0, "steps": float(run.step)}

    def remembered(self, run: FakeRun, rule: LocalRule) -> dict[str, int]:
        return {"last": run.task.number}


class EdgeAtWork:
    """An edge and its worker: ``train`` does the edge's latest job."""

    def __init__(
        self, checkpoint: int | None = None, work: float = 1.0, native: bool = False
    ) -> None:
        rule = LocalRule(None)
        rule.work = work
        self.trainer = FakeTrainer(checkpoint)
        self.edge = Edge("a", self.trainer, rule, Native() if native else Rate(10.0))
        self.job: Any = None

    def hear(self, message: Any) -> list[str]:
        return self._told(self.edge.receive(message, 0))

    def task(self, number: int = 0) -> list[str]:
        return self.hear(Assignment(number, 7, {"weights": vector(1, 2, 3)}))

    def train(self) -> list[str]:
        job = self.job
        self.trainer.advance(job.run, self.edge.rule, job.until_step)
        return self._told(self.edge.job_done(job, None, 0))

    def _told(self, outputs: list[Output]) -> list[str]:
        lines = []
        for out in outputs:
            if isinstance(out, Run):
                self.job = out.job
                ns = out.duration_ns
                time = "its own time" if ns is None else f"{ns / S:g} s"
                lines.append(f"train to {out.job.until_step} in {time}")
                continue
            assert isinstance(out, Send) and out.to == COORDINATOR
            match out.message:
                case Update(number, version, vectors, numbers):
                    lines.append(
                        f"update {number} v{version} ({plain(vectors['weights'])}) {numbers}"
                    )
                case FreshRequest(task, version, step):
                    lines.append(f"anything newer than v{version} for {task} at step {step}?")
        return lines


UPDATE = "update 0 v7 (1 2 3) {'samples': 10.0, 'steps': 6.0}"


def test_a_task_is_trained_in_emulated_time_and_its_update_kept_until_acknowledged() -> None:
    device = EdgeAtWork()
    assert device.task() == ["train to 6 in 6 s"] and device.edge.open_tasks == [0]
    assert device.train() == [UPDATE]
    assert device.edge.open_tasks == [0] and list(device.edge.unacknowledged) == [0], (
        "its fate is not known yet"
    )
    assert device.hear(Acknowledged(0)) == [] and device.edge.open_tasks == []


def test_eight_updates_are_kept_and_the_oldest_is_given_up_for_another_one() -> None:
    device = EdgeAtWork()
    for number in range(10):
        device.task(number)
        device.train()
        assert len(device.edge.unacknowledged) == min(number + 1, 8)
    assert device.edge.open_tasks == list(range(2, 10)) and device.edge.given_up == 2


@pytest.mark.parametrize(
    ("vectors", "numbers", "beyond"),
    [
        ({str(n): vector(1) for n in range(65)}, {}, "65 vectors, at most 64"),
        (
            {"weights": np.zeros(262_169, np.float32)},
            {},
            "1048676 bytes of vectors, at most 1048672 (eight models and 1 MiB)",
        ),
        ({"weights": vector(1)}, {str(n): 1.0 for n in range(65)}, "65 numbers, at most 64"),
    ],
    ids=["vectors", "bytes", "numbers"],
)
def test_an_update_that_cannot_travel_goes_empty(
    vectors: dict[str, Any], numbers: dict[str, float], beyond: str
) -> None:
    device = EdgeAtWork()
    device.trainer.payload = lambda run, rule: (vectors, numbers)
    device.task(5)
    (output,) = device.edge.job_done(device.job, None, 0)
    assert isinstance(output, Send) and output.message is device.edge.unacknowledged[5]
    assert (
        output.message.number,
        output.message.version,
        output.message.vectors,
        output.message.numbers,
    ) == (5, 7, {}, {})
    assert device.edge.beyond == beyond


def test_what_the_rule_remembers_is_written_with_the_acknowledgement() -> None:
    device = EdgeAtWork()
    device.task()
    device.train()
    assert device.edge.memory == {}
    device.hear(Acknowledged(3))
    assert device.edge.memory == {}, "of another task"
    device.hear(Acknowledged(0))
    device.hear(Acknowledged(0))
    assert device.edge.memory == {"last": 0}


def test_a_fresher_model_is_waited_for_and_merged_once() -> None:
    device = EdgeAtWork(checkpoint=4)
    assert device.task() == ["train to 4 in 4 s"]
    assert device.train() == ["anything newer than v7 for 0 at step 4?"]
    run = device.edge.run
    assert device.hear(Fresh(9, 8, {"weights": vector(0, 0, 0)})) == [], "of another task"
    assert device.hear(Fresh(0, 9, {"weights": vector(0, 0, 0)})) == ["train to 6 in 2 s"]
    assert (
        device.hear(Fresh(0, 10, {"weights": vector(0, 0, 0)}))
        == device.hear(NothingNewer(0))
        == []
    )
    assert run.merged == [9] and device.train() == [UPDATE]


def test_a_task_that_is_called_off_is_dropped() -> None:
    device = EdgeAtWork()
    device.task()
    assert device.hear(CancelTask(5)) == [] and device.edge.open_tasks == [0]
    assert device.hear(CancelTask(0)) == [] and device.edge.open_tasks == []
    assert device.train() == [], "its worker may end later"
    assert device.task(1) == ["train to 6 in 6 s"]


# ------------------------------------------------------------------ the table of an edge's phases:
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
    """An edge with two samples per second. ``kind``: its rule's ``on_request``, or "never"; then
    maybe what it does with a pushed model.
    """

    def __init__(self, kind: str) -> None:
        torch.set_num_threads(1)
        asks, _, takes = kind.partition(" ")
        rule = LocalRule(None) if asks == "never" else AskingRule(asks)
        if takes:
            rule.on_push, rule.pushed = takes, lambda run, model, version, numbers: None
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
PUSH: Step = lambda walk: walk.hear(Pushed(walk.number, 3, {"weights": vector(8, 0, 4)}))
LATER: Step = lambda walk: setattr(walk, "now", walk.now + 1)
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
    **dict.fromkeys((PhaseEvent.PUSHED, PhaseEvent.TAKEN_BACK, PhaseEvent.RESTARTED), PUSH),
}
SPECIAL: dict[tuple[Phase, PhaseEvent], tuple[str, list[Step]]] = {
    (Phase.TRAINING, PhaseEvent.ASKED): ("wait", [BEGIN]),
    (Phase.TRAINING, PhaseEvent.ASKED_ON): ("train_on", [BEGIN]),
    # trained ahead of emulated time
    (Phase.IDLE, PhaseEvent.URGED): ("never", [BEGIN, TRAIN]),
    (Phase.IDLE, PhaseEvent.PUSHED): ("never go_on", [BEGIN, TRAIN]),
    (Phase.IDLE, PhaseEvent.RESTARTED): ("never restart", [BEGIN, TRAIN]),
    (Phase.TRAINING, PhaseEvent.PUSHED): ("never go_on", [BEGIN]),
    (Phase.TRAINING, PhaseEvent.RESTARTED): ("never restart", [BEGIN]),
    (Phase.WAITING, PhaseEvent.TAKEN_BACK): ("wait go_on", [BEGIN, TRAIN]),
    (Phase.WAITING, PhaseEvent.RESTARTED): ("wait restart", [BEGIN, TRAIN, LATER]),
    (Phase.REFRESHING, PhaseEvent.PUSHED): ("train_on go_on", [BEGIN, TRAIN, LATER]),
    (Phase.REFRESHING, PhaseEvent.TAKEN_BACK): ("train_on go_on", [BEGIN, TRAIN]),
    (Phase.REFRESHING, PhaseEvent.RESTARTED): ("train_on restart", [BEGIN, TRAIN, LATER]),
    (Phase.HELD, PhaseEvent.PUSHED): ("train_on go_on", [BEGIN, TRAIN, LATER, TRAIN]),
    (Phase.HELD, PhaseEvent.TAKEN_BACK): ("train_on go_on", [BEGIN, TRAIN, TRAIN]),
    (Phase.HELD, PhaseEvent.RESTARTED): ("train_on restart", [BEGIN, TRAIN, LATER, TRAIN]),
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
    before = len([step for step in way if step is not LATER])
    (first, *more) = walk.told[before:]
    assert first == (phase, event, TRANSITIONS[phase][event])
    # the pushed model that comes before a request is then merged
    assert [event for _, event, _ in more] == [PhaseEvent.PUSHED] * (event is PhaseEvent.TAKEN_BACK)
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
        " 'request taken back: a pushed model comes before it', 'run begun again from a pushed"
        " model', 'answer: a fresher model', 'answer: nothing newer', 'no answer in time'"
    )
    assert caught.value.story == [
        "task begun -> training",
        "request sent, and training stands still -> waiting",
    ]


# ------------------------------------------------------------------ an urged edge: its run ends at
PLAN_URGE = TrainingPlan(6, 2, 0.125, momentum=0.5)  # six steps of two samples


def edge(device: Any = None, rule: LocalRule | None = None) -> Edge:
    """An edge with two samples per second by default: a step takes 1 s."""
    torch.set_num_threads(1)
    return Edge("a", linear_trainer(PLAN_URGE), rule or LocalRule(None), device or Rate(2.0))


def task(number: int = 7) -> Assignment:
    return Assignment(number, 0, {"weights": vector(0, 0, 5)})


def trained(on: Edge, outputs: list[Output], began_ns: int) -> tuple[Update, int]:
    """Do the job and report it: (the update, its moment)."""
    (run,) = outputs
    assert isinstance(run, Run)
    on.trainer.advance(run.job.run, on.rule, run.job.until_step)
    end_ns = began_ns + run.duration_ns
    (sent,) = on.job_done(run.job, None, end_ns)
    assert isinstance(sent, Send)
    return sent.message, end_ns


def after(steps: int) -> list[float]:
    """The weights after so many steps."""
    one = edge()
    run = one.trainer.begin(task(), one.rule, {})
    one.trainer.advance(run, one.rule, steps)
    return run.weights.tolist()


# ------------------------------------------------------------------ the edge
@pytest.mark.parametrize(
    ("urged_ns", "steps"), [(0, 1), (1, 1), (S, 1), (S + 1, 2), (7 * S // 2, 4), (4 * S, 4)]
)
def test_the_run_ends_at_the_first_step_at_or_after_the_moment(urged_ns: int, steps: int) -> None:
    """Begun at 10 s, steps end at 11, 12, ... s; a run has at least one step."""
    one = edge()
    one.receive(task(), 10 * S)
    update, end_ns = trained(one, one.receive(UrgeTask(7), 10 * S + urged_ns), 10 * S + urged_ns)
    assert (
        end_ns == (10 + steps) * S
        and update.numbers["steps"] == steps
        and update.vectors["weights"].tolist() == after(steps)
    )


def test_what_was_offered_for_later_is_taken_back() -> None:
    one = edge()
    offered, due_ns = trained(one, one.receive(task(), 0), 0)
    assert due_ns == 6 * S and offered.numbers["steps"] == 6 and list(one.unacknowledged) == [7]
    outputs = one.receive(UrgeTask(7), 3 * S)
    assert one.unacknowledged == {} and one.open_tasks == [7]
    update, end_ns = trained(one, outputs, 3 * S)
    assert (
        end_ns == 3 * S
        and update.vectors["weights"].tolist() == after(3)
        and one.unacknowledged == {7: update}
    )


def test_an_urge_that_overtakes_the_model_is_kept_for_it() -> None:
    one = edge()
    assert one.receive(UrgeTask(7), 0) == []
    update, end_ns = trained(one, one.receive(task(), 4 * S), 4 * S)
    assert end_ns == 5 * S and update.vectors["weights"].tolist() == after(1)
    assert trained(one, one.receive(task(8), 5 * S), 5 * S)[0].numbers["steps"] == 6, (
        "it was for task 7 alone"
    )


# ------------------------------------------------------------------ whole runs


def steps(directory: Path) -> dict[int, float]:
    """By task: the steps for which its update was trained."""
    return {
        event["task"]: event["numbers"]["steps"]
        for event in read_events(directory / "events.jsonl")
        if event.get("event") == "update_arrived"
    }


# ------------------------------------------------------------------ ``on_request = "train_on"``: t
PLAN_TRAIN_ON = TrainingPlan(6, 2, 0.125, momentum=0.5)  # six steps of two samples
NEWER = Fresh(7, 3, {"weights": vector(8, 0, 4)})


class Asks(LocalRule):
    """Asks before step 2, and merges half and half. It remembers the merge and counts steps in
    place.
    """

    on_request = "train_on"
    remembers = ("merged", "adjusted")

    def begin(self, run: Any) -> None:
        run.memory["adjusted"] = torch.zeros(1)

    def adjust(self, run: Any, gradient: Any) -> None:
        run.memory["adjusted"] += 1

    def checkpoint(self, run: Any) -> int:
        return 2

    def merge(self, run: Any, fresh: np.ndarray, version: int) -> None:
        run.weights.add_(torch.from_numpy(fresh)).div_(2)
        run.memory["merged"] = torch.tensor([float(version)])

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        return {"weights": run.weights.numpy()}, {
            "merged": float("merged" in run.memory),
            "adjusted": float(run.memory["adjusted"]),
        }


class Story:
    """An edge with two samples per second by default.

    Begun at 10 s, its steps end at 11, 12, ... 16 s; it asks at 12 s.
    """

    def __init__(self, device: Device | None = None, rule: LocalRule | None = None) -> None:
        torch.set_num_threads(1)
        self.edge = Edge(
            "a", linear_trainer(PLAN_TRAIN_ON), rule or Asks(None), device or Rate(2.0)
        )
        self.outputs = self.edge.receive(Assignment(7, 0, {"weights": vector(0, 0, 5)}), 10 * S)

    def asks(self) -> tuple[FreshRequest, Run]:
        """The request, and the job that continues training."""
        (first,) = self.outputs
        assert isinstance(first, Run) and first.duration_ns is not None
        self.edge.trainer.advance(first.job.run, self.edge.rule, first.job.until_step)
        sent, rest = self.edge.job_done(first.job, None, 10 * S + first.duration_ns)
        assert (
            isinstance(sent, Send)
            and isinstance(sent.message, FreshRequest)
            and isinstance(rest, Run)
        )
        return sent.message, rest

    def trains(self, run: Run, now: int) -> list[Output]:
        """Train the run to its end, as a worker does in slices of one step."""
        assert run.duration_ns is not None
        while not self.edge.trainer.advance(
            run.job.run, self.edge.rule, run.job.until_step, lambda: True
        ):
            pass
        self.end_ns = now + run.duration_ns
        return self.edge.job_done(run.job, None, self.end_ns)


def update(outputs: list[Output]) -> Update:
    (sent,) = outputs
    assert isinstance(sent, Send) and isinstance(sent.message, Update)
    return sent.message


def merged_by_hand(step: int | None) -> list[float]:
    """The weights of a run that merges when ``step`` steps are done (None: never)."""
    trainer, rule = linear_trainer(PLAN_TRAIN_ON), Asks(None)
    run = trainer.begin(Assignment(7, 0, {"weights": vector(0, 0, 5)}), rule, {})
    if step is not None:
        trainer.advance(run, rule, step)
        trainer.merge(run, rule, Merge(step, NEWER))
    trainer.advance(run, rule)
    return run.weights.tolist()


# ------------------------------------------------------------------ the edge
@pytest.mark.parametrize(
    ("arrived_ns", "step"),
    [(12 * S, 2), (12 * S + 1, 3), (13 * S, 3), (27 * S // 2, 4), (14 * S, 4), (15 * S, 5)],
)
@pytest.mark.parametrize("ahead", [0, 2, 4], ids=["not begun", "under way", "through"])
def test_it_is_merged_at_the_first_step_done_at_or_after_its_arrival(
    arrived_ns: int, step: int, ahead: int
) -> None:
    """This holds whatever the host has trained by then; the run ends when it would have ended
    anyway.
    """
    story = Story()
    request, rest = story.asks()
    assert request == FreshRequest(7, 0, 2, until_ns=15 * S + 1) and rest.duration_ns == 4 * S
    if ahead == 4:
        assert story.trains(rest, 12 * S) == [] and story.edge.open_tasks == [7], (
            "held until the answer"
        )
    else:
        story.edge.trainer.advance(rest.job.run, story.edge.rule, 2 + ahead)
    (again,) = story.edge.receive(NEWER, arrived_ns)
    assert story.edge.job_done(rest.job, None, 16 * S) == [] or again.job.run is rest.job.run
    found = update(story.trains(again, arrived_ns))
    assert story.end_ns == 16 * S and found.vectors["weights"].tolist() == merged_by_hand(step)
    assert (
        found.numbers["steps"] == found.numbers["adjusted"] == 6
        and found.numbers["merged"] == 1
        and "too_late" not in found.numbers
    )
    assert story.edge.receive(TooLate(7), 15 * S + 1) == [] == story.edge.receive(NEWER, 15 * S), (
        "one answer, one merge"
    )


@pytest.mark.parametrize("through", [False, True])
def test_one_that_comes_in_the_last_step_or_later_is_too_late(through: bool) -> None:
    """No step would follow the merge. The host reports it at that moment, and the update has it."""
    story = Story()
    _, rest = story.asks()
    outputs = story.trains(rest, 12 * S) if through else []
    assert (
        outputs
        == story.edge.receive(NEWER, 15 * S + 1)
        == story.edge.receive(NothingNewer(7), 15 * S + 1)
        == []
    )
    outputs = story.edge.receive(TooLate(7), 15 * S + 1)
    found = update(story.trains(outputs[0] if through else rest, 15 * S + 1 if through else 12 * S))
    assert story.end_ns == 16 * S and found.vectors["weights"].tolist() == merged_by_hand(None)
    assert found.numbers["too_late"] == 1 and found.numbers["merged"] == 0


def test_a_request_that_arrives_when_it_is_too_late_is_not_answered(tmp_path: Path) -> None:
    desk = Desk(tmp_path, make(Fresher))
    desk.start("a")
    assert desk.hear("a", FreshRequest(0, 0, 2, 5 * S), 5 * S) == []
    assert desk.facts("request_too_late") == [
        {"t": 5.0, "fact": "request_too_late", "edge": "a", "task": 0}
    ]
    assert desk.hear("a", FreshRequest(0, 0, 2, 5 * S), 5 * S - 1) == ["a <- NothingNewer 0"]
    assert desk.events()[-1]["until_ns"] == 5 * S


# ------------------------------------------------------------------ pushed models
class Means(LocalRule):
    """It takes the mean of its own model and a pushed one, and counts steps in place."""

    remembers = ("adjusted",)

    def __init__(self, on_push: str = "go_on", asks: tuple[int, ...] = ()) -> None:
        super().__init__(None)
        self.on_push, self.points = on_push, asks

    def begin(self, run: Any) -> None:
        run.memory["adjusted"] = torch.zeros(1)

    def adjust(self, run: Any, gradient: Any) -> None:
        run.memory["adjusted"] += 1

    def checkpoint(self, run: Any) -> tuple[int, ...]:
        return self.points

    def merge(self, run: Any, fresh: np.ndarray, version: int) -> None:
        run.weights.copy_(torch.from_numpy(fresh))

    def pushed(self, run: Any, model: np.ndarray, version: int, numbers: Any) -> None:
        assert run.pushed["weights"] is model and numbers == {"share": 0.5}
        run.weights.add_(torch.from_numpy(model)).div_(2)

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        return {"weights": run.weights.numpy()}, {"adjusted": float(run.memory["adjusted"])}


def pushed(version: int = 3, task: int = 7) -> Pushed:
    return Pushed(task, version, {"weights": vector(8, version, 4)}, {"share": 0.5})


class PushStory:
    """An edge that begins at 10 s; its six steps end at 11, 12, ... 16 s."""

    def __init__(self, rule: Means, device: Device | None = None) -> None:
        torch.set_num_threads(1)
        self.edge = Edge("a", linear_trainer(PLAN_TRAIN_ON), rule, device or Rate(2.0))
        self.jobs: list[tuple[Any, int]] = []  # with their ends
        self.told: list[Any] = []
        self.hear(Assignment(7, 0, {"weights": vector(0, 0, 5)}), 10 * S)

    def hear(self, message: Any, now: int) -> None:
        self._take(self.edge.receive(message, now), now)

    def train(self) -> None:
        """Do the latest job, as a worker does in slices of one step."""
        job, end_ns = self.jobs.pop()
        while not self.edge.trainer.advance(job.run, self.edge.rule, job.until_step, lambda: True):
            pass
        self._take(self.edge.job_done(job, None, end_ns), end_ns)

    def _take(self, outputs: list[Output], now: int) -> None:
        for out in outputs:
            if isinstance(out, Run):
                self.jobs.append((out.job, now + (out.duration_ns or 0)))
            else:
                self.told.append((out.message, now))


def pushes_by_hand(*merges: tuple[int, int], rule: Means | None = None) -> list[float]:
    """The weights of a run that takes versions after so many steps: (step, version)."""
    trainer, rule = linear_trainer(PLAN_TRAIN_ON), rule or Means()
    run = trainer.begin(Assignment(7, 0, {"weights": vector(0, 0, 5)}), rule, {})
    for step, version in merges:
        trainer.advance(run, rule, step)
        trainer.merge(run, rule, Merge(step, pushed(version)))
    trainer.advance(run, rule)
    return run.weights.tolist()


@pytest.mark.parametrize(
    ("arrived_ns", "step"),
    [(10 * S, 0), (10 * S + 1, 1), (11 * S, 1), (12 * S + 1, 3), (15 * S, 5), (15 * S + 1, None)],
)
@pytest.mark.parametrize("ahead", [False, True], ids=["not trained", "offered for later"])
def test_a_push_is_taken_at_the_first_step_done_at_or_after_its_arrival(
    arrived_ns: int, step: int | None, ahead: bool
) -> None:
    """The end stays. One that comes in the last step is too late, and changes nothing."""
    story = PushStory(Means())
    if ahead:
        story.train()
        assert [type(message) for message, _ in story.told] == [Update]
    story.hear(pushed(), arrived_ns)
    if not ahead or step is not None:
        story.train()
    (update, at_ns) = story.told[-1]
    wanted = () if step is None else ((step, 3),)
    assert at_ns == 16 * S and update.vectors["weights"].tolist() == pushes_by_hand(*wanted)
    assert update.numbers["steps"] == update.numbers["adjusted"] == 6
    assert update.numbers.get("pushes") == (None if step is None else 1.0)
    assert list(story.edge.unacknowledged.values()) == [update]


@pytest.mark.parametrize("ahead", [False, True])
def test_a_task_begins_anew_from_a_pushed_model_at_a_step_s_end(ahead: bool) -> None:
    story = PushStory(Means("restart"))
    if ahead:
        story.train()
    story.hear(pushed(), 12 * S + 1)
    story.train()
    (update, at_ns) = story.told[-1]
    trainer, rule = linear_trainer(PLAN_TRAIN_ON), Means()
    run = trainer.begin(Assignment(7, 3, {"weights": vector(8, 3, 4)}), rule, {})
    trainer.advance(run, rule)
    assert at_ns == (13 + 6) * S and update.version == 3
    assert update.vectors["weights"].tolist() == run.weights.tolist()
    assert update.numbers["pushes"] == 1 and update.numbers["steps"] == 6


def test_a_push_before_its_task_and_after_its_end() -> None:
    story = PushStory(Means())
    story.hear(pushed(4, task=8), 12 * S)
    story.train()
    story.hear(pushed(5), 17 * S)
    assert story.jobs == [] and len(story.told) == 1, "too late"
    story.hear(Acknowledged(7), 18 * S)
    story.hear(pushed(6), 18 * S)
    story.hear(Assignment(8, 1, {"weights": vector(0, 0, 5)}), 20 * S)
    story.train()
    assert story.told[-1][0].numbers["pushes"] == 1


def test_a_push_while_the_edge_waits_is_taken_at_once_and_before_its_request_it_is_taken_back() -> (
    None
):
    story = PushStory(Means(asks=(2, 4)))
    story.train()
    request, at_ns = story.told.pop()
    assert isinstance(request, FreshRequest) and (request.step, at_ns) == (2, 12 * S)
    story.hear(pushed(3), 11 * S + 1)  # real training was ahead
    assert story.edge.phase is Phase.TRAINING
    story.train()
    assert story.told.pop() == (request, 12 * S), "it asks again"
    story.hear(pushed(4), 13 * S)
    assert story.edge.phase is Phase.WAITING and story.jobs == []
    story.hear(NothingNewer(7), 14 * S)
    story.train()
    assert story.told.pop()[0].step == 4
    story.hear(Fresh(7, 9, {"weights": vector(1, 1, 1)}), 17 * S)
    story.train()
    (update, at_ns) = story.told.pop()
    assert at_ns == (14 + 2 + 1 + 2) * S and update.numbers["pushes"] == 2
    trainer, rule = linear_trainer(PLAN_TRAIN_ON), Means()
    run = trainer.begin(Assignment(7, 0, {"weights": vector(0, 0, 5)}), rule, {})
    for step, model in (
        (2, pushed(3)),
        (2, pushed(4)),
        (4, Fresh(7, 9, {"weights": vector(1, 1, 1)})),
    ):
        trainer.advance(run, rule, step)
        trainer.merge(run, rule, Merge(step, model))
    trainer.advance(run, rule)
    assert update.vectors["weights"].tolist() == run.weights.tolist()


def test_a_native_device_takes_a_push_at_its_present_step() -> None:
    story = PushStory(Means(), Native())
    job = story.jobs[-1][0]
    story.edge.trainer.advance(job.run, story.edge.rule, 3)
    story.hear(pushed(), 11 * S)
    story.train()
    (update, _) = story.told[-1]
    assert update.vectors["weights"].tolist() == pushes_by_hand((3, 3))
    story.hear(pushed(), 17 * S)
    assert story.jobs == []


def test_a_request_that_comes_while_one_is_open_is_passed_over() -> None:
    rule = Means(asks=(1, 2, 4))
    rule.on_request = "train_on"
    story = PushStory(rule)
    story.train()
    assert story.told[-1][0].step == 1
    story.train()  # to its end, ahead of emulated time
    story.hear(NothingNewer(7), 12 * S + 1)
    story.train()
    assert (story.told[-1][0].step, story.told[-1][1]) == (4, 14 * S)
