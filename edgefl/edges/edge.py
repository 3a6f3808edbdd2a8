"""The edge as an actor: it trains its tasks, may ask for fresher models, and offers updates."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

import numpy as np

from edgefl.actor import COORDINATOR, Output, Run, Send
from edgefl.by_name import ByName
from edgefl.compression.packing import Packing
from edgefl.edges.training import BEFORE, PUSHES, Merge, TrainingFailure, training_failure
from edgefl.errors import Bug
from edgefl.jobs import Train
from edgefl.protocol.codec import beyond_limits, most_body
from edgefl.protocol.messages import (
    Acknowledged,
    Assignment,
    CancelTask,
    Fresh,
    FreshRequest,
    NothingNewer,
    Pushed,
    TaskFailed,
    ToEdge,
    TooLate,
    Update,
    UrgeTask,
)
from edgefl.strategies.base.strategy import LocalRule, owns, takes_pushes
from edgefl.streams import Streams
from edgefl.vectors import read_only
from emulator.compute import Device, copied, jitter_factor

MOST_SHOWN = 20  # transitions that the message of a bug shows


class Phase(Enum):
    """The phase of an edge's work on its task."""

    __hash__ = object.__hash__  # Enum's own is computed in Python, at each look into the table

    IDLE = "idle"  # it has no task
    TRAINING = "training"  # no request is open: it asks later, was answered, or never asks
    WAITING = "waiting"  # training pauses until the answer to its request
    REFRESHING = "refreshing"  # it continues training while its request is open
    HELD = "held"  # training has ended; the update is held until the answer


class PhaseEvent(Enum):
    """An event that changes the phase."""

    __hash__ = object.__hash__

    BEGUN = "task begun"  # it may replace a task that the coordinator has closed
    ASKED = "request sent, and training stands still"
    ASKED_ON = "request sent, and training goes on"
    PUSHED = "a pushed model is merged"  # from IDLE: its update was offered for later
    TAKEN_BACK = "request taken back: a pushed model comes before it"
    RESTARTED = "run begun again from a pushed model"
    FRESH = "answer: a fresher model"
    NOTHING_NEWER = "answer: nothing newer"
    TOO_LATE = "no answer in time"
    DONE = "run done"
    CANCELLED = "task cancelled"
    URGED = "run begun again, to end early"  # from IDLE: its update was offered for later


ANSWERED = {
    PhaseEvent.FRESH: Phase.TRAINING,
    PhaseEvent.NOTHING_NEWER: Phase.TRAINING,
    PhaseEvent.TOO_LATE: Phase.TRAINING,
}
OPEN = {
    PhaseEvent.BEGUN: Phase.TRAINING,
    PhaseEvent.CANCELLED: Phase.IDLE,
    PhaseEvent.TAKEN_BACK: Phase.TRAINING,
    PhaseEvent.RESTARTED: Phase.TRAINING,
    **ANSWERED,
}
# All allowed transitions. Any other one is a bug: the edge ignores late messages and messages about
# other tasks before they reach this table.
TRANSITIONS: dict[Phase, dict[PhaseEvent, Phase]] = {
    Phase.IDLE: {
        PhaseEvent.BEGUN: Phase.TRAINING,
        PhaseEvent.URGED: Phase.TRAINING,
        PhaseEvent.PUSHED: Phase.TRAINING,
        PhaseEvent.RESTARTED: Phase.TRAINING,
    },
    Phase.TRAINING: {
        PhaseEvent.BEGUN: Phase.TRAINING,
        PhaseEvent.ASKED: Phase.WAITING,
        PhaseEvent.ASKED_ON: Phase.REFRESHING,
        PhaseEvent.DONE: Phase.IDLE,
        PhaseEvent.CANCELLED: Phase.IDLE,
        PhaseEvent.URGED: Phase.TRAINING,
        PhaseEvent.PUSHED: Phase.TRAINING,
        PhaseEvent.RESTARTED: Phase.TRAINING,
    },
    Phase.WAITING: OPEN,
    Phase.REFRESHING: {
        PhaseEvent.DONE: Phase.HELD,
        PhaseEvent.PUSHED: Phase.REFRESHING,
        **OPEN,
    },
    Phase.HELD: {PhaseEvent.PUSHED: Phase.REFRESHING, **OPEN},
}
ASKING = (Phase.WAITING, Phase.REFRESHING, Phase.HELD)  # a request is open


