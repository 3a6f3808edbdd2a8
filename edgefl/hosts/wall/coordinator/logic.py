"""The logic thread: the coordinator, its strategy, the record and the journal.

numpy releases the GIL, so computing here does not delay pacing.
"""

from __future__ import annotations

import queue
import weakref
from collections.abc import Callable
from dataclasses import asdict, replace
from threading import Thread
from typing import Any, cast

import numpy as np

from edgefl.actor import Broadcast, Output, Run, Send
from edgefl.coordinator.coordinator import Coordinator
from edgefl.errors import Bug, UserError
from edgefl.hosts.wall.coordinator import thread_messages as messages
from edgefl.hosts.wall.coordinator.jobs import Jobs
from edgefl.hosts.wall.mailbox import Mailbox
from edgefl.hosts.wall.system import OWN_SYSTEM, System
from edgefl.jobs import Evaluate
from edgefl.protocol.codec import places
from edgefl.protocol.errors import WireError
from edgefl.protocol.host_reports import HostFacts
from edgefl.protocol.messages import Acknowledged, Assignment, Fresh, ToEdge
from edgefl.protocol.transfers import Outgoing, body_digest
from edgefl.record.host_table import HostTable
from edgefl.record.record import Record
from edgefl.strategies.base.decisions import Finish, Grant
from emulator.fidelity import Fidelity
from emulator.units import FOREVER

FLUSH_S = 0.3
DISK_FULL = "disk_full"  # a fact: the coordinator has waited for room on its disk
STOPPED = "stopped by an error"  # one that the user can correct, such as a full disk
MOST_EVALUATIONS = 100  # snapshots waiting for the evaluator
NO_WEIGHTS = np.empty(0, np.float32)


