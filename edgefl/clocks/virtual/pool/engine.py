"""Engines: their interface, the engine that trains in this process, and how to open one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol

from edgefl.clocks.setup.learning import Learning
from edgefl.clocks.setup.plan import options
from edgefl.clocks.virtual.pool.executor import DeferredRun, Executor, GroupCounts, Stretch
from edgefl.clocks.virtual.pool.workers import ForkedBackend, WorkerBackend, WorkerPool
from edgefl.config.experiment import Experiment
from edgefl.errors import UserError
from edgefl.jobs import Train


def check_one_worker(experiment: Experiment, workers: int, ray: bool) -> None:
    """UserError if tasks are to be merged, and trained by several workers or on Ray, too."""
    at_once = experiment.training.tasks_at_once
    if (at_once or 1) > 1 and (workers > 1 or ray):
        found = "--engine ray" if ray else f"--workers {workers}"
        raise UserError(
            f"training.tasks_at_once = {at_once}: expected only with one worker, which trains tasks"
            f" together, found {found}"
        )


class Engine(Protocol):
    """Does jobs at some real time between ``start`` and ``finish``.

    Results depend only on the jobs, not on the engine, the workers or the order. A ``Train``
    advances ``job.run`` (a DeferredRun) to ``until_step``, or the run fails. Other jobs return a
    result.
    """

    workers: int
    note: str | None
    """A line for the user if something differs from the request."""
    groups: GroupCounts | None
    """How tasks were trained together; None: this engine trains each alone."""

    @property
    def busy(self) -> int:
        """How many workers work now."""
        ...

    def start(self, job: Any, due_ns: int) -> None:
        """Announce a job whose result is due at ``due_ns`` (emulated).

        A new Train of a run replaces one that was not finished.
        """
        ...

    def ready(self, job: Any) -> bool:
        """Whether ``finish`` would return at once."""
        ...

    def finish(self, job: Any) -> Any:
        """Wait for the result and return it; start the job if needed.

        Raises the error that the job raised.
        """
        ...

    def drop(self, run: DeferredRun) -> None:
        """Forget this run."""
        ...

    def clear(self) -> None:
        """Forget all started jobs."""
        ...


class InProcessEngine:
    """Trains in this process, and only when the result is due.

    So cancelled runs cost nothing, and only one run at a time has weights. With
    ``training.tasks_at_once`` several tasks are trained when the first of them is due; ``merged``
    has them, and is None otherwise.
    """

    workers = 1
    busy = 1

    def __init__(self, learned: Learning, note: str | None = None) -> None:
        self._executor = Executor(learned)
        self._standing: set[DeferredRun] = set()
        at_once = learned.experiment.training.tasks_at_once or 1
        self.merged = None
        if at_once > 1:
            from edgefl.clocks.virtual.pool.merged import MergedTasks  # it needs torch

            self.merged = MergedTasks(learned, self._executor, at_once)
        self.groups = None if self.merged is None else self.merged.counts
        self.note = note or (None if self.merged is None else self.merged.note)

    def start(self, job: Any, due_ns: int) -> None:
        if self.merged is not None and isinstance(job, Train):
            self.merged.start(job, due_ns)

    def ready(self, job: Any) -> bool:
        return True

    def finish(self, job: Any) -> Any:
        if not isinstance(job, Train):
            return self._executor.do(job)
        run: DeferredRun = job.run
        if self.merged is not None and self.merged.trained(job):
            assert run.outcome is not None
            run.step = job.until_step
            run.end(run.outcome)
            return None
        stretch = Stretch(
            run.index,
            run.edge,
            None if run in self._standing else run.task,
            run.kept,
            run.merges,
            job.until_step,
        )
        outcome = self._executor.train(run, stretch)
        assert outcome is not None, "nothing gives it up"
        run.step = job.until_step
        if isinstance(outcome, bool):
            run.asks = outcome
            self._standing.add(run)
        else:
            run.end(outcome)
            self._standing.discard(run)
        return None

    def drop(self, run: DeferredRun) -> None:
        self._standing.discard(run)
        self._executor.forget(run)
        if self.merged is not None:
            self.merged.drop(run)

    def clear(self) -> None:
        for run in list(self._standing):
            self.drop(run)
        if self.merged is not None:
            self.merged.clear()


@contextmanager
def open_pool(
    learned: Learning,
    workers: int,
    engine: Literal["local", "ray"] = "local",
    ray_address: str | None = None,
) -> Iterator[Engine]:
    """Open an engine for runs of this experiment, one after the other, until the block ends.

    ``local``: forked workers; with 0 or 1 worker, this process. ``ray``: actors on the cluster at
    ``ray_address`` ("auto": this machine's cluster; None: a cluster started for this block).
    """
    if workers < 0:
        raise UserError(f"--workers {workers}: expected 1 or more")
    check_one_worker(learned.experiment, workers, engine == "ray")
    if engine == "local" and workers <= 1:
        yield InProcessEngine(learned)
        return
    backend: WorkerBackend
    if engine == "ray":
        # an extra that may not be installed
        from edgefl.clocks.virtual.pool.ray import RayBackend

        workers = max(workers, 1)
        backend = RayBackend(learned, workers, ray_address)
    elif sys.platform.startswith("linux"):
        backend = ForkedBackend(learned)
    else:
        why = f"no workers: they need Linux, and this is {sys.platform}"
        yield InProcessEngine(learned, f"{why}; training in this process")
        return
    pool = WorkerPool(backend, workers, _idle(learned, workers))
    try:
        yield pool
    finally:
        pool.close()


def _idle(learned: Learning, workers: int) -> str | None:
    """A note if there are more workers than devices that train at one time in any strategy."""
    edges = len(learned.shards)
    chosen = [options(entry, learned.base) for entry in learned.experiment.strategies]
    most = max(found.concurrency(values, edges) for found, values in chosen)
    return (
        f"{workers} workers, but at most {most} devices train at one time: the other workers are"
        " mostly idle"
        if workers > most
        else None
    )
