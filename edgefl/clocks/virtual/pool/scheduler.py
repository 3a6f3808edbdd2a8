"""An engine of several workers: which worker does which job, and what happens if one is lost.

The ``WorkerBackend`` provides the workers. ::

    start -> waiting, by emulated end -> sent (DEPTH per worker) -> done -> finish
                  ^                        |
                  +------ worker lost <----+

A run that has stopped at its checkpoint stays with its worker and continues there. At most
LOOK_AHEAD tasks per worker are sent, or done but not collected, unless the host waits for a task:
tasks far ahead may still be cancelled.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol

import numpy as np

from edgefl import jobs
from edgefl.clocks.virtual.pool.executor import DeferredRun, GroupCounts, RunOutcome, Stretch
from edgefl.edges.training import Merge, TrainingFailure
from edgefl.errors import Bug, UserError, trace
from edgefl.jobs import Train
from edgefl.protocol.messages import Assignment


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """The error that an order raised in its worker. ``users``: it was a UserError."""

    text: str
    users: bool


@dataclass(frozen=True, slots=True, eq=False)
class WorkerOrder:
    """Do ``job``. ``stands``: the job's run has stopped at a checkpoint in this worker."""

    number: int
    job: Any
    stands: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class WorkerReport:
    """A worker's report: the ``result`` of order ``number``, or ``ready``, or ``lost``.

    ``ready``: the worker can take orders. ``lost``: why it no longer can. The result of a Train is
    None if the run stopped before its end, otherwise that of ``orders.plain_outcome``. Every order
    is reported once unless its worker is lost; a forgotten order may report any result.
    """

    worker: Any
    number: int = -1
    result: Any = None
    ready: bool = False
    lost: str | None = None


