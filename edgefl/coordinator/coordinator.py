"""The coordinator as an actor: it gives every event to the strategy.

``Asking`` asks it, and ``RunState`` carries out its decisions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from edgefl.actor import Broadcast, Output, Send
from edgefl.coordinator.absences import LEAVES, RETURNS
from edgefl.coordinator.asking import Asking
from edgefl.coordinator.checks import update_fault
from edgefl.coordinator.tasks import TASK_CLOSED, TASK_TIMED_OUT, OpenTask
from edgefl.jobs import Evaluate, Job, Result, Scores
from edgefl.protocol.codec import size_of
from edgefl.protocol.messages import (
    Acknowledged,
    CancelTask,
    FreshRequest,
    Joined,
    Ready,
    Started,
    TaskFailed,
    ToCoordinator,
    Update,
    UrgeTask,
)
from edgefl.strategies.base import events as ev
from edgefl.strategies.base.decisions import Grant
from edgefl.vectors import read_only
from emulator.units import FOREVER, to_ns

EDGE_LEFT = "edge left"  # why the task of an edge is closed that leaves and loses it


class Coordinator(Asking):
    """Gets events (``start``, ``receive``, ``wake``, ``job_done``) and returns outputs.

    ``now`` is emulated ns. Its own alarms are "stop", "evaluate", "close NUMBER" and "deadline
    NUMBER"; names of the strategy's alarms have the prefix "strategy ".
    """

    # ------------------------------------------------------------------ what the host calls
    def start(self, edges: dict[str, int], now: int) -> list[Output]:
        """Begin the run with these edges (id -> samples)."""
        if self.finished:
            return []  # interrupted before the start
        evaluation = self.experiment.evaluation
        if self.stop_ns < FOREVER:
            self.alarms.set("stop", self.stop_ns)
        if evaluation.every_s is not None:
            self.alarms.set("evaluate", now + to_ns(evaluation.every_s))
        outputs = self._evaluate(now)
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
                outputs += self._join_quietly(ev.EdgeJoined(edge, samples), quiet, now)
        finally:
            self._record_joined(quiet, now)
        return outputs

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
        return due if energy is None else min(due, energy.next_due())

    def wake(self, now: int) -> list[Output]:
        """Ring the alarms that are due."""
        outputs: list[Output] = []
        for name in self.alarms.due(now):
            if not self.finished:
                outputs += self._ring(name, now)
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
            self.record.recorder.metrics(job, *cast(Scores, result))
            return []
        event = None if self.finished else self.jobs.end(job, cast(Result | str, result))
        return [] if event is None else self._ask(event, now)

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
        away = self.absences.connects(edge, samples)
        return outputs if away else outputs + self._there(edge, samples, now)

    def _there(self, edge: str, samples: int, now: int) -> list[Output]:
        """The edge takes part from now on. Its task, if it is still open, goes on."""
        task = self.tasks.by_edge.get(edge)
        if task is not None:
            task.lost = False
            self.alarms.drop(f"close {task.number}")
            self.deadlines.back(task, now)
        self.present.add(edge)
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
        """The edge is there again. What it has said while it was away counts now."""
        held = self.absences.returns(edge)
        if edge not in self.absences.connected:
            return []  # its process is gone, too: it joins when that is back
        outputs = self._there(edge, self.absences.connected[edge], now)
        for message in held:
            outputs += self.receive(edge, message, now)
        return outputs

    def _back(self, task: OpenTask | None, message: Joined, now: int) -> list[Output]:
        """An edge that was never lost joins again: the run was resumed.

        This is no event for the strategy. The edge gets again what it does not have.
        """
        if task is None or task.message is None:
            return []
        task.resumed = True
        if task.number not in message.tasks:
            if task.ready:  # its grant was given, or is still to come: the time counts from then
                self.deadlines.stop(task, now)
            else:
                self.deadlines.assigned(task, size_of(task.message), None, now)
            again = Send(task.edge, task.message)
            # a channel with slots has no free one for it: it counts as delivered
            return [Broadcast((again,), ()) if self.strategy.schedules_slots else again]
        urge = task.urged and not task.ready
        return [Send(task.edge, UrgeTask(task.number))] if urge else []

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
            task.lost = True
            self.deadlines.lost(task, now)
            self.alarms.set(f"close {task.number}", now + to_ns(self.experiment.network.grace_s))
        return self._ask(ev.EdgeLost(edge), now)

    def _started(self, edge: str, number: int, now: int) -> list[Output]:
        self.record.fact(now, "task_started", edge=edge, task=number)
        task = self.tasks.of(edge, number)
        if task is not None:
            self.deadlines.started(task, self.strategy.known.get(edge, 1), now)
        return []

    def _ready(self, edge: str, message: Ready, now: int) -> list[Output]:
        number = message.task
        task = self.tasks.of(edge, number)
        if task is None:
            return self._settled(edge, number, now)
        if task.ready and task.resumed:  # offered again: a grant that was given holds
            task.resumed = False
            if task.granted is None:
                return []
            if task.granted.slots is None:
                self.deadlines.granted(task, now)
            return [task.granted]
        task.ready, task.resumed, task.size_bytes = True, False, message.size_bytes
        if self.strategy.schedules_uplink:
            self.deadlines.stop(task, now)
            task.waits = True
            return self._ask(ev.UpdateReady(edge, number), now)
        self.record.fact(now, "update_ready", edge=edge, task=number)
        self.deadlines.granted(task, now)
        task.granted = Grant(edge, number)  # nothing schedules the uplink: grant at once
        return [task.granted]

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
        self.failures.over(edge)
        packed, fault = self.packing, None
        more: dict[str, Any] = {}
        if packed is not None:
            update, fault = packed.unpacked(
                update, task.base, lambda name: self.strategy.update_size(edge, name)
            )
        capped = self.claims.capped(edge, update.numbers)
        for name in capped:
            self._capped(edge, name, update.numbers[name], capped[name], now)
        update = replace(update, numbers={**update.numbers, **capped}) if capped else update
        norm_bound = self.experiment.updates.norm_bound
        if fault is None:
            fault, more = update_fault(task, update, self.strategy, norm_bound)
        if fault is None:
            fault = self.claims.names_fault(edge, update.numbers)
        if fault:
            self.record.fact(now, "discarded", edge=edge, task=task.number, reason=fault, **more)
            return [acknowledged, *self._close(task, fault, now, delivered=True)]
        self._forget(task, delivered=True)
        read_only(update.vectors.values())
        event = ev.UpdateArrived(
            edge, task.number, task.version, task.base, update.vectors, update.numbers
        )
        outputs = [acknowledged, *self._ask(event, now)]
        most = self.experiment.stop.updates
        return (
            outputs + self.finish("updates", now)
            if most is not None and self.record.counters.updates_accepted >= most
            else outputs
        )

    def _failed(self, edge: str, message: TaskFailed, now: int) -> list[Output]:
        """Handle a training failure. The run ends if training fails on most edges."""
        acknowledged = Send(edge, Acknowledged(message.task))
        task = self.tasks.of(edge, message.task)
        if task is None or task.ready:  # closed, or an urged edge has already offered an update
            return [acknowledged]
        reason, trace = self.failures.add(edge, message.reason, message.trace)
        self.record.fact(
            now, "training_failed", edge=edge, task=task.number, reason=reason, **trace
        )
        told = f"edge {edge}, {reason}"
        outputs = [acknowledged, *self._close(task, f"training failed: {told}", now, True)]
        if self.failures.of_most(len(self.strategy.known)):
            outputs += self.finish(f"training fails on most edges: {told}", now)
        return outputs

    def _fresh_requested(self, edge: str, message: FreshRequest, now: int) -> list[Output]:
        task = self.tasks.of(edge, message.task)
        if task is None:
            # The edge waits for an answer, but its task is closed.
            return [Send(edge, CancelTask(message.task))]
        if 0 < message.until_ns <= now:
            self.record.fact(now, "request_too_late", edge=edge, task=task.number)
            return []  # an answer would arrive after the edge's last merge
        if not message.until_ns:
            task.asked = True
            self.deadlines.stop(task, now)
        return self._ask(
            ev.FreshRequested(edge, task.number, task.version, message.step, message.until_ns), now
        )

    def _ring(self, name: str, now: int) -> list[Output]:
        if name == "stop":
            return self.finish("emulated_s", now)
        if name == "evaluate":
            every_s = self.experiment.evaluation.every_s
            assert every_s is not None  # otherwise that alarm would not be set
            self.alarms.set("evaluate", now + to_ns(every_s))
            return self._evaluate(now) if self.evaluated != self.version else []
        if name.startswith("close "):
            return self._grace_over(int(name.removeprefix("close ")), now)
        if name.startswith(LEAVES):
            return self._leaves(name.removeprefix(LEAVES), now)
        if name.startswith(RETURNS):
            return self._returns(name.removeprefix(RETURNS), now)
        if name.startswith("deadline "):
            return self._timed_out(self.tasks.open[int(name.removeprefix("deadline "))], now)
        return self._ask(ev.AlarmRang(name.removeprefix("strategy ")), now)

    # ------------------------------------------------------------------ tasks
    def _grace_over(self, number: int, now: int) -> list[Output]:
        """Close the task of a lost edge."""
        task = self.tasks.open.get(number)
        if task is None or not task.lost:
            return []
        # an edge that is only away hears it; another one is told when it joins again
        away = task.edge in self.absences.away and task.edge in self.absences.connected
        cancel = [Send(task.edge, CancelTask(number))] if away else []
        return [*cancel, *self._close(task, "edge lost", now)]

    def _timed_out(self, task: OpenTask, now: int) -> list[Output]:
        """Close a task whose connected edge does not deliver. The edge can get another task."""
        reason, cancel = self.deadlines.reason(task), Send(task.edge, CancelTask(task.number))
        self.record.fact(now, "task_timed_out", edge=task.edge, task=task.number, phase=task.phase)
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
