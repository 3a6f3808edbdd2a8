"""Base of slotted strategies: the server assigns the slots of one TDMA channel to the edges.

Source: Song, Hong, "Asynchronous Federated Learning Using Outdated Local Updates Over TDMA
Channel", algorithms 1 and 2, with corrected indices.

    slots   | none ready   | up r | up r | ... S of them | broadcast r |  next round ...

Round k: each upload slot goes to the device that finished first. w_{k+1} = w_k + (1/S) sum of the
changes of S_k; after a lost upload with ``on_lost = "skip"``, S is the number of those that were
received. w_{k+1} goes to the next group: S_k itself, or with intentional delay S_{k-alpha},
which sent alpha rounds ago and has waited since.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from edgefl.strategies.base.events_and_decisions import (
    Assign,
    Cancel,
    Decision,
    Discard,
    EdgeJoined,
    EdgeLost,
    Event,
    Grant,
    Publish,
    Report,
    SetAlarm,
    TaskClosed,
    UpdateArrived,
    UpdateReady,
)
from edgefl.strategies.base.strategy import MOST_FAILED, Strategy, StrategyOptions
from edgefl.vectors import with_changes
from emulator.units import FOREVER


@dataclass(frozen=True, slots=True)
class Timetable:
    """The slots of the channel, and how many of them transfers and tasks take.

    Slot i begins at i ``slot_ns``; the transfer of a model takes ``transfer_slots`` (r).
    ``late_ns``: how long after the usable end of its slots, beyond the guard, a transfer may still
    arrive. ``compute_slots(edge, samples, steps)``: slots that the edge's task takes (tau_comp),
    None if it is not known in advance; ``steps`` None: the steps of the config's epochs. ``known``:
    ``compute_slots`` knows all edges. ``auto_delay(devices, per_round, compute_slots)``: the
    longest delay, in rounds, for which every round has S updates and no round ends later.
    """

    slot_ns: int
    transfer_slots: int
    late_ns: int
    known: bool
    compute_slots: Callable[[str, int, int | None], int | None]
    auto_delay: Callable[[int, int, int], int]

    def begins(self, slot: int) -> int:
        return slot * self.slot_ns

    def next_at(self, now: int) -> int:
        """Return the first slot that begins at ``now`` or later."""
        return -(-now // self.slot_ns)

    def settled_ns(self, slot: int) -> int:
        """Return the slot border (ns) by which everything sent before ``slot`` has arrived."""
        return self.begins(
            slot if self.late_ns <= 0 else self.next_at(self.begins(slot) + self.late_ns)
        )


ALARM = "slot"


class SlottedOptions(StrategyOptions):
    per_round: int | None = Field(None, ge=1)
    """Number of edges that send in a round (S); none: all edges."""
    order: Literal["finished", "oldest"] = "finished"
    """Which ready edge sends next: the one that `"finished"` first, or the one with the `"oldest"`
    model. Ties go to the edge with the lowest number.
    """
    wait_for_group: bool = False
    """True: a round begins when S edges are ready; false: a slot is used once an edge is ready."""
    on_lost: Literal["skip", "wait"] = "skip"
    """What a round does about a lost update or an edge that is away: `"skip"`: it continues
    without them; `"wait"`: it gives another slot for a lost update, and waits for an edge that is
    away until its grace time ends.
    """
    # more are refused by training (MOST_EPOCHS)
    local_steps: Annotated[int, Field(ge=1, le=100_000)] | Literal["epochs"] = 1
    """Local SGD steps of a task (H). 1: the paper's equations; `"epochs"`: `training.epochs`."""
    server_learning_rate: float = Field(1.0, gt=0)
    """Factor of the mean change in the server step: the paper's eta / local learning rate."""


