"""What the logic thread does with each of its inputs, as a function of these inputs alone.

The same inputs lead to the same state, the same rows in the run's files and the same outputs, so a
run that was broken off is repeated from its journal. This module opens no file and asks no clock.
"""

from __future__ import annotations

import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from msgspec.structs import asdict

from edgefl.actor import Broadcast, Output, Run, Send
from edgefl.clocks.wall.coordinator import thread_messages as messages
from edgefl.clocks.wall.coordinator.thread_messages import Carried, Heard, JobOrder, Worked
from edgefl.coordinator.coordinator import Coordinator
from edgefl.coordinator.tasks import OpenTask
from edgefl.errors import Bug, UserError
from edgefl.exchange.machine import Deliveries, ends
from edgefl.jobs import Evaluate, Job, Result
from edgefl.protocol.codec import Outgoing, body_digest
from edgefl.protocol.messages import (
    FRESH,
    PUSH,
    TASK,
    Assignment,
    Fresh,
    HostFacts,
    PushArrived,
    Pushed,
    PushReplaced,
    Started,
    ToEdge,
    WireError,
)
from edgefl.record.files import MEASURED_STATE
from edgefl.record.host_table import HostTable
from edgefl.record.record import Record
from edgefl.snake_case import snake
from edgefl.strategies.base.events_and_decisions import Finish, Grant
from emulator.clock import Agenda
from emulator.fidelity import Quantiles, spread_ms
from emulator.units import FOREVER, NS_PER_S, seconds_text

MOST_EVALUATIONS = 100  # snapshots waiting for the evaluator
NO_WEIGHTS = np.empty(0, np.float32)
# they change no moment at which there is something to do
NO_ALARMS = (messages.Measured, messages.HostSaid, messages.Judged)
# they count after the end, too
LATE = (messages.Scored, messages.EvaluatorGone, messages.Unevaluated, messages.Judged)
NOT_PACKED = (lambda: None, "", lambda: None)
Request = Any  # a message to the pacing thread, an Evaluate, or a JobOrder


@dataclass(slots=True, eq=False)
class ModelDownload:
    """A transfer to an edge. ``slotted``: it is a copy of a broadcast."""

    number: int
    edge: str
    message: Assignment | Fresh | Pushed
    slotted: bool


@dataclass(slots=True)
class Downloads:
    """Downloads that are on their way, and those whose delivery the edge may not know yet.

    After a resumption the pacing thread goes on with them. ``under_way``: by edge and kind, because
    an edge has one task. ``pushes``: by edge and number, in their order.
    """

    under_way: dict[tuple[str, str], ModelDownload] = field(default_factory=dict)
    pushes: dict[str, dict[int, ModelDownload]] = field(default_factory=dict)
    delivered: Deliveries = field(default_factory=Deliveries)

    def begin(self, download: ModelDownload) -> None:
        if download.message.kind == PUSH:
            self.pushes.setdefault(download.edge, {})[download.number] = download
        else:
            self.under_way[download.edge, download.message.kind] = download

    def noted(self, edge: str, note: ToEdge) -> None:
        """A note was sent: the downloads that it ends are over."""
        for number, push in list(self.pushes.get(edge, {}).items()):
            if ends(note, PUSH, push.message.number):
                del self.pushes[edge][number]
        for kind in (TASK, FRESH):
            found = self.under_way.get((edge, kind))
            if found is not None and ends(note, kind, found.message.number):
                del self.under_way[edge, kind]

    def heard(self, item: Heard | Carried) -> None:
        """A task has started, a push has arrived or was dropped, or a transfer is done."""
        if isinstance(item, Carried):
            transfer = item.completion.transfer
            found = self.under_way.get((transfer.edge, FRESH))
            if found is not None and found.number == transfer.number:
                self._end(found, item.finished_ns)
        elif isinstance(item.message, (PushArrived, PushReplaced)):
            push = self.pushes.get(item.edge, {}).pop(item.message.transfer, None)
            if push is not None and isinstance(item.message, PushArrived):
                self.delivered.add(item.edge, push.number, item.now)
        elif isinstance(item.message, Started):
            found = self.under_way.get((item.edge, TASK))
            if found is not None and found.message.number == item.message.task:
                self._end(found, item.now)

    def open(self, tasks: Mapping[int, OpenTask]) -> list[ModelDownload]:
        """The downloads for tasks that are still open, in the order of their numbers."""
        pushes = [push for of_edge in self.pushes.values() for push in of_edge.values()]
        found = [*self.under_way.values(), *pushes]
        known = [each for each in found if each.message.number in tasks]
        return sorted(known, key=lambda each: each.number)

    def _end(self, download: ModelDownload, at_ns: int) -> None:
        del self.under_way[download.edge, download.message.kind]
        self.delivered.add(download.edge, download.number, at_ns)


