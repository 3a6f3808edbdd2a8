"""An engine of several workers: which worker does which job, and what happens if one is lost.

The ``WorkerBackend`` provides the workers. ::

    start -> waiting, by emulated end -> sent (DEPTH per worker) -> done -> finish
                  ^                        |
                  +------ worker lost <----+

A run that has stopped at its checkpoint stays with its worker and continues there. At most
LOOK_AHEAD tasks per worker are sent, or done but not collected, unless the host waits for a task:
tasks far ahead may still be cancelled.

``ForkedBackend`` has the workers of this machine: forked processes, which share data and model
copy-on-write. Messages go over a socket pair, with arrays after them. A worker dies with its
parent.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import struct
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from multiprocessing.connection import wait
from queue import SimpleQueue
from typing import Any, Protocol

import msgpack
import numpy as np
from sortedcontainers import SortedKeyList

from edgefl import jobs
from edgefl.clocks.ctrl_c import ctrl_c_held_back
from edgefl.clocks.processes import close_all_but, fork, keep_freed_memory
from edgefl.clocks.virtual.pool.engine import (
    DeferredRun,
    Executor,
    GroupCounts,
    RunOutcome,
    Stretch,
)
from edgefl.edges.training import Merge, TrainingFailure
from edgefl.errors import Bug, UserError, trace
from edgefl.jobs import Train
from edgefl.protocol.messages import PUSH, Assignment, Fresh, Pushed
from edgefl.vectors import aligned

# ---------------------------------------------------------------------- orders and their results
FORGET = "forget"  # an order to drop an earlier one, or the run that it has left at a checkpoint


def order_of(number: int, job: Any, stands: bool) -> list[Any]:
    """An order to do ``job``: lists, dicts, texts, numbers and arrays.

    ``stands``: the job's run has stopped at a checkpoint in this worker.
    """
    if not isinstance(job, Train):
        return ["do", number, jobs.plain(job)]
    run: DeferredRun = job.run
    task = [run.task.number, run.task.version, dict(run.task.vectors), dict(run.task.numbers)]
    merges = [_plain(merge) for merge in run.merges]
    of_start: list[Any] = [None, {}] if stands else [task, dict(run.kept)]
    return ["train", number, run.index, run.edge, *of_start, merges, job.until_step]


def _plain(merge: Merge) -> list[Any]:
    model = merge.model
    return [merge.step, model.kind, model.number, model.version, model.vectors, model.numbers]


def _merge(step: int, kind: str, *content: Any) -> Merge:
    return Merge(step, (Pushed if kind == PUSH else Fresh)(*content))


def done(
    executor: Executor, order: list[Any], given_up: Callable[[], bool] | None = None
) -> tuple[list[Any] | None, Any]:
    """Do an order in a worker. Returns (None, the result) or (failure, None).

    The result of a "train" that stopped before its end says whether its rule asks there. A failure
    is the error's text, and whether it is a UserError.
    """
    try:
        if order[0] == "do":
            return None, executor.do(jobs.of_plain(order[2]))
        _, number, index, edge, task, kept, merges, until = order
        started = None if task is None else Assignment(*task)
        merged = [_merge(*merge) for merge in merges]
        outcome = executor.train(
            number, Stretch(index, edge, started, kept, merged, until), given_up
        )
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        users = isinstance(error, UserError)
        return [str(error) if users else trace(error), users], None
    if outcome is None or isinstance(outcome, bool):
        return None, outcome
    failure = outcome.failure and [outcome.failure.reason, outcome.failure.trace]
    return None, [outcome.vectors, outcome.numbers, outcome.remembered, failure]


@dataclass(frozen=True, slots=True, eq=False)
class WorkerReport:
    """A worker's report: the end of order ``number``, or ``ready``, or ``lost``.

    ``failure`` and ``result``: see ``done``. ``ready``: the worker can take orders. ``lost``: why
    it no longer can. Every order is reported once unless its worker is lost; a forgotten order may
    report any result.
    """

    worker: Any
    number: int = -1
    failure: list[Any] | None = None
    result: Any = None
    ready: bool = False
    lost: str | None = None


class WorkerBackend(Protocol):
    """Provides workers. A worker is any object that ``wait`` names in its reports."""

    def add_worker(self) -> None:
        """Start one more worker; ``wait`` reports when it is ready."""
        ...

    def send(self, worker: Any, order: list[Any]) -> None: ...

    def forget(self, worker: Any, number: int) -> None:
        """Drop an order as soon as possible, or the run that it left at a checkpoint."""
        ...

    def wait(self, timeout_s: float | None) -> list[WorkerReport]:
        """Return all available reports. ``timeout_s`` None: wait until there is one."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...


