"""The virtual host: pop the next due thing, jump there, dispatch. One event a transfer, never one a piece."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from edgefl.actor import COORDINATOR, Allow, End, Output, Run, Send
from edgefl.coordinator.coordinator import Coordinator
from edgefl.edges.edge import Edge
from edgefl.jobs import Evaluate, Train
from edgefl.protocol.codec import size_of
from edgefl.protocol.messages import Acknowledged, Cancel, Fresh, FreshRequest, NothingNewer, Ready, Started, Task, Update
from emulator.agenda import Agenda
from emulator.clock import VirtualClock
from emulator.network import Completion, Network, Transfer
from emulator.units import FOREVER

Evaluator = Callable[[Evaluate], tuple[float | None, float, float]]


class VirtualHost:
    """Drives one coordinator and its edges in one thread; same seed, same trace, byte for byte."""

    def __init__(
        self, coordinator: Coordinator, edges: Mapping[str, Edge], network: Network, latency_ns: Mapping[str, int], evaluate: Evaluator
    ) -> None:
        self.coordinator, self.edges, self.network = coordinator, dict(edges), network
        self.latency_ns, self.evaluate = latency_ns, evaluate
        self.clock = VirtualClock()
        self._agenda: Agenda[Callable[[int], None]] = Agenda()
        self._on_the_way: dict[int, tuple[Transfer, Task | Fresh | Update]] = {}  # by transfer number
        self._offered: dict[tuple[str, int], Update] = {}
        self._transfers = 0
        self._ended = False

    def run(self, samples: Mapping[str, int], progress: Callable[[int], None] | None = None) -> None:
        """From joining (``samples`` by edge) to the end; Ctrl-C ends the run in order."""
        try:
            self._do(COORDINATOR, self.coordinator.start(dict(samples), 0), 0)
            while not self._ended:
                self._step()
                if progress is not None:
                    progress(self.clock.now())
        except KeyboardInterrupt:
            self._do(COORDINATOR, self.coordinator.finish("interrupted", self.clock.now()), self.clock.now())

    def _step(self) -> None:
        now = min(self._agenda.next_due(), self.network.next_due(), self.coordinator.next_due())
        if now >= FOREVER:
            self._do(COORDINATOR, self.coordinator.finish("nothing left to do", self.clock.now()), self.clock.now())
            return
        self.clock.advance(now)
        whole = [(completion, self._on_the_way.pop(completion.transfer.number)[1]) for completion in self.network.pop_due(now)]
        for completion, message in whole:  # taken out first: what has arrived cannot be called off any more
            self._arrived(completion, message, now)
        for _, call in self._agenda.pop_due(now):
            call(now)
        if self.coordinator.next_due() <= now:
            self._do(COORDINATOR, self.coordinator.wake(now), now)

    def _do(self, actor: str, outputs: list[Output], now: int) -> None:
        for output in outputs:
            if self._ended:
                return
            match output:
                case Send(to="coordinator"):
                    self._to_coordinator(actor, output.message, now)
                case Send():
                    self._to_edge(output.to, output.message, now)
                case Allow():
                    self._carry(output.edge, "up", self._offered.pop((output.edge, output.task)), now)
                case Run(job=Evaluate()):
                    self._do(COORDINATOR, self.coordinator.job_done(output.job, self.evaluate(output.job), now), now)
                case Run(job=Train()):
                    self._agenda.add(now + output.duration_ns, lambda at, job=output.job: self._train(actor, job, at))
                case End():
                    self._ended = True

    def _to_edge(self, edge: str, message: Any, now: int) -> None:
        if isinstance(message, (Task, Fresh)):
            self._carry(edge, "down", message, now)
            return
        if isinstance(message, Acknowledged):
            self._offered.pop((edge, message.task), None)  # not wanted any more
        elif isinstance(message, Cancel):
            self._call_off(edge, message.task, now)
        delay = self.latency_ns[edge] if isinstance(message, NothingNewer) else 0
        self._agenda.add(now + delay, lambda at: self._do(edge, self.edges[edge].receive(message, at), at))

    def _to_coordinator(self, edge: str, message: Any, now: int) -> None:
        if isinstance(message, Update):
            self._offered[edge, message.number] = message
            self._do(COORDINATOR, self.coordinator.receive(edge, Ready(message.number), now), now)
            return
        delay = self.latency_ns[edge] if isinstance(message, FreshRequest) else 0
        self._agenda.add(now + delay, lambda at: self._do(COORDINATOR, self.coordinator.receive(edge, message, at), at))

    def _carry(self, edge: str, direction: str, message: Any, now: int) -> None:
        transfer = Transfer(self._transfers, edge, direction, size_of(message), type(message).__name__.lower())
        self._transfers += 1
        self._on_the_way[transfer.number] = transfer, message
        self.network.offer(transfer, now)

    def _call_off(self, edge: str, task: int, now: int) -> None:
        """Nothing of this task moves any more: neither its models nor its update."""
        self._offered.pop((edge, task), None)
        for transfer, message in list(self._on_the_way.values()):
            if transfer.edge == edge and message.number == task:
                del self._on_the_way[transfer.number]
                self.network.cancel(transfer, now)

    def _arrived(self, completion: Completion, message: Task | Fresh | Update, now: int) -> None:
        transfer = completion.transfer
        self.coordinator.record.link(completion, now)
        if transfer.direction == "up":
            self._do(COORDINATOR, self.coordinator.receive(transfer.edge, message, now), now)
            return
        if isinstance(message, Task):
            self._do(COORDINATOR, self.coordinator.receive(transfer.edge, Started(message.number), now), now)
        self._do(transfer.edge, self.edges[transfer.edge].receive(message, now), now)

    def _train(self, name: str, job: Train, now: int) -> None:
        edge = self.edges[name]
        if job.run is not edge.run:
            return  # cancelled: the work would be for nothing
        edge.trainer.advance(job.run, edge.rule, job.until_step)
        self._do(name, edge.job_done(job, None, now), now)
