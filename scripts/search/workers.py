"""The evaluator and the job worker of a run, as the coordinator's process talks to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from edgefl.hosts.ipc import decode, encode
from edgefl.hosts.process_messages import JobFinished, WorkerDied
from edgefl.hosts.wall.coordinator.workers import serve_evaluations, serve_jobs
from edgefl.hosts.wall.edge.work import OwnMachine
from search.system import SimulatedInbox, SimulatedSystem

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