# ---------------------------------------------------------------------- which worker does what
LOOK_AHEAD = 4
DEPTH = 2  # orders per worker: one that it does, and the next one
MOST_DEATHS = 3  # after so many lost workers the task itself counts as the cause


class State(Enum):
    WAITING = auto()
    SENT = auto()
    DONE = auto()
    STANDING = auto()  # collected at its checkpoint


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
    failure: list[Any] | None = None
    result: Any = None
    deaths: int = 0

    @property
    def ahead(self) -> bool:
        """Whether it counts for LOOK_AHEAD."""
        return self.state in (State.SENT, State.DONE)

    def __str__(self) -> str:
        if isinstance(self.job, Train):
            return f"task {self.key.task.number} of edge {self.key.edge}"
        return f"a job ({type(self.job).__name__})"


def _by_emulated_end() -> SortedKeyList:
    return SortedKeyList(key=lambda item: (item.due_ns, item.pushed))


@dataclass(slots=True, eq=False)
class PoolWorker:
    """A worker. ``sent``: numbers of its orders, the current one first.

    ``own``: waiting items whose runs have stopped in this worker.
    """

    id: Any
    sent: list[int] = field(default_factory=list)
    own: SortedKeyList = field(default_factory=_by_emulated_end)


class WorkerPool:
    """An Engine over the workers of ``backend``."""

    def __init__(self, backend: WorkerBackend, workers: int, note: str | None = None) -> None:
        self.workers, self.note = workers, note
        self.groups: GroupCounts | None = None
        self._backend = backend
        self._workers: dict[Any, PoolWorker] = {}
        self._items: dict[Any, Item] = {}  # by run or job
        self._numbered: dict[int, Item] = {}
        self._waiting = _by_emulated_end()  # items that any worker may do
        self._numbers = self._pushes = self._ahead = 0
        for _ in range(workers):
            backend.add_worker()

    @property
    def busy(self) -> int:
        return sum(bool(worker.sent) for worker in self._workers.values())

    # ------------------------------------------------------------------ what the host calls
    def start(self, job: Any, due_ns: int) -> None:
        item = self._items.get(_key(job))
        if item is not None and item.state is not State.STANDING:
            self._discard(item)
            item = None
        if item is None:
            item = self._items[_key(job)] = self._numbered[self._numbers] = Item(
                _key(job), self._numbers
            )
            self._numbers += 1
        item.job, item.due_ns = job, due_ns
        self._put(item)
        self._step(0.0)

    def ready(self, job: Any) -> bool:
        self._step(0.0)
        return self._items[_key(job)].state is State.DONE

    def finish(self, job: Any) -> Any:
        item = self._items.get(_key(job))
        if item is None or item.job is not job:
            self.start(job, 0)
            item = self._items[_key(job)]
        while item.state is not State.DONE:
            self._step(None, item)
        if isinstance(job, Train) and isinstance(item.result, bool):
            job.run.asks = item.result
            self._become(item, State.STANDING)
        else:
            self._close(item)
        if item.failure is not None:
            text, users = item.failure
            raise UserError(text) if users else Bug(f"a worker failed at {item}", text.splitlines())
        if not isinstance(job, Train):
            return item.result
        job.run.step = job.until_step
        if not isinstance(item.result, bool):
            vectors, numbers, remembered, failure = item.result
            failed = failure and TrainingFailure(*failure)
            job.run.end(RunOutcome(vectors, numbers, remembered, failed))
        return None

    def drop(self, run: DeferredRun) -> None:
        item = self._items.get(run)
        if item is not None:
            self._discard(item)

    def clear(self) -> None:
        for item in list(self._items.values()):
            self._discard(item)

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
        queues = [queue for queue in (worker.own, self._waiting) if queue]
        if len(worker.sent) >= DEPTH or not queues:
            return False
        queue = min(queues, key=lambda queue: (queue[0].due_ns, queue[0].pushed))
        item: Item = queue[0]
        far = wanted_ns is None or item.due_ns > wanted_ns
        if far and self._ahead >= LOOK_AHEAD * self.workers:
            return False
        del queue[0]
        stands = item.worker is worker
        item.worker = worker
        worker.sent.append(item.number)
        self._become(item, State.SENT)
        self._backend.send(worker.id, order_of(item.number, item.job, stands))
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
        if item is not None:
            item.failure, item.result = report.failure, report.result
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
                if item.deaths < MOST_DEATHS:
                    self._put(item)
                    continue
                item.failure = [
                    f"{item.deaths} workers were lost at {item} ({why}); is there enough memory?"
                    " Try fewer --workers",
                    True,
                ]
                self._become(item, State.DONE)
            elif item.state is State.WAITING:
                self._put(item)

    # ------------------------------------------------------------------ items
    def _put(self, item: Item) -> None:
        """Queue the item: for the worker that has its run, otherwise for all workers."""
        self._pushes += 1
        item.pushed = self._pushes
        self._become(item, State.WAITING)
        (self._waiting if item.worker is None else item.worker.own).add(item)

    def _discard(self, item: Item) -> None:
        """Drop the item. Its worker may forget it, and a report about it is ignored."""
        if item.state is State.WAITING:
            (self._waiting if item.worker is None else item.worker.own).remove(item)
        if item.worker is not None:
            self._backend.forget(item.worker.id, item.number)
        self._close(item)

    def _close(self, item: Item) -> None:
        del self._items[item.key], self._numbered[item.number]
        self._become(item, State.STANDING)

    def _become(self, item: Item, state: State) -> None:
        self._ahead -= item.ahead
        item.state = state
        self._ahead += item.ahead


