"""TDMA rounds: S devices upload one after another, then the server broadcasts.

The other devices compute during this time.

    slots   | compute tau_comp | upload r | upload r | ... S of them | broadcast r |  next round ...

The closed forms are those of asynchronous federated learning over a TDMA channel (Song, Hong:
"Asynchronous Federated Learning Using Outdated Local Updates Over TDMA Channel"), with corrections.
Rounds, staleness and slots count from 0, and ``end_slot`` is the slot after the last slot of a
round. The closed forms hold for equal devices and an S that divides N, with every delay. All other
cases use ``simulate``, which simulates every transmission. It is the reference for the closed
forms, and figures are drawn from it.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, takewhile
from typing import Literal

from emulator.errors import BadValue, check_whole

Order = Literal["finished", "oldest"]


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload of ``device`` from ``slot`` on.

    The device computed in slots [began, finished) from model ``base``.
    """

    device: int
    base: int
    began_slot: int
    finished_slot: int
    slot: int


@dataclass(frozen=True, slots=True)
class Round:
    """A round: uploads one after another, then a broadcast of model ``number`` + 1.

    The broadcast goes to ``receivers`` in slots [broadcast, end).
    """

    number: int
    uploads: tuple[Upload, ...]
    receivers: tuple[int, ...]
    broadcast_slot: int
    end_slot: int

    @property
    def staleness(self) -> tuple[int, ...]:
        """The staleness of each upload: rounds since its base."""
        return tuple(self.number - upload.base for upload in self.uploads)


@dataclass(frozen=True, slots=True, order=True)
class _Work:
    """The local training of a device, ordered by its finish and then by device index."""

    finished_slot: int
    device: int
    base: int
    began_slot: int


