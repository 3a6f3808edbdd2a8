"""The edge as an actor: it trains what it is given, asks for a fresher model where its rule says
so, and offers its update.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import Any

from edgefl.actor import COORDINATOR, Output, Run, Send
from edgefl.edges.refresh import ConcurrentRefresh, concurrent_refresh
from edgefl.jobs import Train
from edgefl.protocol.messages import (
    Acknowledged,
    Assignment,
    CancelTask,
    Fresh,
    FreshRequest,
    NothingNewer,
    ToEdge,
    TooLate,
    Update,
    UrgeTask,
)
from edgefl.protocol.transfers import beyond_limits, most_body
from edgefl.strategies.base.local_rule import LocalRule
from emulator.compute import Device

MOST_UNACKNOWLEDGED = 8  # updates kept for offering again; beyond that the oldest is given up


@dataclass(slots=True)
class Latest:
    """The task at hand, or the last one until its update is acknowledged: when its run began, with
    what memory, and whether it asks for a fresher model. ``done_ns``: when its run is, or was, at
    its end; None: not known beforehand.
    """

    task: Assignment
    memory: dict[str, Any]
    began_ns: int
    asks: bool
    done_ns: int | None = None


class Edge:
    """One device. ``now`` is emulated ns and comes from the coordinator; the edge owns no clock.

    While it waits for the answer to a FreshRequest, training stands still (``on_request = "wait"``,
    FedASMU's Algorithm 2), or goes on (``"train_on"``). Its host may then be through with a run
    whose request is still open: the update is held until the answer, or the word that none came in
    time, and if a fresher model comes, the run is taken back to its request.
    """

    def __init__(self, name: str, trainer: Any, rule: LocalRule, device: Device) -> None:
        self.name = name
        self.trainer = trainer
        self.rule = rule
        self.device = device
        self.memory: dict[str, Any] = {}  # vectors that the rule remembers between tasks
        self._learned: dict[
            int, dict[str, Any]
        ] = {}  # task -> what it adds to the memory once its update is acknowledged
        self.task: Assignment | None = None
        self.run: Any = None
        self.latest: Latest | None = None
        self.urged: tuple[int, int] | None = (
            None  # task whose model is still to come, moment at which it was urged
        )
        self.ask_at: int | None = None
        self.asking = False  # its request is open
        self.onward: ConcurrentRefresh | None = None  # of the run at hand, if it trains on
        self.too_late = False  # no answer to its request came in time
        self.unacknowledged: dict[int, Update] = {}
        self.given_up = 0  # updates dropped unacknowledged
        self.beyond: str | None = None  # the limit that an update of this algorithm passed

    @property
    def open_tasks(self) -> list[int]:
        """Numbers of the tasks whose fate is not known yet: what a new session tells the
        coordinator.
        """
        return sorted({*self.unacknowledged, *([self.task.number] if self.task else [])})

    def receive(self, message: ToEdge, now: int) -> list[Output]:
        match message:
            case Assignment():
                return self._begin(message, now)
            case Fresh() if self._waits_for(message.number, now):
                return [self._merge(message, now)]
            case NothingNewer() if self._waits_for(message.task, now):
                return self._go_on(now)
            case TooLate() if self._waits_for(message.task, None):
                self.too_late = True
                return self._go_on(now)
            case UrgeTask():
                return self._cut_short(message.task, now, now)
            case CancelTask() if self.task is not None and self.task.number == message.task:
                self.task = self.run = self.latest = self.onward = None
                self.asking = False
            case Acknowledged():
                self.unacknowledged.pop(message.task, None)
                self.memory |= self._learned.pop(message.task, {})
                if self.latest is not None and self.latest.task.number == message.task:
                    self.latest = None
        return []

    def job_done(self, job: Train, result: Any, now: int) -> list[Output]:
        """The local run stands at ``job.until_step``."""
        if job.run is not self.run:
            return []  # cancelled or replaced meanwhile
        assert self.task is not None
        if self.ask_at is not None and self.run.step < self.run.steps:
            return self._ask(now)
        if self.asking and self.onward is not None:
            self.onward.held = True
            return []
        update = self._update(self.task)
        self.unacknowledged[update.number] = update
        self._learned[update.number] = self.trainer.remembered(self.run, self.rule)
        self._give_up_oldest()
        self.task = self.run = self.onward = None
        return [Send(COORDINATOR, update)]

    def _update(self, task: Assignment) -> Update:
        """The run's outcome. One that cannot travel goes empty: the coordinator discards it and
        closes the task, instead of waiting for ever.
        """
        vectors, numbers = self.trainer.payload(self.run, self.rule)
        numbers = {**numbers, "too_late": 1.0} if self.too_late else numbers
        update = Update(
            task.number,
            task.version,
            vectors,
            {name: float(value) for name, value in numbers.items()},
        )
        beyond = beyond_limits(update, most_body(task.vectors["weights"].nbytes))
        if beyond is None:
            return update
        self.beyond = beyond
        return Update(task.number, task.version, {}, {})

    def _give_up_oldest(self) -> None:
        while len(self.unacknowledged) > MOST_UNACKNOWLEDGED:
            oldest = next(iter(self.unacknowledged))
            del self.unacknowledged[oldest], self._learned[oldest]
            self.given_up += 1

    def _waits_for(self, task: int, now: int | None) -> bool:
        """Whether an answer that comes ``now`` is of use."""
        late = now is not None and self.onward is not None and now >= self.onward.until_ns
        return self.asking and self.task is not None and self.task.number == task and not late

    def _merge(self, fresh: Fresh, now: int) -> Run:
        self.asking = False
        if self.onward is None:
            self.trainer.merge(self.run, self.rule, fresh.vectors["weights"], fresh.version)
            return self._train(self.run.steps, now)
        self.run = self.onward.kept
        self.trainer.merge_at(
            self.run, self.onward.step_at(now), fresh.vectors["weights"], fresh.version
        )
        return Run(Train(self.run, self.run.steps), self.onward.end_ns - now)

    def _go_on(self, now: int) -> list[Output]:
        """Nothing is to be merged."""
        self.asking = False
        if self.onward is None:
            return [self._train(self.run.steps, now)]
        return (
            [Run(Train(self.run, self.run.steps), self.onward.end_ns - now)]
            if self.onward.held
            else []
        )

    def _begin(self, task: Assignment, now: int) -> list[Output]:
        self.task, self.onward = task, None
        self.asking = self.too_late = False
        self.run = self.trainer.begin(task, self.rule, self.memory)
        self.latest = Latest(task, dict(self.memory), now, self.run.checkpoint is not None)
        self.ask_at = self.run.checkpoint
        if self.ask_at == 0:  # nothing to train before: no turn to wait for
            return self._ask(now)
        whole = [
            self._train(
                self.run.steps if self.ask_at is None else min(self.ask_at, self.run.steps), now
            )
        ]
        urged = self.urged is not None and self.urged[0] == task.number
        return (urged and self._cut_short(*self.urged, now)) or whole

    def _cut_short(self, number: int, urged_ns: int, now: int) -> list[Output]:
        """End the run of this task at the first step, but not before one, that is done at or after
        ``urged_ns``.

        The run begins again and goes up to that step: training may be ahead of emulated time, or
        through, with its update offered for later.
        """
        latest = self.latest
        if latest is None or latest.task.number < number:
            self.urged = (number, urged_ns)  # its model is still to come
            return []
        reported = self.run is None if latest.done_ns is None else latest.done_ns <= urged_ns
        if latest.task.number > number or latest.asks or reported:
            return []
        if latest.done_ns is None:  # real hardware: what is done is done
            self.run.steps = max(1, self.run.step)
            return []
        return self._begin_again(latest, urged_ns, now)

    def _begin_again(self, latest: Latest, urged_ns: int, now: int) -> list[Output]:
        run, began_ns = self.trainer.begin(latest.task, self.rule, latest.memory), latest.began_ns
        done_ns = lambda step: (
            began_ns + self.device.duration_ns(run.samples_until(step) * self.rule.work, began_ns)
        )
        steps = 1 + bisect_left(range(1, run.steps), urged_ns, key=done_ns)
        end_ns = done_ns(steps)  # asked last: a device may remember its last stretch of work
        if end_ns >= latest.done_ns:
            return []
        self.unacknowledged.pop(latest.task.number, None)
        self._learned.pop(latest.task.number, None)
        self.task, self.ask_at, latest.done_ns = latest.task, None, end_ns
        self.run = self.trainer.begin(
            replace(latest.task, numbers={**latest.task.numbers, "most_steps": float(steps)}),
            self.rule,
            latest.memory,
        )
        return [Run(Train(self.run, steps), end_ns - now)]

    def _ask(self, now: int) -> list[Output]:
        """Ask before the step at which the run stands; then train on, if the rule wants that and
        somebody knows when it will be done.
        """
        assert self.task is not None
        self.ask_at, self.asking = None, True
        if self.rule.on_request == "train_on":
            self.onward = concurrent_refresh(
                self.trainer.kept(self.run), self.device, self.rule.work, now
            )
        until_ns = 0 if self.onward is None else self.onward.until_ns
        request = Send(
            COORDINATOR, FreshRequest(self.task.number, self.task.version, self.run.step, until_ns)
        )
        return [request] if self.onward is None else [request, self._train(self.run.steps, now)]

    def _train(self, until_step: int, now: int) -> Run:
        if until_step == self.run.steps:
            self.ask_at = None
        samples = self.run.samples_until(until_step)
        duration_ns = self.device.duration_ns(samples * self.rule.work, now)
        if self.latest is not None and until_step == self.run.steps and duration_ns is not None:
            self.latest.done_ns = now + duration_ns
        return Run(Train(self.run, until_step), duration_ns)
