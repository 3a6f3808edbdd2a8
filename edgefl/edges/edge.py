"""The edge as an actor: it trains its tasks, may ask for fresher models, and offers updates."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Protocol

import numpy as np

from edgefl.actor import COORDINATOR, Output, Run, Send
from edgefl.by_name import ByName
from edgefl.compression.packing import Packing
from edgefl.edges.training import BEFORE, TrainingFailure, training_failure
from edgefl.errors import Bug
from edgefl.jobs import Train
from edgefl.protocol.messages import (
    Acknowledged,
    Assignment,
    CancelTask,
    Fresh,
    FreshRequest,
    NothingNewer,
    TaskFailed,
    ToEdge,
    TooLate,
    Update,
    UrgeTask,
)
from edgefl.protocol.transfers import beyond_limits, most_body
from edgefl.strategies.base.strategy import LocalRule
from edgefl.streams import Streams
from edgefl.vectors import read_only
from emulator.compute import Device, Stretched, jitter_factor

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
OPEN = {PhaseEvent.BEGUN: Phase.TRAINING, PhaseEvent.CANCELLED: Phase.IDLE, **ANSWERED}
# All allowed transitions. Any other one is a bug: the edge ignores late messages and messages about
# other tasks before they reach this table.
TRANSITIONS: dict[Phase, dict[PhaseEvent, Phase]] = {
    Phase.IDLE: {
        PhaseEvent.BEGUN: Phase.TRAINING,
        PhaseEvent.URGED: Phase.TRAINING,
    },
    Phase.TRAINING: {
        PhaseEvent.BEGUN: Phase.TRAINING,
        PhaseEvent.ASKED: Phase.WAITING,
        PhaseEvent.ASKED_ON: Phase.REFRESHING,
        PhaseEvent.DONE: Phase.IDLE,
        PhaseEvent.CANCELLED: Phase.IDLE,
        PhaseEvent.URGED: Phase.TRAINING,
    },
    Phase.WAITING: OPEN,
    Phase.REFRESHING: {PhaseEvent.DONE: Phase.HELD, **OPEN},
    Phase.HELD: OPEN,
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
        """Make a run at its first step, with its ``checkpoint`` set."""
        ...

    def merge(self, run: Any, rule: LocalRule, fresh: np.ndarray, version: int) -> None:
        """Merge a fresher global model at the run's present step."""
        ...

    def merge_at(self, run: Any, step: int, fresh: np.ndarray, version: int) -> None:
        """Merge a fresher global model after ``step`` steps."""
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
class ConcurrentRefresh:
    """The rest of a run after its request at ``asked_ns``. The answer does not change its end.

    Training continues while a requested fresher model is downloaded: this is ``on_request =
    "train_on"``, our own variant.

    ``kept``: the run at the moment of the request. A fresher model is merged at the first step
    boundary at or after its arrival, if at least one step follows. So a model that arrives at
    ``until_ns`` or later is too late. ``work``: as in ``LocalRule``; ``after``: the work after the
    last step.
    """

    kept: Any
    device: Device
    work: float
    asked_ns: int
    after: float = 0.0
    until_ns: int = 0
    end_ns: int = 0

    def done_ns(self, step: int) -> int:
        """When that step is done."""
        work = self.kept.work_until(step) * self.work
        if step == self.kept.steps:
            work += self.after
        duration_ns = self.device.duration_ns(work, self.asked_ns)
        assert duration_ns is not None
        return self.asked_ns + duration_ns

    def step_at(self, arrived_ns: int) -> int:
        """Steps done when a model that arrives at ``arrived_ns`` (< ``until_ns``) is merged."""
        first: int = self.kept.step
        step = first + bisect_left(range(first, self.kept.steps - 1), arrived_ns, key=self.done_ns)
        # the last call is for the whole run: a device may remember its last stretch of work
        self.done_ns(self.kept.steps)
        return step


