"""The virtual host: take the next due event, jump to its moment, dispatch it.

A transfer is one event, not one event per piece.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from edgefl.actor import COORDINATOR, Broadcast, Output, Run, Send
from edgefl.clocks.exchange import (
    Answers,
    ends,
    heard_ns,
    offer_broadcast,
    pays_latency,
    play_moment,
)
from edgefl.clocks.fault_lives import Effect, FaultLives
from edgefl.clocks.setup.learning import Learning
from edgefl.clocks.setup.network import ALL
from edgefl.clocks.virtual.pool.engine import Engine
from edgefl.clocks.virtual.pool.executor import Describer
from edgefl.config.faults import told
from edgefl.coordinator.coordinator import Coordinator
from edgefl.edges.edge import Edge
from edgefl.jobs import Evaluate, Train
from edgefl.protocol.codec import size_of
from edgefl.protocol.messages import (
    DROPPED,
    UPDATE,
    Assignment,
    Fresh,
    FreshRequest,
    Joined,
    Ready,
    Started,
    ToCoordinator,
    ToEdge,
    Update,
)
from edgefl.strategies.base.events_and_decisions import EdgeLost, Finish, Grant
from emulator.clock import Agenda, VirtualClock
from emulator.faults import Fault, Schedule
from emulator.links.network import Completion, Network, Transfer
from emulator.units import FOREVER


class DeferredEdges:
    """The edges of the strategy at ``index``: their training is only described.

    An idle device has no actor. So 100,000 devices cost little if few of them are at work.
    """

    def __init__(self, learned: Learning, index: int) -> None:
        self.made: dict[str, Edge] = {}  # the actors so far
        self._begin(learned, index)

    def _begin(self, learned: Learning, index: int) -> None:
        self.learned, self.index, self._plan = learned, index, learned.plan
        self._make: Callable[[str], Edge] = learned.edge_maker(index, self._describer)

    def __getitem__(self, edge: str, /) -> Edge:
        if edge not in self.made:
            self.made[edge] = self._make(edge)
        return self.made[edge]

    def __setitem__(self, edge: str, actor: Edge, /) -> None:
        self.made[edge] = actor

    def fresh(self, edge: str) -> Edge:
        """An edge that has just started."""
        return self._make(edge)

    def _describer(self, edge: str) -> Describer:
        samples, tokens = self.learned.samples[edge], self.learned.tokens(edge)
        return Describer(self.index, edge, self._plan, samples, tokens)

    def state(self) -> dict[str, Any]:
        """For a checkpoint: the actors so far; the others are made as if they had been there."""
        return {"learned": self.learned, "index": self.index, "made": self.made}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.made = state["made"]
        self._begin(state["learned"], state["index"])


class VirtualHost:
    """Runs one coordinator and its edges in one thread. The same seed gives the same bytes.

    The ``pool`` does the work. A job is started when an actor asks for it and collected at its
    emulated end. So jobs that overlap in emulated time can run in parallel. ``faults``: set before
    ``run`` if the run has injected faults.
    """

    faults: VirtualFaults | None = None

    def __init__(
        self,
        coordinator: Coordinator,
        edges: DeferredEdges,
        network: Network,
        latency_ns: Mapping[str, int],
        pool: Engine,
    ) -> None:
        self.coordinator, self.edges, self.network = coordinator, edges, network
        self.latency_ns, self.pool = latency_ns, pool
        self.clock = VirtualClock()
        self.agenda: Agenda[Callable[[int], None]] = Agenda()
        self.ended = False
        # by edge and transfer number
        self._moving: defaultdict[str, dict[int, tuple[Transfer, Any]]] = defaultdict(dict)
        self._offered: defaultdict[str, dict[int, Update]] = defaultdict(dict)  # by edge and task
        self._answers = Answers()
        # by edge: its latest training job, until its run ends
        self._training: dict[str, Train] = {}
        # by edge: a job that waits for the answer to a FreshRequest, and when it is due
        self._open: dict[str, tuple[Train, int]] = {}
        self._evaluations: deque[Evaluate] = deque()  # not recorded yet
        self.evaluation_s = 0.0  # the workers' time for those that are recorded
        self._transfers = 0

    def run(
        self, samples: Mapping[str, int], progress: Callable[[int], None] | None = None
    ) -> None:
        """Run from the joining of edges (``samples`` by edge) to the end.

        ``progress(now)`` is called after each step. Ctrl-C ends the run in order.
        """
        self._play(partial(self._begin, samples), progress)

    def go_on(self, progress: Callable[[int], None] | None = None) -> None:
        """Continue a run that was saved after a step: as ``run``, from there on."""
        self._play(self._start_jobs, progress)

    def _play(self, begin: Callable[[], None], progress: Callable[[int], None] | None) -> None:
        try:
            begin()
            while not self.ended:
                self._step()
                if progress is not None:
                    progress(self.clock.now())
        except KeyboardInterrupt:
            for job in self._training.values():
                self.pool.drop(job.run)
            self._finish("interrupted")
        self._record(wait=True)

    def _begin(self, samples: Mapping[str, int]) -> None:
        self._do(COORDINATOR, self.coordinator.start(dict(samples), 0), 0)

    def _start_jobs(self) -> None:
        """Start in the pool what was under way when the run was saved.

        What a training had done is lost: it begins again, which changes no result.
        """
        for evaluation in self._evaluations:
            self.pool.start(evaluation, self.clock.now())
        for due_ns, call in self.agenda.pending():
            if not isinstance(call, partial) or call.func != self._end:
                continue
            actor, job = call.args
            unused = isinstance(job, Train) and self._training.get(actor) is not job
            waits = actor in self._open and self._open[actor][0] is job
            if not unused and not waits:
                self.pool.start(job, due_ns)

    # ------------------------------------------------------------------ also called by faults
    def tell(self, edge: str, message: ToCoordinator | EdgeLost, now: int) -> None:
        """Pass an edge's message to the coordinator."""
        self._do(COORDINATOR, self.coordinator.receive(edge, message, now), now)

    def offer(self, edge: str, update: Update, now: int) -> None:
        """Offer an update; it waits for its grant."""
        self._offered[edge][update.number] = update
        self.tell(edge, Ready(update.number, size_of(update)), now)

    def replace(self, edge: str, actor: Edge, now: int) -> None:
        """Replace an edge whose process has died, and drop its run and its transfers.

        ``actor`` has no task, so it ignores messages that still arrive.
        """
        self.edges[edge] = actor
        self._drop_unused_run(edge)
        for transfer, _ in self._moving.pop(edge, {}).values():
            self.network.cancel(transfer, now)

    def forget_offers(self, edge: str) -> None:
        self._offered.pop(edge, None)

    def open_tasks(self, edge: str) -> list[int]:
        """Tasks that the edge has, and tasks whose models it is receiving."""
        coming = [
            message.number
            for transfer, message in self._moving[edge].values()
            if transfer.direction == "down"
        ]
        return sorted({*self.edges[edge].open_tasks, *coming})

    # ------------------------------------------------------------------ time
    def _finish(self, reason: str) -> None:
        now = self.clock.now()
        self._do(COORDINATOR, self.coordinator.finish(reason, now), now)

    def _step(self) -> None:
        due = self._next_due()
        now = min(due, self.coordinator.next_due())
        if now >= FOREVER or (self.faults is not None and self.faults.nothing_left()):
            self._finish("nothing left to do")
            return
        self.clock.advance(now)
        if due <= now:
            self._happen(now)
        play_moment(now, self._next_due, self._happen, self._ring)
        if self._evaluations:
            self._record(wait=False)

    def _next_due(self) -> int:
        """The next moment of an event other than an alarm; FOREVER after the end."""
        return FOREVER if self.ended else min(self.agenda.next_due(), self.network.next_due())

    def _happen(self, now: int) -> None:
        whole = [
            (completion, self._moving[completion.transfer.edge].pop(completion.transfer.number)[1])
            for completion in self.network.pop_due(now)
        ]
        # all are removed first: a transfer that has arrived cannot be cancelled
        for completion, message in whole:
            self._arrived(completion, message, now)
        for _, call in self.agenda.pop_due(now):
            call(now)

    def _ring(self, now: int) -> None:
        if self.coordinator.next_due() <= now:
            self._do(COORDINATOR, self.coordinator.wake(now), now)

    # ------------------------------------------------------------------ outputs of the actors
    def _do(self, actor: str, outputs: list[Output], now: int) -> None:
        for output in outputs:
            if self.ended:
                return
            match output:
                case Send():
                    if output.to == COORDINATOR:
                        self._to_coordinator(actor, output.message, now)
                    else:
                        self._to_edge(output.to, output.message, now)
                case Grant():
                    self._carry(
                        output.edge,
                        "up",
                        self._offered[output.edge].pop(output.task),
                        now,
                        output.slots,
                    )
                case Run(job=Evaluate()):  # costs no emulated time; only the record waits for it
                    self.pool.start(output.job, now)
                    self._evaluations.append(output.job)
                case Run():
                    assert output.duration_ns is not None
                    self._start(actor, output.job, now + output.duration_ns)
                case Broadcast():
                    self._broadcast(output, now)
                case Finish():
                    self.ended = True

    def _to_edge(self, edge: str, message: Any, now: int) -> None:
        if isinstance(message, (Assignment, Fresh)):
            if not self._answers.too_late(edge, message.kind, message.number):
                self._carry(edge, "down", message, now)
            return
        for transfer in self._take_ended(edge, message):
            self.network.cancel(transfer, now)
        delay_ns = self.latency_ns[edge] if pays_latency(message) else 0
        self.agenda.add(now + delay_ns, partial(self._hear, edge, message))

    def _take_ended(self, edge: str, note: ToEdge) -> list[Transfer]:
        """Forget the offers and transfers that ``note`` ends.

        Returns the transfers, which the caller must cancel in the network.
        """
        offered, moving = self._offered[edge], self._moving[edge]
        for task in [task for task in offered if ends(note, UPDATE, task)]:
            del offered[task]
        ended = [
            transfer
            for transfer, message in moving.values()
            if ends(note, transfer.kind, message.number)
        ]
        for transfer in ended:
            del moving[transfer.number]
        return ended

    def _hear(self, edge: str, message: Any, now: int) -> None:
        actor = self.edges[edge]
        outputs = actor.receive(message, now)
        self._drop_unused_run(edge)
        if outputs:
            self._do(edge, outputs, now)
        if edge in self._open and not actor.asking:
            job, due_ns = self._open.pop(edge)
            if self._training.get(edge) is job:  # no message has replaced the job
                self.pool.start(job, due_ns)

    def _to_coordinator(self, edge: str, message: Any, now: int) -> None:
        if isinstance(message, Update):
            self.offer(edge, message, now)
            return
        if isinstance(message, FreshRequest):
            closes_ns = self._answers.closes_ns(message)
            if closes_ns is not None:
                self.agenda.add(closes_ns, partial(self._too_late, edge, message.task))
        delay_ns = self.latency_ns[edge] if pays_latency(message) else 0
        self.agenda.add(now + delay_ns, partial(self.tell, edge, message))

    def _carry(
        self,
        edge: str,
        direction: str,
        message: Any,
        now: int,
        slots: tuple[int, ...] | None = None,
    ) -> None:
        if self.faults is not None and self.faults.is_down(edge):
            return
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
        sizes = [size_of(cast(Assignment, send.message)) for send in broadcast.sends]
        transfer = offer_broadcast(self.network, self._transfers, sizes, broadcast.slots, now)
        self._transfers += 1
        self._moving[ALL][transfer.number] = transfer, broadcast

    def _given(self, send: Send, now: int) -> None:
        """A broadcast task has reached an edge, which begins it if the task is still open."""
        if self.faults is not None and self.faults.is_down(send.to):
            return
        task = cast(Assignment, send.message)
        if not self.ended and self.coordinator.tasks.of(send.to, task.number) is not None:
            self._begins(send.to, task, now)

    def _begins(self, edge: str, task: Any, now: int) -> None:
        self.tell(edge, Started(task.number), now)
        self._hear(edge, task, now)

    def _too_late(self, edge: str, task: int, now: int) -> None:
        """Close a request whose answer has not arrived in time.

        The answer's download ends, and the bytes carried so far count.
        """
        if self.ended:
            return
        note = self._answers.close(edge, task)
        for transfer in self._take_ended(edge, note):
            self.coordinator.record.link(self.network.carried(transfer, now, DROPPED), now)
            self.network.cancel(transfer, now)
        self._hear(edge, note, now)

    def _arrived(self, completion: Completion, message: Any, now: int) -> None:
        edge = completion.transfer.edge
        self.coordinator.record.link(completion, now)
        match message:
            case Broadcast():
                for send in message.sends:
                    heard = heard_ns(self.network, send.to, now)
                    self.agenda.add(heard, partial(self._given, send))
            case Update():
                self._received(edge, message, now)
            case Assignment():
                self._begins(edge, message, now)
            case _:
                self._hear(edge, message, now)

    def _received(self, edge: str, update: Update, now: int) -> None:
        if self.faults is not None and self.faults.spoils(edge, update, now):
            return
        self.tell(edge, update, now)
        if self.faults is not None and self.faults.repeats(edge):
            self.tell(edge, update, now)

    def _start(self, actor: str, job: Any, due_ns: int) -> None:
        if isinstance(job, Train):
            self._training[actor] = job
        if isinstance(job, Train) and self.edges[actor].asking:
            self._open[actor] = job, due_ns  # the answer decides from which model to train
        else:
            self.pool.start(job, due_ns)
        self.agenda.add(due_ns, partial(self._end, actor, job))

    def _end(self, actor: str, job: Any, now: int) -> None:
        if isinstance(job, Train) and self._training.get(actor) is not job:
            return  # cancelled or replaced
        result = self.pool.finish(job)
        outputs = (self.coordinator if actor == COORDINATOR else self.edges[actor]).job_done(
            job, result, now
        )
        self._drop_unused_run(actor)
        self._do(actor, outputs, now)

    def _drop_unused_run(self, edge: str) -> None:
        """Drop the pool's run if its edge has dropped it."""
        job = self._training.get(edge)
        if job is not None and job.run is not self.edges[edge].run:
            del self._training[edge]
            self.pool.drop(job.run)

    def _record(self, wait: bool) -> None:
        """Record finished evaluations in the order of their requests. ``wait``: all of them."""
        while self._evaluations and (wait or self.pool.ready(self._evaluations[0])):
            job = self._evaluations.popleft()
            scores, took_s = self.pool.finish(job)
            self.evaluation_s += took_s
            now = self.clock.now()
            self._do(COORDINATOR, self.coordinator.job_done(job, scores, now), now)


