"""``on_request = "train_on"``: training continues while the fresher model is downloaded.

The end of training does not change, and both clocks agree.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from builders import Desk, S, make, vector
from edge_hosts import SETUP, Script, side
from own_strategies import Fresher
from processes import EchoRun, EchoTrainer
from trainers import linear_trainer
from transport_rig import Rig

from edgefl.actor import Output, Run, Send
from edgefl.edges.edge import Edge
from edgefl.edges.training import TrainingPlan
from edgefl.protocol.codec import decode_note, encode_note
from edgefl.protocol.messages import (
    Assignment,
    Fresh,
    FreshRequest,
    NothingNewer,
    RunFinished,
    Stamped,
    TooLate,
    Update,
    Welcome,
)
from edgefl.protocol.transfers import Outgoing
from edgefl.strategies.base.strategy import LocalRule
from emulator.compute import Device, Native, Rate

PLAN = TrainingPlan(6, 2, 0.125, momentum=0.5)  # six steps of two samples
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
        self.edge = Edge("a", linear_trainer(PLAN), rule or Asks(None), device or Rate(2.0))
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
    trainer, rule = linear_trainer(PLAN), Asks(None)
    run = trainer.begin(Assignment(7, 0, {"weights": vector(0, 0, 5)}), rule, {})
    if step is not None:
        trainer.advance(run, rule, step)
        trainer.merge(run, rule, NEWER.vectors["weights"], 3)
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


@pytest.mark.parametrize("through", [False, True])
def test_nothing_newer_changes_nothing(through: bool) -> None:
    story = Story()
    _, rest = story.asks()
    assert not through or story.trains(rest, 12 * S) == []
    outputs = story.edge.receive(NothingNewer(7), 13 * S)
    found = update(story.trains(outputs[0], 13 * S) if through else story.trains(rest, 12 * S))
    assert (
        story.end_ns == 16 * S
        and found.vectors["weights"].tolist() == merged_by_hand(None)
        and "too_late" not in found.numbers
    )


def test_real_hardware_stands_still() -> None:
    story = Story(Native())
    (first,) = story.outputs
    story.edge.trainer.advance(first.job.run, story.edge.rule, 2)
    (sent,) = story.edge.job_done(first.job, None, 12 * S)
    assert sent.message == FreshRequest(7, 0, 2, until_ns=0)
    (rest,) = story.edge.receive(NEWER, 13 * S)
    assert rest.duration_ns is None and rest.job.run.memory["merged"].tolist() == [3]


# ------------------------------------------------------------------ the coordinator
def test_a_request_that_arrives_when_it_is_too_late_is_not_answered(tmp_path: Path) -> None:
    desk = Desk(tmp_path, make(Fresher))
    desk.start("a")
    assert desk.hear("a", FreshRequest(0, 0, 2, 5 * S), 5 * S) == []
    assert desk.facts("request_too_late") == [
        {"t": 5.0, "fact": "request_too_late", "edge": "a", "task": 0}
    ]
    assert desk.hear("a", FreshRequest(0, 0, 2, 5 * S), 5 * S - 1) == ["a <- NothingNewer 0"]
    assert desk.events()[-1]["until_ns"] == 5 * S


# ---------------------------------------------------------------- the coordinator's end of the wire


def asked(rig: Rig, until_ns: int) -> None:
    rig.says("a", Stamped(rig.clock.ns, encode_note(FreshRequest(1, 0, 2, until_ns))))
    rig.until(rig.clock.ns)


def notes(rig: Rig) -> list[tuple[int, Any]]:
    return [
        (at, decode_note(message.note))
        for at, message, _ in rig.sent["a"]
        if isinstance(message, Stamped)
    ]


# ------------------------------------------------------------------ the edge's end of the wire
class AskingTrainer(EchoTrainer):
    """Its runs ask before their first step."""

    def begin(self, task: Assignment, rule: LocalRule, memory: dict[str, Any]) -> EchoRun:
        return EchoRun(task.vectors["weights"], checkpoint=0)


@pytest.mark.parametrize("asking", [True, False])
def test_an_open_request_is_repeated_in_a_new_session(
    asking: bool,
) -> None:
    script = Script((SETUP, 7), (Welcome(), 7), (RunFinished("versions", False), 7))
    host = script.host()
    built = side(AskingTrainer() if asking else None)
    built.edge.receive(Assignment(1, 0, {"weights": vector(1, 2, 3)}), 0)
    assert built.edge.asking == asking
    host.build = lambda setup: built
    host.notes.asked = Stamped(5, encode_note(FreshRequest(1, 0, 2, 9)))
    host.run()
    assert (host.notes.asked in script.said) == asking


@pytest.mark.parametrize(
    ("late", "left"), [([(Stamped(9, encode_note(TooLate(1))), 7)], []), ([], [3])]
)
def test_what_came_of_a_download_that_is_too_late_is_forgotten(
    late: list[Any], left: list[int]
) -> None:
    offer = Outgoing(3, Fresh(1, 4, {"weights": vector(1, 2, 3)})).offer(0)
    script = Script(
        (SETUP, 7), (Welcome(), 7), (offer, 7), *late, (RunFinished("versions", False), 7)
    )
    script.host().run()
    assert list(script.work.transfers.downloads) == left