class Slotted(Strategy):
    """A subclass chooses in ``first_groups`` and ``next_groups`` which edges get which model."""

    Options = SlottedOptions
    schedules_uplink = schedules_slots = True
    set_anew = (*Strategy.set_anew, "timetable")
    timetable: Timetable

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.numbers: dict[str, int] = {}  # edge -> its number; ties go to the lowest
        self.free = 0  # the first slot that is not assigned yet
        self.computing: dict[str, int] = {}  # edge -> slot in which it starts to compute
        # ready edges: (slot or version, number, edge, task)
        self.queue: list[tuple[int, int, str, int]] = []
        self.away: set[str] = set()  # lost with an open task: they keep their places
        # edge -> (task, deadline of its update in ns)
        self.sending: dict[str, tuple[int, int]] = {}
        self.group: list[str] = []  # edges that have had slots in this round
        self.updates: list[UpdateArrived] = []
        # in this round: lost uploads, wasted slots, devices that were not ready for their turn
        self.lost = self.wasted = self.missed = 0
        # in this round: uploads that arrived damaged, so the edge offers them again
        self.damaged = 0
        self.failed = 0  # rounds in a row without any update
        self.owed: deque[list[str]] = deque()  # groups that wait for a model
        self.strays: list[str] = []  # rejoined edges: they get the next model, too
        self.turn: dict[str, int] = {}  # edge -> the slot in which it should send
        self.alarm_ns: int | None = None
        self.begun = False

    # ------------------------------------------------------------------ for subclasses
    @classmethod
    def refuses(cls, options: Any, edges: int, medium: str, frames: bool) -> tuple[str, str] | None:
        if medium != "tdma" or frames:
            return (
                "strategy",
                (
                    f"{cls.__name__} assigns the slots of a channel itself: expected medium.kind ="
                    ' "tdma", without frame_slots'
                ),
            )
        if options.per_round is not None and options.per_round > edges:
            return (
                "per_round",
                f"expected at most the number of edges ({edges}), found {options.per_round}",
            )
        return None

    def use(self, timetable: Timetable) -> None:
        """Set the channel of this run. UserError if it lacks something that the strategy needs."""
        self.timetable = timetable

    def first_groups(self, edges: list[str]) -> tuple[list[str], list[list[str]]]:
        """Return the edges that start from w_0 at slot 0, and the groups that wait for a model."""
        return edges, []

    def next_groups(self) -> list[list[str]]:
        """Remove from ``owed`` the groups that get the newest model now, and return them."""
        return [self.owed.popleft()] if self.owed else []

    def broadcast(self, receivers: list[str], slots: tuple[int, ...]) -> list[Decision]:
        """Send the round's model to ``receivers``, maybe none, in these slots of the channel."""
        return [self._give(receivers, slots)] if receivers else []

    @property
    def steps(self) -> int | None:
        """Local steps of a task; None: the steps of the config's epochs."""
        steps = self.options.local_steps
        return None if steps == "epochs" else steps

    @property
    def size(self) -> int:
        """S. Some edges may come later; until then, rounds end with fewer updates."""
        per_round: int | None = self.options.per_round
        return max(1, len(self.known)) if per_round is None else per_round

    @property
    def comm_slots(self) -> int:
        """Transfer slots of a round: S uploads and the broadcast (eq. 6)."""
        return self.timetable.transfer_slots * (self.size + 1)

    def groups(self, edges: list[str]) -> list[list[str]]:
        """Divide the edges into groups of S; the last group may be smaller."""
        return [edges[first : first + self.size] for first in range(0, len(edges), self.size)]

    # ------------------------------------------------------------------ events
    def handle(self, event: Event, now: int) -> list[Decision]:
        if isinstance(event, EdgeJoined | TaskClosed):
            self.away.discard(event.edge)
        decisions = super().handle(event, now)
        return self._missing(event.edge, now) if isinstance(event, EdgeLost) else decisions

    def _missing(self, edge: str, now: int) -> list[Decision]:
        """Continue without a lost edge, until it is back or its task is closed."""
        if edge in self.strays:
            self.strays.remove(edge)
        if edge in self.running:
            self.away.add(edge)
        return self._go_on(now)

    def started(self, now: int) -> list[Decision]:
        self.begun = True
        edges = sorted(self.samples)
        self.numbers = {edge: number for number, edge in enumerate(edges)}
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
        """Handle an edge that offers its damaged update again: its old slots are lost."""
        if self.sending.pop(edge, None) is not None:
            self.group.remove(edge)
            self.damaged += 1
        self._leave(edge)

    def finished(self, edge: str, slots: int) -> None:
        """Handle an edge that has computed for ``slots``."""

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        if self.sending.pop(update.edge, None) is None:
            self._lose(update.edge)
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
        """Assign the next slot or end the round, if it is time; else set an alarm.

        A slot is assigned at the moment when it begins, to an edge that is connected and ready.
        """
        if not self.begun:
            return []
        ready, at_work = len(self._ready()), len(self.queue) + len(self.computing)
        to_come = at_work if self.options.on_lost == "wait" else ready + len(self._computing())
        wanted = min(self.size, self._taken + to_come)
        if self._taken >= wanted:
            if self.sending:
                return self._watch(min(until_ns for _, until_ns in self.sending.values()))
            return self._end_round(now)
        enough = wanted if self.options.wait_for_group and not self.group else 1
        if ready < enough:
            if self.sending:
                return self._watch(min(until_ns for _, until_ns in self.sending.values()))
            return []
        begins_ns = self.timetable.begins(max(self.timetable.next_at(now), self.free))
        return self._grant(now) if begins_ns == now and at_border else self._watch(begins_ns)

    def _ready(self) -> list[tuple[int, int, str, int]]:
        """Return the entries of ``queue`` whose edges are connected."""
        if not self.away:
            return self.queue
        return [entry for entry in self.queue if entry[2] not in self.away]

    def _computing(self) -> dict[str, int]:
        """Return the entries of ``computing`` whose edges are connected."""
        if not self.away:
            return self.computing
        return {edge: begun for edge, begun in self.computing.items() if edge not in self.away}

    @property
    def _taken(self) -> int:
        """Number of uploads in this round; with ``on_lost`` "wait", lost ones do not count."""
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
        """Set the alarm for ``at_ns``, unless it is already set for an earlier time."""
        if self.alarm_ns is not None and self.alarm_ns <= at_ns:
            return []
        self.alarm_ns = at_ns
        return [SetAlarm(ALARM, at_ns)]

    def _lose(self, edge: str) -> None:
        """Remove an edge whose task has ended without an update."""
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
        """Make a new model from the round's updates, if any, and broadcast it; if no edge is at
        work, the next groups get the current model.
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
            self.wasted += first - self.free  # the last upload arrived after its slots
            # the broadcast has its slots even if no edge waits for it: ``turn_slot`` includes them
            self.free = first + self.timetable.transfer_slots
            sent = self.broadcast(receivers, tuple(range(first, self.free)))
            decisions += sent
            self.wasted += 0 if sent else self.timetable.transfer_slots
        if self.group:
            decisions.append(self._report())
            self.lost = self.wasted = self.missed = self.damaged = 0
        self.group, self.updates = [], []
        self.alarm_ns = None  # an alarm that is set will move
        return decisions + (self._watch(self.timetable.begins(self.free)) if decisions else [])

    def _receivers(self) -> list[str]:
        """Return the rejoined edges and the connected edges of the next groups; if no edge is at
        work, of more groups, until one edge is found.
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
        """Return w + server_learning_rate * mean of (w_end - w_start).

        With S updates and a rate of 1 this is algorithm 1: w_{k+1} = w_k - (eta/S) sum u_n, with
        u_n = (w_khat - w_end) / eta.
        """
        share = self.options.server_learning_rate / len(updates)
        ends, starts = [update.weights for update in updates], [update.base for update in updates]
        return with_changes(
            self.weights, ends, starts, [share] * len(updates), self.layout.parameters
        )

    def _give(self, edges: list[str], slots: tuple[int, ...]) -> Assign:
        """Assign the current version to these edges in one broadcast.

        Their expected turns follow those of the edges that already have a model.
        """
        steps = self.steps
        before = len(self._ready()) + len(self._computing())
        for place, edge in enumerate(edges, before):
            self.computing[edge] = self.free
            # the first models have no slots, so no edge can miss its turn
            self.turn[edge] = self.turn_slot(place) if slots else FOREVER
        self.mark_running(edges)
        numbers = {} if steps is None else {"epochs": float(steps), "most_steps": float(steps)}
        return Assign(tuple(edges), {"weights": self.weights}, numbers, broadcast=slots)

    def turn_slot(self, place: int) -> int:
        """Return the slot in which the device at ``place`` of the queue sends, if no slot is idle
        from the next round on.
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
