"""Workers on this machine: forked processes that share data and model copy-on-write.

Control messages go over a socket pair; vectors are in shared memory. A worker dies with its
parent.
"""

from __future__ import annotations

import gc
import heapq
import mmap
import os
import selectors
import signal
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgpack
import numpy as np
import psutil

from edgefl.clocks.processes import close_all_but, fork, keep_freed_memory
from edgefl.clocks.setup.learning import Learning
from edgefl.clocks.setup.plan import options
from edgefl.clocks.virtual.pool.executor import Executor
from edgefl.clocks.virtual.pool.scheduler import (
    DEPTH,
    LOOK_AHEAD,
    WorkerFailure,
    WorkerOrder,
    WorkerReport,
    failure,
    job,
    plain,
    plain_outcome,
    stretch,
)
from edgefl.jobs import Train
from edgefl.strategies.base.strategy import LocalRule
from edgefl.vectors import aligned, aligned_copy

IN_CELL, IN_MESSAGE = 1, 2  # msgpack extension types
PLACE = struct.Struct("<QQ")  # cell, elements
LENGTH = struct.Struct("<Q")
MOST_READ = 1 << 20


class NoRoom(Exception):
    """There is not enough shared memory, or workers cannot run here; the text says why."""


class Arena:
    """Memory shared by a process and its forked workers: ``cells`` cells for ``elements`` float32
    each, or fewer if memory is short.

    It is an anonymous mapping: it has no name, so a killed run leaves nothing behind. The process
    that opened it decides which worker may write to which cell. A vector without a cell travels
    inside its message, which costs one or two copies.

    NoRoom if fewer than ``least`` fit.
    """

    def __init__(self, cells: int, least: int, elements: int) -> None:
        self.stride = -(-4 * max(elements, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        available = psutil.virtual_memory().available
        cells = min(cells, available // 2 // self.stride)
        if cells < least:
            raise NoRoom(
                f"{least} models of {self.stride / 1e6:.0f} MB in shared memory, with"
                f" {available / 1e6:.0f} MB available"
            )
        try:
            self._memory = mmap.mmap(-1, cells * self.stride)
        except (OSError, ValueError, OverflowError) as error:
            raise NoRoom(
                f"no {cells * self.stride / 1e6:.0f} MB of shared memory ({error})"
            ) from error
        self._bytes = np.frombuffer(self._memory, np.uint8)
        self._free = list(range(cells))  # a heap: cells that already have memory are taken first

    def take(self) -> int | None:
        return heapq.heappop(self._free) if self._free else None

    def give(self, cell: int) -> None:
        heapq.heappush(self._free, cell)

    def fits(self, vector: np.ndarray) -> bool:
        return vector.dtype == np.float32 and vector.ndim == 1 and vector.nbytes <= self.stride

    def view(self, cell: int, elements: int) -> np.ndarray:
        """The first ``elements`` elements of a cell, which begins at a page boundary."""
        start = cell * self.stride
        return self._bytes[start : start + 4 * elements].view(np.float32)

    def write(self, cell: int, vector: np.ndarray) -> None:
        self.view(cell, vector.size)[:] = vector


def pack(message: Any, place: Callable[[np.ndarray], int | None]) -> bytes:
    """Encode ``message``: plain data and arrays.

    ``place`` writes a vector to a cell and returns the cell; None: it travels in the message.
    """

    def other(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        if not isinstance(value, np.ndarray):
            raise TypeError(f"{type(value).__name__} cannot be sent to a worker")
        cell = place(value)
        if cell is not None:
            return msgpack.ExtType(IN_CELL, PLACE.pack(cell, value.size))
        return msgpack.ExtType(
            IN_MESSAGE, msgpack.packb([value.dtype.str, list(value.shape), value.tobytes()])
        )

    return msgpack.packb(message, default=other)


def unpack(data: bytes, arena: Arena) -> Any:
    """Decode a message. Vectors in cells are read-only views: they change if the cell is reused."""

    def array(code: int, content: bytes) -> np.ndarray:
        if code == IN_CELL:
            found = arena.view(*PLACE.unpack(content))
        else:
            dtype, shape, raw = msgpack.unpackb(content)
            found = aligned(len(raw), np.uint8)
            found[:] = np.frombuffer(raw, np.uint8)
            found = found.view(dtype).reshape(shape)
        found.flags.writeable = False
        return found

    return msgpack.unpackb(data, ext_hook=array, strict_map_key=False)


class MessageStream:
    """Whole messages over a stream socket, without blocking.

    ``push`` sends later what the socket does not take now.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.end = end
        self._out: deque[memoryview] = deque()
        self._in = bytearray()

    @property
    def pending(self) -> bool:
        """Whether data waits for ``push``."""
        return bool(self._out)

    def fileno(self) -> int:
        return self.end.fileno()

    def send(self, data: bytes) -> None:
        self._out.append(memoryview(LENGTH.pack(len(data)) + data))
        self.push()

    def push(self) -> None:
        """Send as much as the socket takes.

        If the other side has closed, all data is dropped, and ``receive`` reports that.
        """
        try:
            while self._out:
                sent = self.end.send(self._out[0])
                if sent == len(self._out[0]):
                    self._out.popleft()
                else:
                    self._out[0] = self._out[0][sent:]
        except BlockingIOError:
            return
        except OSError:
            self._out.clear()

    def receive(self) -> list[bytes]:
        """Return all whole messages so far.

        EOFError if the other side has closed and all its messages have been returned.
        """
        ended = False
        with suppress(BlockingIOError):
            while not ended:
                data = self._read()
                self._in += data
                ended = not data
        messages = []
        while len(self._in) >= LENGTH.size and len(self._in) - LENGTH.size >= (
            size := LENGTH.unpack_from(self._in)[0]
        ):
            messages.append(bytes(self._in[LENGTH.size : LENGTH.size + size]))
            del self._in[: LENGTH.size + size]
        if ended and not messages:
            raise EOFError("the other process has ended")
        return messages

    def close(self) -> None:
        self.end.close()

    def _read(self) -> bytes:
        try:
            return self.end.recv(MOST_READ)
        except ConnectionResetError:
            return b""


LOOK_S = 0.05  # how often a worker checks during training whether its order was cancelled


@dataclass(slots=True, eq=False)
class Process:
    """The parent's view of one worker.

    ``outs``: by order, the index of its strategy and the cells for its result.
    """

    pid: int
    stream: MessageStream
    outs: dict[int, tuple[int, list[int]]] = field(default_factory=dict)
    written: bool = True  # nothing waits to be sent, according to the selector


class ForkedBackend:
    """A WorkerBackend on this machine. NoRoom if shared memory is too small for ``workers``."""

    def __init__(self, learned: Learning, workers: int) -> None:
        rules = [learned.rule(index) for index in range(len(learned.experiment.strategies))]
        # the largest known number of vectors of an outcome, by strategy
        self._results = [1 + len(rule.remembers) for rule in rules]
        cells = workers * max(self._results) * (DEPTH + LOOK_AHEAD) + _standing(learned, rules)
        self._arena = Arena(cells, least=2 * workers, elements=learned.layout.size)
        # id of a vector -> its cell, and the vector: referenced, so that its id is not reused
        self._inputs: dict[int, tuple[int, np.ndarray]] = {}
        self._selector = selectors.DefaultSelector()
        self._processes: set[Process] = set()
        self._ready: list[WorkerReport] = []
        self._executor = Executor(learned)
        self._executor.warm_up()

    def add_worker(self) -> None:
        ours, theirs = socket.socketpair()
        pid = fork("edgefl worker", lambda: _work(theirs, self._arena, self._executor))
        theirs.close()
        process = Process(pid, MessageStream(ours))
        self._processes.add(process)
        self._selector.register(process.stream, selectors.EVENT_READ, process)
        self._ready.append(WorkerReport(process, ready=True))

    def send(self, worker: Process, order: WorkerOrder) -> None:
        last = isinstance(order.job, Train) and order.job.until_step == order.job.run.steps
        index = order.job.run.index if last else -1
        cells = [self._arena.take() for _ in range(self._results[index])] if last else []
        outs = [cell for cell in cells if cell is not None]
        worker.outs[order.number] = index, outs
        worker.stream.send(pack([*plain(order), outs], self._input))
        self._watch(worker)

    def forget(self, worker: Process, number: int) -> None:
        worker.stream.send(pack(["forget", number], self._input))
        self._watch(worker)

    def wait(self, timeout_s: float | None) -> list[WorkerReport]:
        reports, self._ready = self._ready, []
        for key, events in self._selector.select(0 if reports else timeout_s):
            process: Process = key.data
            if events & selectors.EVENT_WRITE:
                process.stream.push()
                self._watch(process)
            if events & selectors.EVENT_READ:
                reports += self._heard(process)
        return reports

    def release(self, array: np.ndarray) -> None:
        cell, _ = self._inputs.pop(id(array), (None, None))
        if cell is not None:
            self._arena.give(cell)

    def close(self) -> None:
        for process in list(self._processes):
            self._bury(process)
        self._selector.close()

    def _heard(self, process: Process) -> list[WorkerReport]:
        reports = []
        try:
            for data in process.stream.receive():
                number, fault, result = unpack(data, self._arena)
                index, outs = process.outs.pop(number)
                if index >= 0 and result is not None:
                    result = self._taken(index, *result)
                self._free(outs)
                reports.append(
                    WorkerReport(process, number, WorkerFailure(*fault) if fault else result)
                )
        except EOFError:
            reports.append(WorkerReport(process, lost=self._bury(process)))
        return reports

    def _taken(
        self,
        index: int,
        vectors: dict[str, np.ndarray],
        numbers: dict[str, float],
        kept: dict[str, np.ndarray],
        failure: list[str] | None,
    ) -> list[Any]:
        """Copy an outcome out of its cells, which will be reused."""
        self._results[index] = max(self._results[index], len(vectors) + len(kept))
        return [
            {name: aligned_copy(vector) for name, vector in vectors.items()},
            numbers,
            {name: aligned_copy(vector) for name, vector in kept.items()},
            failure,
        ]

    def _bury(self, process: Process) -> str:
        """Kill the worker if it still runs. Returns how it ended."""
        self._selector.unregister(process.stream)
        process.stream.close()
        self._processes.discard(process)
        os.kill(process.pid, signal.SIGKILL)  # before waitpid, no other process has this pid
        _, status = os.waitpid(process.pid, 0)
        for _, outs in process.outs.values():
            self._free(outs)
        code = os.waitstatus_to_exitcode(status)
        return f"killed by signal {-code}" if code < 0 else f"ended with status {code}"

    def _free(self, cells: list[int]) -> None:
        for cell in cells:
            self._arena.give(cell)

    def _input(self, vector: np.ndarray) -> int | None:
        known = self._inputs.get(id(vector))
        if known is not None:
            return known[0]
        cell = self._arena.take() if self._arena.fits(vector) else None
        if cell is not None:
            self._arena.write(cell, vector)
            self._inputs[id(vector)] = cell, vector
        return cell

    def _watch(self, process: Process) -> None:
        if process.written is process.stream.pending:
            process.written = not process.stream.pending
            events = selectors.EVENT_READ | (0 if process.written else selectors.EVENT_WRITE)
            self._selector.modify(process.stream, events, process)


def _standing(learned: Learning, rules: list[LocalRule]) -> int:
    """How many runs may wait at a checkpoint, each with its own start model.

    A cell that is never used takes no memory.
    """
    chosen = [options(entry, learned.base) for entry in learned.experiment.strategies]
    most = [found.concurrency(values, len(learned.shards)) for found, values in chosen]
    return max(
        (
            count
            for count, rule in zip(most, rules)
            if type(rule).checkpoint is not LocalRule.checkpoint
        ),
        default=0,
    )


# ------------------------------------------------------------------ the worker's process
def _work(end: socket.socket, arena: Arena, executor: Executor) -> None:
    """Run a worker in the fork, until its parent ends."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    close_all_but(end.fileno())
    # these objects stay; if the garbage collector touched their pages, they would be copied
    gc.freeze()
    keep_freed_memory()
    with suppress(EOFError):
        _Worker(MessageStream(end), arena, executor).run()


class _Worker:
    """Handles orders until its parent ends (EOFError)."""

    def __init__(self, stream: MessageStream, arena: Arena, executor: Executor) -> None:
        self.stream, self.arena, self.executor = stream, arena, executor
        self.orders: deque[list[Any]] = deque()
        self.selector = selectors.DefaultSelector()
        self.selector.register(stream, selectors.EVENT_READ)
        self.unwanted: set[int] = set()  # cancelled orders among ``current`` and ``orders``
        self.current = -1
        self._looked_s = 0.0

    def run(self) -> None:
        while True:
            while not self.orders:
                self._hear(None)
            order = self.orders.popleft()
            self.current = order[1]
            self._report(self.current, *self._done(order))
            if self.current in self.unwanted:
                self.unwanted.discard(self.current)
                self.executor.forget(self.current)
            self.current = -1

    def _done(self, order: list[Any]) -> tuple[WorkerFailure | None, Any, list[int]]:
        """Do an order. Returns failure, result, and the cells for the result."""
        kind, number, *_, outs = order
        if number in self.unwanted:
            return None, None, []
        try:
            if kind == "do":
                return None, self.executor.do(job(order[:-1])), []
            outcome = self.executor.train(
                number, stretch(order[:-1]), lambda: self._given_up(number)
            )
            return None, plain_outcome(outcome), outs
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return failure(error), None, []

    def _given_up(self, number: int) -> bool:
        now = time.monotonic()
        if now - self._looked_s < LOOK_S:
            return False
        self._looked_s = now
        self._hear(0)
        return number in self.unwanted

    def _hear(self, timeout_s: float | None) -> None:
        if not self.selector.select(timeout_s):
            return
        for data in self.stream.receive():
            message = unpack(data, self.arena)
            if message[0] != "forget":
                self.orders.append(message)
            elif message[1] in (self.current, *(order[1] for order in self.orders)):
                self.unwanted.add(message[1])
            else:
                self.executor.forget(message[1])

    def _report(
        self, number: int, fault: WorkerFailure | None, result: Any, outs: list[int]
    ) -> None:
        free = list(outs)

        def place(vector: np.ndarray) -> int | None:
            if not free or not self.arena.fits(vector):
                return None
            cell = free.pop()
            self.arena.write(cell, vector)
            return cell

        self.stream.send(pack([number, fault and [fault.text, fault.users], result], place))
        if self.stream.pending:  # the socket is full; the parent reads it whenever it waits
            self.selector.modify(self.stream, selectors.EVENT_WRITE)
            while self.stream.pending:
                self.selector.select()
                self.stream.push()
            self.selector.modify(self.stream, selectors.EVENT_READ)
