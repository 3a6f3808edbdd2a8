"""Run one strategy of an experiment under the virtual clock, with checkpoints to go on from.

``VirtualHost`` takes the next due event, jumps to its moment, and dispatches it. A transfer is one
event, not one event per piece.
"""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from edgefl.actor import COORDINATOR, Broadcast, Output, Run, Send
from edgefl.checkpoints.codec import CannotDecode, CannotEncode, decode, encode
from edgefl.checkpoints.files import Checkpoint, Checkpoints
from edgefl.clocks.processes import keep_freed_memory
from edgefl.clocks.setup.learning import Learning
from edgefl.clocks.setup.network import latencies, network
from edgefl.clocks.setup.plan import fidelity, options, refuse_native
from edgefl.clocks.setup.resumption import digest_facts
from edgefl.clocks.setup.rundir import OpenRun, RunSoFar, externals, lengthenings
from edgefl.clocks.virtual.pool.engine import Describer, Engine, InProcessEngine
from edgefl.config.faults import revives, schedule, told
from edgefl.coordinator.coordinator import Coordinator
from edgefl.disk import Disk, OwnDisk, PatientDisk, WaitForRoom
from edgefl.edges.edge import Edge
from edgefl.errors import UserError
from edgefl.exchange.machine import (
    Effect,
    Exchange,
    FaultLives,
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
from edgefl.record.files import CHECKPOINTS, METRICS
from edgefl.record.tables import lost_rows
from edgefl.results.run_files import title
from edgefl.results.summary import INTERRUPTED
from edgefl.strategies.base.catalog import own_modules
from edgefl.strategies.base.events_and_decisions import EdgeLost, Finish, Grant
from edgefl.streams import Streams
from emulator.clock import Agenda, VirtualClock
from emulator.faults import Fault, Schedule
from emulator.fidelity import Fidelity
from emulator.links.network import Network, Transfer
from emulator.units import FOREVER, to_ns


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


EVERY_S = 300.0  # wall time from the end of a checkpoint to the next one
MOST_SHARE = 0.05  # of the wall time for checkpoints; if one takes long, the next one is later


@dataclass(frozen=True, slots=True)
class Saving:
    """When a run is saved: every ``every_s`` seconds of wall time, or every ``every_steps`` steps.

    ``say`` gets lines for the user.
    """

    every_s: float = EVERY_S
    every_steps: int | None = None
    say: Callable[[str], None] = print


class SavedRun:
    """The checkpoints of the run in ``directory``.

    A checkpoint holds the host with all that it refers to: coordinator, strategy, edges, network,
    planned events, faults. What the process builds itself (data, files, engine, config) is not part
    of it. A run that goes on from a checkpoint writes the same bytes as an unbroken one.
    """

    def __init__(self, directory: Path, saving: Saving) -> None:
        self.directory, self.saving = directory, saving
        self.files = Checkpoints(OwnDisk(), directory / CHECKPOINTS)
        self.found: Checkpoint | None = None
        self._sizes: deque[dict[str, int]] = deque(maxlen=self.files.keep)
        self._number = 0
        self._steps = 0
        self._possible = True
        self._keeps_state = False  # when the run has ended
        self._due_s = time.monotonic() + saving.every_s

    def find(self) -> None:
        """Look for the newest checkpoint, to go on from there."""
        self.found = self.files.latest(self.saving.say)
        while self.found is not None and (lost := self._lost_rows(self.found)):
            self.tell(f"checkpoint {self.found.number} cannot be used: {lost}")
            self.found = self.files.latest(self.saving.say, before=self.found.number)
        if self.found is None:
            self.tell("has no checkpoint: it begins anew")
        else:
            self._number = self.found.number

    @property
    def so_far(self) -> RunSoFar | None:
        """How far the files are at the checkpoint that was found; None: the run begins anew."""
        if self.found is None:
            return None
        return RunSoFar.of(self.found.meta)

    @property
    def groups_so_far(self) -> dict[str, Any] | None:
        """How tasks were trained together until the checkpoint that was found."""
        return None if self.found is None else self.found.meta.get("groups")

    def use(self, learned: Learning, index: int, run: OpenRun, pool: Engine) -> None:
        """Set what this process has built, which checkpoints only name."""
        self._groups, self._keeps_state = pool.groups, run.experiment.record.keep_state
        self.run = run
        strategy = run.coordinator.strategy
        self._own = own_modules(type(strategy), type(strategy.selector))
        more = {"options of the rule": learned.rule(index).options, "learned": learned}
        self._externals: dict[str, object] = {**externals(run), **more, "engine": pool}

    def load(self) -> VirtualHost:
        """Return the host of the checkpoint that was found. UserError if it cannot be used."""
        assert self.found is not None
        try:
            host = decode(self.found.encoded, self._externals, self._own)
        except CannotDecode as reason:
            raise UserError(
                f"{self.files.folder}: checkpoint {self.found.number} {reason}"
            ) from reason
        if not isinstance(host, VirtualHost):
            raise UserError(f"{self.files.folder}: checkpoint {self.found.number} has no run")
        self._hold(self.found.meta["sizes"])
        wall_at = self.found.meta.get("wall_at", {})  # of evaluations that are under way
        self.run.record.wall_at = {int(version): float(at) for version, at in wall_at.items()}
        self.run.coordinator, self.found = host.coordinator, None  # its arrays are not needed
        host.coordinator.lengthen()
        return host

    def now_and_then(self, host: VirtualHost) -> None:
        """Save the run if it is time. Call this after every step."""
        if self.saving.every_steps is None:
            due = time.monotonic() >= self._due_s
        else:
            self._steps += 1
            due = self._steps % self.saving.every_steps == 0
        if due or (self._keeps_state and host.ends_next):
            self.save(host)

    def save(self, host: VirtualHost) -> None:
        """Write a checkpoint. The host must be between two steps."""
        if self._possible:
            began_s = time.monotonic()
            self._write(host)
            ended_s = time.monotonic()
            self._due_s = ended_s + max(self.saving.every_s, (ended_s - began_s) / MOST_SHARE)

    def _write(self, host: VirtualHost) -> None:
        try:
            encoded = encode(host, self._externals, self._own, copy=False)
        except CannotEncode as reason:
            self._possible = False
            self.tell(f"no checkpoints ({reason}): if this run is broken off, it begins anew")
            return
        self.run.record.flush()  # a checkpoint counts only rows that are in the files
        self._number += 1
        meta: dict[str, Any] = {"sizes": (sizes := self.run.record.sizes())}
        meta["wall_s"] = self.run.wall_s
        meta["wall_at"] = {str(version): at for version, at in self.run.record.wall_at.items()}
        if self._groups is not None:
            meta["groups"] = self._groups.section()
        try:
            self.files.write(self._number, encoded, meta)
            self._hold(sizes)
        except OSError as error:  # the run goes on, and the checkpoint before is still there
            place = error.filename or self.files.folder
            self.tell(f"{place}: no checkpoint was written ({error.strerror})")

    def _hold(self, sizes: dict[str, int]) -> None:
        """Keep the parts of tables that the checkpoints need which are kept, too."""
        self._sizes.append(sizes)
        self.run.record.hold(self._sizes[0])

    def clear(self) -> None:
        """Remove all checkpoints: the run has come to its end."""
        self.files.clear()
        with suppress(OSError):  # not empty, or missing
            self.files.folder.rmdir()

    def _lost_rows(self, found: Checkpoint) -> str:
        try:
            return lost_rows(self.directory, self.files.disk, RunSoFar.of(found.meta).sizes)
        except CannotDecode as reason:
            return f"it {reason}"

    def tell(self, line: str) -> None:
        """Say a line about this run."""
        self.saving.say(f"{title(self.directory)}: {line}")


Progress = Callable[[int, OpenRun], None]
Scored = Callable[[], str | None]
Play = Callable[[Callable[[int], None]], None]  # gets what is called after each step


class DelayedInterrupt:
    """Delays Ctrl-C until the current step is done, so that each event is fully recorded.

    A second Ctrl-C does not wait.
    """

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> DelayedInterrupt:
        # only the main thread may set a handler, and only it is interrupted
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            self._former = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *error: object) -> None:
        if self._main:
            signal.signal(signal.SIGINT, self._former)

    def _ask(self, number: int, frame: Any) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


