"""The edge in scripted sequences: a fake trainer, and a device with 10 samples per second."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from builders import S, plain, vector

from edgefl.actor import COORDINATOR, Output, Run, Send
from edgefl.edges.edge import Edge
from edgefl.edges.training import TrainingFailure
from edgefl.protocol.messages import (
    Acknowledged,
    Assignment,
    CancelTask,
    Fresh,
    FreshRequest,
    NothingNewer,
    Update,
)
from edgefl.strategies.base.strategy import LocalRule
from emulator.compute import Native, Rate


@dataclass(slots=True, eq=False)
class FakeRun:
    """Six steps of ten samples."""

    task: Assignment
    checkpoint: int | None
    steps: int = 6
    step: int = 0
    merged: list[int] = field(default_factory=list)
    failure: TrainingFailure | None = None

    def work_until(self, step: int) -> int:
        return 10 * (step - self.step)


class FakeTrainer:
    """Weights do not change; ``remembered`` counts the finished tasks."""

    def __init__(self, checkpoint: int | None) -> None:
        self.checkpoint = checkpoint

    def begin(self, task: Assignment, rule: LocalRule, memory: dict[str, Any]) -> FakeRun:
        return FakeRun(task, self.checkpoint)

    def advance(self, run: FakeRun, rule: LocalRule, until_step: int) -> None:
        run.step = min(until_step, run.steps)

    def merge(self, run: FakeRun, rule: LocalRule, fresh: np.ndarray, version: int) -> None:
        run.merged.append(version)

    def payload(
        self, run: FakeRun, rule: LocalRule
    ) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        return {"weights": run.task.vectors["weights"]}, {"samples": 10.0, "steps": float(run.step)}

    def remembered(self, run: FakeRun, rule: LocalRule) -> dict[str, int]:
        return {"last": run.task.number}


class Device:
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
    device = Device()
    assert device.task() == ["train to 6 in 6 s"] and device.edge.open_tasks == [0]
    assert device.train() == [UPDATE]
    assert device.edge.open_tasks == [0] and list(device.edge.unacknowledged) == [0], (
        "its fate is not known yet"
    )
    assert device.hear(Acknowledged(0)) == [] and device.edge.open_tasks == []


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
    device = Device()
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
    device = Device()
    device.task()
    device.train()
    assert device.edge.memory == {}
    device.hear(Acknowledged(3))
    assert device.edge.memory == {}, "of another task"
    device.hear(Acknowledged(0))
    device.hear(Acknowledged(0))
    assert device.edge.memory == {"last": 0}


def test_a_fresher_model_is_waited_for_and_merged_once() -> None:
    device = Device(checkpoint=4)
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


@pytest.mark.parametrize("checkpoint", [6, 60])
def test_a_request_at_the_end_or_behind_it_is_none(checkpoint: int) -> None:
    device = Device(checkpoint=checkpoint)
    assert device.task() == ["train to 6 in 6 s"] and device.train() == [UPDATE]


def test_a_task_that_is_called_off_is_dropped() -> None:
    device = Device()
    device.task()
    assert device.hear(CancelTask(5)) == [] and device.edge.open_tasks == [0]
    assert device.hear(CancelTask(0)) == [] and device.edge.open_tasks == []
    assert device.train() == [], "its worker may end later"
    assert device.task(1) == ["train to 6 in 6 s"]


def test_a_new_task_takes_the_place_of_one_that_the_coordinator_has_closed() -> None:
    device = Device(checkpoint=4)
    device.task(0)
    old = device.job
    device.task(1)
    assert device.edge.job_done(old, None, 0) == [] and device.edge.open_tasks == [1]
    assert device.train() == ["anything newer than v7 for 1 at step 4?"]
