"""Convert orders and outcomes to plain data and arrays, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from edgefl import jobs
from edgefl.edges.failure import TrainingFailure
from edgefl.edges.local_run import Merge
from edgefl.errors import UserError, trace
from edgefl.hosts.virtual.pool.backend import WorkerFailure, WorkerOrder
from edgefl.hosts.virtual.pool.deferred_run import DeferredRun, RunOutcome
from edgefl.hosts.virtual.pool.executor import Stretch
from edgefl.jobs import Train
from edgefl.protocol.messages import Assignment


def plain(order: WorkerOrder) -> list[Any]:
    """An order as [kind, number, ...]: lists, dicts, strings, numbers and arrays."""
    job = order.job
    if not isinstance(job, Train):
        return ["do", order.number, jobs.plain(job)]
    run: DeferredRun = job.run
    task = (
        None
        if order.stands
        else [run.task.number, run.task.version, dict(run.task.vectors), dict(run.task.numbers)]
    )
    kept = {} if order.stands else dict(run.kept)
    merges = [[merge.step, merge.weights, merge.version] for merge in run.merges]
    return ["train", order.number, run.index, run.edge, task, kept, merges, job.until_step]


def stretch(row: list[Any]) -> Stretch:
    """The stretch of a "train" order."""
    _, _, index, edge, task, kept, merges, until = row
    return Stretch(
        index,
        edge,
        None if task is None else Assignment(*task),
        kept,
        [Merge(*merge) for merge in merges],
        until,
    )


def job(row: list[Any]) -> Any:
    """The job of a "do" order."""
    return jobs.of_plain(row[2])


def plain_outcome(outcome: RunOutcome | None) -> list[Any] | None:
    """The result of a "train" order as plain data; ``outcome`` is the reverse."""
    if outcome is None:
        return None
    failure = outcome.failure and [outcome.failure.reason, outcome.failure.trace]
    return [outcome.vectors, outcome.numbers, outcome.remembered, failure]


def outcome(row: list[Any]) -> RunOutcome:
    vectors, numbers, remembered, failure = row
    return RunOutcome(vectors, numbers, remembered, failure and TrainingFailure(*failure))


def arrays(job: Any) -> Iterator[np.ndarray]:
    """The vectors that a job holds."""
    if isinstance(job, Train):
        run: DeferredRun = job.run
        yield from (
            *run.task.vectors.values(),
            *run.kept.values(),
            *(merge.weights for merge in run.merges),
        )
        return
    yield from (array for _, array in jobs.arrays(job))


def failure(error: BaseException) -> WorkerFailure:
    return (
        WorkerFailure(str(error), True)
        if isinstance(error, UserError)
        else WorkerFailure(trace(error), False)
    )
