"""The coordinator as an actor: it gives every event to the strategy, and carries out what that
decides on open tasks, alarms, jobs and the model.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, nan
from typing import Any, SupportsFloat, cast

import numpy as np

from edgefl.actor import Broadcast, Output, Run, Send
from edgefl.compression.packing import ModelMessage, Packing
from edgefl.config.experiment import EdgeScores, Experiment
from edgefl.config.scores import measured
from edgefl.coordinator.tasks import (
    IN_TRAINING,
    TASK_CLOSED,
    TASK_TIMED_OUT,
    WAITING,
    Alarm,
    Alarms,
    DeadlineOver,
    Deadlines,
    EdgeLeaves,
    EdgeReturns,
    EvaluateAgain,
    GraceOver,
    OpenTask,
    Phase,
    StrategyAlarm,
    TaskEvent,
    TaskLimits,
    Tasks,
)
from edgefl.errors import Bug, UserError, printable
from edgefl.jobs import Evaluate, Job, Result, Scores, arrays
from edgefl.protocol.codec import beyond_limits, most_body, size_of
from edgefl.protocol.messages import (
    MOST_REASON,
    Acknowledged,
    Assignment,
    CancelTask,
    Fresh,
    FreshRequest,
    Joined,
    NothingNewer,
    PushArrived,
    Pushed,
    PushReplaced,
    Ready,
    Started,
    TaskFailed,
    ToCoordinator,
    Update,
    UrgeTask,
)
from edgefl.record.counters import Counters
from edgefl.record.energy import EnergyBook
from edgefl.record.files import Row
from edgefl.record.record import Record
from edgefl.record.rows import event_line, event_row, joined_lines
from edgefl.strategies.base import events_and_decisions as do
from edgefl.strategies.base import events_and_decisions as ev
from edgefl.strategies.base.events_and_decisions import Assign, Decision, EdgeJoined, Event, Push
from edgefl.strategies.base.strategy import LocalRule, Strategy, faded, takes_pushes
from edgefl.vectors import distance, is_finite, read_only
from emulator.clock import Agenda
from emulator.faults import Fault
from emulator.links.network import Completion
from emulator.units import FOREVER, NS_PER_S, to_ns

RATE_SCALE = "learning_rate_scale"  # the number of a task that multiplies its learning rate
STORY_LENGTH = 20  # events shown with a bug
EDGE_LEFT = "edge left"  # why a task is closed when its edge leaves and loses its work
MOST_TRACES = 20  # tracebacks kept in the record, one for each reason


class Coordinator:
    """Gets events (``start``, ``receive``, ``wake``, ``job_done``) and returns outputs.

    ``now`` is emulated ns.
    """

    def __init__(
        self,
        strategy: Strategy,
        experiment: Experiment,
        recorder: Record,
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
        self.record = Ledger(recorder, energy, packing)
        self.packing = packing
        self.version = 0
        self.weights = strategy.weights
        read_only([self.weights])  # edges, archive and evaluation share this array
        self.tasks = Tasks()
        self.present: set[str] = set()
        self.alarms = Alarms()
        self.jobs = OpenJobs(strategy.runs_jobs)
        self.on_push: str | None = None  # of the strategy's rule, once it pushes
        self.failures = Failures()
        self.deadlines = Deadlines(self.alarms, limits, self.present)
        self.faded = ""  # why no further task can train, once its learning rate is 0
        self.absences = Absences(absent or {}, self.alarms)
        self.evaluated = self.evaluated_edges = -1  # the latest versions; -1: none yet
        self.scores = HeldScores(experiment, strategy.hears_evaluations)
        self.score_stop = ScoreStop()
        self.finished: str | None = None
        self.stopped: dict[str, Any] = {}  # why, if a score has ended the run
        self.stop_ns = experiment.stop.at_ns  # later events are not part of the run

    # ------------------------------------------------------------------ what the host calls
    def start(self, edges: dict[str, int], now: int) -> list[Output]:
        """Begin the run with these edges (id -> samples)."""
        if self.finished:
            return []  # interrupted before the start
        evaluation = self.experiment.evaluation
        if evaluation.every_s is not None:
            self.alarms.set(EvaluateAgain(), now + to_ns(evaluation.every_s))
        outputs = self._evaluate(now)
        of_edges = evaluation.edges
        if of_edges is not None and (of_edges.every_versions or of_edges.every_s):
            outputs += self._evaluate_edges(now)
        if of_edges is not None and of_edges.every_s is not None:
            self.alarms.set(EvaluateAgain(of_edges=True), now + to_ns(of_edges.every_s))
        self.absences.start()
        outputs += self._all_joined(edges, now)
        return outputs + self._ask(ev.RunStarted(), now)

    def _all_joined(self, edges: dict[str, int], now: int) -> list[Output]:
        """Let these edges join, in the order of their ids.

        Most strategies decide nothing before the run has started. Such events are recorded
        together: there may be 100,000.
        """
        outputs: list[Output] = []
        quiet: list[ev.EdgeJoined] = []  # without a decision, not recorded yet
        try:
            for edge in sorted(edges):
                samples = self.claims.joined(edge, edges[edge])
                if samples < edges[edge]:
                    self._record_joined(quiet, now)
                    self._capped(edge, "samples", edges[edge], samples, now)
                if self.absences.connects(edge, samples):
                    self._record_joined(quiet, now)
                    self.record.fact(now, "edge_away", edge=edge)
                    continue
                self.present.add(edge)
                outputs += self._ask(ev.EdgeJoined(edge, samples), now, quiet)
        finally:
            self._record_joined(quiet, now)
        return outputs

    def lengthen(self) -> None:
        """Go on with the stop keys of ``experiment``, which may be longer than before.

        The caller has read this state from a checkpoint.
        """
        self.stop_ns = self.experiment.stop.at_ns
        self.scores.wait_if(self.experiment, self.strategy.hears_evaluations)
        if self.record.energy is not None:
            self.record.energy.aim(self.experiment.stop.target_joules)

    def receive(self, sender: str, message: ToCoordinator | ev.EdgeLost, now: int) -> list[Output]:
        """Handle an edge's message, or the host's news of it (Joined, EdgeLost, Started, Ready)."""
        if self.finished:
            return []
        match message:
            case Joined():
                return self._joined(sender, message, now)
            case ev.EdgeLost():
                self.absences.connected.pop(sender, None)
                return self._lost(sender, now)
            case PushArrived():
                return self._push_arrived(sender, message, now)
            case PushReplaced():
                row = {"edge": sender, "task": message.task, "of_version": message.version}
                self.record.fact(now, "push_replaced", **row)
                return []
            case _ if self.absences.away and self.absences.hold(sender, message):
                return []
            case Started():
                return self._started(sender, message.task, now)
            case Ready():
                return self._ready(sender, message, now)
            case Update():
                return self._update(sender, message, now)
            case FreshRequest():
                return self._fresh_requested(sender, message, now)
            case TaskFailed():
                return self._failed(sender, message, now)
        raise TypeError(f"no such message: {message!r}")

    def next_due(self) -> int:
        if self.finished:
            return FOREVER
        due, energy = self.alarms.agenda.next_due(), self.record.energy
        if self.evaluated >= 0:
            due = min(due, self.stop_ns)
        due = min(due, self.scores.next_due())
        return due if energy is None else min(due, energy.next_due())

    def wake(self, now: int) -> list[Output]:
        """Ring the alarms that are due; at ``stop_ns`` the run ends before that moment's alarms."""
        outputs: list[Output] = []
        for alarm in self.alarms.due(min(now, self.stop_ns - 1)):
            if not self.finished:
                outputs += self._ring(alarm, now)
        if now >= self.stop_ns:
            outputs += self.finish("emulated_s", now)
        for event in self.scores.due(now):
            outputs += self._evaluation_done(event, now)
        if not self.finished and self.record.energy is not None and self.record.energy.reached(now):
            outputs += self.finish("target_joules", now)
        return outputs

    def job_done(
        self, job: Evaluate | Job, result: Scores | Result | str, now: int
    ) -> list[Output]:
        """Handle the end of an evaluation or of a strategy's job.

        ``result``: scores of an evaluation; of a job, its result or why there is none.
        """
        if isinstance(job, Evaluate):
            scores = cast(Scores, result)
            if job.of_edges:
                self.record.recorder.edge_scores(job, self.experiment.edges.ids(), scores)
                return []
            self.record.recorder.metrics(job, *scores)
            self.scores.hold(job, scores, now)
            return []
        event = None if self.finished else self.jobs.end(job, cast(Result | str, result))
        return [] if event is None else self._ask(event, now)

    def finish(self, reason: str, now: int, **score: Any) -> list[Output]:
        """End the run in order. The host and the coordinator itself call this.

        ``score``: about the score that has ended it.
        """
        if self.finished:
            return []
        outputs = self._evaluate(now)
        if self.experiment.evaluation.edges is not None:
            outputs += self._evaluate_edges(now)
        self.finished, self.stopped = reason, score
        self.record.fact(now, "finished", reason=reason, **score)
        return [*outputs, do.Finish(reason)]

    # ------------------------------------------------------------------ events
    def _joined(self, edge: str, message: Joined, now: int) -> list[Output]:
        for number in self.tasks.knows(edge, message.tasks):
            self.record.fact(now, "unknown_task", edge=edge, task=number)
        outputs: list[Output] = [
            Send(
                edge,
                Acknowledged(number) if self.tasks.settled(edge, number) else CancelTask(number),
            )
            for number in message.tasks
            if self.tasks.of(edge, number) is None
        ]
        task = self.tasks.by_edge.get(edge)
        if edge in self.present:
            self._believed(edge, message.samples, now)
            return outputs + self._back(task, message, now)
        if task is not None and task.number not in message.tasks:
            outputs += self._close(task, "edge restarted or lost its task", now)
        samples = self._believed(edge, message.samples, now)
        if not self.absences.connects(edge, samples):
            outputs += self._takes_part(edge, samples, now)
        return outputs + self._urged_again(self.tasks.by_edge.get(edge))

    def _urged_again(self, task: OpenTask | None) -> list[Output]:
        """Urge an edge once more: its former session may have lost the note."""
        if task is None or not task.urged or task.phase not in IN_TRAINING:
            return []
        return [Send(task.edge, UrgeTask(task.number))]

    def _takes_part(self, edge: str, samples: int, now: int) -> list[Output]:
        """The edge takes part from now on. Its task, if it is still open, goes on."""
        self.present.add(edge)
        task = self.tasks.by_edge.get(edge)
        if task is not None:
            self.alarms.drop(GraceOver(task.number))
            self.deadlines.back(task, now)
        return self._ask(ev.EdgeJoined(edge, samples), now)

    def _leaves(self, edge: str, now: int) -> list[Output]:
        """The edge is away by ``edges.availability``; its connection stays."""
        self.absences.leaves(edge)
        outputs = self._lost(edge, now)
        if edge in self.absences.connected:
            self.record.fact(now, "edge_away", edge=edge)
        task, section = self.tasks.by_edge.get(edge), self.experiment.edges.availability
        if task is None or section is None or section.on_leave == "keep":
            return outputs
        return [*outputs, Send(edge, CancelTask(task.number)), *self._close(task, EDGE_LEFT, now)]

    def _returns(self, edge: str, now: int) -> list[Output]:
        """The edge is back. What it has sent while it was away counts now."""
        held = self.absences.returns(edge)
        if edge not in self.absences.connected:
            return []  # its process is gone, too: it joins when that is back
        outputs = self._takes_part(edge, self.absences.connected[edge], now)
        for message in held:
            outputs += self.receive(edge, message, now)
        return outputs

    def _back(self, task: OpenTask | None, message: Joined, now: int) -> list[Output]:
        """An edge that was never lost joins again: the run was resumed.

        This is no event for the strategy. The edge gets again what it does not have.
        """
        if task is None or task.message is None:
            return []
        task.move(TaskEvent.BACK)
        if task.number not in message.tasks:
            if task.move(TaskEvent.SENT_AGAIN):
                self.deadlines.assigned(task, size_of(task.message), None, now)
            else:  # its grant was given, or is still to come: the time counts from then
                self.deadlines.stop(task, now)
            again = Send(task.edge, task.message)
            # a channel with slots has no free one for it: it counts as delivered
            return [Broadcast((again,), ()) if self.strategy.schedules_slots else again]
        return self._urged_again(task)

    def _believed(self, edge: str, samples: int, now: int) -> int:
        believed = self.claims.joined(edge, samples)
        if believed < samples:
            self._capped(edge, "samples", samples, believed, now)
        return believed

    def _capped(self, edge: str, name: str, found: float, most: float, now: int) -> None:
        self.record.fact(now, "capped", edge=edge, number=name, found=found, most=most)

    def _lost(self, edge: str, now: int) -> list[Output]:
        if edge not in self.present:
            return []
        self.present.discard(edge)
        task = self.tasks.by_edge.get(edge)
        if task is not None:
            self.deadlines.lost(task, now)
            grace_ns = to_ns(self.experiment.network.grace_s)
            self.alarms.set(GraceOver(task.number), now + grace_ns)
        return self._ask(ev.EdgeLost(edge), now)

    def _started(self, edge: str, number: int, now: int) -> list[Output]:
        self.record.fact(now, "task_started", edge=edge, task=number)
        task = self.tasks.of(edge, number)
        if task is not None and task.move(TaskEvent.STARTED):
            self.deadlines.started(task, self.strategy.known.get(edge, 1), now)
        return []

    def _ready(self, edge: str, message: Ready, now: int) -> list[Output]:
        number = message.task
        task = self.tasks.of(edge, number)
        if task is None:
            return self._settled(edge, number, now)
        before, grant = task.phase, task.granted
        task.move(TaskEvent.OFFERED)
        if before is Phase.OFFERED_BEFORE:
            return []
        if before is Phase.GRANTED_BEFORE and grant is not None:
            if grant.slots is None:
                self.deadlines.granted(task, now)
            return [grant]
        task.size_bytes = message.size_bytes
        if self.strategy.schedules_uplink:
            self.deadlines.stop(task, now)
            return self._ask(ev.UpdateReady(edge, number), now)
        self.record.fact(now, "update_ready", edge=edge, task=number)
        return [self._grant(task, None, now)]  # nothing schedules the uplink: grant at once

    def _settled(self, edge: str, number: int, now: int) -> list[Output]:
        """Record and acknowledge an update of a task that is not open, so that the edge drops it.

        It is a duplicate, its task was closed before it arrived, or this run has never given such
        a task.
        """
        late = self.tasks.late(edge, number)
        if late is not None:
            self.record.fact(now, "discarded", edge=edge, task=number, reason=late)
        else:
            self.record.fact(now, "duplicate", edge=edge, task=number)
        return [Send(edge, Acknowledged(number))]

    def _update(self, edge: str, update: Update, now: int) -> list[Output]:
        task = self.tasks.of(edge, update.number)
        if task is None:
            return self._settled(edge, update.number, now)
        acknowledged = Send(edge, Acknowledged(update.number))
        task.rebase(update.version)
        self.failures.over(edge)
        fault, details = None, dict[str, Any]()
        if self.packing is not None:
            update, fault = self.packing.unpacked(
                update, task.base, lambda name: self.strategy.update_size(edge, name)
            )
        capped = self.claims.capped(edge, update.numbers)
        for name in capped:
            self._capped(edge, name, update.numbers[name], capped[name], now)
        update = replace(update, numbers={**update.numbers, **capped}) if capped else update
        norm_bound = self.experiment.updates.norm_bound
        if fault is None:
            fault, details = update_fault(task, update, self.strategy, norm_bound)
        if fault is None:
            fault = self.claims.names_fault(edge, update.numbers)
        if fault:
            self.record.fact(now, "discarded", edge=edge, task=task.number, reason=fault, **details)
            return [acknowledged, *self._close(task, fault, now, delivered=True)]
        self._forget(task, delivered=True)
        read_only(update.vectors.values())
        numbers = update.numbers
        taken = int(min(max(numbers.get("pushes", 0.0), 0.0), task.pushes))  # as the edge says
        if task.pushes > taken:
            numbers = {**numbers, "pushes_late": float(task.pushes - taken)}
        event = ev.UpdateArrived(
            edge, task.number, task.version, task.base, update.vectors, numbers
        )
        outputs = [acknowledged, *self._ask(event, now)]
        most = self.experiment.stop.updates
        if most is not None and self.record.counters.updates_accepted >= most:
            return outputs + self.finish("updates", now)
        return outputs

    def _failed(self, edge: str, message: TaskFailed, now: int) -> list[Output]:
        """Handle a training failure. The run ends if training fails on most edges."""
        acknowledged = Send(edge, Acknowledged(message.task))
        task = self.tasks.of(edge, message.task)
        if task is None or task.phase not in IN_TRAINING:
            return [acknowledged]  # closed, or an urged edge has already offered an update
        reason, trace = self.failures.add(edge, message.reason, message.trace)
        self.record.fact(
            now, "training_failed", edge=edge, task=task.number, reason=reason, **trace
        )
        cause = f"edge {edge}, {reason}"
        outputs = [acknowledged, *self._close(task, f"training failed: {cause}", now, True)]
        if self.failures.exceed_half(len(self.strategy.known)):
            outputs += self.finish(f"training fails on most edges: {cause}", now)
        return outputs

    def _fresh_requested(self, edge: str, message: FreshRequest, now: int) -> list[Output]:
        task = self.tasks.of(edge, message.task)
        if task is None:
            # The edge waits for an answer, but its task is closed.
            return [Send(edge, CancelTask(message.task))]
        if 0 < message.until_ns <= now:
            self.record.fact(now, "request_too_late", edge=edge, task=task.number)
            return []  # an answer would arrive after the edge's last merge
        task.rebase(message.version)
        if not message.until_ns and task.move(TaskEvent.ASKED):
            self.deadlines.stop(task, now)
        return self._ask(
            ev.FreshRequested(edge, task.number, task.version, message.step, message.until_ns), now
        )

    def _push_arrived(self, edge: str, message: PushArrived, now: int) -> list[Output]:
        """Count a push. If its edge begins the task anew, so does the time limit of training."""
        restarts = {"restarts": True} if self.on_push == "restart" else {}
        row = {"edge": edge, "task": message.task, "of_version": message.version, **restarts}
        self.record.fact(now, "push_arrived", **row)
        task = self.tasks.of(edge, message.task)
        if task is not None:
            task.pushes += 1
            if restarts and task.move(TaskEvent.STARTED):
                self.deadlines.started(task, self.strategy.known.get(edge, 1), now)
        return []

    def _ring(self, alarm: Alarm, now: int) -> list[Output]:
        match alarm:
            case EvaluateAgain(of_edges):
                section = self.experiment.evaluation
                every_s = cast(EdgeScores, section.edges).every_s if of_edges else section.every_s
                assert every_s is not None  # otherwise that alarm would not be set
                self.alarms.set(alarm, now + to_ns(every_s))
                return self._evaluate_edges(now) if of_edges else self._evaluate(now)
            case GraceOver(number):
                return self._grace_over(number, now)
            case EdgeLeaves(edge):
                return self._leaves(edge, now)
            case EdgeReturns(edge):
                return self._returns(edge, now)
            case DeadlineOver(number):
                return self._timed_out(self.tasks.open[number], now)
            case StrategyAlarm(name):
                return self._ask(ev.AlarmRang(name), now)

    # ------------------------------------------------------------------ tasks
    def _grace_over(self, number: int, now: int) -> list[Output]:
        """Close the task of a lost edge."""
        task = self.tasks.open.get(number)
        if task is None or task.edge in self.present:
            return []
        # an edge that is only away hears it; another one is told when it joins again
        away = task.edge in self.absences.away and task.edge in self.absences.connected
        cancel = [Send(task.edge, CancelTask(number))] if away else []
        return [*cancel, *self._close(task, "edge lost", now)]

    def _timed_out(self, task: OpenTask, now: int) -> list[Output]:
        """Close a task whose connected edge does not deliver. The edge can get another task."""
        reason, cancel = self.deadlines.reason(task), Send(task.edge, CancelTask(task.number))
        self.record.fact(now, "task_timed_out", edge=task.edge, task=task.number, phase=task.stage)
        return [cancel, *self._close(task, reason, now, late=TASK_TIMED_OUT)]

    def _close(
        self,
        task: OpenTask,
        reason: str,
        now: int,
        delivered: bool = False,
        late: str = TASK_CLOSED,
    ) -> list[Output]:
        self._forget(task, delivered, late)
        return self._ask(ev.TaskClosed(task.edge, task.number, reason), now)

    # ------------------------------------------------------------------ asking the strategy
    def _ask(
        self, event: ev.Event, now: int, quiet: list[ev.EdgeJoined] | None = None
    ) -> list[Output]:
        """Give the event to the strategy, record both, and carry the decisions out in order.

        ``quiet``: joined edges that are not recorded yet. If the strategy decides nothing, the
        event only joins them.
        """
        if self.finished:
            return []
        before = self.version
        row = self.record.begin(now, event) if quiet is None else None
        try:
            decisions = do.up_to_finish(self.strategy.handle(event, now))
            if quiet is not None and isinstance(event, ev.EdgeJoined) and not decisions:
                quiet.append(event)
                return []
            row = row or self._begin_after(quiet, event, now)
            outputs, numbers, factors = self._carry_out(decisions, event, now)
        except (UserError, KeyboardInterrupt):
            raise  # for example a full disk: not the algorithm's mistake
        except BaseException as error:  # also SystemExit
            raise self._bug(row or self._begin_after(quiet, event, now)) from error
        self.record.event(now, before, event, row, decisions, numbers, factors)
        if decisions and isinstance(decisions[-1], do.Finish):
            return outputs + self.finish(decisions[-1].reason, now)
        most = self.experiment.stop.versions
        if most and self.version >= most:
            return outputs + self.finish("versions", now)
        return outputs + self.finish(self.faded, now) if self.faded else outputs

    def _begin_after(
        self, quiet: list[ev.EdgeJoined] | None, event: ev.Event, now: int
    ) -> dict[str, Any]:
        self._record_joined(quiet or [], now)
        return self.record.begin(now, event)

    def _bug(self, row: dict[str, Any]) -> Bug:
        """A strategy's failure at an event; the story has the numbers."""
        kind = type(self.strategy)
        short = {key: value for key, value in row.items() if key != "numbers"}
        return Bug(f"{kind.__name__} failed at {short}", self.record.story(), kind)

    def _record_joined(self, quiet: list[ev.EdgeJoined], now: int) -> None:
        self.record.joined(now, self.version, quiet)
        quiet.clear()

    # ------------------------------------------------------------------ carrying its decisions out
    def _evaluate(self, now: int) -> list[Output]:
        """Score the current model, unless that was done."""
        if self.evaluated == self.version:
            return []
        self.evaluated = self.version
        self.record.recorder.snapshot(self.version)
        sent, energy = self.record.counters, self.record.energy
        used = sent.bytes_up, sent.bytes_down, None if energy is None else energy.joules(now)
        return [Run(Evaluate(self.version, now, self.weights, *used), self.scores.cost_ns)]

    def _evaluation_done(self, event: ev.Evaluated, now: int) -> list[Output]:
        """Tell the strategy the scores of a model, if it hears them; they may end the run."""
        if self.finished:
            return []
        outputs = self._ask(event, now) if self.strategy.hears_evaluations else []
        found = self.score_stop.take(self.experiment, event)
        return outputs if found is None else outputs + self.finish(found[0], now, **found[1])

    def _evaluate_edges(self, now: int) -> list[Output]:
        """Score the current model on each edge's samples, unless that was done."""
        if self.evaluated_edges == self.version:
            return []
        self.evaluated_edges = self.version
        return [Run(Evaluate(self.version, now, self.weights, 0, 0, of_edges=True), None)]

    def _forget(self, task: OpenTask, delivered: bool, late: str = TASK_CLOSED) -> None:
        self.tasks.remove(task, delivered, late)
        self.alarms.drop(GraceOver(task.number))
        self.deadlines.over(task)

    def _carry_out(
        self, decisions: list[do.Decision], event: ev.Event, now: int
    ) -> tuple[list[Output], list[list[int]], list[float]]:
        """Carry out decisions. Returns the outputs, the task numbers of each Assign or Push and,
        with ``training.decay``, the factor of the learning rate of each Assign.
        """
        outputs: list[Output] = []
        numbers: list[list[int]] = []
        factors: list[float] = []
        # edges that make no step have no learning rate: there the strategy's own step falls
        decay = self.experiment.training.decay if self.strategy.rule.moves else None
        for decision in decisions:
            match decision:
                case do.Assign():
                    if decay is not None:
                        factors.append(decay.at(self.version, now))
                        decision = self._decayed(decision, factors[-1])
                    tasks = [self._open(edge, decision, now) for edge in decision.edges]
                    numbers.append([task.number for task in tasks])
                    sends = [Send(edge, task) for edge, task in zip(decision.edges, tasks)]
                    _add_sends(outputs, sends, decision.broadcast)
                case do.Push():
                    sends = [self._push(edge, decision) for edge in decision.edges]
                    numbers.append([cast(Pushed, send.message).number for send in sends])
                    _add_sends(outputs, sends, decision.broadcast)
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
                case do.SetAlarm():
                    self.alarms.set(StrategyAlarm(decision.name), decision.at_ns)
                case do.Grant():
                    outputs.append(self._grant(self._held(decision), decision.slots, now))
                case do.SendFresh():
                    outputs.append(self._fresh(decision, now))
                case do.Urge():
                    task = self.tasks.at_work(decision.edge, "urge")
                    task.urged = True
                    outputs.append(Send(decision.edge, UrgeTask(task.number)))
                case do.Cancel():
                    self._forget(self._held(decision), delivered=False)
                    outputs.append(Send(decision.edge, CancelTask(decision.task)))
                case _:
                    raise TypeError(f"not a decision: {decision!r}")
        return outputs, numbers, factors

    def _decayed(self, assign: do.Assign, factor: float) -> do.Assign:
        """The Assign with its learning rate times ``factor``, which its edges get as its scale.

        The journal has the strategy's own Assign: a replay of the strategy decides that again.
        """
        section, scale = self.experiment.training, assign.numbers.get(RATE_SCALE, 1.0)
        rate = assign.numbers.get("learning_rate", section.learning_rate) * scale
        self.faded = self.faded or faded(rate, factor, self.version)
        return replace(assign, numbers={**assign.numbers, RATE_SCALE: scale * factor})

    def _held(self, decision: do.Grant | do.SendFresh | do.Cancel) -> OpenTask:
        """The open task that a decision names. ValueError if its edge has no such task."""
        task = self.tasks.of(decision.edge, decision.task)
        if task is None:
            raise ValueError(
                f"{decision!r}: edge {decision.edge!r} has no open task {decision.task}"
            )
        return task

    def _fresh(self, decision: do.SendFresh, now: int) -> Send:
        """Return the answer to a task's request, and continue its deadline.

        The limit covers the answer's download and a whole training, because the remaining training
        is at most that.
        """
        task = self._held(decision)
        if task.move(TaskEvent.ANSWERED):
            self.deadlines.started(
                task, self.strategy.known.get(task.edge, 1), now, self.weights.nbytes
            )
        if decision.weights is None:
            return Send(decision.edge, NothingNewer(decision.task))
        version = self.version if decision.version is None else decision.version
        fresh = Fresh(decision.task, version, {"weights": decision.weights})
        return Send(decision.edge, self._message(fresh))

    def _push(self, edge: str, push: do.Push) -> Send:
        """Return a push to this edge. ValueError if it has no task, or a rule without the hook."""
        if self.on_push is None:
            self.on_push = self._rule_on_push()
        task = self.tasks.at_work(edge, "push to")
        check_push(push, edge, task.base)
        version = self.version if push.version is None else push.version
        if self.on_push == "restart":
            model = push.vectors["weights"]
            base = model if self.packing is None else self.packing.received(model, version)
            read_only([base])
            task.pushed[version] = base
        message = self._message(Pushed(task.number, version, push.vectors, push.numbers))
        return Send(edge, message, push.replaces)

    def _rule_on_push(self) -> str:
        """What a push does to a run of the strategy's rule. ValueError if it can take none."""
        rule = self.strategy.rule(self.strategy.options)
        strategy, name = type(self.strategy).__name__, type(rule).__name__
        if rule.on_push not in ("go_on", "restart"):
            raise ValueError(f'{name}.on_push = {rule.on_push!r}: expected "go_on" or "restart"')
        if not takes_pushes(rule):
            own = "LocalRule" if type(rule) is LocalRule else name
            raise ValueError(
                f"{strategy} pushes, but its rule {own} has no `pushed`: write"
                " `def pushed(self, run, model, version, numbers): ...`, which changes run.weights,"
                ' or set on_push = "restart"'
            )
        return rule.on_push

    def _grant(self, task: OpenTask, slots: tuple[int, ...] | None, now: int) -> do.Grant:
        if task.phase not in WAITING:
            raise ValueError(
                f"cannot grant the uplink for task {task.number}: edge {task.edge!r} does not wait"
                " for it"
            )
        task.move(TaskEvent.GRANTED)
        if slots is None:  # a strategy that grants slots watches them itself
            self.deadlines.granted(task, now)
        task.granted = do.Grant(task.edge, task.number, slots)
        return task.granted

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
        before, self.weights = self.weights, weights
        self.version += 1
        self.record.counters.version_s = now / NS_PER_S
        section = self.experiment.evaluation
        every, of_edges = section.every_versions, section.edges
        due = bool(every) and self.version % every == 0
        if not is_finite(weights):  # divergence is not an error
            # at once: often no version follows, and the last score would hold until the end
            due = due or is_finite(before)
            if self.record.counters.diverged_at is None:
                self.record.fact(now, "diverged", version=self.version)
        outputs = self._evaluate(now) if due else []
        every = 0 if of_edges is None else of_edges.every_versions
        return outputs + (self._evaluate_edges(now) if every and self.version % every == 0 else [])