class VirtualFaults:
    """Injects the faults of ``schedule`` into the edges of ``host``, exact to the nanosecond: edges
    die, come back and freeze.

    The capacities and devices model link cuts, slow periods, and the effect of a freeze on links
    and computing. This class only records these.
    ``fresh(edge)`` makes an edge that has just started. ``liveness_ns`` (emulated): after this
    silence an edge is lost. ``samples``: by edge.
    """

    def __init__(
        self,
        host: VirtualHost,
        schedule: Schedule,
        lives: FaultLives,
        fresh: Callable[[str], Edge],
        liveness_ns: int,
        samples: Mapping[str, int],
    ) -> None:
        self.host, self.schedule, self.lives, self.fresh = host, schedule, lives, fresh
        self.liveness_ns, self.samples = liveness_ns, samples
        self._lost: set[str] = set()  # edges that the coordinator has lost
        self._wait()

    # ------------------------------------------------------------------ the host's questions
    def nothing_left(self) -> bool:
        """Whether only faults are left and no edge comes back, or all edges are down for good."""
        host = self.host
        if len(host.agenda) > 1 or self.lives.some_return:
            return False
        others = min(host.network.next_due(), host.coordinator.next_due())
        return others >= FOREVER or self._deserted

    @property
    def _deserted(self) -> bool:
        """Whether all edges are down for good in a run without a stop time.

        Such a run must end here: repeated alarms (periodic evaluation) would keep it going.
        """
        coordinator = self.host.coordinator
        return (
            coordinator.experiment.stop.emulated_s is None
            and self.lives.deserted
            and not coordinator.tasks.open
            and self.host.network.next_due() >= FOREVER
        )

    def is_down(self, edge: str) -> bool:
        return edge in self.lives.down

    def spoils(self, edge: str, update: Update, now: int) -> bool:
        """Whether the update arrives damaged. If so, its session ends, and it is offered again."""
        if not self.lives.take("corrupt", edge):
            return False
        self._miss(edge, now)
        self._join(edge, self.host.edges[edge].open_tasks, now)
        self.host.offer(edge, update, now)
        return True

    def repeats(self, edge: str) -> bool:
        """Whether this edge's update arrives twice."""
        return self.lives.take("duplicate", edge)

    # ------------------------------------------------------------------ the faults
    def _wait(self) -> None:
        self.host.agenda.add(self.schedule.next_due(), self._strike)

    def _strike(self, now: int) -> None:
        for fault in self.schedule.pop_due(now):
            if self.host.ended:
                return
            self.host.coordinator.record.fact(now, "fault", **told(fault))
            for effect in self.lives.strike(fault, now):
                self._carry_out(effect, fault, now)
        self._wait()

    def _carry_out(self, effect: Effect, fault: Fault, now: int) -> None:
        edge = fault.target
        match effect:
            case Effect.DIED:  # the coordinator learns of it after the liveness timeout
                self.host.replace(edge, self.fresh(edge), now)
                self._later(now + self.liveness_ns, edge, self._miss)
            case Effect.CAME_BACK:  # in a new session, which ends a former one that is still open
                self.host.forget_offers(edge)
                self._miss(edge, now)
                self._join(edge, [], now)
            case Effect.FROZE:
                self._later(now + self.liveness_ns, edge, self._miss_frozen)
                self._later(fault.until_ns, edge, self._thaw)
            case Effect.STAYS_FROZEN:
                self._later(fault.until_ns, edge, self._thaw)

    def _miss_frozen(self, edge: str, now: int) -> None:
        if self.lives.frozen_until(edge) > now:
            self._miss(edge, now)

    def _thaw(self, edge: str, now: int) -> None:
        """The edge continues its work. If it was lost, it joins again with its open tasks."""
        if self.lives.frozen_until(edge) <= now and edge in self._lost:
            self._join(edge, self.host.open_tasks(edge), now)

    def _miss(self, edge: str, now: int) -> None:
        if edge not in self._lost:
            self._lost.add(edge)
            self.host.tell(edge, EdgeLost(edge), now)

    def _join(self, edge: str, tasks: list[int], now: int) -> None:
        self._lost.discard(edge)
        self.host.tell(edge, Joined(self.samples[edge], tasks), now)

    def _later(self, at_ns: int, edge: str, call: Callable[[str, int], None]) -> None:
        self.host.agenda.add(at_ns, self.lives.in_this_life(edge, call))
