"""The slotted frame: edges share one TDMA channel, and the server says who sends in which slots
(Song, Hong: "Asynchronous Federated Learning Using Outdated Local Updates Over TDMA Channel",
algorithms 1 and 2, with corrected indices).

    slots   | none ready   | up r | up r | ... S of them | broadcast r |  next round ...

Round k: each upload slot goes to the device that finished first; w_{k+1} = w_k + (1/S) sum of the
changes of S_k; w_{k+1} goes to those who are next to get a model: S_k itself, or with intentional
delay S_{k-alpha}, who sent alpha rounds ago and have waited since.
"""

from __future__ import annotations

from collections import deque
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from edgefl.strategies.base.decisions import (
    Assign,
    Cancel,
    Decision,
    Discard,
    Grant,
    Publish,
    Report,
    SetAlarm,
)
from edgefl.strategies.base.events import (
    EdgeJoined,
    EdgeLost,
    Event,
    TaskClosed,
    UpdateArrived,
    UpdateReady,
)
from edgefl.strategies.base.strategy import MOST_FAILED, Strategy, StrategyOptions
from edgefl.strategies.base.timetable import Timetable
from edgefl.vectors import with_changes
from emulator.units import FOREVER

ALARM = "slot"


class SlottedOptions(StrategyOptions):
    per_round: int | None = Field(None, ge=1)
    """S: edges that send in a round; none: all."""
    order: Literal["finished", "oldest"] = "finished"
    """The next to send finished first, ties by number; `"oldest"`: it has the oldest model."""
    wait_for_group: bool = False
    """True: a round begins when S edges are ready; else each slot goes to an edge that is ready."""
    on_lost: Literal["skip", "wait"] = "skip"
    """A slot whose update does not come, or an edge that is away: the round goes on without it;
    `"wait"`: another slot is given, and the round waits until the edge's grace ends.
    """
    local_steps: Annotated[int, Field(ge=1)] | Literal["epochs"] = 1
    """H, gradients of a turn, one after the other; 1: the paper's equations as they stand;
    `"epochs"`: as many as `training.epochs` make.
    """
    server_learning_rate: float = Field(1.0, gt=0)
    """Of the mean change: eta / eta_local."""