def in_process(learned: Learning, note: str | None = None) -> InProcessEngine:
    """Return the engine that trains in this process."""
    if (learned.experiment.training.tasks_at_once or 1) == 1:
        return InProcessEngine(learned, note)
    from edgefl.clocks.virtual.pool.merged import MergedEngine  # it needs torch

    return MergedEngine(learned, note)


def _host(learned: Learning, index: int, run: OpenRun, pool: Engine, links: Network) -> VirtualHost:
    experiment, samples = learned.experiment, list(learned.samples)
    exchange: Exchange[Flow] = Exchange(links, latencies(experiment))
    return VirtualHost(
        run.coordinator,
        DeferredEdges(learned, index),
        exchange,
        pool,
        schedule(experiment.faults, samples, Streams(experiment.seed)),
        FaultLives(samples, revives(experiment.faults)),
        to_ns(experiment.network.liveness_s * experiment.chosen_speed),
    )


@contextmanager
def _no_collection() -> Iterator[None]:
    """Hold the garbage collector back: a run's many objects stay, so it would find nothing."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@_no_collection()
def _opened(
    learned: Learning,
    index: int,
    saved: SavedRun,
    pool: Engine,
    links: Network,
    book: Fidelity,
    disk: Disk,
) -> tuple[OpenRun, VirtualHost, Play]:
    """Open the run: at its beginning, or at the checkpoint that ``saved`` has found."""
    weights, layout, samples = learned.initial_weights(), learned.layout, learned.samples
    directory, done = saved.directory, saved.so_far
    run = OpenRun(
        learned.experiment, index, directory, learned.base, weights, layout, samples, disk, done
    )
    saved.use(learned, index, run, pool)
    if done is not None:
        host = saved.load()
        return run, host, host.go_on
    host = _host(learned, index, run, pool, links)
    digests = digest_facts(learned.data_digest(), learned.frozen_digest())
    facts = {**digests, **learned.device_facts(), **lengthenings(directory)}
    run.begin("virtual", book, facts)
    learned.keep_beside(directory)
    return run, host, host.run


def run_virtual(
    learned: Learning,
    index: int,
    directory: Path,
    progress: Progress | None = None,
    pool: Engine | None = None,
    resume: bool = False,
    saving: Saving | None = None,
    scored: Scored | None = None,
) -> dict[str, Any]:
    """Run strategy ``index``, and return the summary.

    ``progress(now_ns, run)`` is called after every step. ``pool`` None: train in this process.
    ``resume``: go on with the run in ``directory`` at its newest checkpoint; it begins anew if it
    has none. ``saving``: when checkpoints are written. ``scored()`` is called when metrics.csv has
    new rows; the run ends for the reason that it returns. With it, each step waits for the
    evaluations, so that the end does not depend on the workers.
    """
    experiment, pool = learned.experiment, pool or in_process(learned)
    refuse_native(experiment)
    slots = options(experiment.strategies[index], learned.base)[0].schedules_slots
    # first: what is wrong with a link is told before anything is written
    links = network(experiment, learned.base, slots, at_first_use=True)
    keep_freed_memory()
    book, saved = fidelity(experiment), SavedRun(directory, saving or Saving())
    learned.engine(index)  # refuses one that the experiment asks for and cannot have
    if resume:
        saved.find()
    if pool.groups is not None:
        pool.groups.begin(saved.tell, saved.groups_so_far)
    interrupt, say = DelayedInterrupt(), saved.saving.say
    room = WaitForRoom(say, time.monotonic, time.sleep, lambda: interrupt.asked)
    disk = PatientDisk(OwnDisk(), room)
    run, host, play = _opened(learned, index, saved, pool, links, book, disk)
    size = 0  # of metrics.csv when ``scored`` was called

    def end_by_scores() -> str | None:
        nonlocal size
        if scored is None:
            return None
        host.record(wait=True)
        before, size = size, run.record.size_of(METRICS)
        if size == before:
            return None
        run.record.flush()
        return scored()

    def after_step(now: int) -> None:
        run.flush_now_and_then()
        if progress is not None:
            progress(now, run)
        reason = end_by_scores()
        if interrupt.asked or reason == INTERRUPTED:
            saved.save(host)
            raise KeyboardInterrupt
        if reason is not None:
            raise EndRun(reason)
        saved.now_and_then(host)

    try:
        # objects that exist now stay: the garbage collector need not visit them again
        gc.freeze()
        with interrupt:
            play(after_step)
        end_by_scores()  # of the last model; what it returns comes too late
    finally:
        gc.unfreeze()
        pool.clear()  # tasks that are not done at the end
        run.record.flush()  # if a bug ends the run here, the user can read what led to it
    return _ended(run, host, saved, pool, book, learned.engine(index))


def _ended(
    run: OpenRun,
    host: VirtualHost,
    saved: SavedRun,
    pool: Engine,
    book: Fidelity,
    engine: str,
) -> dict[str, Any]:
    """Write the remaining files, drop what only a run that goes on needs; return the summary."""
    if not run.goes_on:
        run.record.hold(None)
    wall_s = run.wall_s
    more: dict[str, Any] = {
        "evaluation_s": round(host.evaluation_s, 3),
        "evaluation_share": round(host.evaluation_s / (wall_s * pool.workers), 3),
        "engine": engine,
    }
    if pool.groups is not None:
        more["tasks_at_once"] = pool.groups.section()
    summary = run.end("virtual", host.clock.now(), wall_s, book.summary(), more)
    if not run.goes_on:
        saved.clear()
    return summary
