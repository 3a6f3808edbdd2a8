"""TDMA rounds: S devices upload one after another, then the server broadcasts; the others compute
meanwhile.

    slots   | compute tau_comp | upload r | upload r | ... S of them | broadcast r |  next round ...

Closed forms of asynchronous federated learning over a TDMA channel (Song, Hong: "Asynchronous
Federated Learning Using Outdated Local Updates Over TDMA Channel"), corrected where the paper is
off: rounds, staleness and slots count from 0, and ``end_slot`` is the slot after the last one of a
round. They hold for equal devices and an S that divides N, with every delay; all else comes from
``simulate``, which plays the channel transmission by transmission.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, takewhile

from emulator.errors import BadValue
from emulator.tdma.reference import simulate

MAX_UPLOADS = 2_000_000  # in one simulation
MAX_LOOKS = 20_000_000  # rounds times devices in the search for what repeats itself
MAX_DEVICES = 100_000
MAX_SLOTS = 10**12


@dataclass(frozen=True)
class Tdma:
    """``devices`` (N), ``per_round`` (S), ``slots_per_transfer`` (r), ``compute_slots``
    (tau_comp), and the intentional ``delay`` in rounds (alpha).
    """

    devices: int
    per_round: int
    slots_per_transfer: int
    compute_slots: int
    delay: int = 0

    def __post_init__(self) -> None:
        _check("N", self.devices, 1, MAX_DEVICES)
        _check("S", self.per_round, 1, self.devices)
        _check("r", self.slots_per_transfer, 1, MAX_SLOTS)
        _check("tau-comp", self.compute_slots, 0, MAX_SLOTS)
        if not 0 <= self.delay < self.groups:
            raise BadValue(
                f"delay {self.delay}: expected 0 to {self.groups - 1} rounds, less than the"
                f" {self.groups} groups"
            )

    @property
    def groups(self) -> int:
        """G."""
        return -(-self.devices // self.per_round)

    @property
    def comm_slots(self) -> int:
        """Of a round: S uploads and the broadcast (eq. 6)."""
        return self.slots_per_transfer * (self.per_round + 1)

    @property
    def even(self) -> bool:
        """S divides N."""
        return self.devices % self.per_round == 0

    @property
    def turns(self) -> int:
        """Rounds from a device's model to its next upload: G without a delay, each round of
        delay takes one.
        """
        return self.groups - self.delay

    @property
    def hidden(self) -> bool:
        """A group computes no longer than others communicate meanwhile, so that the channel
        never falls idle (if S divides N).
        """
        return self.compute_slots <= (self.turns - 1) * self.comm_slots

    @property
    def d_star(self) -> int | None:
        """The staleness that cannot be avoided (eq. 33); None where computing fills the turns of
        all others and no delay is possible (eq. 32).
        """
        return (
            -(-self.compute_slots // self.comm_slots)
            if self.compute_slots < (self.groups - 1) * self.comm_slots
            else None
        )

    @cached_property
    def auto_delay(self) -> int:
        """The longest intentional delay that loses no slot (eq. 32): every round still has S
        updates, and none ends later than without delay. If S does not divide N, a longer one may
        leave rounds with fewer updates; these end sooner, but the updates are sent later, since
        more slots go to broadcasts.
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
        """The slot after round ``number``'s broadcast. ValueError if S does not divide N: there
        is no closed form.
        """
        if not self.even:
            raise ValueError("no closed form: S does not divide N")
        if self.hidden:
            return self.compute_slots + (number + 1) * self.comm_slots
        turn, place = divmod(number, self.turns)
        return (turn + 1) * self.compute_slots + (turn + place + 1) * self.comm_slots

    def mean_slots_per_round(self) -> float:
        """In the long run (eq. 10, with G - delay for G); the initial computing does not count."""
        if self.even:
            return (
                float(self.comm_slots)
                if self.hidden
                else (self.compute_slots + self.comm_slots) / self.turns
            )
        return self._settled.slots / self._settled.rounds

    def models_by(self, slot: int) -> int:
        """Global models that exist by ``slot``, w_0 included: the rounds whose start slot is <=
        ``slot`` (reproduces table I).
        """
        _check("T", slot, 0, MAX_SLOTS)
        if self.even:
            return 1 + bisect_right(range(slot // self.comm_slots + 1), slot, key=self.end_slot)
        self._bound(slot // self.comm_slots * self.per_round)
        return 1 + sum(1 for _ in takewhile(lambda done: done.end_slot <= slot, simulate(self)))

    def staleness(self, number: int) -> tuple[int, ...]:
        """The different staleness values among the updates of round ``number``, in order; one:
        min(number, G - 1 - delay) if S divides N (eq. 15).
        """
        if self.even:
            return (min(number, self.turns - 1),)
        self._bound((number + 1) * self.per_round)
        return tuple(sorted(set(next(islice(simulate(self), number, None)).staleness)))

    def settled_staleness(self) -> tuple[int, ...]:
        """Its values in the long run."""
        return (self.turns - 1,) if self.even else self._settled.staleness

    @cached_property
    def _settled(self) -> _Loop:
        """What repeats itself for ever, found by Brent's method: a saved state, renewed at every
        power of two, until it comes again.
        """
        # slots of devices that wait for a model, and of those that have begun with one
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
            # Which device is which decides ties alone, and those that tie have the same model.
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
        except BadValue:  # so long that a round finds too few devices
            return False

    def _bound(self, uploads: int) -> None:
        if uploads > MAX_UPLOADS:
            raise self._endless()

    def _endless(self) -> BadValue:
        what = (
            f"N {self.devices}, S {self.per_round}: no closed form, and too many uploads to"
            " simulate"
        )
        return BadValue(f"{what}; expected fewer, or an S that divides N")


@dataclass(frozen=True, slots=True)
class _Loop:
    """Rounds that repeat themselves: how many, how long they take, which staleness values they
    hold.
    """

    rounds: int
    slots: int
    staleness: tuple[int, ...]


def _check(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise BadValue(f"{name} {value}: expected a whole number from {least} to {most}")