class PhaseMachine:
    """The phase of the edge ``name``, with its latest transitions."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.phase = Phase.IDLE
        self._latest: deque[tuple[PhaseEvent, Phase]] = deque(maxlen=MOST_SHOWN)

    def move(self, event: PhaseEvent) -> None:
        """Move to the phase to which ``event`` leads. Bug if the table has no such transition."""
        expected = TRANSITIONS[self.phase]
        if event not in expected:
            raise Bug(
                f"edge {self.name}: {event.value!r} in phase {self.phase.value!r}, expected one of"
                f" {', '.join(repr(each.value) for each in expected)}",
                [f"{event.value} -> {phase.value}" for event, phase in self._latest],
            )
        self.phase = expected[event]
        self._latest.append((event, self.phase))


class TrainerLike(Protocol):
    """Makes runs of tasks. The host decides who advances them.

    It needs no torch, because under the virtual clock edges only describe their training.
    An exception of an algorithm becomes the run's ``failure``. Only ``begin`` may raise, for a task
    whose numbers are invalid.
    """

    def begin(self, task: Assignment, rule: LocalRule, memory: Mapping[str, np.ndarray]) -> Any:
        """Make a run at its first step, with its ``checkpoints`` set."""
        ...

    def merge_at(self, run: Any, merge: Merge) -> None:
        """Merge a model when the run is at that step."""
        ...

    def asks(self, run: Any, rule: LocalRule) -> bool:
        """Whether the rule asks for a fresher model at the run's present step."""
        ...

    def certain(self, run: Any, kept: Any) -> Any:
        """The latest copy of the run that a model which arrives later cannot change.

        ``kept``: the copy from which it began.
        """
        ...

    def kept(self, run: Any) -> Any:
        """Copy the run in its present state."""
        ...

    def payload(self, run: Any, rule: LocalRule) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """The vectors and numbers of the update."""
        ...

    def remembered(self, run: Any, rule: LocalRule) -> dict[str, np.ndarray]:
        """The vectors that the edge keeps for its next task."""
        ...


@dataclass(slots=True, eq=False)
class Leg:
    """A part of a run whose moments are known in advance: it begins at ``began_ns``, after
    ``first`` steps, and its job ends at step ``stop``, where the run asks or ends.

    A model that arrives meanwhile is merged at the first step boundary at or after its arrival, if
    a step follows, and changes no moment. What was trained beyond is trained again. So a model that
    arrives at ``until_ns`` or later is too late. ``run``: for the sizes of its steps. ``device``:
    as it was before. ``work``: as in ``LocalRule``; ``after``: the work after the last step.
    """

    run: Any
    device: Device
    work: float
    began_ns: int
    first: int
    stop: int
    after: float
    until_ns: int = field(init=False)

    def __post_init__(self) -> None:
        last_ns, end_ns = self.done_ns(self.run.steps - 1), self.done_ns(self.run.steps)
        self.until_ns = min(last_ns + 1, end_ns)

    def work_to(self, step: int) -> float:
        """The device's work from the beginning to that step."""
        work: float = self.run.work_between(self.first, step) * self.work
        return work + self.after if step == self.run.steps else work

    def done_ns(self, step: int) -> int:
        """When that step is done."""
        duration_ns = self.device.duration_ns(self.work_to(step), self.began_ns)
        assert duration_ns is not None
        return self.began_ns + duration_ns

    def is_late(self, arrived_ns: int) -> bool:
        """Whether no step follows for a model that arrives then."""
        return self.stop == self.run.steps and arrived_ns >= self.until_ns

    def step_at(self, arrived_ns: int) -> int:
        """Steps done when a model that arrives at ``arrived_ns`` (not late) is merged."""
        last = min(self.stop, self.run.steps - 1)
        step = self.first + bisect_left(range(self.first, last), arrived_ns, key=self.done_ns)
        # the last call is for the whole run: a device may remember its last stretch of work
        self.done_ns(self.run.steps)
        return step


@dataclass(frozen=True, slots=True)
class TaskJitter:
    """The tasks of one edge vary in length, by ``devices.task_jitter``.

    The factor of a task depends on the seed, the edge and the number of the task alone. So it is
    the same on both clocks and in every process, and for a task that begins again.
    """

    variation: float
    streams: Streams
    edge: str

    def factor(self, task: int) -> float:
        """How many times its usual work the task takes."""
        return jitter_factor(self.variation, self.streams.rng("task jitter", self.edge, task))