def _add_sends(outputs: list[Output], sends: list[Send], slots: tuple[int, ...] | None) -> None:
    """Add what an Assign or a Push sends. ``slots``: it is broadcast in these.

    If the broadcast before it has the same slots and the same model, more edges hear that one.
    ValueError for slots in which no edge gets anything.
    """
    if slots and not sends:
        raise ValueError(f"a broadcast in slots {slots} to no edge")
    last = outputs[-1] if outputs else None
    if slots is None:
        outputs += sends
    elif isinstance(last, Broadcast) and last.slots == slots and _same_model(last.sends, sends):
        outputs[-1] = Broadcast((*last.sends, *sends), slots)
    else:
        outputs.append(Broadcast(tuple(sends), slots))


def _same_model(sends: Sequence[Send], others: Sequence[Send]) -> bool:
    """Whether both bring the same arrays as the same version; the sends of each all do."""
    firsts = (cast(Assignment | Pushed, each[0].message) for each in (sends, others) if each)
    contents = [
        (first.version, {name: id(vector) for name, vector in first.vectors.items()})
        for first in firsts
    ]
    return len(contents) == 2 and contents[0] == contents[1]


# ---------------------------------------------------------------------- its parts
class Ledger:
    """Counts, keeps the latest events for reports of bugs, and passes all on to ``recorder``.

    ``energy`` None: the run has no model of its energy. ``packing`` None: nothing is packed.
    """

    def __init__(
        self, recorder: Record, energy: EnergyBook | None = None, packing: Packing | None = None
    ) -> None:
        self.recorder, self.energy, self.packing = recorder, energy, packing
        self.counters = Counters()
        self._story: deque[tuple[int, Row]] = deque(maxlen=STORY_LENGTH)

    def begin(self, now: int, event: Event) -> dict[str, Any]:
        """Begin an event, before the strategy gets it. Returns its row."""
        row = event_row(event)
        self._story.append((now, row))
        return row

    def event(
        self,
        now: int,
        version: int,
        event: Event,
        row: Row,
        decisions: list[Decision],
        numbers: list[list[int]],
        factors: list[float],
    ) -> None:
        """Record the strategy's decisions on an event.

        ``version``: before the event. ``row``: the event's ``event_row``. ``numbers``: the task
        numbers of each Assign or Push. ``factors``: of the learning rate of each Assign, by
        ``training.decay``; empty without it.
        """
        line = event_line(row, version, decisions, numbers, factors)
        self.counters.take(line)
        self.recorder.event(now, event, decisions, line)
        self._spend(now, line)

    def joined(self, now: int, version: int, events: Sequence[EdgeJoined]) -> None:
        """Record joined edges on which the strategy decided nothing."""
        if not events:
            return
        rows = joined_lines(events, version)
        self._story.extend((now, event_row(event)) for event in events[-STORY_LENGTH:])
        self.counters.joined(version, [event.edge for event in events])
        self.recorder.joined(now, events, rows)
        for row in rows:
            self._spend(now, row)

    def fact(self, now: int, fact: str, **values: Any) -> None:
        """Record something that is not an event for the strategy."""
        row = {"fact": fact, **values}
        self.counters.take(row)
        self.recorder.fact(now, row)
        self._spend(now, row)

    def link(self, completion: Completion, finished_ns: int) -> None:
        """Record the end of a transfer, and count its bytes."""
        transfer = completion.transfer
        self.counters.link(transfer.direction, transfer.size)
        if self.packing is not None:
            self.packing.carried(transfer.direction, transfer.size, transfer.kind)
        self.recorder.link(completion, finished_ns)
        for fields in () if self.energy is None else self.energy.link(completion, finished_ns):
            self.recorder.energy(fields)

    def _spend(self, now: int, row: Row) -> None:
        for fields in () if self.energy is None else self.energy.take(now, row):
            self.recorder.energy(fields)

    def story(self) -> list[str]:
        """The latest events, one line each."""
        return [f"{at} {row}" for at, row in self._story]


