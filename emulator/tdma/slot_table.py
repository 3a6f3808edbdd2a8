"""Which transfer has which slot of a TDMA channel: a slot has one use at most, and the log of
the uses proves it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from emulator.capacity import Capacity
from emulator.links.booking import Booking
from emulator.tdma.slot_curve import Grid
from emulator.units import FOREVER, NS_PER_S

REMEMBERED_NS = (
    10 * NS_PER_S
    # of the log, once it is long: so late may a host say that a transfer was offered, and still get
    # the slots of then
)
LEAST_USES = 4096  # a shorter log is kept whole


@dataclass(frozen=True, slots=True)
class Use:
    """``slot`` belongs to transfer ``number`` in ``direction``, of ``device``: the transmitter
    upwards, the receiver (or the name of a group) downwards.
    """

    slot: int
    device: str
    direction: str
    number: int


class SlotTable:
    """The uses of the slots of ``grid``: a second one is refused, and what the log has forgotten
    cannot be taken any more.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._uses: dict[int, Use] = {}  # by slot
        self._first_slot = 0  # those before are forgotten
        self._most_uses = LEAST_USES  # with more of them it is time to forget
        self._latest_ns = 0  # the latest moment told
        # slots in use without a gap, which the search for free ones jumps over
        self._packed = range(0)

    def user(self, slot: int) -> Use | None:
        """Who has it; None if it is free."""
        return self._uses.get(slot)

    def next_free(
        self,
        needed: int,
        now: int,
        places: Iterable[int] | None = None,
        gate: Capacity | None = None,
    ) -> list[int]:
        """The next ``needed`` free slots that begin at ``now`` or later; only those at ``places``
        of their frame, if given.

        And only those during whose usable time ``gate`` is open (has a rate): fewer, if it closes
        for ever.
        """
        wanted = self._checked(places)
        found: list[int] = []
        slot = self._at_place(max(self.grid.next_at(now), self._first_slot), wanted)
        while len(found) < needed:
            if slot in self._packed:
                slot = self._at_place(self._packed.stop, wanted)
                continue
            closed_ns = (
                0
                if gate is None
                else closed_until(
                    gate, self.grid.begins(slot), self.grid.begins(slot) + self.grid.usable_ns
                )
            )
            if closed_ns >= FOREVER:
                break
            if not closed_ns and slot not in self._uses:
                found.append(slot)
            slot = self._at_place(max(slot + 1, self.grid.next_at(closed_ns)), wanted)
        return found

    def log(self, until_ns: int = FOREVER) -> list[Use]:
        """Slots in use that begin before ``until_ns``, in order of time: one use a slot, so that
        no two overlap.
        """
        return [
            self._uses[slot] for slot in sorted(self._uses) if self.grid.begins(slot) < until_ns
        ]

    def forget(self, before_ns: int) -> list[Use]:
        """Drop what ended by ``before_ns`` from the log, and return it, in order of time. Those
        slots can be taken no more.

        The channel does so itself with what is REMEMBERED_NS old, once its log is long.
        """
        self._first_slot = max(self._first_slot, self.grid.at(before_ns))
        return [
            self._uses.pop(slot)
            for slot in sorted(slot for slot in self._uses if slot < self._first_slot)
        ]

    def take(self, booking: Booking, slots: Iterable[int], now: int) -> list[int]:
        """Check all of ``slots``, then take them for ``booking``. ValueError, and nothing taken,
        if one is past or another's.
        """
        wanted = sorted(set(slots))
        for slot in wanted:
            use = self._uses.get(slot)
            if slot < self._first_slot or self.grid.begins(slot) < now:
                raise ValueError(
                    f"slot {slot} begins at {self.grid.begins(slot)} ns, before"
                    f" {max(now, self.grid.begins(self._first_slot))} ns"
                )
            if use is not None and use.number != booking.transfer.number:
                raise ValueError(f"slot {slot} belongs to transfer {use.number} of {use.device}")
        transfer = booking.transfer
        for slot in wanted:
            self._uses[slot] = Use(slot, transfer.edge, transfer.direction, transfer.number)
        self._pack(wanted, now)
        self._latest_ns = max(self._latest_ns, now)
        if len(self._uses) > self._most_uses:
            self.forget(self._latest_ns - REMEMBERED_NS)
            self._most_uses = max(LEAST_USES, 2 * len(self._uses))
        return wanted

    def free(self, slots: Iterable[int], now: int) -> None:
        """Give back those that have not begun by ``now``."""
        for slot in slots:
            if self.grid.begins(slot) >= now:
                self._uses.pop(slot, None)
                if slot in self._packed:
                    self._packed = range(self._packed.start, slot)

    def _pack(self, slots: list[int], now: int) -> None:
        if slots and self._packed.stop <= self.grid.next_at(now):  # all are past
            self._packed = range(slots[0], slots[0])
        for slot in slots:
            if slot == self._packed.stop:
                self._packed = range(self._packed.start, slot + 1)

    def _at_place(self, slot: int, places: tuple[int, ...] | None) -> int:
        """The first from ``slot`` on that lies at one of ``places`` of its frame."""
        if places is None:
            return slot
        frame, place = divmod(slot, self.grid.frame_slots)
        after = bisect_left(places, place)
        return frame * self.grid.frame_slots + (
            places[after] if after < len(places) else self.grid.frame_slots + places[0]
        )

    def _checked(self, places: Iterable[int] | None) -> tuple[int, ...] | None:
        if places is None:
            return None
        wanted = tuple(sorted(set(places)))
        if not wanted or not 0 <= wanted[0] <= wanted[-1] < self.grid.frame_slots:
            raise ValueError(
                f"places {list(wanted)}: expected some of 0 to {self.grid.frame_slots - 1}"
            )
        return wanted


def closed_until(gate: Capacity, from_ns: int, to_ns: int) -> int:
    """When ``gate`` opens again, if it is closed at any moment from ``from_ns`` to ``to_ns``; 0
    if it is not.
    """
    while from_ns < to_ns:
        rate_bit_s, until_ns = gate.segment(from_ns)
        if not rate_bit_s:
            return until_ns
        from_ns = until_ns
    return 0