class _Queue:
    """The devices that compute or are ready to send; it chooses the next sender."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._computing: list[_Work] = []
        self._ready: list[tuple[int, int, _Work]] = []

    def start(self, work: _Work) -> None:
        heapq.heappush(self._computing, work)

    def ready_from(self, slot: int, count: int) -> int | None:
        """The first slot from ``slot`` on at which ``count`` devices are ready.

        None if the queue has fewer devices.
        """
        missing = count - len(self._ready)
        if missing <= 0:
            return slot
        if missing > len(self._computing):
            return None
        return max(slot, heapq.nsmallest(missing, self._computing)[-1].finished_slot)

    def take(self, slot: int) -> _Work:
        """Remove and return the next to send at ``slot``; at least one must be ready."""
        while self._computing and self._computing[0].finished_slot <= slot:
            work = heapq.heappop(self._computing)
            heapq.heappush(
                self._ready,
                (work.base if self._order == "oldest" else work.finished_slot, work.device, work),
            )
        return heapq.heappop(self._ready)[2]


def simulate(
    shape: Tdma,
    wait_for_group: bool = False,
    order: Order = "finished",
    compute_slots: Sequence[int] | None = None,
) -> Iterator[Round]:
    """Simulate rounds without end.

    ``compute_slots``: one number per device, if they differ. Each upload is of the device that
    finished first (ties: lowest index) or, with ``order`` "oldest", of the ready device with the
    oldest base. If none is ready, the channel is idle. ``wait_for_group``: a round begins when S
    devices are ready. Devices do not compute or wait while they transmit or receive. With an
    intentional delay, model k + 1 goes to the devices of round k - delay; before round 0 these are
    the groups that have not begun yet.
    """
    takes = (
        list(compute_slots) if compute_slots is not None else [shape.compute_slots] * shape.devices
    )
    if len(takes) != shape.devices:
        raise BadValue(
            f"{len(takes)} computing times: expected one for each of {shape.devices} devices"
        )
    return _rounds(shape, wait_for_group, _Queue(order), takes)


def _rounds(
    shape: Tdma, wait_for_group: bool, queue: _Queue, takes: Sequence[int]
) -> Iterator[Round]:
    size, length = shape.per_round, shape.slots_per_transfer
    first = (shape.groups - shape.delay) * size
    late = [
        tuple(range(begin, min(begin + size, shape.devices)))
        for begin in range(first, shape.devices, size)
    ]
    owed = deque(late)  # devices that receive a model next, in order of their rounds
    slot, number, starting = 0, 0, tuple(range(min(first, shape.devices)))
    while True:
        for device in starting:
            queue.start(_Work(slot + takes[device], device, number, slot))
        uploads: list[Upload] = []
        while len(uploads) < size:
            begin = queue.ready_from(slot, size if wait_for_group and not uploads else 1)
            if begin is None:
                raise BadValue(
                    f"delay {shape.delay}: in round {number} fewer than S = {size} devices are left"
                    " to send; expected a shorter delay"
                )
            work = queue.take(begin)
            uploads.append(
                Upload(work.device, work.base, work.began_slot, work.finished_slot, begin)
            )
            slot = begin + length
        owed.append(tuple(upload.device for upload in uploads))
        starting = owed.popleft()
        yield Round(number, tuple(uploads), starting, slot, slot + length)
        slot, number = slot + length, number + 1


MAX_UPLOADS = 2_000_000  # in one simulation
MAX_LOOKS = 20_000_000  # rounds times devices in the search for a period
MAX_DEVICES = 100_000
MAX_SLOTS = 10**12


@dataclass(frozen=True)
class Tdma:
    """The parameters of a TDMA channel with rounds, and its closed forms.

    ``devices`` (N), ``per_round`` (S), ``slots_per_transfer`` (r), ``compute_slots`` (tau_comp),
    and the intentional ``delay`` in rounds (alpha).
    """

    devices: int
    per_round: int
    slots_per_transfer: int
    compute_slots: int
    delay: int = 0

    def __post_init__(self) -> None:
        check_whole("N", self.devices, 1, MAX_DEVICES)
        check_whole("S", self.per_round, 1, self.devices)
        check_whole("r", self.slots_per_transfer, 1, MAX_SLOTS)
        check_whole("tau-comp", self.compute_slots, 0, MAX_SLOTS)
        if not 0 <= self.delay < self.groups:
            raise BadValue(
                f"delay {self.delay}: expected 0 to {self.groups - 1} rounds, less than the"
                f" {self.groups} groups"
            )

    @property
    def groups(self) -> int:
        """The number of groups G = ceil(N / S)."""
        return -(-self.devices // self.per_round)

    @property
    def comm_slots(self) -> int:
        """Communication slots of a round: S uploads and the broadcast (eq. 6)."""
        return self.slots_per_transfer * (self.per_round + 1)

    @property
    def even(self) -> bool:
        """Whether S divides N."""
        return self.devices % self.per_round == 0

    @property
    def turns(self) -> int:
        """Rounds from a device's model to its next upload: G - delay."""
        return self.groups - self.delay

    @property
    def hidden(self) -> bool:
        """Whether a group computes no longer than the others communicate.

        If so, and if S divides N, the channel is never idle.
        """
        return self.compute_slots <= (self.turns - 1) * self.comm_slots

    @property
    def d_star(self) -> int | None:
        """The unavoidable staleness (eq. 33).

        None if computing takes at least as long as the turns of all other groups, so that no delay
        is possible (eq. 32).
        """
        return (
            -(-self.compute_slots // self.comm_slots)
            if self.compute_slots < (self.groups - 1) * self.comm_slots
            else None
        )

    @cached_property
    def auto_delay(self) -> int:
        """The longest intentional delay that loses no slot (eq. 32).

        Losing no slot means that every round still has S updates and ends no later than without
        delay. If S does not divide N, rounds with a longer delay may have fewer updates. Such
        rounds end earlier, but updates are sent later, because broadcasts take more slots.
        """
        if self.d_star is None:
            return 0
        longest = self.groups - self.d_star - 1
        return (
            longest
            if self.even
            else next((delay for delay in range(longest, 0, -1) if self._costs_nothing(delay)), 0)
        )

    def end_slot(self, number: int) -> int:
        """The slot after the broadcast of round ``number``.

        ValueError if S does not divide N: there is no closed form.
        """
        if not self.even:
            raise ValueError("no closed form: S does not divide N")
        if self.hidden:
            return self.compute_slots + (number + 1) * self.comm_slots
        turn, place = divmod(number, self.turns)
        return (turn + 1) * self.compute_slots + (turn + place + 1) * self.comm_slots

    def mean_slots_per_round(self) -> float:
        """Mean slots per round in the long run (eq. 10, with G - delay instead of G).

        The initial computing does not count.
        """
        if self.even:
            return (
                float(self.comm_slots)
                if self.hidden
                else (self.compute_slots + self.comm_slots) / self.turns
            )
        return self._settled.slots / self._settled.rounds

    def models_by(self, slot: int) -> int:
        """The number of global models that exist by ``slot``, including w_0.

        This is the number of rounds whose start slot is <= ``slot``; it reproduces table I.
        """
        check_whole("T", slot, 0, MAX_SLOTS)
        if self.even:
            return 1 + bisect_right(range(slot // self.comm_slots + 1), slot, key=self.end_slot)
        self._bound(slot // self.comm_slots * self.per_round)
        return 1 + sum(1 for _ in takewhile(lambda done: done.end_slot <= slot, simulate(self)))

    def staleness(self, number: int) -> tuple[int, ...]:
        """The distinct staleness values of the updates of round ``number``, ascending.

        If S divides N, there is only one: min(number, G - 1 - delay) (eq. 15).
        """
        if self.even:
            return (min(number, self.turns - 1),)
        self._bound((number + 1) * self.per_round)
        return tuple(sorted(set(next(islice(simulate(self), number, None)).staleness)))

    def settled_staleness(self) -> tuple[int, ...]:
        """The distinct staleness values in the long run, ascending."""
        return (self.turns - 1,) if self.even else self._settled.staleness

    @cached_property
    def _settled(self) -> _Loop:
        """The period of the simulation, found by Brent's cycle detection.

        It saves a state at every power of two and stops when the saved state occurs again.
        """
        # upload slots of devices that wait for a model; start slots of devices that have one
        sent, begun = ({}, dict.fromkeys(range(self.devices), 0))
        saved: tuple[list[int], ...] = ()
        since, length, limit = 0, 0, 1
        staleness: set[int] = set()
        for done in islice(simulate(self), MAX_LOOKS // self.devices):
            for upload in done.uploads:
                begun.pop(upload.device)
                sent[upload.device] = upload.slot
            for device in done.receivers:
                sent.pop(device, None)
                begun[device] = done.end_slot
            # The identity of devices only breaks ties, and tied devices have the same model.
            state = (
                sorted(done.end_slot - slot for slot in sent.values()),
                sorted(done.end_slot - slot for slot in begun.values()),
            )
            length += 1
            staleness.update(done.staleness)
            if state == saved:
                return _Loop(length, done.end_slot - since, tuple(sorted(staleness)))
            if length == limit:
                saved, since, length, limit = state, done.end_slot, 0, 2 * limit
                staleness.clear()
        raise self._endless()

    def _costs_nothing(self, delay: int) -> bool:
        rounds = 2 * self.groups + self.devices
        self._bound(rounds * self.per_round)
        plain, delayed = (simulate(replace(self, delay=d)) for d in (0, delay))
        try:
            return all(
                later.end_slot <= sooner.end_slot
                for sooner, later in islice(zip(plain, delayed), rounds)
            )
        except BadValue:  # the delay is so long that a round has too few devices
            return False

    def _bound(self, uploads: int) -> None:
        if uploads > MAX_UPLOADS:
            raise self._endless()

    def _endless(self) -> BadValue:
        what = (
            f"N {self.devices}, S {self.per_round}: no closed form, and too many uploads to"
            " simulate"
        )
        return BadValue(f"{what}; expected fewer devices, or an S that divides N")


@dataclass(frozen=True, slots=True)
class _Loop:
    """One period of rounds: their number, their slots, and their staleness values."""

    rounds: int
    slots: int
    staleness: tuple[int, ...]