@dataclass(slots=True)
class Absences:
    """``times``: each edge's absences in order of time. Sets alarms for their beginnings and ends.

    ``connected``: edges with a connection, and their samples, if there are absences. An edge can be
    connected and away: its host has a connection all the time, the device that it stands for has
    none. ``held``: what came from an edge that is away; it counts when the edge is back.
    """

    times: Mapping[str, Iterator[Fault]]
    alarms: Alarms
    away: set[str] = field(default_factory=set)
    connected: dict[str, int] = field(default_factory=dict)
    held: dict[str, list[ToCoordinator]] = field(default_factory=dict)
    _next: dict[str, Fault] = field(default_factory=dict)

    def start(self) -> None:
        """Plan the first absence of each edge. An edge that is away at 0 does not join then."""
        for edge in self.times:
            self._plan(edge)
            if edge in self._next and self._next[edge].at_ns == 0:
                self.leaves(edge)

    def connects(self, edge: str, samples: int) -> bool:
        """The edge has a connection. Returns whether it is away all the same."""
        if self.times:
            self.connected[edge] = samples
        return edge in self.away

    def leaves(self, edge: str) -> None:
        """The edge is away from now on, until the end of the absence that was planned."""
        self.away.add(edge)
        self.alarms.drop(EdgeLeaves(edge))
        self.alarms.set(EdgeReturns(edge), self._next[edge].until_ns)

    def returns(self, edge: str) -> list[ToCoordinator]:
        """The edge is back. Returns the messages that it has sent meanwhile."""
        self.away.discard(edge)
        self._plan(edge)
        return self.held.pop(edge, [])

    def hold(self, edge: str, message: ToCoordinator) -> bool:
        """Whether the message has to wait, because its edge is away."""
        if edge not in self.away:
            return False
        # after a broken session the edge sends it again
        others = [held for held in self.held.get(edge, []) if type(held) is not type(message)]
        self.held[edge] = [*others, message]
        return True

    def _plan(self, edge: str) -> None:
        absence = next(self.times[edge], None)
        if absence is None:
            self._next.pop(edge, None)
        else:
            self._next[edge] = absence
            self.alarms.set(EdgeLeaves(edge), absence.at_ns)


