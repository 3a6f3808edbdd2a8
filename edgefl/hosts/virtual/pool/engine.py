"""What the virtual host asks of an engine, and the engine that is this very process."""

from __future__ import annotations

from typing import Any, Protocol

from edgefl.hosts.setup.learning import Learning
from edgefl.hosts.virtual.pool.deferred_run import DeferredRun
from edgefl.hosts.virtual.pool.executor import Executor, Stretch
from edgefl.jobs import Train


class Engine(Protocol):
    """Does jobs some time between ``start`` and ``finish``. The results depend on the jobs alone:
    not on engine, workers, or order.

    A ``Train`` advances ``job.run`` (a DeferredRun): when it is finished, the run stands at
    ``until_step``. Other jobs give a result.
    """

    workers: int
    note: str | None
    """A line for the user: what is not as it was asked for."""

    @property
    def busy(self) -> int:
        """Workers with work in hand."""
        ...

    def start(self, job: Any, due_ns: int) -> None:
        """It will be wanted at ``due_ns`` (emulated). A further Train of a run takes the place
        of one that was not finished.
        """
        ...

    def ready(self, job: Any) -> bool:
        """Whether ``finish`` would return at once."""
        ...

    def finish(self, job: Any) -> Any:
        """The result, waited for if need be, also of a job that was not started; what went wrong
        in it is raised here.
        """
        ...

    def drop(self, run: DeferredRun) -> None:
        """This run is not wanted any more."""
        ...

    def clear(self) -> None:
        """Nothing that was started is wanted any more."""
        ...


class Here:
    """Trains when the emulated end has come and not before: what is called off costs nothing,
    and one run at a time has its weights.
    """

    workers = 1
    busy = 1

    def __init__(self, learned: Learning, note: str | None = None) -> None:
        self.note = note
        self._bench = Executor(learned)
        self._standing: set[DeferredRun] = set()

    def start(self, job: Any, due_ns: int) -> None:
        return None

    def ready(self, job: Any) -> bool:
        return True

    def finish(self, job: Any) -> Any:
        if not isinstance(job, Train):
            return self._bench.do(job)
        run: DeferredRun = job.run
        stretch = Stretch(
            run.index,
            run.edge,
            None if run in self._standing else run.task,
            run.kept,
            run.merges,
            job.until_step,
        )
        run.outcome = self._bench.train(run, stretch)
        run.step = job.until_step
        if run.outcome is None:
            self._standing.add(run)
        else:
            self._standing.discard(run)
        return None

    def drop(self, run: DeferredRun) -> None:
        self._standing.discard(run)
        self._bench.forget(run)

    def clear(self) -> None:
        for run in list(self._standing):
            self.drop(run)
