"""The logic: it handles inputs, keeps them in the journal, and lets the outputs leave.

It has a thread of its own. numpy releases the GIL, so computing there does not delay pacing. In a
run of small models without paced links, the pacing thread does this work between two turns until
something is slow. Two threads would spend about a quarter of the coordinator's CPU on waking each
other and on the interpreter's lock, and without paced links no piece waits for an item.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any

from edgefl.clocks.wall.coordinator import thread_messages as messages
from edgefl.clocks.wall.coordinator.durability import CheckpointWriter, Committer
from edgefl.clocks.wall.coordinator.run_logic import RunLogic, Wish
from edgefl.clocks.wall.coordinator.thread_messages import JobOrder
from edgefl.clocks.wall.coordinator.workers import Evaluator, Jobs
from edgefl.clocks.wall.system import OWN_SYSTEM, Mailbox, System
from edgefl.errors import UserError
from edgefl.jobs import Evaluate
from edgefl.record.journal import LINES, JournalEntry, segment_name
from edgefl.strategies.base.events_and_decisions import Finish, Grant
from emulator.fidelity import Fidelity
from emulator.units import FOREVER, NS_PER_S

FLUSH_S = 0.3
GATHER_NS = 1_000_000  # items that wait are handled together for so long, then their outputs leave
SLOW_NS = 50_000_000  # a heartbeat or an update should not wait so long for another one
DISK_FULL = "disk_full"  # a fact: the coordinator has waited for room on its disk
STOPPED = "stopped by an error"  # one that the user can correct, such as a full disk
JUDGED = (messages.Worked, messages.Noticed)
UNJUDGED = (messages.Carried, messages.Evaluated, messages.HostSaid, messages.Judged)
SMALL_BYTES = 1_000_000  # of a model; the vectors of a larger one are computed beside the sockets
TURN_NS = 5_000_000  # after so long, the sockets are looked at again


class Logic:
    """Handles the items of ``inbox`` one by one with ``core``.

    Each item goes into the journal, if the run has one. What it causes leaves this process only
    once that is durable: messages to the pacing thread through ``said``, orders of evaluations and
    jobs to the ends of their workers. Items that wait together leave together: the journal is
    flushed once for all of them, and the pacing thread wakes once.

    ``between_turns``: the pacing thread handles items, in ``turn_ends``. Once an item or the disk
    was slow, the logic has a thread of its own for the rest of the run, so that sessions go on.
    The two threads never handle items at the same time.
    """

    def __init__(
        self,
        core: RunLogic,
        said: Mailbox,
        fidelity: Fidelity,
        evaluator: Evaluator | None = None,
        job_worker: Jobs | None = None,
        checkpoints: CheckpointWriter | None = None,
        at_start: Callable[[], Any] = lambda: None,
        between_turns: bool = False,
        wall_s: float = 0.0,
        system: System = OWN_SYSTEM,
    ) -> None:
        """``at_start`` is called in the logic's own thread. ``wall_s``: of the run so far."""
        self.core, self.said, self.fidelity = core, said, fidelity
        self.evaluator, self.job_worker, self.checkpoints = evaluator, job_worker, checkpoints
        self.at_start, self.between_turns = at_start, between_turns
        self.system, self.inbox = system, system.inbox()
        self.record, self.journal = core.record, core.record.journal
        self.committer = Committer(self.journal, self._disk_refuses, at_start, system)
        # rows have the time of the item that caused them, also when it is repeated
        self.wall_s = self._done_s = wall_s
        self.record.wall_s = lambda: self.wall_s
        self._start_clock()
        self.error: BaseException | None = None
        self._thread: Thread | None = None
        self._asked: list[Any] = []  # of the pacing thread, between two of its turns
        self._handled_in: int | None = None  # the pacing thread, while it handles items
        self._flushed_s = 0.0
        self._interrupted = False
        self._handled: list[tuple[Any, int, list[Wish]]] = []  # item, ns it took, what it caused
        # Whether something was slow: an item, without those that begin the run, or the disk. An
        # item's time is the thread's own CPU time: it is not slow because the process was
        # pre-empted, nor because it waits for something. The disk takes no CPU time, so it is slow
        # if two waits for it in a row are long: one of them may be a pre-emption.
        self._slow = False
        self._waited_long = False  # for the disk, the last time

    @property
    def ended(self) -> bool:
        return self.core.ended

    def start(self) -> None:
        """Start the logic's own thread, unless items are handled between two turns."""
        if not self.between_turns:
            self._thread = Thread(target=self.run, name="logic", daemon=True)
            self.system.start(self._thread)

    def join(self) -> None:
        """Return when the logic's own thread has ended, if there is one."""
        if self._thread is not None:
            self.system.join(self._thread)

    def run(self) -> None:
        """Handle items in the caller's thread until the end."""
        self.at_start()
        try:
            self.committer.start()
            while not self.ended:
                self._next()
        except BaseException as error:  # ends the run: the main thread raises it again
            self._fail(error)

    def put(self, item: Any) -> None:
        """Append an item to the inbox; for all threads but the pacing thread."""
        self.inbox.put(item)
        if self.between_turns:
            self.said.put()  # wakes the pacing thread

    # ------------------------------------------------------------------ between two turns
    def turn_ends(self, told: list[Any], obey: Callable[[list[Any]], None]) -> int:
        """Take what the pacing thread has ``told`` in a turn; handle what waits, between two turns.

        ``obey`` carries out requests of the logic, and may tell more. Returns the monotonic moment
        (ns) at which the pacing thread calls this again, if it has no work before.
        """
        self._take_over(told)
        if not self.between_turns or self._handled_in is not None:
            return FOREVER
        self._handled_in = self.system.thread()
        try:
            more = self._handle_waiting(told, obey)
        finally:
            self._handled_in = None
        if self._slow and not self.ended and self.error is None:
            self.between_turns = False
            self.start()
            return FOREVER
        now = self.system.monotonic_ns()
        return now if more else now + round(FLUSH_S * NS_PER_S)

    def waits_here(self) -> bool:
        """Whether the calling thread is the pacing thread in the middle of an item."""
        return self._handled_in == self.system.thread()

    def _take_over(self, told: list[Any]) -> None:
        for item in told:
            self.inbox.put(item)
        told.clear()

    def _handle_waiting(self, told: list[Any], obey: Callable[[list[Any]], None]) -> bool:
        """True: more may wait, but the sockets are looked at first."""
        until_ns = self.system.monotonic_ns() + TURN_NS
        while not self.ended and self.error is None:
            try:
                if not self._next(0.0):
                    return False
            except Exception as error:  # ends the run: the main thread raises it again
                self._fail(error)
            asked, self._asked = self._asked, []
            obey(asked)
            self._take_over(told)
            if self.system.monotonic_ns() > until_ns:
                return True
        return False

    # ------------------------------------------------------------------ time
    def elapsed_s(self) -> float:
        """Wall seconds of the run, without the joining phase and without outages."""
        return self.system.monotonic_s() - self._second_0_s

    def _start_clock(self) -> None:
        self._second_0_s = self.system.monotonic_s() - self._done_s

    # ------------------------------------------------------------------ the end and the beginning

    def settle(self, timeout_s: float) -> None:
        """After the end, handle the remaining items and wait for running evaluations.

        The wait ends if no evaluation ends within ``timeout_s``.
        """
        with suppress(queue.Empty):
            while True:
                self._take(self.inbox.get(timeout=timeout_s if self.core.evaluations else 0.05))
                self._commit()
        self.committer.stop()
        if self.checkpoints is not None:
            self.checkpoints.stop()

    def replay(self, entries: Iterable[JournalEntry]) -> float:
        """Repeat the inputs of a journal, and return the time of the last one (Unix, s).

        No output leaves; ``go_on`` gives out what is open.
        """
        jobs = self.core.jobs
        orders = {} if jobs is None else jobs.open
        self.core.keeps_weights, started = True, self.system.monotonic_ns()
        for entry in entries:
            self.wall_s = entry.wall_s
            try:
                item = messages.from_row(entry.item, entry.arrays, orders)
            except Exception as error:  # the checksum is right, but not the content
                name = f"{segment_name(entry.end.segment)}{LINES}"
                what = f"{type(error).__name__}: {error}"
                raise UserError(
                    f"{name}: line {entry.end.entries} is no input of a coordinator ({what})"
                ) from error
            self._handle(item)
            self.record.release()
        if self.checkpoints is not None:
            self.checkpoints.repeated(self.system.monotonic_ns() - started)
        self._done_s = self.wall_s
        self._start_clock()
        return self.core.unix_at_0_s + self.wall_s

    def go_on(self) -> None:
        """Order what was under way when the run was broken off, and wake for its alarms."""
        core = self.core
        open_jobs = [] if core.jobs is None else list(core.jobs.open.values())
        open_evaluations = list(core.evaluations.values()) if self.evaluator is not None else []
        core.keeps_weights = False
        core.forget_weights()
        due = core.next_due()
        wakes = [messages.WakeAt(due)] if due < FOREVER else []
        self._leave([(None, 0, [*open_evaluations, *open_jobs, *wakes])])

    def _next(self, timeout_s: float = FLUSH_S) -> bool:
        """Wait for an item. Handle it and others that wait, and send what they cause.

        The others not for long: what items cause waits with them. False: no item came in time.
        """
        now_s = self.system.monotonic_s()
        if now_s - self._flushed_s > FLUSH_S:
            self.record.flush()
            self._flushed_s = now_s
        try:
            item = self.inbox.get(timeout_s > 0, timeout_s)
        except queue.Empty:
            return False
        self._take(item)
        until_ns = self.system.monotonic_ns() + GATHER_NS
        with suppress(queue.Empty):
            while not self.ended and self.system.monotonic_ns() < until_ns:
                self._take(self.inbox.get(block=False))
        self._commit()
        return True

    def _take(self, item: Any) -> None:
        """Handle an item; ``_commit`` lets its outputs leave."""
        if isinstance(item, messages.CameAhead):
            self._take_ahead(item)
            return
        begins = isinstance(item, (messages.Begin, messages.Resumed))
        if begins:
            self._start_clock()
        started, worked_ns = self.system.monotonic_ns(), self.system.thread_ns()
        self.wall_s = self.elapsed_s()
        wishes = self._handle(item)
        self._keep(item)
        if self.evaluator is not None:
            for wish in wishes:
                if isinstance(wish, Evaluate):  # a checkpoint may be taken before it leaves
                    self.evaluator.expect(wish)
        taken_ns = self.system.monotonic_ns() - started
        self._handled.append((item, taken_ns, wishes))
        if taken_ns > SLOW_NS and not begins and self.system.thread_ns() - worked_ns > SLOW_NS:
            self._slow = True
        if isinstance(item, JUDGED):
            self._judge(item)
        if self.checkpoints is not None and not self._interrupted:  # nothing resumes after that
            self.checkpoints.handled(taken_ns, self.wall_s)

    def _take_ahead(self, item: messages.CameAhead) -> None:
        """Handle an update that has come with its offer, as if it came when it was granted.

        Without a grant it stays with the pacing thread.
        """
        self._take(messages.Heard(item.now, item.edge, item.ready))
        wishes, wanted = self._handled[-1][-1], Grant(item.edge, item.ready.task)
        for at, wish in enumerate(wishes):
            if isinstance(wish, messages.Granted) and wish.grant == wanted:
                wishes[at] = messages.Taken(item.edge, item.incoming.offer.transfer)
                for each in item.granted(wish):
                    self._take(each)
                return

    def _commit(self) -> None:
        """Let the outputs of all handled items leave, once these are durable."""
        if not self._handled:
            return
        handled, self._handled = self._handled, []
        started = self.system.monotonic_ns()
        if any(wishes or isinstance(item, messages.Evaluated) for item, _, wishes in handled):
            self.committer.commit(partial(self._leave, handled))
        waited_ns = self.system.monotonic_ns() - started
        before, self._waited_long = self._waited_long, waited_ns > SLOW_NS
        self._slow |= before and self._waited_long
        for item, taken_ns, _ in handled:
            if not isinstance(item, UNJUDGED):
                self.fidelity.handle(taken_ns + waited_ns)

    def _handle(self, item: Any) -> list[Wish]:
        if isinstance(item, (messages.Begin, messages.Resumed)):
            self.core.unix_at_0_s = item.unix_s - self.wall_s
        return self.core.handle(item)

    def _keep(self, item: Any) -> None:
        """Write the item into the journal.

        A resumed run does not repeat an interruption, but it keeps what the verdict is made of.
        """
        self._interrupted |= isinstance(item, messages.Interrupt)
        kept = isinstance(item, messages.Judged) or not self._interrupted
        if self.journal is not None and kept:
            self.journal.input(*messages.row(item), self.wall_s)
        if isinstance(item, messages.Whole):
            item.incoming.body = None  # free it: the message has aligned copies

    def _judge(self, item: Any) -> None:
        if isinstance(item, messages.Worked):
            order: JobOrder = item.order
            self.fidelity.task(item.now - order.due_ns, order.due_ns - order.start_ns)
        if isinstance(item, messages.Noticed) and item.fact == DISK_FULL and not self.ended:
            waited_s = item.values["waited_s"]
            self.fidelity.strain(f"the coordinator waited {waited_s:.1f} s for room on its disk")

    def _leave(self, handled: list[tuple[Any, int, list[Wish]]]) -> None:
        """Carry out what the items have caused, in their order."""
        asked = []
        for item, _, wishes in handled:
            for wish in wishes:
                match wish:
                    case Evaluate():
                        self._evaluate(wish)
                    case JobOrder():
                        assert self.job_worker is not None  # the core has a table of jobs with it
                        self.job_worker.submit(wish)
                    case _:
                        asked.append(wish)
            if isinstance(item, messages.Evaluated) and self.evaluator is not None:
                self.evaluator.handled(item.version)
        if asked:
            self._ask(asked)

    def _ask(self, requests: list[Any]) -> None:
        if self.between_turns:
            self._asked += requests
        else:
            self.said.put(*requests)

    def _evaluate(self, job: Evaluate) -> None:
        """Submit a snapshot. A missing score, for example on a full disk, must not end the run."""
        assert self.evaluator is not None  # the core orders evaluations only with it
        try:
            self.evaluator.submit(job)
        except UserError as error:
            self.inbox.put(messages.Unevaluated(job.version, str(error)))

    def _disk_refuses(self, error: BaseException) -> None:
        """The journal cannot be made durable, or a bug. Called in the committer's thread."""
        if self.error is None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.error = error
        self._ask([Finish(STOPPED if isinstance(error, UserError) else "internal error")])