@dataclass(slots=True)
class Failures:
    """Failures of training. ``failing``: the edges whose latest training has failed.

    Texts from edges are made printable.
    """

    failing: set[str] = field(default_factory=set)
    _traced: set[str] = field(default_factory=set)

    def add(self, edge: str, reason: str, trace: str) -> tuple[str, dict[str, str]]:
        """Count a failure. Returns the reason in one line.

        For a new reason it also returns {"trace": the traceback}.
        """
        self.failing.add(edge)
        reason = printable(" ".join(reason.split()), MOST_REASON)
        if reason in self._traced or len(self._traced) >= MOST_TRACES:
            return reason, {}
        self._traced.add(reason)
        return reason, {"trace": "\n".join(map(printable, trace.splitlines()))}

    def over(self, edge: str) -> None:
        """The edge has delivered an update."""
        self.failing.discard(edge)

    def exceed_half(self, edges: int) -> bool:
        """Whether more than half of ``edges`` edges fail."""
        return 2 * len(self.failing) > edges


class HeldScores:
    """Scores that are not due yet, if somebody waits for them: the strategy, or a stop key.

    ``cost_ns``: the emulated time of an evaluation; None: nobody waits for its scores.
    """

    def __init__(self, experiment: Experiment, heard: bool) -> None:
        self.names = tuple(measured(experiment.evaluation))
        self._held: Agenda[ev.Evaluated] = Agenda()
        self.wait_if(experiment, heard)

    def wait_if(self, experiment: Experiment, heard: bool) -> None:
        """Find out whether somebody waits. ``heard``: the strategy hears of evaluations."""
        waits = heard or experiment.stop.by_score
        self.cost_ns = to_ns(experiment.evaluation.cost_s) if waits else None

    def hold(self, job: Evaluate, scores: Scores, now: int) -> None:
        """Take the scores, which are known at ``now``."""
        if self.cost_ns is None:
            return
        named = {
            name: score if isfinite(score) else nan
            for name, score in zip(self.names, scores)
            if score is not None
        }
        event = ev.Evaluated(job.version, job.at_ns, named)
        self._held.add(max(job.at_ns + self.cost_ns, now), event)

    def next_due(self) -> int:
        return self._held.next_due()

    def due(self, now: int) -> Iterator[ev.Evaluated]:
        """Yield those that are due at ``now``."""
        for _, event in self._held.pop_due(now):
            yield event


