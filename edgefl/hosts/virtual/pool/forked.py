"""Workers on this machine: processes forked when everything is loaded, so that data and model are
there once for all of them.

Control messages go over a socket pair, vectors lie in shared memory. A worker ends when its parent
does, however that happens: the kernel is asked to see to it, and the socket tells as well.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import socket
import time
import traceback
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgefl.hosts.processes import close_all_but, fork, keep_freed_memory
from edgefl.hosts.setup.learning import Learning
from edgefl.hosts.setup.plan import options
from edgefl.hosts.virtual.pool.backend import WorkerFailure, WorkerOrder, WorkerReport
from edgefl.hosts.virtual.pool.executor import Executor
from edgefl.hosts.virtual.pool.orders import failure, job, plain, stretch
from edgefl.hosts.virtual.pool.scheduler import DEPTH, LOOK_AHEAD
from edgefl.hosts.virtual.pool.shared_memory import Arena, MessageStream, pack, unpack
from edgefl.jobs import Train
from edgefl.strategies.base.local_rule import LocalRule
from edgefl.vectors import aligned_copy

LOOK_S = 0.05  # how often a worker in training looks whether it is still wanted


@dataclass(slots=True, eq=False)
class Process:
    """One worker as its parent sees it. ``outs``: by order, its strategy and the slots for its
    result.
    """

    pid: int
    line: MessageStream
    outs: dict[int, tuple[int, list[int]]] = field(default_factory=dict)
    written: bool = True  # nothing waits to be sent, as the selector knows


class Forked:
    """Hands (see ``Crew``) on this machine. NoRoom if shared memory is too small for
    ``workers``.
    """

    def __init__(self, learned: Learning, workers: int) -> None:
        rules = [learned.rule(index) for index in range(len(learned.experiment.strategies))]
        self._results = [
            1 + len(rule.remembers) for rule in rules
        ]  # vectors of an outcome, by strategy, as far as is known
        slots = workers * max(self._results) * (DEPTH + LOOK_AHEAD) + _standing(learned, rules)
        self._arena = Arena(slots, least=2 * workers, elements=learned.layout.size)
        self._inputs: dict[
            int, tuple[int, np.ndarray]
        ] = {}  # id of a vector -> its slot; held, so that no other gets that id
        self._selector = selectors.DefaultSelector()
        self._processes: set[Process] = set()
        self._here: list[WorkerReport] = []
        self._bench = Executor(learned)
        self._bench.warm_up()

    def hire(self) -> None:
        ours, theirs = socket.socketpair()
        pid = fork("edgefl worker", lambda: _work(theirs, self._arena, self._bench))
        theirs.close()
        process = Process(pid, MessageStream(ours))
        self._processes.add(process)
        self._selector.register(process.line, selectors.EVENT_READ, process)
        self._here.append(WorkerReport(process, here=True))

    def send(self, who: Process, order: WorkerOrder) -> None:
        last = isinstance(order.job, Train) and order.job.until_step == order.job.run.steps
        index = order.job.run.index if last else -1
        slots = [self._arena.take() for _ in range(self._results[index])] if last else []
        outs = [slot for slot in slots if slot is not None]
        who.outs[order.number] = index, outs
        who.line.send(pack([*plain(order), outs], self._input))
        self._watch(who)

    def forget(self, who: Process, number: int) -> None:
        who.line.send(pack(["forget", number], self._input))
        self._watch(who)

    def wait(self, timeout_s: float | None) -> list[WorkerReport]:
        reports, self._here = self._here, []
        for key, events in self._selector.select(0 if reports else timeout_s):
            process: Process = key.data
            if events & selectors.EVENT_WRITE:
                process.line.push()
                self._watch(process)
            if events & selectors.EVENT_READ:
                reports += self._heard(process)
        return reports

    def release(self, array: np.ndarray) -> None:
        slot, _ = self._inputs.pop(id(array), (None, None))
        if slot is not None:
            self._arena.give(slot)

    def close(self) -> None:
        for process in list(self._processes):
            self._bury(process)
        self._selector.close()

    def _heard(self, process: Process) -> list[WorkerReport]:
        reports = []
        try:
            for data in process.line.receive():
                number, fault, result = unpack(data, self._arena)
                index, outs = process.outs.pop(number)
                if index >= 0 and result is not None:
                    result = self._taken(index, *result)
                self._free(outs)
                reports.append(
                    WorkerReport(process, number, WorkerFailure(*fault) if fault else result)
                )
        except EOFError:
            reports.append(WorkerReport(process, gone=self._bury(process)))
        return reports

    def _taken(
        self,
        index: int,
        vectors: dict[str, np.ndarray],
        numbers: dict[str, float],
        kept: dict[str, np.ndarray],
    ) -> list[Any]:
        """An outcome out of the slots, which others may have next."""
        self._results[index] = max(self._results[index], len(vectors) + len(kept))
        return [
            {name: aligned_copy(vector) for name, vector in vectors.items()},
            numbers,
            {name: aligned_copy(vector) for name, vector in kept.items()},
        ]

    def _bury(self, process: Process) -> str:
        """End it, if it has not ended; how it did."""
        self._selector.unregister(process.line)
        process.line.close()
        self._processes.discard(process)
        os.kill(process.pid, signal.SIGKILL)  # until it is waited for, the number is its own
        _, status = os.waitpid(process.pid, 0)
        for _, outs in process.outs.values():
            self._free(outs)
        code = os.waitstatus_to_exitcode(status)
        return f"killed by signal {-code}" if code < 0 else f"ended with status {code}"

    def _free(self, slots: list[int]) -> None:
        for slot in slots:
            self._arena.give(slot)

    def _input(self, vector: np.ndarray) -> int | None:
        known = self._inputs.get(id(vector))
        if known is not None:
            return known[0]
        slot = self._arena.take() if self._arena.fits(vector) else None
        if slot is not None:
            self._arena.write(slot, vector)
            self._inputs[id(vector)] = slot, vector
        return slot

    def _watch(self, process: Process) -> None:
        if process.written is process.line.pending:
            process.written = not process.line.pending
            events = selectors.EVENT_READ | (0 if process.written else selectors.EVENT_WRITE)
            self._selector.modify(process.line, events, process)


def _standing(learned: Learning, rules: list[LocalRule]) -> int:
    """How many runs may stand at a checkpoint, each over a start model of its own. A slot that
    is never used takes no memory.
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
def _work(end: socket.socket, arena: Arena, bench: Executor) -> None:
    """In the fork, until its parent is gone."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    close_all_but(end.fileno())
    # what is there stays for good: the collector must not touch, and so copy, its pages
    gc.freeze()
    keep_freed_memory()
    with suppress(EOFError):
        _Worker(MessageStream(end), arena, bench).run()


class _Worker:
    """Takes orders until its parent is gone (EOFError)."""

    def __init__(self, line: MessageStream, arena: Arena, bench: Executor) -> None:
        self.line, self.arena, self.bench = line, arena, bench
        self.orders: deque[list[Any]] = deque()
        self.selector = selectors.DefaultSelector()
        self.selector.register(line, selectors.EVENT_READ)
        self.unwanted: set[int] = set()  # of the orders in hand
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
                self.bench.forget(self.current)
            self.current = -1

    def _done(self, order: list[Any]) -> tuple[WorkerFailure | None, Any, list[int]]:
        """What came of it, and the slots for that."""
        kind, number, *_, outs = order
        if number in self.unwanted:
            return None, None, []
        try:
            if kind == "do":
                return None, self.bench.do(job(order[:-1])), []
            outcome = self.bench.train(number, stretch(order[:-1]), lambda: self._given_up(number))
            return None, outcome and [outcome.vectors, outcome.numbers, outcome.remembered], outs
        except Exception as error:
            return failure(error, traceback.format_exc()), None, []

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
        for data in self.line.receive():
            message = unpack(data, self.arena)
            if message[0] != "forget":
                self.orders.append(message)
            elif message[1] in (self.current, *(order[1] for order in self.orders)):
                self.unwanted.add(message[1])
            else:
                self.bench.forget(message[1])

    def _report(
        self, number: int, fault: WorkerFailure | None, result: Any, outs: list[int]
    ) -> None:
        free = list(outs)

        def place(vector: np.ndarray) -> int | None:
            if not free or not self.arena.fits(vector):
                return None
            slot = free.pop()
            self.arena.write(slot, vector)
            return slot

        self.line.send(pack([number, fault and [fault.text, fault.users], result], place))
        if self.line.pending:  # more than the socket holds: the parent reads whenever it waits
            self.selector.modify(self.line, selectors.EVENT_WRITE)
            while self.line.pending:
                self.selector.select()
                self.line.push()
            self.selector.modify(self.line, selectors.EVENT_READ)
