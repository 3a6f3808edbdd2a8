"""The worker processes of a coordinator: evaluation of snapshots, and the strategy's jobs.

Arrays go to them and come back in files, the rest in messages. numpy releases the GIL while it
writes or reads an array, so this does not delay pacing. Encoding one large message would delay it.
A thread for each worker sends its orders, one at a time, and waits for the results.
"""

from __future__ import annotations

import math
import os
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO

import numpy as np

from edgefl.clocks.ipc import Channel
from edgefl.clocks.process_messages import (
    DoJob,
    EvaluateSnapshot,
    JobFinished,
    JobRaised,
    SnapshotScores,
    WorkerDied,
)
from edgefl.clocks.wall.coordinator.thread_messages import (
    EvaluatorGone,
    JobOrder,
    Scored,
    Worked,
    numbers,
    texts,
)
from edgefl.clocks.wall.edge.work import Turns
from edgefl.clocks.wall.system import OWN_SYSTEM, Inbox, System
from edgefl.errors import TEMPORARY, UserError, trace, written
from edgefl.jobs import Evaluate, Job, Result, Scores, of_plain, plain
from edgefl.snake_case import snake
from edgefl.vectors import aligned_copy

PLACE = "array in file"  # the key that marks [offset, dtype, shape]
MOST_DEATHS = 3  # after so many dead workers the job itself counts as the cause


def put_arrays(path: Path, value: Any) -> Any:
    """Write the arrays of ``value`` to the file ``path``.

    Returns ``value`` (dicts, lists, texts, numbers, arrays) with a mark in each array's place.
    """
    with path.open("wb") as file:
        return _put(file, value)


def take_arrays(path: Path, value: Any) -> Any:
    """Return what ``put_arrays`` got, with aligned read-only arrays, and delete the file."""
    taken = _take(path, value)
    path.unlink()
    return taken


def _put(file: BinaryIO, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _put(file, part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_put(file, part) for part in value]
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray):
        return value
    place = [file.tell(), value.dtype.str, list(value.shape)]
    # not np.save: its error does not say why the disk refuses
    file.write(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    return {PLACE: place}


def _take(path: Path, value: Any) -> Any:
    if isinstance(value, list):
        return [_take(path, part) for part in value]
    if not isinstance(value, dict):
        return value
    if PLACE not in value:
        return {key: _take(path, part) for key, part in value.items()}
    offset, dtype, shape = value[PLACE]
    count = int(np.prod(shape, dtype=np.int64))
    array = aligned_copy(np.fromfile(path, dtype, count, offset=offset))
    array.flags.writeable = False
    return array.reshape(shape)


class WorkerEnd(ABC):
    """The coordinator's end of a worker process.

    A thread sends the orders, one at a time, and waits for the outcome of each: the logic thread
    never waits for a worker.
    """

    gone: Any = None  # what is told if the process has ended

    def __init__(self, channel: Channel, scratch: Path, system: System = OWN_SYSTEM) -> None:
        self.channel, self.scratch, self.system = channel, scratch, system
        self._orders: Inbox = system.inbox()

    def listen(self, tell: Callable[[Any], None]) -> None:
        """Start the thread, which passes the outcome of each order to ``tell``."""
        name = type(self).__name__.lower()
        self.system.start(Thread(target=self._serve, args=(tell,), name=name, daemon=True))

    def _serve(self, tell: Callable[[Any], None]) -> None:
        try:
            while True:
                tell(self._outcome(self._orders.get()))
        except (EOFError, ConnectionError):
            if self.gone is not None:
                tell(self.gone)

    @abstractmethod
    def _outcome(self, order: Any) -> Any:
        """Send the order, and return what it has led to. EOFError if the process has ended."""


class Evaluator(WorkerEnd):
    """Writes snapshots, whose evaluation may lag behind."""

    gone = EvaluatorGone()

    def __init__(self, channel: Channel, scratch: Path, system: System = OWN_SYSTEM) -> None:
        super().__init__(channel, scratch, system)
        # weights of snapshots that are no files yet, by ``Evaluate.key``
        self._unwritten: dict[tuple[int, bool], np.ndarray] = {}

    def expect(self, job: Evaluate) -> None:
        """Its snapshot will be submitted, maybe later by another thread."""
        self._unwritten[job.key] = job.weights

    def submit(self, job: Evaluate) -> None:
        """Write a snapshot, and order its evaluation. UserError if there is no room for it."""
        path = self._path(job.key)
        try:
            with written(f"{path}:", TEMPORARY):
                path.write_bytes(job.weights.data)
        finally:
            self._unwritten.pop(job.key, None)
        self._orders.put(EvaluateSnapshot(job.version, job.at_ns, str(path), job.of_edges))

    def snapshot(self, key: tuple[int, bool]) -> np.ndarray | None:
        """The weights of an evaluation under way; None if there is no file any more."""
        weights = self._unwritten.get(key)
        if weights is not None:
            return weights
        try:
            return aligned_copy(np.fromfile(self._path(key), dtype=np.float32))
        except OSError:
            return None

    def handled(self, key: tuple[int, bool]) -> None:
        """The result is in the journal: a resumed run will not need the snapshot."""
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: tuple[int, bool]) -> Path:
        version, of_edges = key
        return self.scratch / f"snapshot-{os.getpid()}-{version}{'-edges' * of_edges}.f32"

    def _outcome(self, order: EvaluateSnapshot) -> Scored:
        self.channel.send(order)
        while True:
            result: SnapshotScores = self.channel.receive()
            if result.file == order.file:  # not a late one, for an earlier strategy's coordinator
                scores = numbers(result.scores)
                return Scored(result.version, scores, order.at_ns, of_edges=order.of_edges)