@dataclass(slots=True)
class ScoreStop:
    """Whether ``stop.target`` or ``stop.no_progress_s`` ends the run.

    ``in_a_row``: the latest evaluations that have reached the target. ``best``: the best score so
    far, of the model of the moment ``since_ns``.
    """

    in_a_row: int = 0
    target: float | None = None  # that ``in_a_row`` counts for
    best: float | None = None
    since_ns: int = 0

    def take(self, experiment: Experiment, event: ev.Evaluated) -> tuple[str, Row] | None:
        """Take the scores of a model. Returns the key that ends the run, and facts about it."""
        stop, score = experiment.stop, experiment.stop_score
        value = event.scores.get(score.name, nan)
        if isfinite(value) and (self.best is None or score.betters(value, self.best)):
            self.best, self.since_ns = value, event.at_ns
        facts: dict[str, Any] = {"metric": score.name, "score": value, "of_version": event.version}
        target = experiment.stop_value
        if stop.target is not None and target is not None:
            before = self.in_a_row if target == self.target else 0  # a lengthened run has another
            self.in_a_row = before + 1 if score.reaches(value, target) else 0
            self.target = target
            if self.in_a_row >= stop.target.for_evaluations:
                return "target", facts | {"target": target, "in_a_row": self.in_a_row}
        if stop.no_progress_s is not None:
            stands_ns = event.at_ns - self.since_ns
            if stands_ns >= to_ns(stop.no_progress_s):
                since_s = self.since_ns / NS_PER_S
                return "no_progress_s", facts | {"best": self.best, "since_s": since_s}
        return None


