"""Who does what, told as stories: a crew over hands that only note what they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from builders import vector

from edgefl.errors import Bug, UserError
from edgefl.hosts.virtual.pool.backend import WorkerFailure, WorkerOrder, WorkerReport
from edgefl.hosts.virtual.pool.deferred_run import DeferredRun, Merge
from edgefl.hosts.virtual.pool.scheduler import DEPTH, LOOK_AHEAD, MOST_DEATHS, WorkerPool
from edgefl.jobs import Evaluate, Train
from edgefl.protocol.messages import Assignment

RESULT = [{"weights": vector(1, 2, 3)}, {"samples": 1.0}, {}]


class Noted:
    """``orders``: those not reported yet, by worker ("A", "B", ...); ``told``: all that was
    asked for.
    """

    def __init__(self) -> None:
        self.orders: dict[str, list[WorkerOrder]] = {}
        self.told: list[str] = []
        self.reports: list[WorkerReport] = []
        self.released: list[np.ndarray] = []
        self.by_hand = True  # else whoever waits gets the first order's result

    def hire(self) -> None:
        name = "ABCDEF"[len(self.orders)]
        self.orders[name] = []
        self.reports.append(WorkerReport(name, here=True))

    def send(self, who: str, order: WorkerOrder) -> None:
        self.orders[who].append(order)
        run = order.job.run if isinstance(order.job, Train) else None
        name = run.task.number if run else type(order.job).__name__
        self.told.append(
            f"{who}"
            f" {name}{f' to {order.job.until_step}' if run else ''}{' on' if order.stands else ''}"
        )

    def forget(self, who: str, number: int) -> None:
        self.told.append(f"{who} forget")

    def wait(self, timeout_s: float | None) -> list[WorkerReport]:
        if not self.reports and timeout_s is None:
            assert not self.by_hand, "nobody will ever report"
            for who in self.orders:
                if self.orders[who]:
                    self.end(who)
        reports, self.reports = self.reports, []
        for report in reports:
            if report.gone:
                self.orders[report.who].clear()
        return reports

    def release(self, array: np.ndarray) -> None:
        self.released.append(array)

    def close(self) -> None:
        return None

    def end(self, who: str, result: Any = RESULT) -> None:
        """The first order of ``who`` is done."""
        order = self.orders[who].pop(0)
        at_checkpoint = isinstance(order.job, Train) and order.job.until_step < order.job.run.steps
        self.reports.append(WorkerReport(who, order.number, None if at_checkpoint else result))

    def lose(self, who: str) -> None:
        self.reports.append(WorkerReport(who, gone="killed by signal 9"))


def sketch(number: int, weights: np.ndarray | None = None) -> DeferredRun:
    task = Assignment(number, 0, {"weights": vector(0, 0, 0) if weights is None else weights})
    return DeferredRun(
        task=task, local_samples=40, batch_size=10, steps=4, index=0, edge="a", kept={}
    )


def whole(number: int, weights: np.ndarray | None = None) -> Train:
    return Train(sketch(number, weights), 4)


@pytest.fixture
def hands() -> Noted:
    return Noted()


def told(hands: Noted) -> list[str]:
    found, hands.told = hands.told, []
    return found


def test_work_goes_to_the_idlest_by_emulated_end(hands: Noted) -> None:
    crew = WorkerPool(hands, 2)
    for number, due_ns in enumerate((50, 60, 70, 80, 20, 10)):
        crew.start(whole(number), due_ns)
    assert (
        told(hands) == ["A 0 to 4", "B 1 to 4", "A 2 to 4", "B 3 to 4"]
        and DEPTH == 2
        and crew.busy == 2
    )
    hands.end("B")
    crew.start(whole(6), 30)
    assert told(hands) == ["B 5 to 4"]


def test_look_ahead_is_bounded_except_for_what_is_wanted_now(hands: Noted) -> None:
    crew = WorkerPool(hands, 1)
    jobs = [whole(number) for number in range(6)]
    for number, job in enumerate(jobs):
        crew.start(job, 100 + number)
        if hands.orders["A"]:
            hands.end("A")
    crew.start(whole(9), 200)
    assert len(told(hands)) == LOOK_AHEAD, "all done, none collected"
    early = whole(7)
    crew.start(early, 50)
    assert told(hands) == []
    hands.by_hand = False
    crew.finish(early)
    assert (
        told(hands) == ["A 7 to 4"]
        and early.run.step == 4
        and early.run.outcome.numbers == {"samples": 1.0}
    )
    for job in jobs:
        crew.finish(job)
    assert [job.run.step for job in jobs] == [4] * 6 and hands.told[-1] == "A 9 to 4"


def test_a_run_goes_on_where_it_stands(hands: Noted) -> None:
    crew = WorkerPool(hands, 2)
    run = sketch(0)
    crew.start(first := Train(run, 2), 10)
    hands.end("A")
    crew.finish(first)
    assert first.run.step == 2 and run.outcome is None
    for number in (1, 2):
        crew.start(whole(number), 15)
    assert told(hands)[1:] == ["A 1 to 4", "B 2 to 4"]
    run.merges.append(Merge(2, vector(5, 5, 5), 7))
    crew.start(Train(run, 4), 20)
    assert told(hands) == ["A 0 to 4 on"], "not to B, though that is as idle"


def test_what_a_lost_worker_had_is_trained_again_with_its_whole_story(hands: Noted) -> None:
    crew = WorkerPool(hands, 2)
    run = sketch(0)
    crew.start(first := Train(run, 2), 10)
    hands.end("A")
    crew.finish(first)
    run.merges.append(Merge(2, vector(5, 5, 5), 7))
    crew.start(last := Train(run, 4), 20)
    done = whole(1)
    crew.start(done, 30)
    hands.end("B")
    crew.ready(done)
    hands.lose("A")
    hands.by_hand = False
    crew.finish(last)
    assert (
        told(hands) == ["A 0 to 2", "A 0 to 4 on", "B 1 to 4", "B 0 to 4"]
        and last.run.outcome is not None
    )
    crew.finish(done)
    assert told(hands) == [] and sorted(hands.orders) == [
        "A",
        "B",
        "C",
    ], "what was done is done, and C came for A"


def test_a_standing_run_is_lost_with_its_worker(hands: Noted) -> None:
    crew = WorkerPool(hands, 1)
    run = sketch(0)
    crew.start(first := Train(run, 2), 10)
    hands.end("A")
    crew.finish(first)
    hands.lose("A")
    crew.start(last := Train(run, 4), 20)
    hands.by_hand = False
    crew.finish(last)
    assert told(hands) == ["A 0 to 2", "A 0 to 4 on", "B 0 to 4"] and run.outcome is not None


def test_a_task_that_loses_every_worker_ends_the_run(hands: Noted) -> None:
    crew = WorkerPool(hands, 1)
    job, innocent = whole(0), whole(1)
    crew.start(job, 10)
    crew.start(innocent, 20)
    for name in "ABC"[:MOST_DEATHS]:
        hands.lose(name)
        crew.ready(job), crew.ready(job)  # the loss is heard, and then that another is here
    with pytest.raises(
        UserError, match="3 workers were lost at task 0 of edge a .killed by signal 9."
    ):
        crew.finish(job)
    hands.by_hand = False
    crew.finish(innocent)


def test_what_is_called_off_is_forgotten_and_its_report_means_nothing(hands: Noted) -> None:
    crew = WorkerPool(hands, 1)
    first, second, third = whole(0), whole(1), whole(2)
    for due_ns, job in enumerate((first, second, third)):
        crew.start(job, due_ns)
    crew.drop(first.run)
    crew.drop(third.run)
    crew.drop(first.run)
    assert told(hands) == ["A 0 to 4", "A 1 to 4", "A forget"]
    hands.end("A")
    hands.end("A")
    crew.finish(second)
    assert first.run.outcome is None and third.run.outcome is None and crew.busy == 0


def test_a_run_that_is_to_end_elsewhere_begins_again(hands: Noted) -> None:
    """It was sent up to its end, and is now wanted at step 3 first: training may have passed
    that.
    """
    crew = WorkerPool(hands, 1)
    run = sketch(0)
    crew.start(Train(run, 4), 50)
    crew.start(early := Train(run, 3), 20)
    hands.end("A")
    hands.end("A")
    crew.finish(early)
    assert (
        told(hands) == ["A 0 to 4", "A forget", "A 0 to 3"]
        and run.step == 3
        and run.outcome is None
    )


def test_what_was_never_started_is_done_when_it_is_wanted(hands: Noted) -> None:
    crew, run = WorkerPool(hands, 1), sketch(0)
    hands.by_hand = False
    for until in (2, 4):
        crew.finish(Train(run, until))
    assert told(hands) == ["A 0 to 2", "A 0 to 4 on"] and run.outcome is not None


def test_vectors_are_let_go_with_the_last_task_that_needs_them(hands: Noted) -> None:
    crew, shared, fresh = WorkerPool(hands, 1), vector(1, 1, 1), vector(2, 2, 2)
    one, other = whole(0, shared), whole(1, shared)
    crew.start(one, 1)
    crew.start(other, 2)
    other.run.merges.append(Merge(0, fresh, 1))
    hands.end("A")
    crew.finish(one)
    assert hands.released == []
    crew.start(other, 2)
    crew.drop(other.run)
    assert [id(array) for array in hands.released] == [id(shared), id(fresh)]
    crew.start(Evaluate(1, 0, shared, 0, 0), 3)
    crew.clear()
    assert len(hands.released) == 3


def test_what_went_wrong_is_told_when_it_is_due(hands: Noted) -> None:
    crew = WorkerPool(hands, 1)
    for failure, expected in (
        (WorkerFailure("Traceback ... no such layer", False), Bug),
        (WorkerFailure("no such layer", True), UserError),
    ):
        job = whole(0)
        crew.start(job, 1)
        hands.end("A", failure)
        with pytest.raises(expected, match="no such layer"):
            crew.finish(job)


@dataclass(frozen=True, eq=False)
class Other:
    values: dict[str, np.ndarray]


def test_other_jobs_give_results(hands: Noted) -> None:
    crew, job = WorkerPool(hands, 1), Other({"x": vector(1)})
    crew.start(job, 5)
    assert not crew.ready(job)
    hands.end("A", {"loss": 0.5})
    assert crew.ready(job) and crew.finish(job) == {"loss": 0.5} and len(hands.released) == 1