MOST_UNACKNOWLEDGED = 8  # updates kept for a repeated offer; the oldest beyond that is dropped


@dataclass(slots=True)
class Latest:
    """The current task, or the last one until its update is acknowledged.

    ``memory``: the edge's memory when the run began. ``asks``: the run asks for fresher models.
    ``done_ns``: when the run ends or has ended; None: not known in advance.

    ``asked_ns``, ``asked_step``: of its latest request. ``leg``: the present one; None: of a native
    device, or of a run that is never taken back. ``base``: a copy of the run that is certain: what
    it will merge is known, and nothing that still arrives is merged before. Training can begin
    again from it. ``former``: ``leg``, ``base`` and ``asked_step`` before the open request.
    ``merges``: the pushed models that the run merges. ``restarts``: how often it began anew.
    ``factor``: how many times its usual work the task takes.
    """

    task: Assignment
    memory: dict[str, np.ndarray]
    began_ns: int
    asks: bool
    done_ns: int | None = None
    asked_ns: int = 0
    asked_step: int = -1
    leg: Leg | None = None
    base: Any = None
    former: tuple[Leg | None, Any, int] | None = None
    merges: list[Merge] = field(default_factory=list)
    restarts: int = 0
    factor: float = 1.0


class Edge:
    """One device. ``now`` is emulated ns and comes from the coordinator; the edge owns no clock.

    Its phases are those of ``edgefl.edges.edge``. Between a FreshRequest and its answer, training
    pauses (``on_request = "wait"``, FedASMU's Algorithm 2) or continues (``"train_on"``). With
    ``"train_on"`` a run may end while its request is open. The edge then holds the update until
    the answer, or a TooLate, arrives. If a fresher model arrives, the run is set back to the
    request.
    """

    def __init__(
        self,
        name: str,
        trainer: TrainerLike,
        rule: LocalRule,
        device: Device,
        packing: Packing | None = None,
        jitter: TaskJitter | None = None,
    ) -> None:
        """``packing`` None: vectors travel whole. ``jitter`` None: equal tasks take equal times."""
        self.name = name
        self.packing = packing
        self.trainer = trainer
        self.rule = rule
        self.device = device
        self.jitter = jitter
        self.memory: dict[str, np.ndarray] = {}  # what the rule keeps between tasks
        # task -> what it adds to the memory once its update is acknowledged
        self._learned: dict[int, dict[str, np.ndarray]] = {}
        self._phases = PhaseMachine(name)
        self._pushable, self._asks_by_step = takes_pushes(rule), owns(rule, "asks")
        self.task: Assignment | None = None
        self._latest_number = -1  # of the latest task that has begun
        self.run: Any = None  # None: no task is at hand
        self.job: Train | None = None  # the latest one of the task at hand
        self.latest: Latest | None = None
        # a task whose model has not arrived yet, and the moment when it was urged
        self.urged: tuple[int, int] | None = None
        self.early: list[Pushed] = []  # for a task that has not arrived yet
        self.too_late = False  # no answer to its request arrived in time
        self.unacknowledged: dict[int, Update] = {}
        # by task, until the coordinator acknowledges the failure or cancels the task
        self.failed: dict[int, TaskFailed] = {}
        self.given_up = 0  # updates dropped without acknowledgement
        self.beyond: str | None = None  # the limit that an update of this algorithm exceeded

    @property
    def phase(self) -> Phase:
        return self._phases.phase

    @property
    def _packing_work(self) -> float:
        """The device's work of packing an update, in the unit of a run's work."""
        return 0.0 if self.packing is None else self.packing.samples

    def _works(self, latest: Latest) -> tuple[float, float]:
        """The work of a sample or token of this task, and of packing its update."""
        return self.rule.work * latest.factor, self._packing_work * latest.factor

    @property
    def asking(self) -> bool:
        """Whether a request is open."""
        return self._phases.phase in ASKING

    @property
    def open_tasks(self) -> list[int]:
        """Numbers of the tasks that may still be open for the coordinator.

        A new session reports them.
        """
        at_hand = [self.task.number] if self.task else []
        return sorted({*self.unacknowledged, *self.failed, *at_hand})

    def bring_back(
        self,
        updates: Mapping[int, tuple[Update, dict[str, np.ndarray]]],
        memory: dict[str, np.ndarray],
    ) -> None:
        """Go on with what a former process of this edge has kept.

        ``updates``: by task, each with what it adds to the memory once it is acknowledged.
        """
        self.memory = memory
        for number, (update, learned) in updates.items():
            self.unacknowledged[number], self._learned[number] = update, learned

    def kept_update(self, task: int) -> Update | None:
        """The update of a task, until it is acknowledged."""
        return self.unacknowledged.get(task)

    def learned(self, task: int) -> dict[str, np.ndarray]:
        """What an update without acknowledgement will add to the memory."""
        return self._learned[task]

    def receive(self, message: ToEdge, now: int) -> list[Output]:
        match message:
            case Assignment():
                return self._begin(message, now)
            case Fresh() if self._waits_for(message.number, now):
                return [self._merge(message, now)]
            case NothingNewer() if self._waits_for(message.task, now):
                return self._go_on(PhaseEvent.NOTHING_NEWER, now)
            case TooLate() if self._waits_for(message.task, now, answers=False):
                self.too_late = True
                return self._go_on(PhaseEvent.TOO_LATE, now)
            case Pushed():
                return self._pushed(message, now)
            case UrgeTask():
                return self._cut_short(message.task, now, now)
            case CancelTask():
                self._forget(message.task)  # its offer is void, too: nothing would acknowledge it
                if self.task is not None and self.task.number == message.task:
                    self._phases.move(PhaseEvent.CANCELLED)
                    self.task = self.run = self.job = self.latest = None
            case Acknowledged():
                self.memory |= self._forget(message.task)
                if self.latest is not None and self.latest.task.number == message.task:
                    self.latest = None
        return []

    def job_done(self, job: Train, result: Any, now: int) -> list[Output]:
        """Continue after a job: the local run has reached ``job.until_step``, or has failed."""
        run, task, latest = self.run, self.task, self.latest
        if run is None or task is None or job is not self.job:
            return []  # cancelled or replaced
        assert latest is not None  # it has a task
        stands = job.until_step < run.steps and run.failure is None
        if stands and self._phases.phase is not Phase.WAITING:
            if not self._asks_by_step or self.trainer.asks(run, self.rule):
                return self._ask(task, run, now)
            if run.failure is None:
                return [self._order(run, run.step + 1, now)]
        self._phases.move(PhaseEvent.DONE)
        if self._phases.phase is Phase.HELD:
            return []
        update = self._update(task, run)
        learned = self.trainer.remembered(run, self.rule)
        if self.packing is not None and update.vectors:
            start = task.vectors["weights"]
            update, kept = self.packing.update(update, start, self.memory, self.name)
            learned |= kept
        if latest.base is not None:
            latest.base = self.trainer.certain(run, latest.base) if self._pushable else None
        self.task = self.run = self.job = None  # thousands of edges would keep their vectors
        if run.failure is not None:
            return [self._fail(task, run.failure)]
        self.unacknowledged[update.number] = update
        self._learned[update.number] = learned
        if len(self.unacknowledged) > MOST_UNACKNOWLEDGED:
            self._forget(next(iter(self.unacknowledged)))
            self.given_up += 1
        return [Send(COORDINATOR, update)]

    def _fail(self, task: Assignment, failure: TrainingFailure) -> Send:
        """Report a failed task; the edge is free for another one."""
        self.failed[task.number] = failed = TaskFailed(task.number, failure.reason, failure.trace)
        return Send(COORDINATOR, failed)

    def _update(self, task: Assignment, run: Any) -> Update:
        """The run's update.

        An update that exceeds the limits of messages is sent empty. The coordinator then discards
        it and closes the task, instead of waiting for ever.
        """
        vectors, numbers = self.trainer.payload(run, self.rule)
        numbers = {**numbers, "too_late": 1.0} if self.too_late else numbers
        if self.latest is not None and self.latest.restarts:
            numbers = {**numbers, PUSHES: numbers.get(PUSHES, 0.0) + self.latest.restarts}
        update = Update(task.number, task.version, vectors, numbers)
        beyond = beyond_limits(update, most_body(task.vectors["weights"].nbytes))
        if beyond is None:
            return update
        self.beyond = beyond
        return Update(task.number, task.version, {}, {})

    def _forget(self, task: int) -> dict[str, np.ndarray]:
        """Drop a task's update or failure. Returns what it would have added to the memory."""
        self.failed.pop(task, None)
        self.unacknowledged.pop(task, None)
        return self._learned.pop(task, {})

    def _waits_for(self, task: int, now: int, answers: bool = True) -> bool:
        """Whether the open request is of this task, and an answer that arrives ``now`` can still be
        used.
        """
        latest = self.latest
        if not self.asking or latest is None or latest.task.number != task:
            return False
        late = answers and self.phase is not Phase.WAITING and now >= self._leg.until_ns
        return now >= latest.asked_ns and not late

    @property
    def _leg(self) -> Leg:
        assert self.latest is not None and self.latest.leg is not None
        return self.latest.leg

    # ------------------------------------------------------------------ answers
    def _merge(self, fresh: Fresh, now: int) -> Run:
        waited, run, latest = self.phase is Phase.WAITING, self.run, self.latest
        assert latest is not None
        self._phases.move(PhaseEvent.FRESH)
        fresh = fresh if self.packing is None else self.packing.taken(fresh)
        read_only(fresh.vectors.values())
        latest.former = None
        if waited:
            self.trainer.merge_at(run, Merge(latest.asked_step, fresh))
            return self._train(run, latest.asked_step, now)
        step = self._leg.step_at(now)
        return self._train_again(latest, step, now, Merge(step, fresh))

    def _go_on(self, answer: PhaseEvent, now: int) -> list[Output]:
        """Continue without a merge."""
        run, before, latest = self.run, self.phase, self.latest
        assert latest is not None
        self._phases.move(answer)
        latest.former = None
        if before is Phase.WAITING:
            return [self._train(run, latest.asked_step, now)]
        leg = self._leg
        if now < leg.until_ns:
            step = leg.step_at(now)
            if self._asks_by_step or self._next_request(run, step) < run.steps:
                return [self._train_again(latest, step, now)]
        return [self._order(run, run.steps, now)] if before is Phase.HELD else []

    def _train_again(self, latest: Latest, step: int, now: int, merge: Merge | None = None) -> Run:
        """Train again from the latest certain point, with a merge at ``step``.

        No moment of the leg changes, but that it now ends where the run asks next.
        """
        leg = self._leg
        base = latest.base if self.run is None else self.trainer.certain(self.run, latest.base)
        if merge is not None:
            self.trainer.merge_at(base, merge)
        latest.base = base
        self.run = run = self.trainer.kept(base) if self._keeps(base) else base
        if self.asking:
            return self._order(run, run.steps, now)
        if self._asks_by_step:
            return self._order(run, step if step > leg.first else step + 1, now)
        leg.stop = self._next_request(run, step)
        return self._order(run, leg.stop, now)

    # ------------------------------------------------------------------ pushed models
    def _pushed(self, pushed: Pushed, now: int) -> list[Output]:
        """Let the rule take a pushed model, if a step follows."""
        latest = self.latest
        if pushed.number > self._latest_number:
            self.early.append(pushed)
            return []
        if latest is None or latest.task.number != pushed.number:
            return []  # its task is over
        pushed = pushed if self.packing is None else self.packing.taken(pushed)
        read_only(pushed.vectors.values())
        restarts, run = self.rule.on_push == "restart", self.run
        if latest.leg is None:  # a native device: at its present step
            if run is None or run.step >= run.steps:
                return []
            if restarts:
                return self._restart(latest, pushed, now, now)
            self.trainer.merge_at(run, Merge(run.step, pushed))
            return []
        if self.asking and now <= latest.asked_ns and latest.former is not None:
            # it was asked ahead of emulated time: the run asks again when it is there
            self._phases.move(PhaseEvent.TAKEN_BACK)
            latest.leg, latest.base, latest.asked_step = latest.former
            latest.former = None
        elif self.phase is Phase.WAITING:
            if restarts:
                return self._restart(latest, pushed, now, now)
            self.trainer.merge_at(run, Merge(latest.asked_step, pushed))
            return []
        leg = self._leg
        if leg.is_late(now):
            return []
        step = leg.step_at(now)
        if restarts:
            return self._restart(latest, pushed, leg.done_ns(step), now)
        self._phases.move(PhaseEvent.PUSHED)
        self._forget(latest.task.number)  # it may have offered its update for later
        self.task, merge = latest.task, Merge(step, pushed)
        latest.merges.append(merge)
        return [self._train_again(latest, step, now, merge)]

    def _restart(self, latest: Latest, pushed: Pushed, at_ns: int, now: int) -> list[Output]:
        """Begin the task anew from a pushed model at ``at_ns``, where a step is done."""
        self._phases.move(PhaseEvent.RESTARTED)
        self._forget(latest.task.number)
        task, leg = latest.task, latest.leg
        self.task = Assignment(
            task.number,
            pushed.version,
            ByName({**task.vectors, **pushed.vectors}),
            ByName({**task.numbers, **pushed.numbers}),
        )
        if leg is not None:  # the device has worked in this leg until now, and in no later one
            self.device = copied(leg.device)
            self.device.duration_ns(leg.work_to(leg.stop), leg.began_ns)
        began = self._start(self.task, latest.memory, at_ns, now)
        if self.latest is not None:
            self.latest.restarts = latest.restarts + 1
        return began

    # ------------------------------------------------------------------ runs
    def _begin(self, task: Assignment, now: int) -> list[Output]:
        self._phases.move(PhaseEvent.BEGUN)
        if self.packing is not None:
            task = self.packing.taken(task)
        read_only(task.vectors.values())
        # a rule that asks for a missing name gets an error that lists the existing names
        task = Assignment(task.number, task.version, ByName(task.vectors), ByName(task.numbers))
        self._latest_number, early, self.early = task.number, self.early, []
        outputs = self._start(task, self.memory, now, now)
        for pushed in early:
            if pushed.number == task.number:
                outputs += self._pushed(pushed, now)
        if self.urged is None or self.urged[0] != task.number:
            return outputs
        return self._cut_short(*self.urged, now) or outputs

    def _start(
        self, task: Assignment, memory: Mapping[str, np.ndarray], began_ns: int, now: int
    ) -> list[Output]:
        """Make the run of a task, which begins at ``began_ns``, now or later."""
        self.task, self.too_late = task, False
        try:
            self.run = run = self.trainer.begin(task, self.rule, memory)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the strategy's numbers are invalid for a run
            self._phases.move(PhaseEvent.DONE)
            self.task = self.run = self.job = self.latest = None
            return [self._fail(task, training_failure(error, BEFORE, type(self.rule).__module__))]
        asks = self._asks_by_step or run.checkpoint is not None
        self.latest = Latest(task, dict(memory), began_ns, asks)
        if self.jitter is not None:
            self.latest.factor = self.jitter.factor(task.number)
        if began_ns == now and self._next_request(run, 0) == 0:  # no training before the request
            return self._ask(task, run, now)
        return [self._train(run, 0, began_ns, now)]

    def _keeps(self, run: Any) -> bool:
        """Whether this run may be taken back to a former step more than once."""
        several = self._asks_by_step or len(run.checkpoints) > 1
        return self._pushable or (several and self.rule.on_request == "train_on")

    def _next_request(self, run: Any, first: int) -> int:
        """The next step, from ``first`` on, before which the run asks, or its end."""
        assert self.latest is not None
        if not self._asks_by_step:
            for step in run.checkpoints:
                if step >= first and step > self.latest.asked_step:
                    return int(min(step, run.steps))
        return int(run.steps)

    def _cut_short(self, number: int, urged_ns: int, now: int) -> list[Output]:
        """End the run of this task at the first step that is done at or after ``urged_ns``.

        The run has at least one step. It begins again and ends at that step, because real training
        may be ahead of emulated time, or may have ended with an update offered for a later moment.
        """
        latest = self.latest
        if latest is None or latest.task.number < number:
            self.urged = (number, urged_ns)  # its model has not arrived yet
            return []
        reported = self.run is None if latest.done_ns is None else latest.done_ns <= urged_ns
        if latest.task.number > number or latest.asks or reported:
            return []
        if latest.done_ns is None:  # native device: the steps done so far stay
            run = self.run
            run.steps = max(1, run.step)
            return []
        return self._begin_again(latest, latest.done_ns, urged_ns, now)

    def _begin_again(self, latest: Latest, due_ns: int, urged_ns: int, now: int) -> list[Output]:
        """Train an urged task again with fewer steps. ``due_ns``: when the whole run ends."""
        run, began_ns = self.trainer.begin(latest.task, self.rule, latest.memory), latest.began_ns
        per_sample, after = self._works(latest)

        def done_ns(step: int) -> int:
            work = run.work_until(step) * per_sample + after
            duration_ns = self.device.duration_ns(work, began_ns)
            assert duration_ns is not None
            return began_ns + duration_ns

        steps = 1 + bisect_left(range(1, run.steps), urged_ns, key=done_ns)
        end_ns = done_ns(steps)  # the last call: a device may remember its last stretch of work
        if end_ns >= due_ns:
            return []
        self._phases.move(PhaseEvent.URGED)
        self._forget(latest.task.number)
        self.task, latest.done_ns = latest.task, end_ns
        self.run = self.trainer.begin(
            replace(latest.task, numbers={**latest.task.numbers, "most_steps": float(steps)}),
            self.rule,
            latest.memory,
        )
        latest.merges = [merge for merge in latest.merges if merge.step < steps]
        for merge in latest.merges:
            self.trainer.merge_at(self.run, merge)
        if latest.leg is not None:
            latest.base = base = self.trainer.kept(self.run)
            latest.leg = replace(latest.leg, run=base, stop=steps)
        self.job = Train(self.run, steps)
        return [Run(self.job, end_ns - now)]

    def _ask(self, task: Assignment, run: Any, now: int) -> list[Output]:
        """Ask for a fresher model before the run's next step.

        Then continue training if the rule wants that and the end of the run is known in advance.
        """
        latest, leg = self.latest, None
        assert latest is not None
        former = latest.leg, latest.base, latest.asked_step
        if self._asks_by_step and latest.leg is not None:  # the device works no longer than this
            self.device.duration_ns(latest.leg.work_to(run.step), latest.leg.began_ns)
        latest.former = former if self._pushable and latest.leg is not None else None
        latest.asked_ns, latest.asked_step = now, run.step
        if self.rule.on_request == "train_on":
            kept = self.trainer.kept(run)
            leg = self._new_leg(kept, run.step, run.steps, now)
            if leg is not None:
                latest.leg, latest.base = leg, kept
        until_ns = 0 if leg is None else leg.until_ns
        request = Send(COORDINATOR, FreshRequest(task.number, task.version, run.step, until_ns))
        self._phases.move(PhaseEvent.ASKED if leg is None else PhaseEvent.ASKED_ON)
        return [request] if leg is None else [request, self._order(run, run.steps, now)]

    def _new_leg(self, run: Any, first: int, stop: int, began_ns: int) -> Leg | None:
        """A leg of the run; None for a native device: its moments are not known in advance."""
        device = copied(self.device) if self._pushable else self.device
        if self.device.duration_ns(0, began_ns) is None:
            return None
        assert self.latest is not None
        work, after = self._works(self.latest)
        leg = Leg(run, device, work, began_ns, first, stop, after)
        if self._pushable:
            self.device.duration_ns(leg.work_to(stop), began_ns)
        return leg

    def _train(self, run: Any, first: int, began_ns: int, now: int | None = None) -> Run:
        """Train on from step ``first`` at ``began_ns`` to the next request, or to the end."""
        stop, latest = self._next_request(run, first), self.latest
        assert latest is not None
        keeps = self._keeps(run)
        if keeps or self._asks_by_step:
            base = self.trainer.kept(run) if keeps else run
            latest.leg = self._new_leg(base, first, stop, began_ns)
            latest.base = None if latest.leg is None or not keeps else base
        until = first + 1 if self._asks_by_step else stop
        return self._order(run, until, began_ns if now is None else now)

    def _order(self, run: Any, until_step: int, now: int) -> Run:
        """Order the run's training to this step of its leg."""
        latest = self.latest
        assert latest is not None
        ends, leg = until_step == run.steps, latest.leg
        if leg is not None:
            duration_ns: int | None = leg.done_ns(until_step) - now
        else:
            per_sample, after = self._works(latest)
            work = run.work_until(until_step) * per_sample
            duration_ns = self.device.duration_ns(work + ends * after, now)
        if ends and duration_ns is not None:
            latest.done_ns = now + duration_ns
        self.job = Train(run, until_step)
        return Run(self.job, duration_ns)