def _key(job: Any) -> Any:
    return job.run if isinstance(job, Train) else job


# ---------------------------------------------------------------------- workers of this machine
ARRAY = 1  # msgpack extension type: the array follows the message
LENGTH = struct.Struct("<Q")


def send(end: socket.socket, message: Any) -> None:
    """Send plain data and arrays."""
    arrays: list[Any] = []

    def described(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        if not isinstance(value, np.ndarray):
            raise TypeError(f"{type(value).__name__} cannot be sent to a worker")
        arrays.append(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
        return msgpack.ExtType(ARRAY, msgpack.packb([value.dtype.str, list(value.shape)]))

    data = msgpack.packb(message, default=described)
    with ctrl_c_held_back():  # half a message would spoil all that follow
        end.sendall(LENGTH.pack(len(data)) + data)
        for array in arrays:
            end.sendall(array)


def receive(end: socket.socket, read_only: bool = False) -> Any:
    """Receive a message. EOFError or OSError if the other process has ended."""

    def array(code: int, content: bytes) -> np.ndarray:
        dtype, shape = msgpack.unpackb(content)
        found = aligned(int(np.prod(shape, dtype=np.int64)), np.dtype(dtype).type)
        _fill(end, found.view(np.uint8))
        found = found.reshape(shape)
        found.flags.writeable = not read_only
        return found

    with ctrl_c_held_back():
        data = bytearray(LENGTH.size)
        _fill(end, data)
        data = bytearray(LENGTH.unpack(data)[0])
        _fill(end, data)
        return msgpack.unpackb(data, ext_hook=array, strict_map_key=False)


def _fill(end: socket.socket, buffer: Any) -> None:
    """Fill ``buffer``: a call may return early at a signal, at SIGCONT too, and after 2 GiB."""
    rest = memoryview(buffer)
    while len(rest):
        count = end.recv_into(rest, flags=socket.MSG_WAITALL)
        if not count:
            raise EOFError("the other process has ended")
        rest = rest[count:]


class ForkedBackend:
    """A WorkerBackend on this machine."""

    def __init__(self, learned: Any) -> None:
        self._workers: dict[socket.socket, int] = {}  # -> pid
        self._ready: list[WorkerReport] = []
        self._executor = Executor(learned)
        self._executor.warm_up()

    @property
    def pids(self) -> list[int]:
        return sorted(self._workers.values())

    def add_worker(self) -> None:
        ours, theirs = socket.socketpair()
        self._workers[ours] = fork("edgefl worker", lambda: _work(theirs, self._executor))
        theirs.close()
        self._ready.append(WorkerReport(ours, ready=True))

    def send(self, worker: socket.socket, order: list[Any]) -> None:
        """Send an order, which the worker's second thread receives at any time."""
        with suppress(BrokenPipeError, ConnectionResetError):  # ``wait`` reports it
            send(worker, order)

    def forget(self, worker: socket.socket, number: int) -> None:
        self.send(worker, [FORGET, number])

    def wait(self, timeout_s: float | None) -> list[WorkerReport]:
        reports, self._ready = self._ready, []
        ends = wait(list(self._workers), 0 if reports else timeout_s)
        return reports + [self._heard(end) for end in ends]

    def close(self) -> None:
        for worker in list(self._workers):
            self._bury(worker)

    def _heard(self, worker: Any) -> WorkerReport:
        try:
            number, failure, result = receive(worker)
        except (EOFError, OSError):
            return WorkerReport(worker, lost=self._bury(worker))
        return WorkerReport(worker, number, failure, result)

    def _bury(self, worker: socket.socket) -> str:
        """Kill the worker if it still runs. Returns how it ended."""
        pid = self._workers.pop(worker)
        worker.close()
        os.kill(pid, signal.SIGKILL)  # before waitpid, no other process has this pid
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        return f"killed by signal {-code}" if code < 0 else f"ended with status {code}"


def _work(end: socket.socket, executor: Executor) -> None:
    """Run a worker in the fork, until its parent ends.

    A second thread receives the orders, so that the parent never waits for a worker that trains,
    and a training sees at once that its order was dropped.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    close_all_but(end.fileno())
    # these objects stay; if the garbage collector touched their pages, they would be copied
    gc.freeze()
    keep_freed_memory()
    orders: SimpleQueue[list[Any]] = SimpleQueue()
    dropped: set[int] = set()

    def listen() -> None:
        status = 0
        try:
            while True:
                order = receive(end, read_only=True)
                if order[0] == FORGET:
                    dropped.add(order[1])
                orders.put(order)
        except (EOFError, OSError):
            pass
        except BaseException:  # such as no memory: a worker that hears nothing must end
            status = 1
            traceback.print_exc()
        finally:
            os._exit(status)

    threading.Thread(target=listen, daemon=True).start()
    with suppress(BrokenPipeError, ConnectionResetError):  # the parent has ended
        while True:
            order = orders.get()
            number = order[1]
            if order[0] == FORGET:  # it comes after what it drops
                executor.forget(number)
                dropped.discard(number)
                continue
            failure, result = None, None
            if number not in dropped:
                failure, result = done(executor, order, partial(dropped.__contains__, number))
            send(end, [number, failure, result])