class OpenJobs:
    """Open jobs, by identity. ``allowed``: the hosts have workers for jobs."""

    def __init__(self, allowed: bool) -> None:
        self.allowed = allowed
        self.names: dict[Job, str] = {}

    def open(self, decision: do.RunJob) -> Run:
        """Open a job, and return the order for the host.

        ValueError if there are no workers, or if another job of that name is open.
        """
        if not self.allowed:
            raise ValueError(
                f"cannot run job {decision.name!r}: only a strategy with runs_jobs = True has"
                " workers for jobs"
            )
        if decision.name in self.names.values():
            raise ValueError(f"cannot run job {decision.name!r}: a job of that name is under way")
        self.names[decision.job] = decision.name
        return Run(decision.job, decision.cost_ns)

    def end(self, job: Job, result: Result | str) -> ev.JobDone | ev.JobFailed | None:
        """Close a job, and return the strategy's event: its result, or why there is none.

        None if the job is already closed: a job may be done twice.
        """
        name = self.names.pop(job, None)
        if name is None:
            return None
        fault = result if isinstance(result, str) else result_fault(*result)
        if isinstance(result, str) or fault is not None:
            return ev.JobFailed(name, fault or "")
        read_only(result[0].values())
        return ev.JobDone(name, *result)


# ---------------------------------------------------------------------- checks of what edges report
MOST_NAMES, MOST_NAMES_OF_EDGE = 1000, 100  # of numbers, in a run; that an edge may be first with
TOO_LARGE = "norm above updates.norm_bound"


