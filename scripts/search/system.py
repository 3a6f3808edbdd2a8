"""The simulated machine as the program under test sees it, and the processes of its workers."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable
from threading import Thread
from typing import Any

from msgspec.structs import replace

from edgefl.clocks.ipc import decode, encode
from edgefl.clocks.process_messages import JobFinished, WorkerDied
from edgefl.clocks.wall.coordinator.workers import serve_evaluations, serve_jobs
from edgefl.clocks.wall.edge.work import OwnMachine
from edgefl.clocks.wall.system import System
from search.disk import ProcessDisk, SimulatedDisk
from search.machine import NS_PER_S, SCHEDULER_NS, Process, SimulatedThread, running
from search.network import SimulatedDealer, SimulatedNetwork, SimulatedPoller, SimulatedRouter

SLOW_WRITER_NS = NS_PER_S  # a checkpoint's thread begins within this time: a busy, slow disk
UNIX_S = 1.7e9  # the date at the start of each simulation


class SimulatedSystem(System):
    """What one process takes from its machine."""

    def __init__(self, process: Process, network: SimulatedNetwork, disk: SimulatedDisk) -> None:
        self.process, self.network = process, network
        self.disk = ProcessDisk(disk, process)
        self._threads: dict[Thread, SimulatedThread] = {}

    # ------------------------------------------------------------------ time
    def monotonic_ns(self) -> int:
        return self.process.monotonic_ns()

    def thread_ns(self) -> int:
        """Here only waits take time. They count as work, so that an item may be slow."""
        return self.process.monotonic_ns()

    def passed_ns(self) -> int:
        return self.process.monotonic_ns() + self.process.slept_ns

    def unix_s(self) -> float:
        return UNIX_S + self.process.sim.now_ns / NS_PER_S

    def sleep(self, pause_s: float) -> None:
        self.process.call("sleep")
        until_ns = self.process.sim.now_ns + round(pause_s * NS_PER_S)
        running(self.process).block(until_ns)

    # ------------------------------------------------------------------ threads
    def start(self, thread: Thread) -> None:
        within_ns = SLOW_WRITER_NS if thread.name == "checkpoint" else SCHEDULER_NS
        started = self._threads[thread] = self.process.start(thread.run, thread.name, within_ns)
        thread.is_alive = lambda: not started.ended

    def join(self, thread: Thread, timeout_s: float | None = None) -> None:
        timeout_ns = None if timeout_s is None else round(timeout_s * NS_PER_S)
        running(self.process).join(self._threads[thread], timeout_ns)

    def thread(self) -> int:
        return id(running(self.process))

    def inbox(self) -> SimulatedInbox:
        return SimulatedInbox(self.process)

    def mailbox(self) -> SimulatedMailbox:
        return SimulatedMailbox()

    # ------------------------------------------------------------------ sockets
    def random_bits(self, bits: int) -> int:
        return self.process.sim.draw(1 << min(bits, 62))

    def router(self, context: Any, keys: Any) -> SimulatedRouter:
        return SimulatedRouter(self.network, self.process)

    def dealer(self, context: Any, keys: Any, address: str) -> SimulatedDealer:
        return SimulatedDealer(self.network, self.process, address)

    def poller(self, mailbox: SimulatedMailbox) -> SimulatedPoller:
        return SimulatedPoller(self.process, mailbox)

    def watch(self, router: Any, most_bytes: int, *of: Any) -> NoWatch:
        return NoWatch()


class NoWatch(Thread):
    """No peer of the simulation sends a message without an end: there is nothing to watch."""

    def run(self) -> None:
        return None

    def stop(self) -> dict[str, int]:
        return {}


class SimulatedInbox:
    """A queue between threads of one process. Each item that is taken is one event."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._items: deque[Any] = deque()
        self._waiting: SimulatedThread | None = None

    def put(self, item: Any) -> None:
        self._items.append(item)
        if self._waiting is not None:
            self._waiting.wake()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        thread, sim = running(self.process), self.process.sim
        self.process.call("take from a queue")
        until_ns = None if timeout is None else sim.now_ns + round(timeout * NS_PER_S)
        if self._items:
            thread.block(sim.now_ns)
        while not self._items:
            if not block or (until_ns is not None and sim.now_ns >= until_ns):
                raise queue.Empty
            self._waiting = thread
            thread.block(until_ns)
            self._waiting = None
        return self._items.popleft()


class SimulatedMailbox:
    """A queue for a thread that also waits for a socket."""

    def __init__(self) -> None:
        self.items: deque[Any] = deque()
        self.waiting: SimulatedThread | None = None
        self.fd = self  # what the reader waits for

    def close(self) -> None:
        self.waiting = None

    def put(self, *items: Any) -> None:
        self.items.extend(items)
        if self.waiting is not None:
            self.waiting.wake()

    def take(self, woken: bool = True) -> list[Any]:
        taken = list(self.items)
        self.items.clear()
        return taken


WORK_NS = 150_000_000  # the longest real time of a job
REAL_S = 0.1  # what its worker measures


class Worker:
    """The coordinator's end of a channel, and the process at its other end.

    ``dies``: at so many orders to come the process dies, and a new one is there at once.
    """

    def __init__(self, system: SimulatedSystem, answer: Callable[[Any], Any]) -> None:
        self.process, self.answer = system.process, answer
        self.inbox = SimulatedInbox(system.process)
        self.dies = 0

    def send(self, message: Any) -> None:
        self.process.call("order")
        sim = self.process.sim
        sim.after(1 + sim.draw(WORK_NS), self._work, encode(message))

    def receive(self, timeout_s: float | None = None) -> Any:
        return decode(self.inbox.get())

    def _work(self, order: bytes) -> None:
        if not self.process.alive:
            return
        if self.dies:
            self.dies -= 1
            self.inbox.put(encode(WorkerDied(9)))
            return
        reply = self.answer(decode(order))
        if isinstance(reply, JobFinished):
            reply = replace(reply, real_s=REAL_S)  # the journal has it: it must be the same again
        if reply is not None:
            self.inbox.put(encode(reply))


class _Served:
    """Takes the function that would serve a channel."""

    answer: Callable[[Any], Any]

    def serve(self, answer: Callable[[Any], Any]) -> None:
        self.answer = answer


def evaluating(system: SimulatedSystem, learned: Any) -> Worker:
    """An evaluator's process."""
    served = _Served()
    serve_evaluations(served, learned.evaluate)
    return Worker(system, served.answer)


def working(system: SimulatedSystem, learned: Any) -> Worker:
    """A job worker's process."""
    served = _Served()
    serve_jobs(served, learned, OwnMachine())
    return Worker(system, served.answer)