class Logic(Thread):
    """Handles the items of ``inbox`` one by one, and sends the coordinator's outputs to the pacing
    thread through ``said``.

    ``now`` never decreases: an event that arrives after a later event counts as simultaneous with
    it. It never passes the stop time either. An event that was due by the stop time belongs to the
    run, however late this thread handles it; a later event does not.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        record: Record,
        said: Mailbox,
        fidelity: Fidelity,
        evaluate: Callable[[Evaluate], None] | None,
        begun: Callable[[], None],
        jobs: Jobs | None = None,
        at_start: Callable[[], Any] = lambda: None,
        system: System = OWN_SYSTEM,
    ) -> None:
        super().__init__(name="logic", daemon=True)
        self.coordinator, self.record, self.said, self.fidelity, self.evaluate, self.begun = (
            coordinator,
            record,
            said,
            fidelity,
            evaluate,
            begun,
        )
        self.jobs = jobs  # None: there is no job worker
        self.at_start = at_start  # called in this thread
        self.system, self.inbox = system, system.inbox()
        self.hosts = HostTable()
        self.now = 0
        self.error: BaseException | None = None
        self.ended = False
        self._flushed_s = 0.0
        self._alarm = FOREVER
        self._transfers = 0
        self._jobs: dict[int, Evaluate] = {}  # version -> evaluation under way
        # the model last sent, held weakly
        self._digested: tuple[Callable[[], np.ndarray | None], str] = (lambda: None, "")

    def run(self) -> None:
        self.at_start()
        try:
            while not self.ended:
                self._next()
        except BaseException as error:  # ends the run: the main thread raises it again
            self.error = error
            self.said.put(Finish(STOPPED if isinstance(error, UserError) else "internal error"))

    def settle(self, timeout_s: float) -> None:
        """After the end, handle the remaining items and wait for running evaluations.

        The wait ends if no evaluation ends within ``timeout_s``.
        """
        while True:
            try:
                self._item(self.inbox.get(timeout=timeout_s if self._jobs else 0.05))
            except queue.Empty:
                return

    def _next(self) -> None:
        if self.system.monotonic_s() - self._flushed_s > FLUSH_S:
            self.record.flush()
            self._flushed_s = self.system.monotonic_s()
        try:
            item = self.inbox.get(timeout=FLUSH_S)
        except queue.Empty:
            return
        self._item(item)

    def _item(self, item: Any) -> None:
        started = self.system.monotonic_ns()
        outputs = self._handle(item)
        self._carry_out(outputs)
        if not isinstance(item, (messages.Carried, messages.Evaluated, messages.HostSaid)):
            self.fidelity.handle(self.system.monotonic_ns() - started)
        due = min(
            self.coordinator.next_due(),
            FOREVER if self.jobs is None or self.ended else self.jobs.next_due(),
        )
        if due < FOREVER and due != self._alarm:
            self._alarm = due
            self.said.put(messages.WakeAt(due))

    def _evaluate(self, job: Evaluate) -> None:
        """Submit a snapshot for evaluation.

        If too many are under way, or the disk is full, record that it is skipped: a missing score
        must not end the run.
        """
        last = self.coordinator.finished is not None
        if self.evaluate is None:
            return
        if len(self._jobs) >= MOST_EVALUATIONS and not last:
            self._fact("evaluation_skipped", of_version=job.version, under_way=len(self._jobs))
            return
        try:
            self.evaluate(job)
        except UserError as error:
            self._fact("evaluation_skipped", of_version=job.version, error=str(error))
            return
        self._jobs[job.version] = replace(job, weights=NO_WEIGHTS)

    def _job(self, output: Run) -> None:
        if self.jobs is None:
            raise Bug(f"there is no job worker for {type(output.job).__name__}", [])
        assert output.duration_ns is not None  # only an evaluation has no emulated cost
        self.jobs.submit(output.job, self.now, output.duration_ns)

    def _handle(self, item: Any) -> list[Output]:
        now = getattr(item, "now", 0)
        over = self.ended or now > self.coordinator.stop_ns
        if over and not isinstance(item, (messages.Evaluated, messages.EvaluatorGone)):
            return []  # events after the end are not part of the run
        self.now = max(self.now, now)
        match item:
            case messages.Begin():
                self.begun()
                return self.coordinator.start(item.edges, 0)
            case messages.Heard():
                return self.coordinator.receive(item.edge, item.message, self.now)
            case messages.Whole():
                return self._whole(item)
            case messages.Rang():
                self._alarm = FOREVER
                return [*self._jobs_due(), *self.coordinator.wake(self.now)]
            case messages.Worked():
                assert self.jobs is not None
                self.jobs.worked(item)
                return self._jobs_due()
            case messages.Carried():
                self.coordinator.record.link(item.completion, item.finished_ns)
            case messages.Measured():
                self._measured(item)
            case messages.Noticed():
                self._noticed(item)
            case messages.HostSaid():
                self._host_said(item)
            case messages.Evaluated():
                return self.coordinator.job_done(
                    self._jobs.pop(item.version), item.result, self.now
                )
            case messages.EvaluatorGone():
                self._fact("evaluator_gone", unevaluated=sorted(self._jobs))
                self._jobs, self.evaluate = {}, None
            case messages.Interrupt():
                return self.coordinator.finish(item.reason, self.now)
        return []

    def _noticed(self, item: messages.Noticed) -> None:
        self._fact(item.fact, **item.values)
        if item.fact == DISK_FULL and not self.ended:
            self.fidelity.strain(
                f"the coordinator waited {item.values['waited_s']:.1f} s for room on its disk"
            )

    def _host_said(self, item: messages.HostSaid) -> None:
        if isinstance(item.message, HostFacts):
            facts = self.hosts.facts(item.edge, item.message)
            self._fact("edge_host", edge=item.edge, **asdict(facts))
        else:
            of = self.hosts.report(item.at_ns, item.edge, item.message)
            if of is not None:
                self.record.host(item.at_ns, item.edge, of, item.message)

    def _jobs_due(self) -> list[Output]:
        """Deliver the job results that are due."""
        due = [] if self.jobs is None else self.jobs.pop_due(self.now)
        return [
            output
            for job, result in due
            for output in self.coordinator.job_done(job, result, self.now)
        ]

    def _measured(self, item: messages.Measured) -> None:
        if not self.ended:
            for stretch in item.stretches:
                self.record.measured(item.what, item.edge, item.number, stretch)

    def _fact(self, fact: str, **values: Any) -> None:
        if not self.ended:  # "finished" is the last line
            self.coordinator.record.fact(self.now, fact, **values)

    def _whole(self, item: messages.Whole) -> list[Output]:
        try:
            message: Any = item.incoming.message()
            item.incoming.body = None  # free it: the message has aligned copies
        except WireError as error:
            self.coordinator.damaged(item.edge, places(item.incoming.offer.meta)[0])
            self.said.put(messages.Reject(item.edge, str(error)))
            return []
        return self.coordinator.receive(item.edge, message, self.now)

    def _carry_out(self, outputs: list[Output]) -> None:
        wishes: list[Any] = []
        for output in outputs:
            match output:
                case Send(message=Assignment() | Fresh() as message):
                    wishes.append(messages.Carry(self.now, output.to, self._outgoing(message)))
                case Send():
                    note = cast(ToEdge, output.message)  # a coordinator sends only to edges
                    wishes.append(messages.Note(self.now, output.to, note))
                case Grant():
                    wishes.append(messages.Granted(self.now, self._next_number(), output))
                case Broadcast():
                    wishes.append(
                        messages.CarryAll(
                            self.now,
                            self._next_number(),
                            [(send.to, self._outgoing(send.message)) for send in output.sends],
                            output.slots,
                        )
                    )
                case Run(job=Evaluate()):
                    self._evaluate(output.job)
                case Run():
                    self._job(output)
                case Finish():
                    wishes.append(output)
                    self.ended = True
        kept = self.record.journal is not None
        if kept and any(
            isinstance(output, Send) and isinstance(output.message, Acknowledged)
            for output in outputs
        ):
            # an update is acknowledged only once its fate is in the journal, if there is one
            self.record.flush_fates()
        if wishes:
            self.said.put(*wishes)

    def _outgoing(self, message: Any) -> Outgoing:
        """Make the outgoing transfer. A model that goes to many edges is digested once."""
        if len(message.vectors) != 1:
            return Outgoing(self._next_number(), message)
        vector = next(iter(message.vectors.values()))
        if self._digested[0]() is not vector:
            self._digested = (weakref.ref(vector), body_digest([vector]))
        return Outgoing(self._next_number(), message, self._digested[1])

    def _next_number(self) -> int:
        """The number of the next transfer. The same after a resumption: edges know it."""
        self._transfers += 1
        return self._transfers
