"""Which worker does what: a pool over a backend that only records its calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders import vector

from edgefl.clocks.virtual.pool.executor import DeferredRun, Merge
from edgefl.clocks.virtual.pool.scheduler import (
    DEPTH,
    LOOK_AHEAD,
    MOST_DEATHS,
    WorkerOrder,
    WorkerPool,
    WorkerReport,
)
from edgefl.edges.training import TrainingPlan
from edgefl.errors import UserError
from edgefl.jobs import Train
from edgefl.protocol.messages import Assignment

RESULT = [{"weights": vector(1, 2, 3)}, {"samples": 1.0}, {}, None]


class Noted:
    """``orders``: unfinished orders by worker ("A", "B", ...). ``told``: all calls."""

    def __init__(self) -> None:
        self.orders: dict[str, list[WorkerOrder]] = {}
        self.told: list[str] = []
        self.reports: list[WorkerReport] = []
        self.released: list[np.ndarray] = []
        self.by_hand = True  # otherwise ``wait`` ends each worker's first order

    def add_worker(self) -> None:
        name = "ABCDEF"[len(self.orders)]
        self.orders[name] = []
        self.reports.append(WorkerReport(name, ready=True))

    def send(self, worker: str, order: WorkerOrder) -> None:
        self.orders[worker].append(order)
        run = order.job.run if isinstance(order.job, Train) else None
        name = run.task.number if run else type(order.job).__name__
        self.told.append(
            f"{worker}"
            f" {name}{f' to {order.job.until_step}' if run else ''}{' on' if order.stands else ''}"
        )

    def forget(self, worker: str, number: int) -> None:
        self.told.append(f"{worker} forget")

    def wait(self, timeout_s: float | None) -> list[WorkerReport]:
        if not self.reports and timeout_s is None:
            assert not self.by_hand, "no worker will ever report"
            for worker in self.orders:
                if self.orders[worker]:
                    self.end(worker)
        reports, self.reports = self.reports, []
        for report in reports:
            if report.lost:
                self.orders[report.worker].clear()
        return reports

    def release(self, array: np.ndarray) -> None:
        self.released.append(array)

    def close(self) -> None:
        return None

    def end(self, worker: str, result: Any = RESULT) -> None:
        """End the worker's first order."""
        order = self.orders[worker].pop(0)
        at_checkpoint = isinstance(order.job, Train) and order.job.until_step < order.job.run.steps
        self.reports.append(WorkerReport(worker, order.number, None if at_checkpoint else result))

    def lose(self, worker: str) -> None:
        self.reports.append(WorkerReport(worker, lost="killed by signal 9"))


def deferred(number: int, weights: np.ndarray | None = None) -> DeferredRun:
    task = Assignment(number, 0, {"weights": vector(0, 0, 0) if weights is None else weights})
    return DeferredRun(
        task=task,
        plan=TrainingPlan(1, 10, 0.1),
        local_samples=40,
        steps=4,
        index=0,
        edge="a",
        kept={},
    )


def whole(number: int, weights: np.ndarray | None = None) -> Train:
    return Train(deferred(number, weights), 4)


@pytest.fixture
def backend() -> Noted:
    return Noted()


def told(backend: Noted) -> list[str]:
    found, backend.told = backend.told, []
    return found


def test_work_goes_to_the_idlest_by_emulated_end(backend: Noted) -> None:
    pool = WorkerPool(backend, 2)
    for number, due_ns in enumerate((50, 60, 70, 80, 20, 10)):
        pool.start(whole(number), due_ns)
    assert (
        told(backend) == ["A 0 to 4", "B 1 to 4", "A 2 to 4", "B 3 to 4"]
        and DEPTH == 2
        and pool.busy == 2
    )
    backend.end("B")
    pool.start(whole(6), 30)
    assert told(backend) == ["B 5 to 4"]


def test_look_ahead_is_bounded_except_for_what_is_wanted_now(backend: Noted) -> None:
    pool = WorkerPool(backend, 1)
    jobs = [whole(number) for number in range(6)]
    for number, job in enumerate(jobs):
        pool.start(job, 100 + number)
        if backend.orders["A"]:
            backend.end("A")
    pool.start(whole(9), 200)
    assert len(told(backend)) == LOOK_AHEAD, "all done, none collected"
    early = whole(7)
    pool.start(early, 50)
    assert told(backend) == []
    backend.by_hand = False
    pool.finish(early)
    assert (
        told(backend) == ["A 7 to 4"]
        and early.run.step == 4
        and early.run.outcome.numbers == {"samples": 1.0}
    )
    for job in jobs:
        pool.finish(job)
    assert [job.run.step for job in jobs] == [4] * 6 and backend.told[-1] == "A 9 to 4"


def test_a_run_goes_on_where_it_stands(backend: Noted) -> None:
    pool = WorkerPool(backend, 2)
    run = deferred(0)
    pool.start(first := Train(run, 2), 10)
    backend.end("A")
    pool.finish(first)
    assert first.run.step == 2 and run.outcome is None
    for number in (1, 2):
        pool.start(whole(number), 15)
    assert told(backend)[1:] == ["A 1 to 4", "B 2 to 4"]
    run.merges.append(Merge(2, vector(5, 5, 5), 7))
    pool.start(Train(run, 4), 20)
    assert told(backend) == ["A 0 to 4 on"], "not to B, though that is as idle"


def test_what_a_lost_worker_had_is_trained_again_with_its_whole_story(backend: Noted) -> None:
    pool = WorkerPool(backend, 2)
    run = deferred(0)
    pool.start(first := Train(run, 2), 10)
    backend.end("A")
    pool.finish(first)
    run.merges.append(Merge(2, vector(5, 5, 5), 7))
    pool.start(last := Train(run, 4), 20)
    done = whole(1)
    pool.start(done, 30)
    backend.end("B")
    pool.ready(done)
    backend.lose("A")
    backend.by_hand = False
    pool.finish(last)
    assert (
        told(backend) == ["A 0 to 2", "A 0 to 4 on", "B 1 to 4", "B 0 to 4"]
        and last.run.outcome is not None
    )
    pool.finish(done)
    assert told(backend) == [] and sorted(backend.orders) == [
        "A",
        "B",
        "C",
    ], "what was done is done, and C came for A"


def test_a_task_that_loses_every_worker_ends_the_run(backend: Noted) -> None:
    pool = WorkerPool(backend, 1)
    job, innocent = whole(0), whole(1)
    pool.start(job, 10)
    pool.start(innocent, 20)
    for name in "ABC"[:MOST_DEATHS]:
        backend.lose(name)
        pool.ready(job), pool.ready(job)  # the loss is reported, then that another worker is ready
    with pytest.raises(
        UserError, match="3 workers were lost at task 0 of edge a .killed by signal 9."
    ):
        pool.finish(job)
    backend.by_hand = False
    pool.finish(innocent)


def test_what_is_called_off_is_forgotten_and_its_report_means_nothing(backend: Noted) -> None:
    pool = WorkerPool(backend, 1)
    first, second, third = whole(0), whole(1), whole(2)
    for due_ns, job in enumerate((first, second, third)):
        pool.start(job, due_ns)
    pool.drop(first.run)
    pool.drop(third.run)
    pool.drop(first.run)
    assert told(backend) == ["A 0 to 4", "A 1 to 4", "A forget"]
    backend.end("A")
    backend.end("A")
    pool.finish(second)
    assert first.run.outcome is None and third.run.outcome is None and pool.busy == 0