class JobTable:
    """The strategy's jobs. ``open``: orders by number, until their worker has ended them."""

    def __init__(self) -> None:
        self.open: dict[int, JobOrder] = {}
        self._held: Agenda[tuple[Job, Result | str]] = Agenda()  # results that are not due yet
        self._given = 0
        self._lag: defaultdict[str, Quantiles] = defaultdict(Quantiles)  # by sort of job
        self._real: defaultdict[str, Quantiles] = defaultdict(Quantiles)
        self._deaths: Counter[str] = Counter()

    def order(self, job: Job, now: int, cost_ns: int) -> JobOrder:
        """Open a job, and return the order for its worker."""
        self._given += 1
        order = self.open[self._given] = JobOrder(self._given, job, now, now + cost_ns)
        return order

    def worked(self, item: Worked) -> None:
        """Hold a result until it is due.

        If the job has failed, raise UserError or Bug, as under the virtual clock.
        """
        order: JobOrder = item.order
        if item.error is not None:
            raise (
                UserError(item.error)
                if item.users
                else Bug(
                    f"a worker failed at a job ({type(order.job).__name__})",
                    item.error.splitlines(),
                )
            )
        self.open.pop(order.number, None)
        sort = snake(type(order.job).__name__)
        self._lag[sort].add(item.now - order.due_ns)
        self._real[sort].add(int(item.real_s * NS_PER_S))
        self._deaths[sort] += item.deaths
        self._held.add(order.due_ns, (order.job, item.result))

    def next_due(self) -> int:
        """When the first held result is due."""
        return self._held.next_due()

    def pop_due(self, now: int) -> list[tuple[Job, Result | str]]:
        return [held for _, held in self._held.pop_due(now)]

    def summary(self) -> dict[str, Any]:
        """Statistics by kind of job: count, lag of results, real duration, dead workers."""
        return {
            sort: {
                "count": lag.count,
                "lag_ms": spread_ms(lag),
                "real_ms": spread_ms(self._real[sort]),
                "workers_died": self._deaths[sort],
            }
            for sort, lag in sorted(self._lag.items())
        }


@dataclass(frozen=True, slots=True)
class Continuation:
    """Where a run that was broken off goes on, for the pacing thread.

    ``at_ns``: the latest emulated moment in the journal, ``ended_unix_s``: its time. ``present``:
    edges that were connected then. ``downloads`` were under way. ``delivered``: for each edge,
    moments of its latest deliveries, by transfer. ``ended``: it was killed between its end and its
    summary.
    """

    at_ns: int
    ended_unix_s: float
    present: Collection[str]
    downloads: tuple[tuple[ModelDownload, Outgoing], ...]
    delivered: Mapping[str, Mapping[int, int]]
    ended: bool


