"""An exception of an algorithm, its model or its data in training makes a failed task."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders import S
from edge_hosts import SETUP, Script, side
from trainers import linear_trainer

from edgefl.actor import COORDINATOR, Run, Send
from edgefl.edges.edge import Edge, Phase
from edgefl.edges.training import LocalRun, TrainingPlan, training_failure
from edgefl.jobs import Train
from edgefl.protocol.codec import decode_note, encode_note
from edgefl.protocol.messages import (
    MAX_NOTE,
    Acknowledged,
    Assignment,
    Fresh,
    Join,
    RunFinished,
    Stamped,
    TaskFailed,
    Welcome,
)
from edgefl.strategies.base.strategy import LocalRule
from emulator.compute import Rate

PLAN = TrainingPlan(epochs=3, batch_size=1, learning_rate=0.1)  # 6 steps


class Raises(LocalRule):
    """Asks before step 2, and raises at the hook called ``options``."""

    remembers = ("kept",)

    def _at(self, hook: str, run: Any = None) -> None:
        if hook == self.options and (hook != "adjust" or run.step == 4):
            raise KeyError(f"in {hook}")

    def unpack(self, task: Any, layout: Any) -> np.ndarray:
        self._at("unpack")
        return super().unpack(task, layout)

    def begin(self, run: Any) -> None:
        self._at("begin")

    def adjust(self, run: Any, gradient: Any) -> None:
        self._at("adjust", run)

    def checkpoint(self, run: Any) -> int | None:
        self._at("checkpoint")
        return 2

    def merge(self, run: Any, fresh: np.ndarray, version: int) -> None:
        self._at("merge")

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        self._at("payload")
        if self.options == "remembered":
            run.memory["kept"] = object()
        weights: Any = "none" if self.options == "vectors" else run.weights.numpy()
        return {"weights": weights}, {"odd": "none"} if self.options == "numbers" else {}


def task(**numbers: float) -> Assignment:
    return Assignment(7, 0, {"weights": np.zeros(3, np.float32)}, numbers)


def failing(hook: str) -> Edge[LocalRun]:
    return Edge("e1", linear_trainer(PLAN), Raises(hook), Rate(1.0))


def carried_out(edge: Edge[LocalRun], outputs: list[Any], now: int = 0) -> tuple[Any, int]:
    """What the edge finally sends to the coordinator, and when; a fresher model arrives at once."""
    while True:
        for out in outputs:
            match out:
                case Run(job=Train() as job):
                    assert out.duration_ns is not None
                    now += out.duration_ns
                    assert edge.trainer.advance(job.run, edge.rule, job.until_step)
                    outputs = edge.job_done(job, None, now)
                case Send(message=message) if type(message).__name__ == "FreshRequest":
                    fresh = Fresh(7, 1, {"weights": np.ones(3, np.float32)})
                    outputs = edge.receive(fresh, now)
                case Send(to=to):
                    assert to == COORDINATOR and len(outputs) == 1
                    return out.message, now


@pytest.mark.parametrize(
    ("hook", "told_s", "where"),
    [
        ("unpack", 2, "before its first step: KeyError: 'in unpack'"),
        ("begin", 2, "before its first step: KeyError: 'in begin'"),
        ("checkpoint", 6, "before its first step: KeyError: 'in checkpoint'"),
        ("adjust", 6, "step 5 of 6, batch of 1 sample: KeyError: 'in adjust'"),
        ("merge", 6, "a fresher model before step 3: KeyError: 'in merge'"),
        ("payload", 6, "its update, after step 6: KeyError: 'in payload'"),
        ("vectors", 6, "its update, after step 6: ValueError: could not convert string"),
        ("numbers", 6, "its update, after step 6: ValueError: could not convert string"),
        ("remembered", 6, "what it remembers, after step 6: TypeError"),
    ],
)
def test_a_hook_that_raises_is_a_failed_task(hook: str, told_s: int, where: str) -> None:
    """The failure is reported when the current work would have ended, at the request or at the end.

    A host that trains early and one that trains late report it at the same moment.
    """
    edge = failing(hook)
    told, now = carried_out(edge, edge.receive(task(), 0))
    assert isinstance(told, TaskFailed) and told.task == 7
    assert told.reason.startswith(where) and "Traceback" in told.trace
    assert now == told_s * S
    assert (edge.phase, edge.open_tasks, edge.run) == (Phase.IDLE, [7], None)
    assert edge.unacknowledged == {}
    edge.receive(Acknowledged(7), now)
    assert edge.open_tasks == [] and edge.memory == {}


def test_a_number_that_a_task_has_not_tells_those_that_it_has() -> None:
    class Wrong(LocalRule):
        def begin(self, run: Any) -> None:
            run.task.numbers["my"]

    edge = Edge("e1", linear_trainer(PLAN), Wrong(None), Rate(1.0))
    told, _ = carried_out(edge, edge.receive(task(mu=0.1, epochs=3.0), 0))
    expected = "before its first step: MissingName: 'my', expected one of 'epochs', 'mu' (test_"
    assert told.reason.startswith(expected)


def test_the_reason_names_the_line_of_the_algorithms_own_file() -> None:
    edge = failing("begin")
    told, _ = carried_out(edge, edge.receive(task(), 0))
    assert "(test_failing.py, line " in told.reason


@pytest.mark.parametrize("letter", ["x", "é", "\N{PILE OF POO}", "\ud800", "\x1b"])
def test_what_is_told_fits_into_a_note(letter: str) -> None:
    try:
        raise ValueError(letter * 10_000)
    except ValueError as error:
        failure = training_failure(error, "step 1 of 1", "")
    note = TaskFailed(2**62, failure.reason, failure.trace)
    data = encode_note(note)
    assert decode_note(data) == note and len(data) <= MAX_NOTE


@pytest.mark.parametrize("known", [True, False])
def test_a_failure_is_told_again_in_a_new_session(known: bool) -> None:
    """It is repeated until it is acknowledged: it may have been lost in the former session."""
    built = side()
    built.edge.failed = {3: TaskFailed(3, "step 1 of 1: ValueError", "Traceback")} if known else {}
    script = Script((SETUP, 7), (Welcome(), 7), (RunFinished("versions", False), 7))
    host = script.host()
    host.build = lambda setup: built
    host.notes.failed = {3: Stamped(5, encode_note(TaskFailed(3, "step 1 of 1: ValueError", "")))}
    host.run()
    assert (host.notes.failed[3] in script.said) == known
    joins = [message for message in script.said if isinstance(message, Join)]
    assert [join.tasks for join in joins] == [[3] if known else []]


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit()])
def test_a_hook_that_exits_is_a_failed_task(error: BaseException) -> None:
    class Leaves(LocalRule):
        def begin(self, run: Any) -> None:
            raise error

    trainer = linear_trainer(TrainingPlan(epochs=1, batch_size=2, learning_rate=0.5))
    run = trainer.begin(Assignment(0, 0, {"weights": np.zeros(3, np.float32)}), Leaves(None), {})
    assert run.failure is not None
    assert run.failure.reason.startswith(f"before its first step: {type(error).__name__}")
    assert "(test_failing.py, line " in run.failure.reason