class Claims:
    """Limits for the numbers that edges report and that set their weight in a mean.

    ``shares``: samples by edge, where the coordinator knows the split. ``batch_size``: samples of
    a gradient of one batch.
    """

    def __init__(self, shares: Mapping[str, int], batch_size: int) -> None:
        self.shares, self.batch_size = shares, batch_size
        self.samples: dict[str, int] = {}  # accepted samples, by edge
        self.names: set[str] = set()  # of reported numbers
        self.first_with: Counter[str] = Counter()  # by edge: names that it was the first to report

    def joined(self, edge: str, samples: int) -> int:
        """Store how many of the joining edge's ``samples`` are accepted, and return that number."""
        self.samples[edge] = believed = min(samples, self.shares.get(edge, samples))
        return believed

    def names_fault(self, edge: str, numbers: Mapping[str, float]) -> str | None:
        """Why these numbers cannot be recorded, or None; note their names.

        Each name is a column of a table. A strategy has some dozen names, for all edges the same.
        """
        fresh = numbers.keys() - self.names
        if not fresh:
            return None
        if (
            self.first_with[edge] + len(fresh) > MOST_NAMES_OF_EDGE
            or len(self.names) + len(fresh) > MOST_NAMES
        ):
            return "too many names of numbers"
        self.first_with[edge] += len(fresh)
        self.names |= fresh
        return None

    def capped(self, edge: str, numbers: Mapping[str, float]) -> dict[str, float]:
        """Return those of ``numbers`` that are too large, with their largest accepted values.

        ``update_fault`` handles numbers that are not finite.
        """
        capped = {}
        if self.samples[edge] < numbers.get("samples", 0) < math.inf:
            capped["samples"] = float(self.samples[edge])
        if self.batch_size < numbers.get("batch", 0) < math.inf:
            capped["batch"] = float(self.batch_size)
        return capped


