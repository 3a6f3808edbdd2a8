"""An edge's part in a run: its actor and its transfers; and the training thread of its process.

It outlives sessions: a new session repeats what is open, also with a coordinator that was resumed.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from threading import Thread
from typing import Any, Protocol, cast

from msgspec import Struct
from msgspec.structs import replace

from edgefl.actor import Output, Run, Send
from edgefl.clocks.wall.edge.state import KeptState, StateKeeper
from edgefl.clocks.wall.edge.transfers import EdgeTransfers
from edgefl.clocks.wall.system import OWN_SYSTEM, Inbox, Mailbox, System
from edgefl.edges.edge import Edge
from edgefl.edges.training import Trainer
from edgefl.jobs import Train
from edgefl.protocol.codec import encode_note
from edgefl.protocol.messages import (
    FRESH,
    Acknowledged,
    CancelTask,
    FreshRequest,
    Join,
    Pushed,
    Stamped,
    TaskFailed,
    TooLate,
    Trained,
    Update,
    UrgeTask,
    Working,
)
from emulator.units import FOREVER

SLICE_S = 0.05
END_PATIENCE_S = 5.0
WANT, DONE = 1, 2
TURN = struct.Struct("<Bq")  # WANT or DONE, and the emulated moment (ns) when the job is due
MOST_TRAINED = 8  # reports of trainings that are kept for the next session


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


OWN_MACHINE = OwnMachine()


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


class TrainOrder(Struct, frozen=True):
    """A job with its emulated start and end; ``due_ns`` None: it takes its real time (native)."""

    work: EdgeWork  # of the edge
    job: Train
    start_ns: int
    due_ns: int | None


class Result(Struct, frozen=True):
    """The order is done; ``at_ns`` is the stamp of its outcome.

    ``trained``: for a native device, what it has done in how much time.
    """

    order: TrainOrder
    at_ns: int
    trained: Trained | None = None


class Deferred(Struct, frozen=True):
    """The order is not done, because its edge is frozen."""

    order: TrainOrder


class ThreadDied(Struct, frozen=True):
    """The thread failed outside of training: a bug of this package."""

    error: BaseException


class TrainingThread(Thread):
    """Runs orders one after the other, and drops orders whose run the edge has given up."""

    def __init__(self, turns: Turns, results: Mailbox, system: System = OWN_SYSTEM) -> None:
        super().__init__(name="training", daemon=True)
        self.turns, self.results, self.system = turns, results, system
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
        work, run = order.work, order.job.run
        # on this host every edge's trainer trains in slices
        trainer = cast(Trainer, work.edge.trainer)
        finished, spent_ns, before = False, 0, run.samples
        while not finished and not self.ended and work.wants(run):
            if work.frozen:
                self.results.put(Deferred(order))
                return
            self.turns.take(FOREVER if order.due_ns is None else order.due_ns)
            began = self.system.monotonic_ns()  # waiting for a turn does not count
            finished = trainer.advance(
                run,
                work.edge.rule,
                order.job.until_step,
                partial(self._slice_over, self.system.monotonic_s() + SLICE_S),
            )
            spent_ns += self.system.monotonic_ns() - began
            self.turns.give()
        if order.due_ns is not None:
            self.results.put(Result(order, order.due_ns))
            return
        samples = round((run.samples - before) * work.edge.rule.work)
        trained = Trained(run.task.number, samples, spent_ns) if samples else None
        at_ns = order.start_ns + int(spent_ns * work.side.speed)
        self.results.put(Result(order, at_ns, trained))

    def _slice_over(self, end_s: float) -> bool:
        return self.ended or self.system.monotonic_s() >= end_s


@dataclass(slots=True)
class OpenNotes:
    """The notes of an edge that its coordinator may not have got.

    ``asked``: the latest request for a fresher model. ``failed``: failures, by task. ``working``:
    the training under way. ``trained``: trainings of a native device that ended without a session.
    """

    asked: Stamped | None = None
    failed: dict[int, Stamped] = field(default_factory=dict)
    working: Working | None = None
    trained: deque[Trained] = field(default_factory=lambda: deque(maxlen=MOST_TRAINED))

    def add_failed(self, task: int, note: Stamped, edge: Edge) -> None:
        """Add a failure, and forget those that are no longer open."""
        self.failed = {each: told for each, told in self.failed.items() if each in edge.failed}
        self.failed[task] = note

    def repeated(self, edge: Edge) -> Iterator[Any]:
        """Yield what a new session repeats."""
        task = None if edge.task is None else edge.task.number
        if self.working is not None and self.working.task == task and not edge.asking:
            yield self.working
        while self.trained:
            yield self.trained.popleft()
        if self.asked is not None and edge.asking:
            yield self.asked
        for number in edge.failed:
            yield self.failed[number]


@dataclass(slots=True)
class EdgeSide:
    """What an edge has built for a run: its actor, and what its Join tells the coordinator."""

    edge: Edge
    config_digest: str
    layout_digest: str
    data_digest: str
    samples: int
    speed: float
    most_bytes: int
    frozen_digest: str = ""  # of the weights that never travel


class EdgeWork:
    """An edge's part in a run.

    ``train``: gives the training thread an order. ``tell(message, body)``: sends them and returns
    True, if the session has joined. ``say``: prints a line. ``keeper``: writes what the next
    process of this edge needs, if this one dies.
    """

    def __init__(
        self,
        side: EdgeSide,
        train: Callable[[TrainOrder], None],
        tell: Callable[..., bool],
        say: Callable[[str], None],
        notes: OpenNotes,
        keeper: StateKeeper | None = None,
    ) -> None:
        self.side, self.edge, self.train = side, side.edge, train
        self.tell, self.say, self.notes, self.keeper = tell, say, notes, keeper
        self.transfers = EdgeTransfers(side.most_bytes)
        if keeper is not None:
            self._bring_back(keeper.take())
        self.frozen = self._ended = False
        self._pushes = (-1, 0)  # a task, and how many pushed models have come for it
        # task -> samples and time of the steps of a native device that are not told yet
        self._spent: dict[int, tuple[int, int]] = {}
        self._again: set[int] = set()  # tasks whose update was offered again in this session
        self._given_up = 0
        self._beyond: str | None = None
        self._failed_for = ""

    def _bring_back(self, kept: KeptState) -> None:
        """Go on with what a former process of this edge has kept of the run."""
        self.edge.bring_back(
            {each.update.number: (each.update, each.learned) for each in kept.updates}, kept.memory
        )
        for each in kept.updates:
            self.transfers.bring_back(each.transfer, each.update, each.due_ns)
        if kept.updates:
            tasks = ", ".join(str(each.update.number) for each in kept.updates)
            self.say(f"offering kept updates again: of task {tasks}")
        if kept.lost is not None:
            self.say(f"the training for task {kept.lost} was lost when this edge ended")

    def end(self, over: bool) -> None:
        """Stop training. ``over``: the run is, so nothing of it is kept."""
        self._ended = True
        if self.keeper is not None:
            self.keeper.end(over)

    def wants(self, run: Any) -> bool:
        """Whether to go on with a run. The training thread asks."""
        return not self._ended and run is self.edge.run

    def drop(self, reason: str, kept: bool = False) -> None:
        """Tell what this process gives up. ``kept``: the updates are on disk and stay there."""
        updates, training = len(self.edge.unacknowledged), self.edge.task is not None
        lost = [f"{updates} update{'s' * (updates != 1)}"] * bool(updates and not kept)
        lost += ["the training under way"] * training
        if lost:
            self.say(f"{reason}: {' and '.join(lost)} dropped")

    def give_up(self) -> None:
        """No coordinator admits this edge any more."""
        self.drop("this edge leaves the run", kept=self.keeper is not None)

    # ------------------------------------------------------------------ sessions
    def join(self) -> Join:
        """The Join of a new session, which ends all credits of the former one."""
        side, transfers = self.side, self.transfers
        transfers.new_session()
        return Join(
            side.config_digest,
            side.layout_digest,
            side.data_digest,
            side.samples,
            sorted({*self.edge.open_tasks, *transfers.tasks}),
            transfers.held,
            side.frozen_digest,
            begins=transfers.begins,
        )

    def welcomed(self) -> None:
        """The session has joined: tell again what is open."""
        self._again = set(self.edge.unacknowledged)
        for outgoing, due_ns in self.transfers.unacknowledged(self.edge.unacknowledged):
            self.tell(outgoing.offer(due_ns, pushes=self._pushes_of(outgoing.task)))
        for note in self.notes.repeated(self.edge):
            self.tell(note)

    # ------------------------------------------------------------------ the actor
    def act(self, message: Any, at_ns: int) -> None:
        """Pass a message of the coordinator to the actor."""
        if isinstance(message, Acknowledged):
            self.transfers.acknowledged(message.task)
            self.transfers.cancelled(message.task)  # a push for it may be under way
        elif isinstance(message, TooLate):
            self.transfers.cancelled(message.task, FRESH)
        elif isinstance(message, CancelTask):
            self.transfers.cancelled(message.task)
            self.transfers.acknowledged(message.task)
            self._not_wanted(message.task)
        elif isinstance(message, Pushed):
            self._pushes = message.number, self._pushes_of(message.number) + 1
        outputs = self.edge.receive(message, at_ns)
        if isinstance(message, UrgeTask):
            self._retract(message.task)
        elif isinstance(message, Pushed):
            self._retract(message.number)
            self._say_again(message.number, at_ns)
        self._carry_out(outputs, at_ns)
        self._keep()

    def ends_upload(self, note: Any) -> bool:
        """Whether this note of the coordinator ends an upload of which bytes were sent."""
        return isinstance(note, (Acknowledged, CancelTask)) and any(
            upload.outgoing.task == note.task and upload.sent
            for upload in self.transfers.uploads.values()
        )

    def _pushes_of(self, task: int) -> int:
        """How many pushed models this edge has got for the task: the coordinator has to know what
        was said before one of them came.
        """
        return self._pushes[1] if self._pushes[0] == task else 0

    def _retract(self, task: int) -> None:
        """Drop the upload of this task's update, if a new one will replace it."""
        if task not in self.edge.unacknowledged:
            self.transfers.acknowledged(task)

    def _say_again(self, task: int, at_ns: int) -> None:
        """Say again what was said for moments after ``at_ns`` and still holds: the coordinator has
        dropped it, because a push came at ``at_ns``.
        """
        for upload in self.transfers.uploads.values():
            if upload.outgoing.task == task and upload.due_ns > at_ns:
                self.tell(upload.outgoing.offer(upload.due_ns, pushes=self._pushes_of(task)))
        failed = self.notes.failed.get(task)
        if task in self.edge.failed and failed is not None and failed.at_ns > at_ns:
            failed = self.notes.failed[task] = replace(failed, pushes=self._pushes_of(task))
            self.tell(failed)

    def _not_wanted(self, task: int) -> None:
        """Tell that an update is dropped which this session has offered again."""
        if task in self._again & self.edge.unacknowledged.keys():
            self.say(
                f"the update of task {task} is dropped: its task was closed meanwhile, or the"
                " resumed run does not know it"
            )

    def trained(self, result: Result) -> None:
        """Handle what the training thread has done."""
        outputs = self.edge.job_done(result.order.job, None, result.at_ns)
        goes_on = [type(output) for output in outputs] == [Run]  # a job alone is a further step
        self._report(result.trained, goes_on)
        self._carry_out(outputs, result.at_ns, goes_on)
        self._keep()

    def _report(self, trained: Trained | None, goes_on: bool) -> None:
        """Tell what a native device has trained, once no further step follows at once."""
        if trained is not None:
            samples, spent_ns = self._spent.get(trained.task, (0, 0))
            self._spent[trained.task] = samples + trained.samples, spent_ns + trained.spent_ns
        while self._spent and not goes_on:
            task, spent = self._spent.popitem()
            if not self.tell(report := Trained(task, *spent)):
                self.notes.trained.append(report)

    def _keep(self) -> None:
        if self.keeper is not None:
            self.keeper.look(self.edge, self.transfers.uploads.values())

    def _carry_out(self, outputs: list[Output], at_ns: int, goes_on: bool = False) -> None:
        """``goes_on``: it is a further step of the training under way."""
        for output in outputs:
            match output:
                case Run():
                    due = None if output.duration_ns is None else at_ns + output.duration_ns
                    assert self.edge.task is not None
                    if due is not None and not goes_on:
                        self.notes.working = Working(self.edge.task.number, due)
                        self.tell(self.notes.working)
                    self.train(TrainOrder(self, output.job, at_ns, due))
                case Send(message=Update() as update):
                    self._offer(update, at_ns)
                case Send(message=TaskFailed() as failed):
                    self._task_failed(failed, at_ns)
                case Send(message=FreshRequest() as request):
                    pushes = self._pushes_of(request.task)
                    self.notes.asked = Stamped(at_ns, encode_note(request), pushes)
                    self.tell(self.notes.asked)

    def _task_failed(self, failed: TaskFailed, at_ns: int) -> None:
        note = Stamped(at_ns, encode_note(failed), self._pushes_of(failed.task))
        self.notes.add_failed(failed.task, note, self.edge)
        self.tell(note)
        name = self.edge.name
        if failed.reason != self._failed_for:  # a repeated failure gets one line, no traceback
            self._failed_for = failed.reason
            print(f"{name}: {failed.trace}", file=sys.stderr)
        print(f"{name}: task {failed.task} failed: {failed.reason}", file=sys.stderr, flush=True)

    def _offer(self, update: Update, at_ns: int) -> None:
        given_up = self.edge.given_up
        if given_up > self._given_up:
            self._given_up = given_up
            self.say(f"{given_up} updates dropped: the coordinator acknowledged none of the latest")
        beyond = self.edge.beyond
        if beyond != self._beyond:
            self._beyond = beyond
            self.say(
                f"an update cannot be sent: {beyond}; the coordinator discards it (wrong length)"
            )
        new, pushes = self.transfers.new(update, at_ns), self._pushes_of(update.number)
        offer, pieces = self.transfers.offer(new, at_ns, pushes)
        if self.tell(offer):
            for piece, view in pieces:
                self.tell(piece, view)
