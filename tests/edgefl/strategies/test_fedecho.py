"""FedEcho's server event by event (arXiv 2511.19966, algorithm 1), with its errata as named
cases.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders import S, Server, make, vector
from pydantic import ValidationError

from edgefl.jobs import Distill, Predict
from edgefl.record.rows import decision_row
from edgefl.strategies.base.events_and_decisions import JobDone, JobFailed, Publish, Report, RunJob
from edgefl.strategies.fedecho import FedEcho


class Echo(Server):
    """Two devices at work, two updates a round; logits of one sample in two classes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            make(
                FedEcho,
                start=(0, 0),
                **{"concurrency": 2, "buffer_size": 2, "predict_s": 0.5, "distil_s": 2.0} | options,
            )
        )
        self.jobs: dict[str, Any] = {}

    def give(self, event: Any, now: int = 0) -> list[str]:
        lines = super().give(event, now)
        self.jobs |= {
            decision.name: decision.job
            for decision in self.decisions
            if isinstance(decision, RunJob)
        }
        return lines

    def predicted(self, task: int, *logits: float, now: int = 0) -> list[str]:
        return self.give(JobDone(f"predict {task}", {"logits": vector(*logits)}), now)

    def taught(self, version: int, *weights: float, now: int = 0, **numbers: float) -> list[str]:
        vectors = {"weights": vector(*weights), "first": vector(7, 7), "second": vector(8, 8)}
        return self.give(
            JobDone(f"distill {version}", vectors, {"steps": 16.0, "alpha": 0.4, **numbers}), now
        )

    @property
    def report(self) -> dict[str, float]:
        return next(decision.values for decision in self.decisions if isinstance(decision, Report))


def full(**options: Any) -> Echo:
    """Devices a and b have each delivered from version 0; c still works on it. No prediction has
    ended yet.
    """
    server = Echo(**options)
    server.start("a", "b", "c")
    first, second = sorted(server.open)
    server.move(first, 1, 0, now=S)
    server.move(second, 0, 3, now=3 * S)
    return server


# ------------------------------------------------------------------ the round
def test_an_update_is_buffered_and_its_model_predicts() -> None:
    server = Echo()
    server.start("a", "b", "c")
    first = sorted(server.open)[0]
    lines = server.move(first, 1, 0)
    assert lines[0] == "run predict 0 for 0.5" and lines[1].endswith("<- 0 0"), (
        "the replacement gets x, and no edge waits"
    )
    job = server.jobs["predict 0"]
    assert isinstance(job, Predict) and job.weights.tolist() == [1, 0], "x_i = x + D_i"


def test_a_full_buffer_waits_for_its_logits_and_then_teaches() -> None:
    """xh = x + eta buffer / M = (1, 3) / 2."""
    server = full(server_learning_rate=2.0)
    assert server.predicted(0, 4, 0) == [], "the other device's logits are still to come"
    assert server.predicted(1, 0, 2) == ["run distill 0 for 2"]
    job = server.jobs["distill 0"]
    assert (
        isinstance(job, Distill)
        and job.weights.tolist() == [1, 3]
        and job.teacher.tolist() == [2, 1]
    ), "2 (1, 3) / 2; the mean of the logits"
    assert server.weights == [0, 0], "x stays until the student has been taught"
    lines = server.taught(0, 5, 6, now=9 * S)
    assert lines[1] == "publish 5 6" and server.version == 1


def test_the_edge_that_replaces_the_last_of_the_buffer_gets_the_old_model_c5() -> None:
    server = Echo()
    server.start("a", "b", "c")
    first, second = sorted(server.open)
    server.move(first, 1, 0)
    assert server.move(second, 0, 3)[-1].endswith("<- 0 0")


def test_absent_clients_are_not_zero_logits_c4() -> None:
    """Two of three devices have logits: the teacher is their mean, (4, 2), and not the third of
    their sum.
    """
    server = full()
    server.predicted(0, 8, 0)
    server.predicted(1, 0, 4)
    assert server.jobs["distill 0"].teacher.tolist() == [4, 2]
    server.taught(0, 5, 6)
    assert server.decisions[0].values["teachers"] == 2.0