def update_fault(
    task: OpenTask, update: Update, strategy: Strategy, norm_bound: float | None = None
) -> tuple[str | None, dict[str, Any]]:
    """Why this update of ``task`` cannot be used, or None; and details for the record."""
    if update.version != task.version:
        return "wrong base version", {}
    sizes = {name: vector.size for name, vector in update.vectors.items()}
    expected = {
        name: strategy.update_size(task.edge, name) for name in {**sizes, strategy.delivers: 0}
    }
    if sizes != expected:
        return "wrong length", {"found": sizes, "expected": expected}
    if not _finite(update.vectors, update.numbers):
        return "not finite", {}
    if not update.numbers.get("samples", 0) >= 1:
        return "no samples", {}  # a mean fails if the weights are 0 or too small for a float
    needing = [type(each).__name__ for each in (strategy, strategy.selector) if each.needs_loss]
    if needing and "loss" not in update.numbers:
        return f"no loss, which {needing[0]} needs (a Flower app returns it as a metric)", {}
    return (None, {}) if norm_bound is None else _norm_fault(task, update, norm_bound)


def _norm_fault(
    task: OpenTask, update: Update, norm_bound: float
) -> tuple[str | None, dict[str, Any]]:
    """Check the norm of each vector of an update.

    For a model this is the distance to the model that the edge was given; for other vectors it is
    their own norm.
    """
    for name, vector in update.vectors.items():
        origin = task.base if name == "weights" and task.base.size == vector.size else None
        norm = distance(vector, origin)
        if norm > norm_bound:
            return TOO_LARGE, {"vector": name, "norm": norm, "norm_bound": norm_bound}
    return None, {}


def result_fault(vectors: Mapping[str, np.ndarray], numbers: Mapping[str, float]) -> str | None:
    """Why this result of a job cannot be used, or None.

    TypeError unless its arrays are flat float32: this is a bug of the job's author.
    """
    wrong = [
        name
        for name, array in vectors.items()
        if not isinstance(array, np.ndarray) or array.dtype != np.float32 or array.ndim != 1
    ]
    if wrong:
        raise TypeError(
            f"a job's result {wrong[0]!r} is {_described(vectors[wrong[0]])}, expected a flat"
            " float32 vector"
        )
    return None if _finite(vectors, numbers) else "not finite"


def check_published(weights: Any, model: np.ndarray) -> None:
    """Raise TypeError or ValueError unless ``weights`` has the shape and type of the model."""
    expected = f"expected float32 {model.shape}"
    if not isinstance(weights, np.ndarray):
        raise TypeError(f"published {_described(weights)}, {expected}, a numpy array")
    if weights.shape != model.shape or weights.dtype != np.float32:
        raise ValueError(f"published {_described(weights)}, {expected}")


def model_of(sent: Assign | Push) -> np.ndarray:
    """The model that the edges get. ValueError if the decision has none."""
    if "weights" not in sent.vectors:
        names = ", ".join(map(repr, sent.vectors)) or "nothing"
        sort = "an Assign" if isinstance(sent, Assign) else "a Push"
        raise ValueError(f"{sort} brings {names}, expected 'weights'")
    return sent.vectors["weights"]


def check_push(push: Push, edge: str, base: np.ndarray) -> None:
    """Raise ValueError or TypeError unless this edge, whose task began at ``base``, can take it."""
    model = model_of(push)
    if not isinstance(model, np.ndarray) or model.shape != base.shape or model.dtype != np.float32:
        raise ValueError(
            f"cannot push to {edge!r}: {_described(model)}, expected float32 {base.shape}, as its"
            " task has it"
        )
    for name, number in push.numbers.items():
        if not math.isfinite(number):
            raise ValueError(f"cannot push to {edge!r}: its number {name!r} is {number}")


def sendable(message: ModelMessage, model: np.ndarray) -> ModelMessage:
    """Return the message if edges accept it; they would answer a bad one with a new session.

    ValueError if it exceeds the limits of messages. TypeError for a value that is not an array or
    not a number.
    """
    for name, vector in message.vectors.items():
        if not isinstance(vector, np.ndarray):
            raise TypeError(
                f"a message to an edge holds {name!r}: {_described(vector)}, expected a float32"
                f" numpy array, such as one of {model.size} elements"
            )
    for name, number in message.numbers.items():
        if not isinstance(number, SupportsFloat):
            raise TypeError(f"a message to an edge holds {name!r}: {number!r}, expected a number")
    beyond = beyond_limits(message, most_body(model.nbytes))
    if beyond is not None:
        raise ValueError(f"a message to an edge holds {beyond}")
    return message


def _finite(vectors: Mapping[str, np.ndarray], numbers: Mapping[str, float]) -> bool:
    return all(is_finite(vector) for vector in vectors.values()) and all(
        map(math.isfinite, numbers.values())
    )


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape}"
    return "None" if value is None else f"a {type(value).__name__}"