def concurrent_refresh(
    kept: Any, device: Device, work: float, now: int, after: float = 0.0
) -> ConcurrentRefresh | None:
    """The rest of the run ``kept`` from ``now`` on.

    None for a native device: the times of its steps are not known in advance.
    """
    if device.duration_ns(0, now) is None:
        return None
    rest = ConcurrentRefresh(kept, device, work, now, after)
    last_ns, rest.end_ns = rest.done_ns(kept.steps - 1), rest.done_ns(kept.steps)
    rest.until_ns = min(last_ns + 1, rest.end_ns)
    return rest


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

    ``memory``: the edge's memory when the run began. ``asks``: the run asks for a fresher model.
    ``done_ns``: when the run ends or has ended; None: not known in advance.
    """

    task: Assignment
    memory: dict[str, np.ndarray]
    began_ns: int
    asks: bool
    done_ns: int | None = None


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
        self.task: Assignment | None = None
        self.run: Any = None  # None: no task is at hand
        self.latest: Latest | None = None
        # a task whose model has not arrived yet, and the moment when it was urged
        self.urged: tuple[int, int] | None = None
        self.ask_at: int | None = None
        self.refresh: ConcurrentRefresh | None = None  # if its run continues in training
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

    def _device_for(self, task: int) -> Device:
        """The device as this task finds it."""
        if self.jitter is None:
            return self.device
        return Stretched(self.device, self.jitter.factor(task))

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
            case TooLate() if self._waits_for(message.task, None):
                self.too_late = True
                return self._go_on(PhaseEvent.TOO_LATE, now)
            case UrgeTask():
                return self._cut_short(message.task, now, now)
            case CancelTask():
                self._forget(message.task)  # its offer is void, too: nothing would acknowledge it
                if self.task is not None and self.task.number == message.task:
                    self._phases.move(PhaseEvent.CANCELLED)
                    self.task = self.run = self.latest = self.refresh = None
            case Acknowledged():
                self.memory |= self._forget(message.task)
                if self.latest is not None and self.latest.task.number == message.task:
                    self.latest = None
        return []

    def job_done(self, job: Train, result: Any, now: int) -> list[Output]:
        """Continue after a job: the local run has reached ``job.until_step``, or has failed."""
        run, task = self.run, self.task
        if run is None or task is None or job.run is not run:
            return []  # cancelled or replaced
        if self.ask_at is not None and run.step < run.steps and run.failure is None:
            return self._ask(task, run, now)
        self._phases.move(PhaseEvent.DONE)
        if self._phases.phase is Phase.HELD:
            return []
        update = self._update(task, run)
        learned = self.trainer.remembered(run, self.rule)
        if self.packing is not None and update.vectors:
            start = task.vectors["weights"]
            update, kept = self.packing.update(update, start, self.memory, self.name)
            learned |= kept
        self.task = self.run = self.refresh = None
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

    def _waits_for(self, task: int, now: int | None) -> bool:
        """Whether an answer that arrives ``now`` can still be used."""
        late = now is not None and self.refresh is not None and now >= self.refresh.until_ns
        return self.asking and self.task is not None and self.task.number == task and not late

    def _merge(self, fresh: Fresh, now: int) -> Run:
        self._phases.move(PhaseEvent.FRESH)
        fresh = fresh if self.packing is None else self.packing.taken(fresh)
        read_only(fresh.vectors.values())
        weights, version = fresh.vectors["weights"], fresh.version
        if self.refresh is None:
            run = self.run
            self.trainer.merge(run, self.rule, weights, version)
            return self._train(run, run.steps, now)
        self.run = run = self.refresh.kept
        self.trainer.merge_at(run, self.refresh.step_at(now), weights, version)
        return Run(Train(run, run.steps), self.refresh.end_ns - now)

    def _go_on(self, answer: PhaseEvent, now: int) -> list[Output]:
        """Continue without a merge."""
        run, held = self.run, self.phase is Phase.HELD
        self._phases.move(answer)
        if self.refresh is None:
            return [self._train(run, run.steps, now)]
        return [Run(Train(run, run.steps), self.refresh.end_ns - now)] if held else []

    def _begin(self, task: Assignment, now: int) -> list[Output]:
        self._phases.move(PhaseEvent.BEGUN)
        if self.packing is not None:
            task = self.packing.taken(task)
        read_only(task.vectors.values())
        # a rule that asks for a missing name gets an error that lists the existing names
        task = Assignment(task.number, task.version, ByName(task.vectors), ByName(task.numbers))
        self.task, self.refresh, self.too_late = task, None, False
        try:
            self.run = run = self.trainer.begin(task, self.rule, self.memory)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the strategy's numbers are invalid for a run
            self._phases.move(PhaseEvent.DONE)
            self.task = self.run = self.latest = None
            return [self._fail(task, training_failure(error, BEFORE, type(self.rule).__module__))]
        self.latest = Latest(task, dict(self.memory), now, run.checkpoint is not None)
        self.ask_at = run.checkpoint
        if self.ask_at == 0:  # no training before the request
            return self._ask(task, run, now)
        until_step = run.steps if self.ask_at is None else min(self.ask_at, run.steps)
        whole: list[Output] = [self._train(run, until_step, now)]
        if self.urged is None or self.urged[0] != task.number:
            return whole
        return self._cut_short(*self.urged, now) or whole

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
        device = self._device_for(latest.task.number)

        def done_ns(step: int) -> int:
            work = run.work_until(step) * self.rule.work + self._packing_work
            duration_ns = device.duration_ns(work, began_ns)
            assert duration_ns is not None
            return began_ns + duration_ns

        steps = 1 + bisect_left(range(1, run.steps), urged_ns, key=done_ns)
        end_ns = done_ns(steps)  # the last call: a device may remember its last stretch of work
        if end_ns >= due_ns:
            return []
        self._phases.move(PhaseEvent.URGED)
        self._forget(latest.task.number)
        self.task, self.ask_at, latest.done_ns = latest.task, None, end_ns
        self.run = self.trainer.begin(
            replace(latest.task, numbers={**latest.task.numbers, "most_steps": float(steps)}),
            self.rule,
            latest.memory,
        )
        return [Run(Train(self.run, steps), end_ns - now)]

    def _ask(self, task: Assignment, run: Any, now: int) -> list[Output]:
        """Ask for a fresher model before the run's next step.

        Then continue training if the rule wants that and the end of the run is known in advance.
        """
        self.ask_at = None
        if self.rule.on_request == "train_on":
            kept = self.trainer.kept(run)
            self.refresh = concurrent_refresh(
                kept, self._device_for(task.number), self.rule.work, now, self._packing_work
            )
        until_ns = 0 if self.refresh is None else self.refresh.until_ns
        request = Send(COORDINATOR, FreshRequest(task.number, task.version, run.step, until_ns))
        self._phases.move(PhaseEvent.ASKED if self.refresh is None else PhaseEvent.ASKED_ON)
        return [request] if self.refresh is None else [request, self._train(run, run.steps, now)]

    def _train(self, run: Any, until_step: int, now: int) -> Run:
        if until_step == run.steps:
            self.ask_at = None
        work = run.work_until(until_step) * self.rule.work
        if until_step == run.steps:
            work += self._packing_work
        duration_ns = self._device_for(run.task.number).duration_ns(work, now)
        if self.latest is not None and until_step == run.steps and duration_ns is not None:
            self.latest.done_ns = now + duration_ns
        return Run(Train(run, until_step), duration_ns)