def serve_evaluations(channel: Channel, evaluate: Callable[[Evaluate], Scores]) -> None:
    """Run the evaluator process: evaluate snapshots one by one until the channel closes."""

    def evaluated(order: EvaluateSnapshot) -> SnapshotScores:
        path = Path(order.file)
        weights = aligned_copy(np.fromfile(path, dtype=np.float32))
        job = Evaluate(order.version, order.at_ns, weights, 0, 0, of_edges=order.of_edges)
        return SnapshotScores(order.version, order.file, texts(evaluate(job)))

    channel.serve(evaluated)


class Jobs(WorkerEnd):
    """Has the strategy's jobs run one by one. ``JobTable`` keeps what is open."""

    def __init__(
        self, channel: Channel, scratch: Path, now: Callable[[], int], system: System = OWN_SYSTEM
    ) -> None:
        super().__init__(channel, scratch, system)
        self.now = now

    def submit(self, order: JobOrder) -> None:
        self._orders.put(order)

    def _outcome(self, order: JobOrder) -> Worked:
        """Return one Worked for each order, also after an error: the strategy waits for it."""
        try:
            return self._done(order)
        except (EOFError, ConnectionError):
            raise
        except OSError as error:  # for example a full disk
            return Worked(
                self.now(),
                order,
                error=(
                    f"a job ({snake(type(order.job).__name__)}) could not be handed to its worker:"
                    f" {error}"
                ),
                users=True,
            )
        except Exception:  # the job does not fit into a message: a bug of its author
            return Worked(self.now(), order, error=traceback.format_exc())

    def _done(self, order: JobOrder) -> Worked:
        """Send the order again if its worker dies. Orders are sent one at a time, so that a dead
        worker loses only one.
        """
        for deaths in range(MOST_DEATHS):
            match self._asked(order, deaths):
                case JobRaised() as raised:
                    return Worked(self.now(), order, error=raised.error, users=raised.users)
                case JobFinished() as finished:
                    result = _result(finished)
                    return Worked(self.now(), order, result, finished.real_s, deaths)
        return Worked(self.now(), order, f"its worker died {MOST_DEATHS} times", deaths=MOST_DEATHS)

    def _asked(self, order: JobOrder, attempt: int) -> JobFinished | JobRaised | WorkerDied:
        name = f"{os.getpid()}-{order.number}"
        path = self.scratch / f"job-{name}-{attempt}"
        row = put_arrays(path, plain(order.job))
        self.channel.send(DoJob(name, order.due_ns, str(path), row))
        while True:
            reply = self.channel.receive()
            if isinstance(reply, WorkerDied) or reply.order == name:
                return reply
            # a reply to an earlier strategy's order, or from a worker that counted as dead
            if isinstance(reply, JobFinished):
                Path(reply.file).unlink(missing_ok=True)


def _result(finished: JobFinished) -> Result:
    vectors, numbers = take_arrays(Path(finished.file), finished.result)
    # JSON has no nan
    return vectors, {name: math.nan if n is None else n for name, n in numbers.items()}


def serve_jobs(channel: Channel, learned: Any, turns: Turns) -> None:
    """Run the worker process: one job after the other, each in its own turn, until the channel
    closes.
    """

    learned.place()

    def done(order: DoJob) -> JobFinished | JobRaised | None:
        path = Path(order.file)
        if not path.exists():
            return None  # the coordinator that sent the order has ended
        job = of_plain(take_arrays(path, order.job))
        turns.take(order.due_ns)
        reply = _reply(job, learned, order.order, path.with_suffix(".done"))
        turns.give()
        return reply

    channel.serve(done)


def _reply(job: Job, learned: Any, order: str, path: Path) -> JobFinished | JobRaised:
    began = time.perf_counter()
    try:
        result = list(job.work(learned))
    except UserError as error:
        return JobRaised(order, str(error), users=True)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit
        return JobRaised(order, trace(error), users=False)
    real_s = time.perf_counter() - began
    try:
        with written(f"{path}:", TEMPORARY):
            return JobFinished(order, str(path), put_arrays(path, result), real_s)
    except UserError as error:
        path.unlink(missing_ok=True)
        return JobRaised(order, f"the result of a job: {error}", users=True)
