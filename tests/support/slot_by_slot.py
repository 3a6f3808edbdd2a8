"""An independent simulation of rounds on a TDMA channel, slot by slot, from the paper's text.

The paper is Song, Hong: "Asynchronous Federated Learning Using Outdated Local Updates Over TDMA
Channel", algorithms 1 and 2. Devices may die and return. No code is shared with the strategies.

Time is in hundredths of a slot. Events within a slot happen one after another. At a slot border,
finished transfers are handled first, then slots are assigned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

SLOT = 100
NEVER = 10**12


@dataclass(frozen=True)
class Fault:
    """``device`` is dead from ``at`` to ``back``; with ``cut``, only its uplink is."""

    device: int
    at: int
    back: int = NEVER
    cut: bool = False


@dataclass(frozen=True)
class Shape:
    """The parameters of a simulation of the first ``slots`` slots.

    N devices compute for ``takes`` slots each and finish ``early`` before the last of these ends.
    ``per_round`` (S) devices send in a round, and a model takes ``transfer`` (r) slots. ``start``
    says which devices have w_0 at slot 0: all ("tdma"), all except the last ``delay`` groups
    ("idfl"), or the first group ("sync").

    The server knows of a death after ``missed_after`` slots and gives up ``grace`` slots later.
    """

    takes: tuple[int, ...]
    per_round: int
    transfer: int
    slots: int
    start: str = "tdma"
    delay: int = 0
    order: str = "finished"
    wait_for_group: bool = False
    on_lost: str = "skip"
    faults: tuple[Fault, ...] = ()
    missed_after: int = NEVER
    grace: int = NEVER
    early: int = SLOT // 2

    @property
    def devices(self) -> int:
        return len(self.takes)


@dataclass
class Round:
    """One round.

    ``updates``: (device, version of its model, slot); ``ages``: least and largest staleness in
    rounds; ``receivers`` of the new model; ``lost`` uploads; ``wasted`` slots; ``end``: the slot
    after the broadcast.
    """

    updates: list[tuple[int, int, int]] = field(default_factory=list)
    ages: tuple[int, ...] = ()
    receivers: list[int] = field(default_factory=list)
    lost: int = 0
    wasted: int = 0
    end: int = 0


@dataclass
class Device:
    """The state of a device, and the server's view of it.

    ``known``: the server considers it present; ``model``: the version that its task began with.
    """

    takes: int
    dead: bool = False
    cut: bool = False
    life: int = 0
    known: bool = True
    model: int | None = None
    finishes: int = NEVER
    ready: int | None = None  # the slot from which it is ready
    sends: tuple[int, int, int, bool] | None = None  # first slot, end, model, undamaged so far


class SlotBySlot:
    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.all = [Device(takes) for takes in shape.takes]
        self.free = self.version = 0
        self.group: list[int] = []
        self.round, self.done = Round(), list[Round]()
        self.waiting: list[list[int]] = []  # groups, in the order of their models
        self.strays: list[int] = []
        self.coming: list[tuple[int, int, int]] = []  # slot, device, life of models in transit

    # ------------------------------------------------------------------ time
    def play(self) -> list[Round]:
        self.begin()
        events = sorted(self.events(), key=lambda event: event[0])
        for slot in range(self.shape.slots + 1):
            self.border(slot)
            while events and events[0][0] < (slot + 1) * SLOT:
                self.happen(*events.pop(0))
        return [each for each in self.done if each.end <= self.shape.slots]

    def begin(self) -> None:
        shape = self.shape
        groups = [
            list(range(first, min(first + shape.per_round, shape.devices)))
            for first in range(0, shape.devices, shape.per_round)
        ]
        late = {"tdma": 0, "idfl": shape.delay, "sync": len(groups) - 1}[shape.start]
        self.waiting = groups[max(len(groups) - late, 1) :]
        self.give(
            [device for group in groups[: len(groups) - len(self.waiting)] for device in group]
        )

    def events(self) -> Iterator[tuple[int, str, int]]:
        """Yield what happens to devices and how the server reacts: (time, event, device)."""
        for fault in self.shape.faults:
            if fault.cut:
                yield fault.at, "cut", fault.device
                yield fault.back, "whole", fault.device
                continue
            missed = fault.at + self.shape.missed_after * SLOT
            closed = missed + self.shape.grace * SLOT
            yield fault.at, "dies", fault.device
            if missed < fault.back:
                yield missed, "missed", fault.device
            if closed < fault.back:
                yield closed, "closed", fault.device
            if fault.back < NEVER:
                yield fault.back, "back", fault.device

    def happen(self, now: int, what: str, device: int) -> None:
        each = self.all[device]
        if what in ("dies", "cut") and each.sends is not None:
            each.sends = (*each.sends[:3], False)
        if what in ("cut", "whole"):
            each.cut = what == "cut"
        if what == "dies":
            self.compute(now)
            each.dead, each.life, each.finishes = True, each.life + 1, NEVER
        if what == "back":
            each.dead, each.life = False, each.life + 1
        if what in ("missed", "back") and each.known:
            each.known = False
            self.strays = [stray for stray in self.strays if stray != device]
            self.decide(now)
        if what in ("closed", "back") and each.model is not None:
            self.round.lost += each.sends is not None
            each.model = each.ready = each.sends = None
            self.decide(now)
        if what == "back":
            each.known = True
            if not any(device in group for group in [self.group, *self.waiting]):
                self.strays.append(device)
            self.decide(now)

    def border(self, slot: int) -> None:
        now = slot * SLOT
        for number, each in enumerate(self.all):
            if each.sends is not None and each.sends[1] == slot:
                first, _, model, undamaged = each.sends
                each.sends = each.model = None
                if undamaged:
                    self.round.updates.append((number, model, first))
                else:
                    self.round.lost += 1
        self.decide(now)
        for due, number, life in self.coming:
            each = self.all[number]
            if due == slot and life == each.life and not each.dead:
                each.finishes = now + max(each.takes * SLOT - self.shape.early, 0)
        self.compute(now)
        self.decide(now, give=True)

    def compute(self, now: int) -> None:
        """Mark devices that finished by ``now`` as ready from the next slot border."""
        for each in self.all:
            if each.finishes <= now:
                each.ready, each.finishes = -(-each.finishes // SLOT), NEVER

    # ------------------------------------------------------------------ the server
    def at_work(self, known: bool) -> list[int]:
        """Return the devices that have a model and have not had a slot for its update."""
        return [
            number
            for number, each in enumerate(self.all)
            if each.model is not None and each.sends is None and (each.known or not known)
        ]

    def decide(self, now: int, give: bool = False) -> None:
        """End the round if no device can still send in it, or else assign the slot that begins."""
        shape, sending = self.shape, any(each.sends is not None for each in self.all)
        self.compute(now)
        taken = len(self.group) - (self.round.lost if shape.on_lost == "wait" else 0)
        to_come = self.at_work(known=shape.on_lost == "skip")
        wanted = min(shape.per_round, taken + len(to_come))
        if taken >= wanted:
            if not sending:
                self.end_round(now)
            return
        ready = [device for device in self.at_work(True) if self.all[device].ready is not None]
        enough = wanted if shape.wait_for_group and not self.group else 1
        if give and len(ready) >= enough and self.free * SLOT <= now:
            self.grant(min(ready, key=self.place), now // SLOT)

    def place(self, device: int) -> tuple[int, int]:
        each = self.all[device]
        first = each.ready if self.shape.order == "finished" else each.model
        assert first is not None
        return first, device

    def grant(self, device: int, slot: int) -> None:
        each, end = self.all[device], slot + self.shape.transfer
        assert each.model is not None
        each.ready, each.sends = None, (slot, end, each.model, not (each.dead or each.cut))
        self.round.wasted += slot - self.free
        self.free = end
        self.group.append(device)

    def end_round(self, now: int) -> None:
        closing, round_ = bool(self.group), self.round
        if closing:
            self.waiting.append(self.group)
        self.version += bool(round_.updates)
        self.group = []
        receivers = self.receivers()
        if not closing and not receivers:
            return
        first = max(-(-now // SLOT), self.free)
        round_.wasted += first - self.free
        self.free = first + self.shape.transfer
        round_.wasted += 0 if receivers else self.shape.transfer
        self.give(receivers)
        if closing:
            ages = [self.version - 1 - model for _, model, _ in round_.updates]
            round_.ages = (min(ages), max(ages)) if ages else ()
            round_.receivers, round_.end = receivers, self.free
            self.done.append(round_)
            self.round = Round()

    def receivers(self) -> list[int]:
        """Return the present devices of the next group, and the returned devices.

        If no device would be at work, further groups follow.
        """
        found: list[int] = []
        while self.waiting:
            found += [device for device in self.waiting.pop(0) if self.all[device].known]
            if found or self.at_work(known=True):
                break
        found, self.strays = found + self.strays, []
        return found

    def give(self, receivers: list[int]) -> None:
        for number in receivers:
            each = self.all[number]
            each.model, each.ready = self.version, None
            self.coming.append((self.free, number, each.life))