class Slotted(Strategy):
    """A subclass says by ``first_groups`` and ``next_groups`` who gets which model."""

    Options = SlottedOptions
    schedules_uplink = schedules_slots = True
    timetable: Timetable

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.size = 0  # S
        self.numbers: dict[str, int] = {}  # of the edges: ties go to the lowest
        self.free = 0  # the first slot that is not given yet
        self.computing: dict[str, int] = {}  # edge -> slot from which on it computes
        # who is ready: (slot or version, number, edge, task)
        self.queue: list[tuple[int, int, str, int]] = []
        self.away: set[str] = set()  # lost with an open task: they keep their places
        # edge -> (task, when its update must have come)
        self.sending: dict[str, tuple[int, int]] = {}
        self.group: list[str] = []  # who has had slots in this round
        self.updates: list[UpdateArrived] = []
        # of this round: uploads, slots, and devices not ready when their turn came
        self.lost = self.wasted = self.missed = 0
        # of this round: uploads that came, but in pieces that do not fit, so that they are offered
        # again
        self.damaged = 0
        self.failed = 0  # rounds in a row without any update
        self.owed: deque[list[str]] = deque()  # groups that wait for a model
        self.strays: list[str] = []  # edges that came back: the next model is theirs, too
        self.turn: dict[str, int] = {}  # edge -> the slot that it is expected to send in
        self.alarm_ns: int | None = None
        self.begun = False

    # ------------------------------------------------------------------ what a subclass says
    @classmethod
    def refuses(cls, options: Any, edges: int, medium: str, frames: bool) -> tuple[str, str] | None:
        if medium != "tdma" or frames:
            return (
                "strategy",
                (
                    f"{cls.__name__} gives out the slots of a channel itself: expected medium.kind"
                    ' = "tdma", without frame_slots'
                ),
            )
        if options.per_round is not None and options.per_round > edges:
            return (
                "per_round",
                f"expected at most the number of edges ({edges}), found {options.per_round}",
            )
        return None

    def use(self, timetable: Timetable) -> None:
        """The channel that the run is on. UserError if it does not say enough."""
        self.timetable = timetable

    def first_groups(self, edges: list[str]) -> tuple[list[str], list[list[str]]]:
        """Who starts from w_0 at slot 0, and the groups that wait for a later model."""
        return edges, []

    def next_groups(self) -> list[list[str]]:
        """The groups to get the newest model now, taken out of ``owed``."""
        return [self.owed.popleft()] if self.owed else []

    @property
    def steps(self) -> int | None:
        """Of a task; None: as many as the config's epochs make."""
        steps = self.options.local_steps
        return None if steps == "epochs" else steps

    @property
    def comm_slots(self) -> int:
        """Of a round: S uploads and the broadcast (eq. 6)."""
        return self.timetable.transfer_slots * (self.size + 1)

    def groups(self, edges: list[str]) -> list[list[str]]:
        """S after S; the last group may be smaller."""
        return [edges[first : first + self.size] for first in range(0, len(edges), self.size)]

    # ------------------------------------------------------------------ events
    def handle(self, event: Event, now: int) -> list[Decision]:
        if isinstance(event, EdgeJoined | TaskClosed):
            self.away.discard(event.edge)
        decisions = super().handle(event, now)
        return self._missing(event.edge, now) if isinstance(event, EdgeLost) else decisions

    def _missing(self, edge: str, now: int) -> list[Decision]:
        """Until it is back, or its task is closed, its slots are for others."""
        if edge in self.strays:
            self.strays.remove(edge)
        if edge in self.running:
            self.away.add(edge)
        return self._go_on(now)

    def started(self, now: int) -> list[Decision]:
        self.begun = True
        edges = sorted(self.samples)
        self.numbers = {edge: number for number, edge in enumerate(edges)}
        self.size = min(self.options.per_round or len(edges), len(edges))
        first, later = self.first_groups(edges)
        self.owed.extend(later)
        return [self._give(first, ())]

    def joined(self, event: EdgeJoined, now: int) -> list[Decision]:
        self.numbers.setdefault(event.edge, len(self.numbers))
        self._stray(event.edge)
        return self._go_on(now) if self.begun else []

    def ready(self, event: UpdateReady, now: int) -> list[Decision]:
        slot = self.timetable.next_at(now)
        if event.edge in self.computing:
            self.finished(event.edge, slot - self.computing.pop(event.edge))
            self.missed += slot > self.turn.pop(event.edge)
        else:
            self._again(event.edge)
        first = slot if self.options.order == "finished" else self.running[event.edge]
        self.queue.append((first, self.numbers[event.edge], event.edge, event.task))
        return self._go_on(now)

    def _again(self, edge: str) -> None:
        """It offers an update that came damaged: its slots are lost, it has to wait for others,
        and the round gives one more.
        """
        if self.sending.pop(edge, None) is not None:
            self.group.remove(edge)
            self.damaged += 1
        self._leave(edge)

    def finished(self, edge: str, slots: int) -> None:
        """The edge has computed for so many slots."""

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        if self.sending.pop(update.edge, None) is None:
            self._stray(update.edge)
            return [Discard(update.task, "without a slot"), *self._go_on(now)]
        self.updates.append(update)
        return self._go_on(now)

    def closed(self, event: TaskClosed, now: int) -> list[Decision]:
        self._lose(event.edge)
        self._stray(event.edge)
        return self._go_on(now)

    def rang(self, name: str, now: int) -> list[Decision]:
        self.alarm_ns = None
        late = [(edge, task) for edge, (task, until_ns) in self.sending.items() if until_ns <= now]
        for edge, _ in late:
            del self.running[edge]
            self.away.discard(edge)
            self._lose(edge)
        return [*(Cancel(edge, task) for edge, task in late), *self._go_on(now, at_border=True)]

    # ------------------------------------------------------------------ slots
    def _go_on(self, now: int, at_border: bool = False) -> list[Decision]:
        """Give the next slot, or end the round, if that can be done now; slots are given when
        they begin, to the edge that is ready and there then.
        """
        if not self.begun:
            return []
        ready, at_work = len(self._ready()), len(self.queue) + len(self.computing)
        to_come = at_work if self.options.on_lost == "wait" else ready + len(self._computing())
        wanted = min(self.size, self._taken + to_come)
        if self._taken >= wanted:
            return (
                self._watch(min(until_ns for _, until_ns in self.sending.values()))
                if self.sending
                else self._end_round(now)
            )
        enough = wanted if self.options.wait_for_group and not self.group else 1
        if ready < enough:
            return (
                self._watch(min(until_ns for _, until_ns in self.sending.values()))
                if self.sending
                else []
            )
        begins_ns = self.timetable.begins(max(self.timetable.next_at(now), self.free))
        return self._grant(now) if begins_ns == now and at_border else self._watch(begins_ns)

    def _ready(self) -> list[tuple[int, int, str, int]]:
        """The part of the queue that is there."""
        if not self.away:
            return self.queue
        return [entry for entry in self.queue if entry[2] not in self.away]

    def _computing(self) -> dict[str, int]:
        """Those of ``computing`` that are there."""
        if not self.away:
            return self.computing
        return {edge: begun for edge, begun in self.computing.items() if edge not in self.away}

    @property
    def _taken(self) -> int:
        """Uploads of this round; with ``on_lost`` "wait" those that were lost do not count."""
        return len(self.group) - (self.lost if self.options.on_lost == "wait" else 0)

    def _grant(self, now: int) -> list[Decision]:
        slot, (_, _, edge, task) = self.timetable.next_at(now), min(self._ready())
        self._leave(edge)
        self.wasted += slot - self.free
        self.free = slot + self.timetable.transfer_slots
        self.group.append(edge)
        self.sending[edge] = task, self.timetable.settled_ns(self.free)
        return [
            Grant(edge, task, tuple(range(slot, self.free))),
            *self._watch(self.timetable.begins(self.free)),
        ]

    def _watch(self, at_ns: int) -> list[Decision]:
        """Look again then, or at an earlier moment that is set already."""
        if self.alarm_ns is not None and self.alarm_ns <= at_ns:
            return []
        self.alarm_ns = at_ns
        return [SetAlarm(ALARM, at_ns)]

    def _lose(self, edge: str) -> None:
        """The edge's task ends without an update."""
        self.computing.pop(edge, None)
        self.turn.pop(edge, None)
        self._leave(edge)
        self.lost += self.sending.pop(edge, None) is not None

    def _leave(self, edge: str) -> None:
        self.queue = [entry for entry in self.queue if entry[2] != edge]

    def _stray(self, edge: str) -> None:
        """Queue a rejoined edge for the next broadcast, unless its group will get one anyway."""
        known = (
            edge in self.running or edge in self.group or any(edge in group for group in self.owed)
        )
        if self.begun and edge in self.samples and edge not in self.strays and not known:
            self.strays.append(edge)

    # ------------------------------------------------------------------ rounds
    def _end_round(self, now: int) -> list[Decision]:
        """A new model, if anything has come, and its broadcast; with no edge at work the next to
        wait get what there is.
        """
        decisions: list[Decision] = []
        if self.group:
            self.owed.append(self.group)
        self.failed = 0 if self.updates else self.failed + bool(self.group)
        if self.failed >= MOST_FAILED:
            return self.hopeless("no round delivers")
        if self.updates:
            self.weights, self.version = self.aggregate(self.updates), self.version + 1
            decisions.append(Publish(self.weights))
        first = max(self.timetable.next_at(now), self.free)
        receivers = self._receivers()
        if self.group or receivers:
            self.wasted += first - self.free  # the last upload came after its border
            # the broadcast has its slots even if no edge waits for it: turns are counted on them
            self.free = first + self.timetable.transfer_slots
            decisions += (
                [self._give(receivers, tuple(range(first, self.free)))] if receivers else []
            )
            self.wasted += 0 if receivers else self.timetable.transfer_slots
        if self.group:
            decisions.append(self._report())
            self.lost = self.wasted = self.missed = self.damaged = 0
        self.group, self.updates = [], []
        self.alarm_ns = None  # whatever was set is moved
        return decisions + (self._watch(self.timetable.begins(self.free)) if decisions else [])

    def _receivers(self) -> list[str]:
        """The edges of the next groups that are there, and those that came back; more groups,
        until an edge is at work.
        """
        receivers: list[str] = []
        groups = self.next_groups()
        while groups:
            receivers += [edge for group in groups for edge in group if edge in self.samples]
            groups = (
                []
                if receivers or self._ready() or self._computing() or not self.owed
                else [self.owed.popleft()]
            )
        receivers += self.strays
        self.strays = []
        return receivers

    def aggregate(self, updates: list[UpdateArrived]) -> np.ndarray:
        """w + mean of w_end - w_start: with S of them w_{k+1} = w_k - (eta/S) sum
        u_n, u_n = (w_khat - w_end) / eta (algorithm 1).
        """
        share = self.options.server_learning_rate / len(updates)
        ends, starts = [update.weights for update in updates], [update.base for update in updates]
        return with_changes(
            self.weights, ends, starts, [share] * len(updates), self.layout.parameters
        )

    def _give(self, edges: list[str], slots: tuple[int, ...]) -> Assign:
        """The current version to these, in one broadcast; their expected turns follow those of
        all who have a model already.
        """
        steps = self.steps
        before = len(self._ready()) + len(self._computing())
        for place, edge in enumerate(edges, before):
            self.computing[edge] = self.free
            # before the first models no edge has a turn to miss
            self.turn[edge] = self.turn_slot(place) if slots else FOREVER
        self.mark_running(edges)
        numbers = {} if steps is None else {"epochs": float(steps), "most_steps": float(steps)}
        return Assign(tuple(edges), {"weights": self.weights}, numbers, broadcast=slots)

    def turn_slot(self, place: int) -> int:
        """The slot in which the device at ``place`` of the queue sends, if nothing is idle from
        the next round on.
        """
        rounds, within = divmod(place, self.size)
        return self.free + rounds * self.comm_slots + within * self.timetable.transfer_slots

    def _report(self) -> Report:
        ages = [self.version - 1 - update.base_version for update in self.updates]
        stale = (
            {"staleness_least": float(min(ages)), "staleness_most": float(max(ages))}
            if ages
            else {}
        )
        lost, waits = self.lost + self.damaged, len(self.owed)
        counts = {
            "uploads": len(self.updates),
            "lost": lost,
            "wasted_slots": self.wasted,
            "missed": self.missed,
            "waiting_groups": waits,
        }
        return Report(
            {
                "end_slot": float(self.free),
                **stale,
                **{name: float(value) for name, value in counts.items()},
            }
        )