class WorkerBackend(Protocol):
    """Provides workers. A worker is any object that ``wait`` names in its reports."""

    def add_worker(self) -> None:
        """Start one more worker; ``wait`` reports when it is ready."""
        ...

    def send(self, worker: Any, order: WorkerOrder) -> None: ...

    def forget(self, worker: Any, number: int) -> None:
        """Drop an order as soon as possible, or the run that it left at a checkpoint."""
        ...

    def wait(self, timeout_s: float | None) -> list[WorkerReport]:
        """Return all available reports. ``timeout_s`` None: wait until there is one."""
        ...

    def release(self, array: np.ndarray) -> None:
        """Release a vector that no later order uses."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...


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
    if isinstance(error, UserError):
        return WorkerFailure(str(error), True)
    return WorkerFailure(trace(error), False)


LOOK_AHEAD = 4
DEPTH = 2  # orders per worker: one that it does, and the next one
MOST_DEATHS = 3  # after so many lost workers the task itself counts as the cause


class State(Enum):
    WAITING = auto()
    SENT = auto()
    DONE = auto()
    STANDING = auto()  # collected at its checkpoint
    CLOSED = auto()


AHEAD = (State.SENT, State.DONE)


@dataclass(slots=True, eq=False)
class Item:
    """A run or a job, from ``start`` until it is collected or dropped.

    ``worker`` has its order, or its run that has stopped at a checkpoint.
    """

    key: Any
    number: int
    job: Any = None
    due_ns: int = 0
    pushed: int = 0
    state: State = State.STANDING
    worker: PoolWorker | None = None
    result: Any = None
    deaths: int = 0
    arrays: dict[int, np.ndarray] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class PoolWorker:
    """A worker. ``sent``: numbers of its orders, the current one first.

    ``own``: waiting items whose runs have stopped in this worker.
    """

    id: Any
    sent: list[int] = field(default_factory=list)
    own: list[tuple[int, int, Item]] = field(default_factory=list)


class WorkerPool:
    """An Engine over the workers of ``backend``."""

    def __init__(self, backend: WorkerBackend, workers: int) -> None:
        self.workers = workers
        self.note: str | None = None
        self.groups: GroupCounts | None = None
        self._backend = backend
        self._workers: dict[Any, PoolWorker] = {}
        self._items: dict[Any, Item] = {}  # by run or job
        self._numbered: dict[int, Item] = {}
        # a heap; entries of items that were pushed again or dropped are skipped
        self._waiting: list[tuple[int, int, Item]] = []
        self._needed: dict[int, int] = {}  # id of a vector -> items that hold it
        self._numbers = self._pushes = self._ahead = 0
        for _ in range(workers):
            backend.add_worker()

    @property
    def busy(self) -> int:
        return sum(bool(worker.sent) for worker in self._workers.values())

    # ------------------------------------------------------------------ what the host calls
    def start(self, job: Any, due_ns: int) -> None:
        key = job.run if isinstance(job, Train) else job
        item = self._items.get(key)
        if item is None:
            item = self._items[key] = Item(key, -1)
            self._renumber(item)
        elif item.state is not State.STANDING:
            self._recall(item)
        item.job, item.due_ns = job, due_ns
        self._need(item)
        self._put(item)
        self._step(0.0)

    def ready(self, job: Any) -> bool:
        self._step(0.0)
        return self._items[job.run if isinstance(job, Train) else job].state is State.DONE

    def finish(self, job: Any) -> Any:
        item = self._items.get(job.run if isinstance(job, Train) else job)
        if item is None or item.job is not job:
            self.start(job, 0)
            item = self._items[job.run if isinstance(job, Train) else job]
        while item.state is not State.DONE:
            self._step(None, item)
        result = item.result
        if isinstance(result, WorkerFailure):
            self._close(item)
            raise (
                UserError(result.text)
                if result.users
                else Bug(f"a worker failed at {_name(item)}", result.text.splitlines())
            )
        if not isinstance(job, Train):
            self._close(item)
            return result
        job.run.step = job.until_step
        if result is None:
            self._become(item, State.STANDING)
        else:
            job.run.end(outcome(result))
            self._close(item)
        return None

    def drop(self, run: DeferredRun) -> None:
        item = self._items.get(run)
        if item is not None:
            self._recall(item)
            self._close(item)

    def clear(self) -> None:
        for item in list(self._items.values()):
            self._recall(item)
            self._close(item)

    def close(self) -> None:
        self._backend.close()

    # ------------------------------------------------------------------ orders and reports
    def _step(self, timeout_s: float | None, wanted: Item | None = None) -> None:
        """Send orders, take reports, send orders again. ``wanted``: the host waits for it."""
        self._feed(wanted)
        for report in self._backend.wait(timeout_s):
            self._take(report)
        self._feed(wanted)

    def _feed(self, wanted: Item | None) -> None:
        most_ns = None if wanted is None else wanted.due_ns
        while any(
            self._send_next(worker, most_ns)
            for worker in sorted(self._workers.values(), key=lambda worker: len(worker.sent))
        ):
            pass

    def _send_next(self, worker: PoolWorker, wanted_ns: int | None) -> bool:
        if len(worker.sent) >= DEPTH:
            return False
        heaps = [heap for heap in (worker.own, self._waiting) if _first(heap) is not None]
        if not heaps:
            return False
        heap = min(heaps, key=lambda heap: heap[0][:2])
        item = heap[0][2]
        if self._ahead >= LOOK_AHEAD * self.workers and (
            wanted_ns is None or item.due_ns > wanted_ns
        ):
            return False
        heapq.heappop(heap)
        stands = item.worker is worker
        item.worker = worker
        worker.sent.append(item.number)
        self._become(item, State.SENT)
        self._backend.send(worker.id, WorkerOrder(item.number, item.job, stands))
        return True

    def _take(self, report: WorkerReport) -> None:
        if report.ready:
            self._workers[report.worker] = PoolWorker(report.worker)
            return
        if report.lost is not None:
            self._worker_lost(self._workers.pop(report.worker, None), report.lost)
            return
        worker, item = self._workers[report.worker], self._numbered.get(report.number)
        worker.sent.remove(report.number)
        if item is not None and item.state is State.SENT:
            item.result = report.result
            self._become(item, State.DONE)

    def _worker_lost(self, worker: PoolWorker | None, why: str) -> None:
        """Replace the worker. Its orders and its stopped runs are trained again from their start.

        This includes all merges.
        """
        self._backend.add_worker()
        if worker is None:
            return  # lost before it was ready
        for item in [item for item in self._items.values() if item.worker is worker]:
            item.worker = None
            if item.state is State.SENT:
                item.deaths += worker.sent[0] == item.number  # the first order was being done
                self._renumber(item)
                self._put(item)
                if item.deaths >= MOST_DEATHS:
                    item.result = WorkerFailure(
                        f"{item.deaths} workers were lost at {_name(item)} ({why}); is there enough"
                        " memory? Try fewer --workers",
                        True,
                    )
                    self._become(item, State.DONE)
            elif item.state is State.WAITING:
                self._put(item)

    # ------------------------------------------------------------------ items
    def _put(self, item: Item) -> None:
        """Queue the item: for the worker that has its run, otherwise for all workers."""
        self._pushes += 1
        item.pushed = self._pushes
        self._become(item, State.WAITING)
        heapq.heappush(
            self._waiting if item.worker is None else item.worker.own,
            (item.due_ns, item.pushed, item),
        )

    def _recall(self, item: Item) -> None:
        """Take the item from its worker, which may forget it: it will be done again, or never."""
        if item.worker is not None:
            self._backend.forget(item.worker.id, item.number)
        item.worker = None
        self._renumber(item)

    def _renumber(self, item: Item) -> None:
        """Give the item a new number. Reports with the old number are then ignored."""
        self._numbered.pop(item.number, None)
        item.number = self._numbers
        self._numbers += 1
        self._numbered[item.number] = item

    def _close(self, item: Item) -> None:
        del self._items[item.key], self._numbered[item.number]
        self._become(item, State.CLOSED)
        for vector in item.arrays.values():
            self._needed[id(vector)] -= 1
            if not self._needed[id(vector)]:
                del self._needed[id(vector)]
                self._backend.release(vector)

    def _become(self, item: Item, state: State) -> None:
        self._ahead += (state in AHEAD) - (item.state in AHEAD)
        item.state = state

    def _need(self, item: Item) -> None:
        for vector in arrays(item.job):
            if id(vector) not in item.arrays:
                item.arrays[id(vector)] = vector
                self._needed[id(vector)] = self._needed.get(id(vector), 0) + 1


def _first(heap: list[tuple[int, int, Item]]) -> Item | None:
    """The first item of the heap, after removing entries of items that no longer wait in it."""
    while heap and (heap[0][2].state is not State.WAITING or heap[0][2].pushed != heap[0][1]):
        heapq.heappop(heap)
    return heap[0][2] if heap else None


def _name(item: Item) -> str:
    if isinstance(item.job, Train):
        return f"task {item.key.task.number} of edge {item.key.edge}"
    return f"a job ({type(item.job).__name__})"