def test_a_devices_logits_are_overwritten_and_the_others_stay() -> None:
    server = full()
    server.predicted(0, 8, 0), server.predicted(1, 0, 4), server.taught(0, 5, 6)
    edges = sorted(server.open)
    again, other = edges
    tasks = [server.open[edge][0] for edge in edges]
    known = {edge: each.values.tolist() for edge, each in server.strategy.logits.items()}
    server.move(again, 1, 1), server.move(other, 1, 1)
    server.predicted(tasks[0], 10, 10), server.predicted(tasks[1], 20, 20)
    now = known | {again: [10, 10], other: [20, 20]}
    assert server.jobs["distill 1"].teacher.tolist() == pytest.approx(
        np.mean(list(now.values()), axis=0).tolist()
    )


def test_updates_that_arrive_meanwhile_go_into_the_next_buffer() -> None:
    server = full()
    server.predicted(0, 1, 0), server.predicted(1, 0, 1)
    third, fourth = sorted(server.open)
    tasks = [server.open[edge][0] for edge in (third, fourth)]
    server.move(third, 10, 0), server.move(fourth, 0, 30)
    assert server.predicted(tasks[0], 1, 0) == [] and server.predicted(tasks[1], 0, 1) == [], (
        "one lesson at a time"
    )
    lines = server.taught(0, 5, 6, now=5 * S)
    assert lines[1:] == ["publish 5 6", "run distill 1 for 2"]
    made_of = [each.made_of for each in server.decisions if isinstance(each, Publish)]
    assert made_of == [(0, 1)], "not of the two that came during the distillation"
    assert decision_row(server.decisions[1]) == {"do": "publish", "made_of": (0, 1)}
    assert server.jobs["distill 1"].weights.tolist() == [
        10,
        21,
    ], "(5, 6) + (10, 30) / 2: divided by M"


# ------------------------------------------------------------------ Adam and the options
def test_adam_is_kept_across_rounds_or_not() -> None:
    for keep in (True, False):
        server = full(keep_adam=keep)
        server.predicted(0, 1, 0), server.predicted(1, 0, 1)
        assert server.jobs["distill 0"].first is None and server.jobs["distill 0"].steps == 0
        server.taught(0, 5, 6)
        edges = sorted(server.open)
        tasks = [server.open[edge][0] for edge in edges]
        for edge, task in zip(edges, tasks):
            server.move(edge, 1, 1)
            server.predicted(task, 1, 0)
        job = server.jobs["distill 1"]
        assert (job.steps, None if job.first is None else job.first.tolist()) == (
            (16, [7, 7]) if keep else (0, None)
        )


@pytest.mark.parametrize(
    "options", [{"buffer_size": 3}, {"alpha_min": 0.9}, {"dispatch_before_step": False}]
)
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(
        ValidationError,
        match=(
            r"buffer_size: expected at most concurrency \(2\), found 3|alpha_max: expected at least"
            r" alpha_min \(0.9\)|Input should be True"
        ),
    ):
        Echo(**options)


# ------------------------------------------------------------------ what fails
def test_a_prediction_that_fails_leaves_the_former_logits() -> None:
    server = full()
    server.predicted(0, 8, 0)
    lines = server.give(JobFailed("predict 1", "not finite"))
    assert (
        lines[0].endswith("prediction_failed=1")
        and lines[1] == "run distill 0 for 2"
        and server.jobs["distill 0"].teacher.tolist() == [8, 0]
    )


def test_a_lesson_that_fails_leaves_the_step_and_adam_begins_anew() -> None:
    server = full()
    server.strategy.moments = {"first": vector(1, 1), "second": vector(1, 1)}
    server.strategy.adam_steps = 5
    server.predicted(0, 8, 0), server.predicted(1, 8, 0)
    lines = server.give(JobFailed("distill 0", "not finite"), 9 * S)
    assert lines[1] == "publish 0.5 1.5" and server.report["distillation_failed"] == 1.0
    assert server.strategy.moments == {} and server.strategy.adam_steps == 0
