"""The virtual host: pop the next due thing, jump there, dispatch. One event a transfer, never
one a piece.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any, Callable, Mapping

from edgefl.actor import COORDINATOR, Broadcast, Output, Run, Send
from edgefl.coordinator.coordinator import Coordinator
from edgefl.edges.edge import Edge
from edgefl.hosts.setup import broadcast as on_air
from edgefl.hosts.setup.network import ALL
from edgefl.hosts.virtual.pool.engine import Engine
from edgefl.jobs import Evaluate, Train
from edgefl.protocol.codec import size_of
from edgefl.protocol.messages import (
    Acknowledged,
    Assignment,
    CancelTask,
    Fresh,
    FreshRequest,
    NothingNewer,
    Ready,
    Started,
    TooLate,
    Update,
    UrgeTask,
)
from edgefl.record.files import DROPPED
from edgefl.strategies.base.decisions import Finish, Grant
from emulator.agenda import Agenda
from emulator.clock import VirtualClock
from emulator.links.network import Completion, Network, Transfer
from emulator.units import FOREVER


class VirtualHost:
    """Drives one coordinator and its edges in one thread; same seed, same trace, byte for byte.

    The work itself is the ``pool``'s: a job is started when it is asked for and collected at its
    emulated end, so that what happens meanwhile in emulated time may be worked on at the same time.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        edges: Mapping[str, Edge],
        network: Network,
        latency_ns: Mapping[str, int],
        pool: Engine,
    ) -> None:
        self.coordinator, self.edges, self.network = coordinator, dict(edges), network
        self.latency_ns, self.pool = latency_ns, pool
        self.clock = VirtualClock()
        self._agenda: Agenda[Callable[[int], None]] = Agenda()
        self._moving: defaultdict[
            str, dict[int, tuple[Transfer, Assignment | Fresh | Update | Broadcast]]
        ] = defaultdict(dict)  # by edge and transfer number
        self._offered: defaultdict[str, dict[int, Update]] = defaultdict(dict)  # by edge and task
        self._training: dict[
            str, Train
        ] = {}  # by edge: what it asked for last, while its run is not over
        self._open: dict[
            str, tuple[Train, int]
        ] = {}  # by edge: what waits for the answer to a request, and when it is due
        self._closed: dict[
            str, int
        ] = {}  # edge -> the latest task whose request is too late to answer
        self._beside: deque[Evaluate] = deque()  # evaluations not on record yet
        self._transfers = 0
        self._ended = False

    def run(
        self, samples: Mapping[str, int], progress: Callable[[int], None] | None = None
    ) -> None:
        """From joining (``samples`` by edge) to the end; Ctrl-C ends the run in order."""
        try:
            self._do(COORDINATOR, self.coordinator.start(dict(samples), 0), 0)
            while not self._ended:
                self._step()
                if progress is not None:
                    progress(self.clock.now())
        except KeyboardInterrupt:
            for job in self._training.values():
                self.pool.drop(job.run)
            self._do(
                COORDINATOR,
                self.coordinator.finish("interrupted", self.clock.now()),
                self.clock.now(),
            )
        self._record(wait=True)

    def _step(self) -> None:
        now = min(self._agenda.next_due(), self.network.next_due(), self.coordinator.next_due())
        if now >= FOREVER:
            self._do(
                COORDINATOR,
                self.coordinator.finish("nothing left to do", self.clock.now()),
                self.clock.now(),
            )
            return
        self.clock.advance(now)
        due = self.network.pop_due(now)
        whole = [
            (completion, self._moving[completion.transfer.edge].pop(completion.transfer.number)[1])
            for completion in due
        ]
        for (
            completion,
            message,
        ) in whole:  # taken out first: what has arrived cannot be called off any more
            self._arrived(completion, message, now)
        for _, call in self._agenda.pop_due(now):
            call(now)
        if self.coordinator.next_due() <= now:
            self._do(COORDINATOR, self.coordinator.wake(now), now)
        if self._beside:
            self._record(wait=False)

    def _do(self, actor: str, outputs: list[Output], now: int) -> None:
        for output in outputs:
            if self._ended:
                return
            match output:
                case Send(to="coordinator"):
                    self._to_coordinator(actor, output.message, now)
                case Send():
                    self._to_edge(output.to, output.message, now)
                case Broadcast():
                    self._broadcast(output, now)
                case Grant():
                    self._carry(
                        output.edge,
                        "up",
                        self._offered[output.edge].pop(output.task),
                        now,
                        output.slots,
                    )
                case Run(job=Evaluate()):  # no emulated cost, and only the record waits for it
                    self.pool.start(output.job, now)
                    self._beside.append(output.job)
                case Run():
                    self._start(actor, output.job, now + output.duration_ns)
                case Finish():
                    self._ended = True

    def _to_edge(self, edge: str, message: Any, now: int) -> None:
        if isinstance(message, (Assignment, Fresh)):
            if isinstance(message, Assignment) or self._closed.get(edge) != message.number:
                self._carry(edge, "down", message, now)
            return
        if isinstance(message, Acknowledged):
            self._offered[edge].pop(message.task, None)  # not wanted any more
        elif isinstance(message, CancelTask):
            self._call_off(edge, message.task, now)
        delay = self.latency_ns[edge] if isinstance(message, (NothingNewer, UrgeTask)) else 0
        self._agenda.add(now + delay, lambda at: self._hear(edge, message, at))

    def _hear(self, edge: str, message: Any, now: int) -> None:
        outputs = self.edges[edge].receive(message, now)
        self._let_go(edge)
        self._do(edge, outputs, now)
        if edge in self._open and not self.edges[edge].asking:
            job, due_ns = self._open.pop(edge)
            if self._training.get(edge) is job:  # nothing came that changes it
                self.pool.start(job, due_ns)

    def _to_coordinator(self, edge: str, message: Any, now: int) -> None:
        if isinstance(message, Update):
            self._offered[edge][message.number] = message
            self._do(COORDINATOR, self.coordinator.receive(edge, Ready(message.number), now), now)
            return
        if isinstance(message, FreshRequest) and message.until_ns:
            self._agenda.add(message.until_ns, lambda at: self._too_late(edge, message.task, at))
        delay = self.latency_ns[edge] if isinstance(message, FreshRequest) else 0
        self._agenda.add(
            now + delay,
            lambda at: self._do(COORDINATOR, self.coordinator.receive(edge, message, at), at),
        )

    def _carry(
        self,
        edge: str,
        direction: str,
        message: Any,
        now: int,
        slots: tuple[int, ...] | None = None,
    ) -> None:
        transfer = Transfer(self._transfers, edge, direction, size_of(message), message.kind)
        self._transfers += 1
        self._moving[edge][transfer.number] = transfer, message
        self.network.offer(transfer, now)
        if slots is not None:
            self.network.grant(transfer, slots, now)

    def _broadcast(self, broadcast: Broadcast, now: int) -> None:
        if not broadcast.slots:
            for send in broadcast.sends:
                self._given(send, now)
            return
        sizes = [size_of(send.message) for send in broadcast.sends]
        transfer = on_air.offer(self.network, self._transfers, sizes, broadcast.slots, now)
        self._transfers += 1
        self._moving[ALL][transfer.number] = transfer, broadcast

    def _given(self, send: Send, now: int) -> None:
        """A broadcast task has reached one of its edges, which works on it unless it was called
        off.
        """
        if not self._ended and self.coordinator.tasks.of(send.to, send.message.number) is not None:
            self._do(
                COORDINATOR,
                self.coordinator.receive(send.to, Started(send.message.number), now),
                now,
            )
            self._hear(send.to, send.message, now)

    def _call_off(self, edge: str, task: int, now: int) -> None:
        """Nothing of this task moves any more: neither its models nor its update."""
        self._offered[edge].pop(task, None)
        for transfer, message in list(self._moving[edge].values()):
            if message.number == task:
                del self._moving[edge][transfer.number]
                self.network.cancel(transfer, now)

    def _too_late(self, edge: str, task: int, now: int) -> None:
        """A fresher model that is not there by now is of no use any more: its download ends, and
        what it has brought counts.
        """
        if self._ended:
            return
        self._closed[edge] = task
        for transfer, message in list(self._moving[edge].values()):
            if isinstance(message, Fresh) and message.number == task:
                del self._moving[edge][transfer.number]
                self.coordinator.record.link(self.network.carried(transfer, now, DROPPED), now)
                self.network.cancel(transfer, now)
        self._hear(edge, TooLate(task), now)

    def _arrived(
        self, completion: Completion, message: Assignment | Fresh | Update | Broadcast, now: int
    ) -> None:
        transfer = completion.transfer
        self.coordinator.record.link(completion, now)
        if isinstance(message, Broadcast):
            for send in message.sends:
                self._agenda.add(
                    on_air.heard_ns(self.network, send.to, now),
                    lambda at, send=send: self._given(send, at),
                )
            return
        if transfer.direction == "up":
            self._do(COORDINATOR, self.coordinator.receive(transfer.edge, message, now), now)
            return
        if isinstance(message, Assignment):
            self._do(
                COORDINATOR,
                self.coordinator.receive(transfer.edge, Started(message.number), now),
                now,
            )
        self._hear(transfer.edge, message, now)

    def _start(self, actor: str, job: Any, due_ns: int) -> None:
        if isinstance(job, Train):
            self._training[actor] = job
        if isinstance(job, Train) and self.edges[actor].asking:
            self._open[actor] = job, due_ns  # what is to be trained is known with the answer
        else:
            self.pool.start(job, due_ns)
        self._agenda.add(due_ns, lambda at: self._end(actor, job, at))

    def _end(self, actor: str, job: Any, now: int) -> None:
        if isinstance(job, Train) and self._training.get(actor) is not job:
            return  # called off, or another has taken its place
        result = self.pool.finish(job)
        outputs = (self.coordinator if actor == COORDINATOR else self.edges[actor]).job_done(
            job, result, now
        )
        self._let_go(actor)
        self._do(actor, outputs, now)

    def _let_go(self, edge: str) -> None:
        """If the edge has no use for its run any more, nor has the pool."""
        job = self._training.get(edge)
        if job is not None and job.run is not self.edges[edge].run:
            del self._training[edge]
            self.pool.drop(job.run)

    def _record(self, wait: bool) -> None:
        """Evaluations go to the record in the order in which they were asked for."""
        while self._beside and (wait or self.pool.ready(self._beside[0])):
            job = self._beside.popleft()
            self._do(
                COORDINATOR,
                self.coordinator.job_done(job, self.pool.finish(job), self.clock.now()),
                self.clock.now(),
            )
