"""The logic: it handles inputs, keeps them in the journal, and lets the outputs leave.

It has a thread of its own. numpy releases the GIL, so computing there does not delay pacing. In a
run of small models without paced links, the pacing thread does this work between two turns until
something is slow. Two threads would spend about a quarter of the coordinator's CPU on waking each
other and on the interpreter's lock, and without paced links no piece waits for an item.

Outputs wait until the journal is durable. ``record.durability`` says what that means. "process":
the entries are in the operating system's hands. "power": they survive a loss of power; then another
thread waits for the disk, for all entries at once that have gathered meanwhile, so that neither
pacing nor logic waits. With checkpoints, the journal need not be repeated as a whole.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace as with_values
from functools import partial
from threading import Thread
from typing import Any

from msgspec.structs import replace

from edgefl.checkpoints.codec import CannotEncode, Encoded, encode
from edgefl.checkpoints.files import Checkpoints
from edgefl.clocks.wall.coordinator import thread_messages as messages
from edgefl.clocks.wall.coordinator.run_logic import LATE, Request, RunLogic
from edgefl.clocks.wall.coordinator.thread_messages import JobOrder
from edgefl.clocks.wall.coordinator.workers import Evaluator, Jobs
from edgefl.clocks.wall.system import OWN_SYSTEM, Mailbox, System
from edgefl.errors import UserError
from edgefl.jobs import Evaluate
from edgefl.record.journal import LINES, End, Journal, JournalEntry, segment_name
from edgefl.strategies.base.events_and_decisions import Finish, Grant
from emulator.fidelity import Fidelity
from emulator.units import FOREVER, NS_PER_S

FLUSH_S = 0.3
GATHER_NS = 1_000_000  # items that wait are handled together for so long, then their outputs leave
SLOW_NS = 50_000_000  # a heartbeat or an update should not wait so long for another one
DISK_FULL = "disk_full"  # a fact: the coordinator has waited for room on its disk
STOPPED = "stopped by an error"  # one that the user can correct, such as a full disk
JUDGED = (messages.Worked, messages.Scored, messages.Noticed)
UNJUDGED = (messages.Carried, messages.Scored, messages.HostSaid, messages.Judged)
SMALL_BYTES = 1_000_000  # of a model; the vectors of a larger one are computed beside the sockets
TURN_NS = 5_000_000  # after so long, the sockets are looked at again
# The logic's own thread ends when nothing was slow for so long: 200 times the least slow item, so a
# slow item that comes now and then takes at most 0.5 % of the pacing thread's time. Each further
# thread waits twice as long as the one before, so a strategy that is slow again and again delays
# the sockets a few times in a run.
QUIET_NS = 10 * NS_PER_S
Then = Callable[[], None]
REPLAY_S = 2.0  # a checkpoint is taken when the replay of the journal would take longer
READ_BYTE_S = 500_000_000  # how fast a journal is read


class Committer:
    """Calls what waits for the journal, in order. None: there is no journal to wait for.

    ``failed`` is called in the committer's thread if the disk refuses, or if a call fails. After
    that nothing is called, and ``commit`` raises the error.
    """

    def __init__(
        self,
        journal: Journal | None,
        failed: Callable[[BaseException], None] = lambda error: None,
        at_start: Callable[[], object] = lambda: None,
        system: System = OWN_SYSTEM,
    ) -> None:
        """``at_start`` is called in the committer's thread."""
        self.journal, self.failed, self.at_start, self.system = journal, failed, at_start, system
        self.power = journal is not None and journal.power
        self.error: BaseException | None = None
        self._waiting: deque[Then] = deque()
        self._bell = system.inbox()  # wakes the thread: True, or False to end it
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start the thread, if one is needed."""
        if self.power:
            self._thread = Thread(target=self._run, name="committer", daemon=True)
            self.system.start(self._thread)

    def commit(self, then: Then) -> None:
        """Call ``then`` once all entries so far are durable.

        The thread that writes the journal calls this. UserError if the disk refuses.
        """
        if self.error is not None:
            raise self.error
        if self.journal is not None:
            self.journal.flush()
        if self.power:
            self._waiting.append(then)
            self._bell.put(True)
        else:
            then()

    def sync(self) -> None:
        """Make all that was flushed so far durable, then call what waited for it.

        The thread does this. A host without threads calls it itself.
        """
        assert self.journal is not None
        ready = len(self._waiting)  # what is added meanwhile waits for the next sync
        if ready and self.error is None:
            try:
                self.journal.sync()
            except BaseException as error:
                self.error = error
                self.failed(error)
                return
            try:
                for _ in range(ready):
                    self._waiting.popleft()()
            except Exception as error:  # a bug: without this the run would wait for ever
                self.error = error
                self.failed(error)

    def stop(self) -> None:
        """Return when nothing waits any more, and the thread has ended."""
        if self._thread is not None:
            self._bell.put(False)
            self.system.join(self._thread)
            self._thread = None

    def _run(self) -> None:
        self.at_start()
        while self._bell.get():
            self.sync()
        self.sync()


class CheckpointWriter:
    """Takes a checkpoint between two items when it is time for one.

    ``externals``: what a resumed process makes itself. ``own``: modules of the user's strategies.
    ``say`` gets a line if there can be no checkpoints. The logic thread calls all methods; a
    thread of its own writes the files.
    """

    def __init__(
        self,
        core: RunLogic,
        journal: Journal,
        checkpoints: Checkpoints,
        externals: Mapping[str, object],
        own: Collection[str],
        evaluator: Evaluator | None,
        say: Callable[[str], None],
        sizes: Mapping[str, int] | None = None,
        system: System = OWN_SYSTEM,
    ) -> None:
        """``sizes``: of the files at the checkpoint from which the run goes on."""
        self.core, self.journal, self.checkpoints = core, journal, checkpoints
        self.externals, self.own, self.evaluator = externals, own, evaluator
        self.say, self.system = say, system
        # of the files at the checkpoints that are kept
        self._sizes: deque[Mapping[str, int]] = deque([sizes] if sizes else [], checkpoints.keep)
        if sizes:
            core.record.hold(sizes)
        self._handled_ns = 0  # since the last checkpoint
        self._thread: Thread | None = None
        self._impossible = False

    def handled(self, taken_ns: int, wall_s: float) -> None:
        """An item was handled in ``taken_ns``. Take a checkpoint if it is time."""
        self._handled_ns += taken_ns
        writing = self._thread is not None and self._thread.is_alive()
        if self.replay_s > REPLAY_S and not self._impossible and not writing:
            self.take(wall_s)

    def repeated(self, taken_ns: int) -> None:
        """The journal since the last checkpoint was repeated in ``taken_ns``."""
        self._handled_ns += taken_ns

    @property
    def replay_s(self) -> float:
        """How long a replay since the last checkpoint would take, about."""
        read_s = sum(self.journal.sizes().values()) / READ_BYTE_S
        return self._handled_ns / NS_PER_S + read_s

    def take(self, wall_s: float) -> None:
        """Take a checkpoint of this moment, and let another thread write it."""
        core, record = self.core, self.core.record
        pending = core.evaluations
        core.evaluations = {key: self._whole(job) for key, job in pending.items()}
        try:
            root = {"core": core, "wall_at": record.wall_at}
            encoded = encode(root, self.externals, self.own)
        except CannotEncode as error:
            self._impossible = True
            self.say(f"no checkpoints of this run: {error}; a resumption repeats the whole journal")
            return
        finally:
            core.evaluations = pending
        record.flush()
        number = self.journal.begin_segment()
        self._handled_ns = 0
        meta = {"sizes": (sizes := record.sizes()), "wall_s": wall_s}
        record.hold(self._sizes[0] if self._sizes else sizes)
        self._thread = Thread(
            target=self._write, args=(number, encoded, meta), name="checkpoint", daemon=True
        )
        self.system.start(self._thread)

    def stop(self) -> None:
        """Return when no checkpoint is being written any more."""
        if self._thread is not None:
            self.system.join(self._thread)

    def _whole(self, job: Any) -> Any:
        """An evaluation under way with its weights."""
        weights = None if self.evaluator is None else self.evaluator.snapshot(job.key)
        return job if weights is None else with_values(job, weights=weights)

    def _write(self, number: int, encoded: Encoded, meta: dict[str, Any]) -> None:
        try:
            if self.checkpoints.durable:
                self.core.record.sync()
                self.journal.disk.sync_folder(self.journal.directory)  # the segment after it
            self.checkpoints.write(number, encoded, meta)
        except (OSError, UserError) as error:
            self.say(f"checkpoint {number} cannot be written ({error}); the journal goes on")
            return
        self._sizes.append(meta["sizes"])
        self.journal.drop_before(self.checkpoints.numbers()[0])


class Logic:
    """Handles the items of ``inbox`` one by one with ``core``.

    Each item goes into the journal, if the run has one. What it causes leaves this process only
    once that is durable: messages to the pacing thread through ``said``, orders of evaluations and
    jobs to the ends of their workers. Items that wait together leave together: the journal is
    flushed once for all of them, and the pacing thread wakes once.

    ``between_turns``: the pacing thread handles items, in ``turn_ends``. Once an item or the disk
    was slow, the logic has a thread of its own until it is quick again, so that sessions go on.
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
        self._handled: list[tuple[Any, int, list[Request]]] = []  # item, ns it took, what it caused
        # When something was slow for the last time: an item, without those that begin the run, or
        # the disk. An item's time is the thread's own CPU time: it is not slow because the process
        # was pre-empted, nor because it waits for something. The disk takes no CPU time, so it is
        # slow if two waits for it in a row are long: one of them may be a pre-emption.
        self._slow_ns: int | None = None
        # how long nothing must be slow until the pacing thread handles items again; None: it never
        # does
        self._quiet_ns = QUIET_NS if between_turns else None
        self._gives_back = False  # set by the logic's own thread: it handles nothing more
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
        """Handle items in the caller's thread until the end, or until it is quick again."""
        self.at_start()
        try:
            self.committer.start()
            while not self.ended:
                if self._is_quick_again():
                    self._gives_back = True
                    self.said.put()  # wakes the pacing thread
                    return
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
        if self._gives_back:
            self._take_back(told, obey)
        if not self.between_turns or self._handled_in is not None:
            return FOREVER
        self._handled_in = self.system.thread()
        try:
            more = self._handle_waiting(told, obey)
        finally:
            self._handled_in = None
        if self._slow_ns is not None and not self.ended and self.error is None:
            self.between_turns = False
            self.start()
            return FOREVER
        now = self.system.monotonic_ns()
        return now if more else now + round(FLUSH_S * NS_PER_S)

    def waits_here(self) -> bool:
        """Whether the calling thread is the pacing thread in the middle of an item."""
        return self._handled_in == self.system.thread()

    def _is_quick_again(self) -> bool:
        if self._quiet_ns is None or self._slow_ns is None:
            return False
        return self.system.monotonic_ns() - self._slow_ns >= self._quiet_ns

    def _take_back(self, told: list[Any], obey: Callable[[list[Any]], None]) -> None:
        """Handle items between two turns again: the logic's own thread has ended."""
        assert self._quiet_ns is not None  # else it would not have ended
        self._quiet_ns *= 2
        self._thread, self._slow_ns, self._gives_back = None, None, False
        # before the inbox is read: from now on, an item of another thread wakes this one
        self.between_turns = True
        obey(self.said.take())  # what the thread has asked for last
        self._take_over(told)

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
                name = f"{segment_name(entry.at.segment)}{LINES}"
                what = f"{type(error).__name__}: {error}"
                raise UserError(
                    f"{name}: line {entry.at.entries} is no input of a coordinator ({what})"
                ) from error
            # What came too late for a run that is lengthened was not handled then: the edges bring
            # it again. Scores of earlier models count now, but their moment does not.
            too_late = entry.end == "over" and not self.core.over(item)
            if too_late and isinstance(item, messages.Scored):
                item = replace(item, now=0)
            if not too_late or isinstance(item, LATE):
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
        if isinstance(item, messages.EarlyUpdate):
            self._take_ahead(item)
            return
        begins = isinstance(item, (messages.Begin, messages.Resumed))
        if begins:
            self._start_clock()
        started, worked_ns = self.system.monotonic_ns(), self.system.thread_ns()
        self.wall_s = self.elapsed_s()
        over = self.core.over(item)
        requests = self._handle(item)
        self._keep(item, over)
        if self.evaluator is not None:
            for request in requests:
                if isinstance(request, Evaluate):  # a checkpoint may be taken before it leaves
                    self.evaluator.expect(request)
        taken_ns = self.system.monotonic_ns() - started
        self._handled.append((item, taken_ns, requests))
        if taken_ns > SLOW_NS and not begins and self.system.thread_ns() - worked_ns > SLOW_NS:
            self._slow_ns = self.system.monotonic_ns()
        if isinstance(item, JUDGED):
            self._judge(item)
        # nothing resumes after the end; a run that is lengthened goes on before it
        if self.checkpoints is not None and not (self._interrupted or self.ended):
            self.checkpoints.handled(taken_ns, self.wall_s)

    def _take_ahead(self, item: messages.EarlyUpdate) -> None:
        """Handle an update that has come with its offer, as if it came when it was granted.

        Without a grant it stays with the pacing thread.
        """
        self._take(messages.Heard(item.now, item.edge, item.ready))
        requests, wanted = self._handled[-1][-1], Grant(item.edge, item.ready.task)
        for at, request in enumerate(requests):
            if isinstance(request, messages.Granted) and request.grant == wanted:
                requests[at] = messages.UpdateTaken(item.edge, item.incoming.offer.transfer)
                for each in item.granted(request):
                    self._take(each)
                return

    def _commit(self) -> None:
        """Let the outputs of all handled items leave, once these are durable."""
        if not self._handled:
            return
        handled, self._handled = self._handled, []
        started = self.system.monotonic_ns()
        if any(requests or isinstance(item, messages.Scored) for item, _, requests in handled):
            self.committer.commit(partial(self._leave, handled))
        waited_ns = self.system.monotonic_ns() - started
        before, self._waited_long = self._waited_long, waited_ns > SLOW_NS
        if before and self._waited_long:
            self._slow_ns = self.system.monotonic_ns()
        for item, taken_ns, _ in handled:
            if not isinstance(item, UNJUDGED):
                self.fidelity.handle(taken_ns + waited_ns)

    def _handle(self, item: Any) -> list[Request]:
        if isinstance(item, (messages.Begin, messages.Resumed)):
            self.core.unix_at_0_s = item.unix_s - self.wall_s
        return self.core.handle(item)

    def _keep(self, item: Any, over: bool) -> None:
        """Write the item into the journal. ``over``: it came too late for the run.

        A resumed run does not repeat an interruption, but it keeps what the verdict is made of.
        """
        self._interrupted |= isinstance(item, messages.Interrupt)
        kept = isinstance(item, messages.Judged) or not self._interrupted
        if self.journal is not None and kept:
            end: End = "over" if over else "ends" if self.ended else ""
            self.journal.input(*messages.row(item), self.wall_s, end)
        if isinstance(item, messages.Whole):
            item.incoming.body = None  # free it: the message has aligned copies

    def _judge(self, item: Any) -> None:
        if isinstance(item, messages.Worked):
            order: JobOrder = item.order
            self.fidelity.task(item.now - order.due_ns, order.due_ns - order.start_ns)
        cost_ns = self.core.coordinator.scores.cost_ns
        if isinstance(item, messages.Scored) and cost_ns and not (item.of_edges or self.ended):
            self.fidelity.task(item.now - item.at_ns - cost_ns, cost_ns)
        if isinstance(item, messages.Noticed) and item.fact == DISK_FULL and not self.ended:
            waited_s = item.values["waited_s"]
            self.fidelity.strain(f"the coordinator waited {waited_s:.1f} s for room on its disk")

    def _leave(self, handled: list[tuple[Any, int, list[Request]]]) -> None:
        """Carry out what the items have caused, in their order."""
        asked = []
        for item, _, requests in handled:
            for request in requests:
                match request:
                    case Evaluate():
                        self._evaluate(request)
                    case JobOrder():
                        assert self.job_worker is not None  # the core has a table of jobs with it
                        self.job_worker.submit(request)
                    case _:
                        asked.append(request)
            if isinstance(item, messages.Scored) and self.evaluator is not None:
                self.evaluator.handled((item.version, item.of_edges))
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
            self.inbox.put(messages.Unevaluated(job.version, str(error), job.of_edges))

    def _disk_refuses(self, error: BaseException) -> None:
        """The journal cannot be made durable, or a bug. Called in the committer's thread."""
        if self.error is None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.error = error
        self._ask([Finish(STOPPED if isinstance(error, UserError) else "internal error")])
