"""Carry out the strategy's decisions on open tasks, alarms, jobs and the model, as outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from edgefl.actor import Broadcast, Output, Run, Send
from edgefl.compression.packing import Packing
from edgefl.config.experiment import Experiment
from edgefl.coordinator.absences import Absences
from edgefl.coordinator.checks import Claims, ModelMessage, check_published, model_of, sendable
from edgefl.coordinator.deadlines import Deadlines, TaskLimits
from edgefl.coordinator.failures import Failures
from edgefl.coordinator.ledger import Ledger, Recorder
from edgefl.coordinator.open_jobs import OpenJobs
from edgefl.coordinator.tasks import TASK_CLOSED, Alarms, OpenTask, Tasks
from edgefl.jobs import Evaluate, arrays
from edgefl.protocol.codec import size_of
from edgefl.protocol.messages import Assignment, CancelTask, Fresh, NothingNewer, UrgeTask
from edgefl.record.energy import EnergyBook
from edgefl.strategies.base import decisions as do
from edgefl.strategies.base import events as ev
from edgefl.strategies.base.decisions import Finish, Grant
from edgefl.strategies.base.strategy import Strategy
from edgefl.vectors import is_finite, read_only
from emulator.faults import Fault


class RunState:
    """The state of a run, changed by its strategy's decisions. ``now`` is emulated ns."""

    def __init__(
        self,
        strategy: Strategy,
        experiment: Experiment,
        recorder: Recorder,
        shares: Mapping[str, int] | None = None,
        limits: TaskLimits | None = None,
        energy: EnergyBook | None = None,
        absent: Mapping[str, Iterator[Fault]] | None = None,
        packing: Packing | None = None,
    ) -> None:
        """``shares``: samples by edge, where the split is known. ``limits`` None: no deadlines.

        ``energy`` None: the run has no model of its energy. ``absent``: when edges are away, by
        edge and in order of time. ``packing`` None: vectors travel whole.
        """
        self.strategy = strategy
        self.experiment = experiment
        self.claims = Claims(shares or {}, experiment.training.batch_size)
        self.record = Ledger(recorder, energy)
        self.packing = packing
        self.version = 0
        self.weights = strategy.weights
        read_only([self.weights])  # edges, archive and evaluation share this array
        self.tasks = Tasks()
        self.present: set[str] = set()
        self.alarms = Alarms()
        self.jobs = OpenJobs(strategy.runs_jobs)
        self.failures = Failures()
        self.deadlines = Deadlines(self.alarms, limits)
        self.absences = Absences(absent or {}, self.alarms)
        self.evaluated = -1
        self.finished: str | None = None
        self.stop_ns = experiment.stop.at_ns  # later events are not part of the run

    def finish(self, reason: str, now: int) -> list[Output]:
        """End the run in order. The host and the coordinator itself call this."""
        if self.finished:
            return []
        outputs = self._evaluate(now) if self.evaluated != self.version else []
        self.finished = reason
        self.record.fact(now, "finished", reason=reason)
        return [*outputs, Finish(reason)]

    def _evaluate(self, now: int) -> list[Output]:
        self.evaluated = self.version
        self.record.recorder.snapshot(self.version)
        sent, energy = self.record.counters, self.record.energy
        used = sent.bytes_up, sent.bytes_down, None if energy is None else energy.joules(now)
        return [Run(Evaluate(self.version, now, self.weights, *used), 0)]

    def _forget(self, task: OpenTask, delivered: bool, late: str = TASK_CLOSED) -> None:
        self.tasks.remove(task, delivered, late)
        self.alarms.drop(f"close {task.number}")
        self.deadlines.over(task)

    def _carry_out(
        self, decisions: list[do.Decision], event: ev.Event, now: int
    ) -> tuple[list[Output], list[list[int]]]:
        """Carry out decisions. Returns the outputs, and the task numbers of each Assign."""
        outputs: list[Output] = []
        numbers: list[list[int]] = []
        for decision in decisions:
            match decision:
                case do.Assign():
                    tasks = [self._open(edge, decision, now) for edge in decision.edges]
                    numbers.append([task.number for task in tasks])
                    sends = [Send(edge, task) for edge, task in zip(decision.edges, tasks)]
                    outputs += (
                        sends
                        if decision.broadcast is None
                        else [Broadcast(tuple(sends), decision.broadcast)]
                    )
                case do.Publish():
                    outputs += self._publish(decision.weights, now)
                case do.Discard():
                    if not isinstance(event, ev.UpdateArrived) or event.task != decision.task:
                        raise ValueError(
                            f"task {decision.task} cannot be discarded now: only the update that"
                            " has just arrived can"
                        )
                case do.Finish():
                    break
                case do.Report():
                    pass  # only for the record
                case do.RunJob():
                    outputs.append(self.jobs.open(decision))
                    read_only(array for _, array in arrays(decision.job))  # it may be done later
                case _:
                    outputs += self._small(decision, now)
        return outputs, numbers

    def _small(self, decision: do.Decision, now: int) -> list[Output]:
        match decision:
            case do.SetAlarm():
                self.alarms.set(f"strategy {decision.name}", decision.at_ns)
                return []
            case do.Grant():
                return self._grant(self._held(decision), decision.slots, now)
            case do.SendFresh():
                self._answered(self._held(decision), now)
                version = self.version if decision.version is None else decision.version
                if decision.weights is None:
                    return [Send(decision.edge, NothingNewer(decision.task))]
                fresh = Fresh(decision.task, version, {"weights": decision.weights})
                return [Send(decision.edge, self._message(fresh))]
            case do.Urge():
                task = self.tasks.at_work(decision.edge)
                task.urged = True
                return [Send(decision.edge, UrgeTask(task.number))]
            case do.Cancel():
                self._forget(self._held(decision), delivered=False)
                return [Send(decision.edge, CancelTask(decision.task))]
        raise TypeError(f"not a decision: {decision!r}")

    def _held(self, decision: do.Grant | do.SendFresh | do.Cancel) -> OpenTask:
        """The open task that a decision names. ValueError if its edge has no such task."""
        task = self.tasks.of(decision.edge, decision.task)
        if task is None:
            raise ValueError(
                f"{decision!r}: edge {decision.edge!r} has no open task {decision.task}"
            )
        return task

    def _answered(self, task: OpenTask, now: int) -> None:
        """Continue the deadline of a task whose request is answered.

        The limit covers the answer's download and a whole training, because the remaining training
        is at most that.
        """
        if task.asked:
            task.asked = False
            self.deadlines.started(
                task, self.strategy.known.get(task.edge, 1), now, self.weights.nbytes
            )

    def _grant(self, task: OpenTask, slots: tuple[int, ...] | None, now: int) -> list[Output]:
        if not task.waits:
            raise ValueError(
                f"cannot grant the uplink for task {task.number}: edge {task.edge!r} does not wait"
                " for it"
            )
        task.waits = False
        if slots is None:  # a strategy that grants slots watches them itself
            self.deadlines.granted(task, now)
        task.granted = Grant(task.edge, task.number, slots)
        return [task.granted]

    def _open(self, edge: str, assign: do.Assign, now: int) -> Assignment:
        busy = edge in self.tasks.by_edge
        if busy or edge not in self.present:
            raise ValueError(
                f"cannot assign to {edge!r}: it is {'busy' if busy else 'not connected'}"
            )
        model = model_of(assign)
        base = model if self.packing is None else self.packing.received(model, self.version)
        task = self.tasks.add(edge, self.version, base)
        task.message = self._message(
            Assignment(task.number, task.version, assign.vectors, assign.numbers)
        )
        read_only([base])
        self.deadlines.assigned(task, size_of(task.message), assign.broadcast, now)
        return task.message

    def _message(self, message: ModelMessage) -> ModelMessage:
        """Return the message as it is sent."""
        checked = sendable(message, self.weights)
        read_only(checked.vectors.values())  # under the virtual clock the edge has this array
        return checked if self.packing is None else self.packing.sent(checked)

    def _publish(self, weights: np.ndarray, now: int) -> list[Output]:
        check_published(weights, self.weights)
        read_only([weights])
        self.weights = weights
        self.version += 1
        if self.record.counters.diverged_at is None and not is_finite(weights):
            # Record the first non-finite model; divergence is not an error.
            self.record.fact(now, "diverged", version=self.version)
        every = self.experiment.evaluation.every_versions
        return self._evaluate(now) if every and self.version % every == 0 else []
