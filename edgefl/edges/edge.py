"""The edge as an actor: it trains what it is given, asks for a fresher model where its rule says so, and offers its update."""

from __future__ import annotations

from typing import Any

from edgefl.actor import COORDINATOR, Output, Run, Send
from edgefl.jobs import Train
from edgefl.protocol.messages import Acknowledged, Cancel, Fresh, FreshRequest, NothingNewer, Task, ToEdge, Update
from edgefl.protocol.transfers import beyond_limits, most_body
from edgefl.strategies.local_rule import LocalRule
from emulator.compute import Device

MOST_UNACKNOWLEDGED = 8  # updates kept for offering again; beyond that the oldest is given up


class Edge:
    """One device. ``now`` is emulated ns and comes from the coordinator; the edge owns no clock.

    While it waits for the answer to a FreshRequest, training stands still (``on_request = "wait"``, FedASMU's Algorithm 2).
    """

    def __init__(self, name: str, trainer: Any, rule: LocalRule, device: Device) -> None:
        self.name = name
        self.trainer = trainer
        self.rule = rule
        self.device = device
        self.memory: dict[str, Any] = {}  # vectors that the rule remembers between tasks
        self._learned: dict[int, dict[str, Any]] = {}  # task -> what it adds to the memory once its update is acknowledged
        self.task: Task | None = None
        self.run: Any = None
        self.ask_at: int | None = None
        self.unacknowledged: dict[int, Update] = {}
        self.given_up = 0  # updates dropped unacknowledged
        self.beyond: str | None = None  # the limit that an update of this algorithm passed

    @property
    def open_tasks(self) -> list[int]:
        """Numbers of the tasks whose fate is not known yet: what a new session tells the coordinator."""
        return sorted({*self.unacknowledged, *([self.task.number] if self.task else [])})

    def receive(self, message: ToEdge, now: int) -> list[Output]:
        match message:
            case Task():
                return self._begin(message, now)
            case Fresh() if self._waits_for(message.number):
                self.trainer.merge(self.run, self.rule, message.vectors["weights"], message.version)
                return [self._train(self.run.steps, now)]
            case NothingNewer() if self._waits_for(message.task):
                return [self._train(self.run.steps, now)]
            case Cancel() if self.task is not None and self.task.number == message.task:
                self.task = self.run = None
            case Acknowledged():
                self.unacknowledged.pop(message.task, None)
                self.memory |= self._learned.pop(message.task, {})
        return []

    def job_done(self, job: Train, result: Any, now: int) -> list[Output]:
        """The local run stands at ``job.until_step``."""
        if job.run is not self.run:
            return []  # cancelled or replaced meanwhile
        assert self.task is not None
        if self.ask_at is not None and self.run.step < self.run.steps:
            return [Send(COORDINATOR, FreshRequest(self.task.number, self.task.version, self.run.step))]
        update = self._update(self.task)
        self.unacknowledged[update.number] = update
        self._learned[update.number] = self.trainer.remembered(self.run, self.rule)
        self._give_up_oldest()
        self.task = self.run = None
        return [Send(COORDINATOR, update)]

    def _update(self, task: Task) -> Update:
        """The run's outcome. One that cannot travel goes empty: the coordinator discards it and closes the task, instead of waiting for ever."""
        vectors, numbers = self.trainer.payload(self.run, self.rule)
        update = Update(task.number, task.version, vectors, {name: float(value) for name, value in numbers.items()})
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

    def _waits_for(self, task: int) -> bool:
        return self.task is not None and self.task.number == task and self.ask_at is not None

    def _begin(self, task: Task, now: int) -> list[Output]:
        self.task = task
        self.run = self.trainer.begin(task, self.rule, self.memory)
        self.ask_at = self.run.checkpoint
        return [self._train(self.run.steps if self.ask_at is None else min(self.ask_at, self.run.steps), now)]

    def _train(self, until_step: int, now: int) -> Run:
        if until_step == self.run.steps:
            self.ask_at = None
        samples = self.run.samples_until(until_step)
        return Run(Train(self.run, until_step), self.device.duration_ns(samples * self.rule.work, now))
