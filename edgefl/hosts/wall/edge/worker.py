"""The edge's training thread.

It trains in slices, so that fresh models, cancellations and the machine's other edges do not wait
long.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from threading import Thread
from typing import Any, Protocol, cast

from edgefl.edges.edge import Edge, SlicedTrainer
from edgefl.hosts.wall.mailbox import Mailbox
from edgefl.hosts.wall.system import OWN_SYSTEM, Inbox, System
from edgefl.jobs import Train
from edgefl.protocol.messages import Trained
from emulator.units import FOREVER
from emulator.values import value_class

SLICE_S = 0.05
END_PATIENCE_S = 5.0
WANT, DONE = 1, 2
TURN = struct.Struct("<Bq")  # WANT or DONE, and the emulated moment (ns) when the job is due


class Turns(Protocol):
    """Permission to compute: edges of one machine share its cores."""

    def take(self, due_ns: int) -> None: ...

    def give(self) -> None: ...


class OwnMachine:
    """For an edge on its own machine: computing is always permitted."""

    def take(self, due_ns: int) -> None:
        return None

    def give(self) -> None:
        return None


class SharedTurns:
    """For edges that share a machine: ask the warm parent over ``channel``."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel

    def take(self, due_ns: int) -> None:
        self._channel.send(TURN.pack(WANT, due_ns))
        if not self._channel.recv(1):
            raise EOFError("the warm parent has ended")

    def give(self) -> None:
        self._channel.send(TURN.pack(DONE, 0))


@value_class(frozen=True, slots=True)
class TrainOrder:
    """A job with its emulated start and end; ``due_ns`` None: it takes its real time (native)."""

    job: Train
    start_ns: int
    due_ns: int | None


@value_class(frozen=True, slots=True)
class Result:
    """The order is done; ``at_ns`` is the stamp of its outcome.

    ``trained``: for a native device, what it has done in how much time.
    """

    order: TrainOrder
    at_ns: int
    trained: Trained | None = None


@value_class(frozen=True, slots=True)
class ThreadDied:
    """The thread failed outside of training: a bug of this package."""

    error: BaseException


class TrainingThread(Thread):
    """Runs orders one after the other, and drops orders whose run the edge has given up."""

    def __init__(
        self,
        edge: Edge,
        turns: Turns,
        speed: float,
        results: Mailbox,
        system: System = OWN_SYSTEM,
    ) -> None:
        super().__init__(name="training", daemon=True)
        self.edge, self.turns, self.speed, self.results = edge, turns, speed, results
        # on this host every edge's trainer trains in slices
        self.trainer = cast(SlicedTrainer[Any], edge.trainer)
        self.system = system
        self.orders: Inbox = system.inbox()  # of TrainOrder, or None: end
        self.ended = False

    def end(self) -> None:
        """Stop the thread at the next training step.

        The process would abort if its interpreter ended while a thread is inside torch.
        """
        self.ended = True
        self.orders.put(None)
        self.system.join(self, END_PATIENCE_S)

    def run(self) -> None:
        try:
            while (order := self.orders.get()) is not None:
                self._work(order)
        except BaseException as error:
            self.results.put(ThreadDied(error))

    def _work(self, order: TrainOrder) -> None:
        finished, spent_ns, before = False, 0, order.job.run.samples
        while not finished and not self.ended and order.job.run is self.edge.run:
            self.turns.take(FOREVER if order.due_ns is None else order.due_ns)
            began = self.system.monotonic_ns()  # waiting for a turn does not count
            finished = self.trainer.advance(
                order.job.run,
                self.edge.rule,
                order.job.until_step,
                self._slice_over(self.system.monotonic_s() + SLICE_S),
            )
            spent_ns += self.system.monotonic_ns() - began
            self.turns.give()
        if order.due_ns is not None:
            self.results.put(Result(order, order.due_ns))
            return
        run = order.job.run
        samples = round((run.samples - before) * self.edge.rule.work)
        trained = Trained(run.task.number, samples, spent_ns) if samples else None
        self.results.put(Result(order, order.start_ns + int(spent_ns * self.speed), trained))

    def _slice_over(self, end_s: float) -> Callable[[], bool]:
        return lambda: self.ended or self.system.monotonic_s() >= end_s
