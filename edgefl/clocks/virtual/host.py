"""The virtual host: take the next due event, jump to its moment, dispatch it.

A transfer is one event, not one event per piece.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from msgspec.structs import replace

from edgefl.actor import COORDINATOR, Broadcast, Output, Run, Send
from edgefl.clocks.setup.learning import Learning
from edgefl.clocks.virtual.pool.engine import Engine
from edgefl.clocks.virtual.pool.executor import Describer
from edgefl.config.faults import told
from edgefl.coordinator.coordinator import Coordinator
from edgefl.edges.edge import Edge
from edgefl.exchange.fault_lives import Effect, FaultLives
from edgefl.exchange.machine import (
    Exchange,
    Flow,
    broadcast_transfer,
    closes_ns,
    heard_ns,
    play_moment,
)
from edgefl.jobs import Evaluate, Train
from edgefl.protocol.codec import size_of
from edgefl.protocol.messages import (
    PUSH,
    Assignment,
    Fresh,
    FreshRequest,
    Joined,
    PushArrived,
    Pushed,
    PushReplaced,
    Ready,
    Started,
    ToCoordinator,
    Update,
)
from edgefl.strategies.base.events_and_decisions import EdgeLost, Finish, Grant
from emulator.clock import Agenda, VirtualClock
from emulator.faults import Fault, Schedule
from emulator.links.network import Transfer
from emulator.units import FOREVER


class EndRun(Exception):
    """Raised by ``progress``: the run ends now, for this reason."""


class DeferredEdges:
    """The edges of the strategy at ``index``: their training is only described.

    An idle device has no actor. So 100,000 devices cost little if few of them are at work.
    ``actors``: those so far.
    """

    def __init__(self, learned: Learning, index: int) -> None:
        self.learned, self.index = learned, index
        self.actors: dict[str, Edge] = {}
        self._new: Callable[[str], Edge] = learned.edge_maker(index, self._describer)

    def __getitem__(self, edge: str, /) -> Edge:
        if edge not in self.actors:
            self.restart(edge)
        return self.actors[edge]

    def restart(self, edge: str) -> None:
        """Start the edge, again if its process has died: it has no task."""
        self.actors[edge] = self._new(edge)

    def _describer(self, edge: str) -> Describer:
        samples, tokens = self.learned.samples[edge], self.learned.tokens(edge)
        return Describer(self.index, edge, self.learned.plan, samples, tokens)

    def state(self) -> dict[str, Any]:
        """For a checkpoint: the actors so far. The others begin later, with the same state."""
        return {"learned": self.learned, "index": self.index, "actors": self.actors}

    def restore(self, state: Mapping[str, Any]) -> None:
        DeferredEdges.__init__(self, state["learned"], state["index"])
        self.actors = state["actors"]


class VirtualHost:
    """Runs one coordinator and its edges in one thread. The same seed gives the same bytes.

    The ``pool`` does the work. A job is started when an actor asks for it and collected at its
    emulated end. So jobs that overlap in emulated time can run in parallel.

    It injects the faults of ``schedule`` exact to the nanosecond: edges die, come back and freeze.
    The capacities and devices model link cuts, slow periods, and the effect of a freeze on links
    and computing; here these are only recorded. ``liveness_ns`` (emulated): after this silence an
    edge is lost.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        edges: DeferredEdges,
        exchange: Exchange[Flow],
        pool: Engine,
        schedule: Schedule,
        lives: FaultLives,
        liveness_ns: int,
    ) -> None:
        self.coordinator, self.edges, self.exchange = coordinator, edges, exchange
        self.pool, self.schedule, self.lives, self.liveness_ns = pool, schedule, lives, liveness_ns
        self.clock = VirtualClock()
        self.agenda: Agenda[Callable[[int], None]] = Agenda()
        self.ended = False
        # by edge: its latest training job, until its run ends
        self._training: dict[str, Train] = {}
        # by edge: a job that waits for the answer to a FreshRequest, and when it is due
        self._open: dict[str, tuple[Train, int]] = {}
        self._requests: dict[str, FreshRequest] = {}  # by edge: the latest one
        self._evaluations: deque[Evaluate] = deque()  # not recorded yet
        self.evaluation_s = 0.0  # the workers' time for those that are recorded
        self._transfers = 0
        self._lost: set[str] = set()  # edges that the coordinator has lost
        self._wait_for_fault()

    def run(self, progress: Callable[[int], None] | None = None) -> None:
        """Run from the joining of edges to the end.

        ``progress(now)`` is called after each step. Ctrl-C and EndRun stop the run cleanly.
        """
        self._play(self._begin, progress)

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
        except (KeyboardInterrupt, EndRun) as end:
            for job in self._training.values():
                self.pool.drop(job.run)
            self._finish(str(end) if isinstance(end, EndRun) else "interrupted")
        self.record(wait=True)

    def _begin(self) -> None:
        self._do(COORDINATOR, self.coordinator.start(dict(self.edges.learned.samples), 0), 0)

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

    def _tell(self, edge: str, message: ToCoordinator | EdgeLost, now: int) -> None:
        """Pass an edge's message to the coordinator."""
        self._do(COORDINATOR, self.coordinator.receive(edge, message, now), now)

    # ------------------------------------------------------------------ time
    def _finish(self, reason: str) -> None:
        now = self.clock.now()
        self._do(COORDINATOR, self.coordinator.finish(reason, now), now)

    def _step(self) -> None:
        due = self._next_due()
        now = min(due, self.coordinator.next_due())
        # while something is under way there is something to do, and it is the cheapest to ask
        idle = self.exchange.network.next_due() >= FOREVER
        if now >= FOREVER or (idle and self._nothing_left()):
            self._finish("nothing left to do")
            return
        self.clock.advance(now)
        if due <= now:
            self._happen(now)
        play_moment(now, self._next_due, self._happen, self._ring)
        if self._evaluations:
            self.record(wait=False)

    @property
    def ends_next(self) -> bool:
        """Whether the next step is at the stop time, and so the last one."""
        coordinator = self.coordinator
        due = min(self._next_due(), coordinator.next_due())
        return not self.ended and due >= coordinator.stop_ns

    def _next_due(self) -> int:
        """The next moment of an event other than an alarm; FOREVER after the end."""
        if self.ended:
            return FOREVER
        return min(self.agenda.next_due(), self.exchange.network.next_due())

    def _nothing_left(self) -> bool:
        """Whether only faults are left and no edge comes back, or all edges are down for good.

        Nothing is under way.
        """
        if len(self.agenda) > 1 or self.lives.some_return:
            return False
        return self.coordinator.next_due() >= FOREVER or self._deserted

    @property
    def _deserted(self) -> bool:
        """Whether all edges are down for good in a run without a stop time; nothing is under way.

        Such a run must end here: repeated alarms (periodic evaluation) would keep it going.
        """
        coordinator = self.coordinator
        return (
            coordinator.experiment.stop.emulated_s is None
            and self.lives.deserted
            and not coordinator.tasks.open
        )

    def _happen(self, now: int) -> None:
        # all are removed first: a transfer that has arrived cannot be cancelled
        for flow in self.exchange.carried(now):
            self._arrived(flow, now)
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
                    elif isinstance(output.message, Pushed):
                        self._push(output.to, output.message, output.replaces, now)
                    else:
                        self._to_edge(output.to, output.message, now)
                case Grant():
                    self._grant(output, now)
                case Run(job=Evaluate()):
                    due_ns = now + (output.duration_ns or 0)
                    self.pool.start(output.job, due_ns)
                    self._evaluations.append(output.job)
                    if output.duration_ns is not None:  # else only the record waits for it
                        self.agenda.add(due_ns, partial(self._scores_due, output.job.version))
                case Run():
                    assert output.duration_ns is not None
                    self._start(actor, output.job, now + output.duration_ns)
                case Broadcast():
                    self._broadcast(output, now)
                case Finish():
                    self.ended = True

    def _to_edge(self, edge: str, message: Any, now: int) -> None:
        exchange = self.exchange
        if isinstance(message, (Assignment, Fresh)):
            down = edge in self.lives.down
            if not down and not exchange.too_late(edge, message.kind, message.number):
                transfer = self._transfer(edge, message)
                exchange.begin(Flow(transfer, message.number, message), now)
            return
        for flow in exchange.end(edge, message, now):
            told = flow.transfer.kind == PUSH and self.coordinator.finished is None
            if told and flow.completion is not None:
                self.coordinator.record.link(flow.completion, now)
        due_ns = exchange.note_due_ns(edge, message, now)
        self.agenda.add(due_ns, partial(self._hear, edge, message))

    def _push(self, edge: str, pushed: Pushed, replaces: bool, now: int) -> None:
        self._make_room(edge, pushed.number, replaces, now)
        if edge in self.lives.down:
            return
        if self.exchange.has_room(edge):
            flow = Flow(self._transfer(edge, pushed), pushed.number, pushed)
            self.exchange.begin(flow, now)
        else:
            self._tell(edge, PushReplaced(pushed.number, pushed.version), now)

    def _make_room(self, edge: str, task: int, replaces: bool, now: int) -> None:
        for flow in self.exchange.make_room(edge, task, replaces, now):
            self._tell(edge, PushReplaced(task, flow.content.version), now)

    def _transfer(self, edge: str, message: Any) -> Transfer:
        return Transfer(self._number(), edge, "down", size_of(message), message.kind)

    def _number(self) -> int:
        """The number of the next transfer."""
        self._transfers += 1
        return self._transfers - 1

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
            self._offer(edge, message, now)
            return
        if isinstance(message, FreshRequest):
            self.exchange.open(edge)
            self._requests[edge] = message
            if (at_ns := closes_ns(message)) is not None:
                self.agenda.add(at_ns, partial(self._too_late, edge, message))
        due_ns = self.exchange.note_due_ns(edge, message, now)
        self.agenda.add(due_ns, partial(self._tell, edge, message))

    def _offer(self, edge: str, update: Update, now: int) -> None:
        """Offer an update; it waits for its grant."""
        size = size_of(update)
        transfer = Transfer(-1, edge, "up", size, update.kind)
        self.exchange.offer(Flow(transfer, update.number, update, offer=update.number))
        self._tell(edge, Ready(update.number, size), now)

    def _grant(self, grant: Grant, now: int) -> None:
        flow = self.exchange.offered(grant.edge, grant.task)
        assert flow is not None  # a coordinator grants what was offered
        if grant.edge in self.lives.down:
            self.exchange.cancel(flow, now)
            return
        flow.transfer = replace(flow.transfer, number=self._number())
        self.exchange.begin(flow, now, grant.slots)

    def _broadcast(self, broadcast: Broadcast, now: int) -> None:
        if not broadcast.slots:
            for send in broadcast.sends:
                self._heard(send, now)
            return
        messages = [cast(Assignment | Pushed, send.message) for send in broadcast.sends]
        for send, message in zip(broadcast.sends, messages):
            if isinstance(message, Pushed) and send.replaces:
                self._make_room(send.to, message.number, True, now)
        sizes, kind = list(map(size_of, messages)), messages[0].kind
        carrier = Flow(broadcast_transfer(self._number(), sizes, kind), 0, broadcast)
        self.exchange.begin(carrier, now, broadcast.slots)

    def _heard(self, send: Send, now: int) -> None:
        """A broadcast task or push has reached an edge, which uses it if its task is still open."""
        if send.to in self.lives.down or self.ended:
            return
        message = cast(Assignment | Pushed, send.message)
        if self.coordinator.tasks.of(send.to, message.number) is None:
            return
        if isinstance(message, Pushed):
            self._push_arrives(send.to, message, now)
        else:
            self._begins(send.to, message, now)

    def _push_arrives(self, edge: str, pushed: Pushed, now: int) -> None:
        self._tell(edge, PushArrived(pushed.number, pushed.version), now)
        self._hear(edge, pushed, now)

    def _begins(self, edge: str, task: Any, now: int) -> None:
        self._tell(edge, Started(task.number), now)
        self._hear(edge, task, now)

    def _too_late(self, edge: str, request: FreshRequest, now: int) -> None:
        """Close a request whose answer has not arrived in time; the bytes so far count."""
        if self.ended or self._requests.get(edge) != request:
            return
        note, ended = self.exchange.close(edge, request.task, now)
        for flow in ended:
            assert flow.completion is not None
            self.coordinator.record.link(flow.completion, now)
        self._hear(edge, note, now)

    def _arrived(self, flow: Flow, now: int) -> None:
        assert flow.completion is not None
        self.coordinator.record.link(flow.completion, now)
        edge = flow.transfer.edge
        match flow.content:
            case Broadcast(sends=sends):
                for send in sends:
                    heard = heard_ns(self.exchange.network, send.to, now)
                    self.agenda.add(heard, partial(self._heard, send))
            case Update() as update:
                self._received(edge, update, now)
            case Assignment() as task:
                self._begins(edge, task, now)
            case Pushed() as pushed:
                self._push_arrives(edge, pushed, now)
            case message:
                self._hear(edge, message, now)

    def _received(self, edge: str, update: Update, now: int) -> None:
        if self.lives.take("corrupt", edge):  # its session ends, and it is offered again
            self._miss(edge, now)
            self._join(edge, self.edges[edge].open_tasks, now)
            self._offer(edge, update, now)
            return
        self._tell(edge, update, now)
        if self.lives.take("duplicate", edge):
            self._tell(edge, update, now)

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

    def _scores_due(self, version: int, now: int) -> None:
        """Somebody waits for the scores of this version: record the evaluations up to it."""
        while self._evaluations and self._evaluations[0].version <= version:
            self._record_next()

    def record(self, wait: bool) -> None:
        """Record finished evaluations in the order of their requests. ``wait``: all of them."""
        while self._evaluations and (wait or self.pool.ready(self._evaluations[0])):
            self._record_next()

    def _record_next(self) -> None:
        job = self._evaluations.popleft()
        scores, took_s = self.pool.finish(job)
        self.evaluation_s += took_s
        now = self.clock.now()
        self._do(COORDINATOR, self.coordinator.job_done(job, scores, now), now)

    # ------------------------------------------------------------------ the faults
    def _wait_for_fault(self) -> None:
        self.agenda.add(self.schedule.next_due(), self._strike)

    def _strike(self, now: int) -> None:
        for fault in self.schedule.pop_due(now):
            if self.ended:
                return
            self.coordinator.record.fact(now, "fault", **told(fault))
            for effect in self.lives.strike(fault, now):
                self._carry_out(effect, fault, now)
        self._wait_for_fault()

    def _carry_out(self, effect: Effect, fault: Fault, now: int) -> None:
        edge = fault.target
        match effect:
            case Effect.DIED:  # the coordinator learns of it after the liveness timeout
                # without a task, the new actor ignores messages that still arrive
                self.edges.restart(edge)
                self._drop_unused_run(edge)
                for flow in self.exchange.under_way(edge):
                    if flow.granted:
                        self.exchange.cancel(flow, now)
                self._later(now + self.liveness_ns, edge, self._miss)
            case Effect.CAME_BACK:  # in a new session, which ends a former one that is still open
                for flow in self.exchange.under_way(edge):
                    if not flow.granted:
                        self.exchange.cancel(flow, now)
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
        """The edge continues its work. If it was lost, it joins again with its open tasks.

        These are the tasks that it has, and those whose models it is receiving.
        """
        if self.lives.frozen_until(edge) <= now and edge in self._lost:
            flows = self.exchange.under_way(edge)
            coming = [flow.task for flow in flows if flow.transfer.direction == "down"]
            self._join(edge, sorted({*self.edges[edge].open_tasks, *coming}), now)

    def _miss(self, edge: str, now: int) -> None:
        if edge not in self._lost:
            self._lost.add(edge)
            self._tell(edge, EdgeLost(edge), now)

    def _join(self, edge: str, tasks: list[int], now: int) -> None:
        self._lost.discard(edge)
        self._tell(edge, Joined(self.edges.learned.samples[edge], tasks), now)

    def _later(self, at_ns: int, edge: str, call: Callable[[str, int], None]) -> None:
        self.agenda.add(at_ns, self.lives.in_this_life(edge, call))