class RunLogic:
    """The coordinator, and what it needs besides its actor.

    ``now`` never decreases: an event that arrives after a later event counts as simultaneous with
    it. It never passes the stop time either. An event that was due by the stop time belongs to the
    run, however late it is handled; a later event does not.

    ``evaluates``: there is an evaluator. ``jobs`` None: there is no job worker.
    """

    def __init__(
        self, coordinator: Coordinator, record: Record, evaluates: bool, jobs: JobTable | None
    ) -> None:
        self.coordinator, self.record = coordinator, record
        self.evaluates, self.jobs = evaluates, jobs
        self.evaluator_gone = False
        self.hosts = HostTable()
        self.downloads = Downloads()
        self.evaluations: dict[tuple[int, bool], Evaluate] = {}  # under way, by ``Evaluate.key``
        self.keeps_weights = False  # of evaluations under way
        self.judged: messages.Judged | None = None  # the latest
        self.outages: list[dict[str, float]] = []
        self.began_unix_s: float | None = None
        self.unix_at_0_s = 0.0  # the time of second 0 of the run's own clock, without outages
        self.now = 0
        self.ended = False
        self.alarm = FOREVER  # for which the pacing thread was asked
        self._transfers = 0
        # the latest model that was packed
        self._packed: tuple[Callable[[], np.ndarray | None], str, Callable[[], Outgoing | None]]
        self._packed = NOT_PACKED

    def handle(self, item: Any) -> list[Request]:
        """Handle an input, and return what has to be done, in this order."""
        outputs = self._handle(item)
        if not outputs and isinstance(item, NO_ALARMS):
            return []
        requests = self._requests(outputs)
        due = self.next_due()
        if due < FOREVER and due != self.alarm:
            self.alarm = due
            requests.append(messages.WakeAt(due))
        return requests

    # ------------------------------------------------------------------ inputs
    def over(self, item: Any) -> bool:
        """Whether the input is of a moment after the end, or is handled after it."""
        return self.ended or getattr(item, "now", 0) > self.coordinator.stop_ns

    def _handle(self, item: Any) -> list[Output | Request]:
        now, over = getattr(item, "now", 0), self.over(item)
        if over and not isinstance(item, LATE):
            return []  # events after the end are not part of the run
        if not (over or isinstance(item, messages.Judged)):
            self.now = max(self.now, now)
        match item:
            case messages.Begin():
                self.began_unix_s = item.unix_s
                return [*self.coordinator.start(item.edges, 0)]
            case messages.Heard():
                self.downloads.heard(item)
                return [*self.coordinator.receive(item.edge, item.message, self.now)]
            case messages.Whole():
                return self._whole(item)
            case messages.Rang():
                self.alarm = FOREVER
                return [*self._jobs_due(), *self.coordinator.wake(self.now)]
            case messages.Worked():
                assert self.jobs is not None
                self.jobs.worked(item)
                return self._jobs_due()
            case messages.Carried():
                self.downloads.heard(item)
                self.coordinator.record.link(item.completion, item.finished_ns)
                transfer = item.completion.transfer
                for stretch in item.stretches:
                    way, number = transfer.direction, transfer.number
                    self.record.measured(way, transfer.edge, number, stretch)
            case messages.Interrupt():
                return [*self.coordinator.finish(item.reason, self.now)]
            # no events of the run, so they have no outputs
            case messages.Measured():
                for stretch in item.stretches:
                    self.record.measured(item.what, item.edge, item.number, stretch)
            case messages.Noticed():
                self._fact(item.fact, **item.values)
            case messages.HostSaid():
                self._host_said(item)
            case messages.Scored():
                job = self.evaluations.pop((item.version, item.of_edges), None)
                if job is not None:
                    self.coordinator.job_done(job, item.result, self.now)
            case messages.Unevaluated():
                self.evaluations.pop((item.version, item.of_edges), None)
                self._skipped(item.version, item.of_edges, error=item.error)
            case messages.EvaluatorGone():
                self._fact("evaluator_gone", unevaluated=sorted({v for v, _ in self.evaluations}))
                self.evaluations, self.evaluator_gone = {}, True
            case messages.Judged():
                self.judged = item
            case messages.Resumed():
                self.evaluator_gone = False
                self._fact("resumed", outage_s=round(item.outage_s, 3))
                outage = {"at_s": item.now / NS_PER_S, "outage_s": round(item.outage_s, 3)}
                self.outages.append(outage)
        return []

    def _host_said(self, item: messages.HostSaid) -> None:
        if isinstance(item.message, HostFacts):
            facts = self.hosts.facts(item.edge, item.message)
            self._fact("edge_host", edge=item.edge, **asdict(facts))
        else:
            measured = self.hosts.measured(item.edge, item.message)
            of = self.hosts.report(item.at_ns, item.edge, item.message)
            if of is not None:
                self.record.host(item.at_ns, item.edge, of, item.message)
            if measured is not None and item.at_ns > 0:
                moments = (seconds_text(measured[0]), seconds_text(item.at_ns))
                self.record.energy((item.edge, MEASURED_STATE, *moments, measured[1], None))

    def _whole(self, item: messages.Whole) -> list[Output | Request]:
        try:
            message: Any = item.incoming.message()
        except WireError as error:
            return [messages.Reject(item.edge, str(error))]
        return [*self.coordinator.receive(item.edge, message, self.now)]

    def _jobs_due(self) -> list[Output | Request]:
        """Deliver the job results that are due."""
        due = [] if self.jobs is None else self.jobs.pop_due(self.now)
        return [
            output
            for job, result in due
            for output in self.coordinator.job_done(job, result, self.now)
        ]

    def _fact(self, fact: str, **values: Any) -> None:
        if not self.ended:  # "finished" is the last line
            self.coordinator.record.fact(self.now, fact, **values)

    def next_due(self) -> int:
        """The next emulated moment at which there is something to do."""
        held = FOREVER if self.jobs is None or self.ended else self.jobs.next_due()
        return min(self.coordinator.next_due(), held)

    # ------------------------------------------------------------------ outputs
    def _requests(self, outputs: list[Output | Request]) -> list[Request]:
        requests: list[Request] = []
        for output in outputs:
            match output:
                case Send(message=Assignment() | Fresh() | Pushed() as message):
                    outgoing = self._outgoing(output.to, message, slotted=False)
                    carry = messages.Carry(self.now, output.to, outgoing, output.replaces)
                    requests.append(carry)
                case Send():
                    note = cast(ToEdge, output.message)  # a coordinator sends only to edges
                    self.downloads.noted(output.to, note)
                    requests.append(messages.Note(self.now, output.to, note))
                case Grant():
                    requests.append(messages.Granted(self.now, self._next_number(), output))
                case Broadcast():
                    number = self._next_number()
                    # only tasks and pushes are broadcast
                    sent = [
                        (send.to, cast(Assignment | Pushed, send.message)) for send in output.sends
                    ]
                    copies = [(to, self._outgoing(to, each, slotted=True)) for to, each in sent]
                    replaces = any(send.replaces for send in output.sends)
                    requests.append(
                        messages.CarryAll(self.now, number, copies, output.slots, replaces)
                    )
                case Run(job=Evaluate()):
                    requests += self._evaluate(output.job)
                case Run():
                    requests.append(self._job(output))
                case Finish():
                    requests.append(output)
                    self.ended = True
                case _:
                    requests.append(output)
        return requests

    def _evaluate(self, job: Evaluate) -> list[Request]:
        """Order an evaluation. If too many are under way, record that it is skipped."""
        last = self.coordinator.finished is not None
        if not self.evaluates or self.evaluator_gone:
            return []
        if len(self.evaluations) >= MOST_EVALUATIONS and not last:
            under_way = len(self.evaluations)
            self._skipped(*job.key, under_way=under_way)
            return []
        kept = job if self.keeps_weights else replace(job, weights=NO_WEIGHTS)
        self.evaluations[job.key] = kept
        return [job]

    def _skipped(self, version: int, of_edges: bool, **why: Any) -> None:
        what = {"of_edges": True} if of_edges else {}
        self._fact("evaluation_skipped", of_version=version, **what, **why)

    def _job(self, output: Run) -> Request:
        if self.jobs is None:
            raise Bug(f"there is no job worker for {type(output.job).__name__}", [])
        assert output.duration_ns is not None  # only an evaluation may have no emulated cost
        return self.jobs.order(output.job, self.now, output.duration_ns)

    def _outgoing(self, edge: str, message: Assignment | Fresh | Pushed, slotted: bool) -> Outgoing:
        number = self._next_number()
        self.downloads.begin(ModelDownload(number, edge, message, slotted))
        return self.packed(number, message)

    def packed(self, number: int, message: Assignment | Fresh | Pushed) -> Outgoing:
        """Make an outgoing transfer. A model that goes to many edges is digested once."""
        if len(message.vectors) != 1:
            return Outgoing(number, message)
        vector = next(iter(message.vectors.values()))
        packed, digest, like = self._packed
        if packed() is not vector:
            digest, like = body_digest([vector]), NOT_PACKED[2]
        outgoing = Outgoing(number, message, digest, like())
        self._packed = (weakref.ref(vector), digest, weakref.ref(outgoing))
        return outgoing

    def _next_number(self) -> int:
        """The number of the next transfer. The same after a resumption: edges know it."""
        self._transfers += 1
        return self._transfers

    # ------------------------------------------------------------------ resumption
    def continuation(self, ended_unix_s: float) -> Continuation:
        """Where this run goes on, once its inputs were repeated."""
        coordinator, judged_ns = self.coordinator, 0 if self.judged is None else self.judged.now
        return Continuation(
            min(max(self.now, judged_ns), coordinator.stop_ns),
            ended_unix_s,
            frozenset(coordinator.present),
            tuple(
                (each, self.packed(each.number, each.message))
                for each in self.downloads.open(coordinator.tasks.open)
            ),
            self.downloads.delivered.of_edge,
            self.ended,
        )

    def forget_weights(self) -> None:
        """Forget the weights of evaluations under way: their snapshots are files now."""
        for key, job in self.evaluations.items():
            self.evaluations[key] = replace(job, weights=NO_WEIGHTS)

    def state(self) -> dict[str, Any]:
        """All attributes but what is only kept to save time."""
        return {name: value for name, value in vars(self).items() if name != "_packed"}

    def restore(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._packed = NOT_PACKED
