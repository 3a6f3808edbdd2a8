"""The allocation of TDMA slots to transfers: at most one use per slot, with a log of the uses."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from emulator.capacity import Capacity
from emulator.links.booking import Booking
from emulator.tdma.slot_curve import Grid
from emulator.units import FOREVER, NS_PER_S

# A long log keeps at least this time. A host may report an offer so late and still get the slots
# of that moment.
REMEMBERED_NS = 10 * NS_PER_S
LEAST_USES = 4096  # a shorter log is kept whole


@dataclass(frozen=True, slots=True)
class Use:
    """The use of ``slot`` by transfer ``number`` in ``direction``.

    ``device`` is the transmitter ("up") or the receiver or the name of a group ("down").
    """

    slot: int
    device: str
    direction: str
    number: int


class SlotTable:
    """The uses of the slots of ``grid``.

    A second use of a slot is refused. Slots that the log has dropped cannot be taken.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._uses: dict[int, Use] = {}  # by slot
        self._first_slot = 0  # earlier slots are dropped from the log
        self._most_uses = LEAST_USES  # with more uses, old ones are dropped
        self._latest_ns = 0  # the latest moment of a call
        # a gapless range of used slots, which the search for free slots skips
        self._packed = range(0)

    def user(self, slot: int) -> Use | None:
        """The use of ``slot``; None if it is free."""
        return self._uses.get(slot)

    def next_free(
        self,
        needed: int,
        now: int,
        places: Iterable[int] | None = None,
        gate: Capacity | None = None,
    ) -> list[int]:
        """The next ``needed`` free slots that begin at ``now`` or later.

        With ``places``, only slots at these places of their frame. With ``gate``, only slots during
        whose usable time the gate is open (has a rate). The result is shorter if the gate closes
        forever.
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
        """The uses of slots that begin before ``until_ns``, in order of time.

        There is one use per slot, so uses never overlap.
        """
        return [
            self._uses[slot] for slot in sorted(self._uses) if self.grid.begins(slot) < until_ns
        ]

    def forget(self, before_ns: int) -> list[Use]:
        """Remove the uses that ended by ``before_ns`` from the log and return them, by time.

        Their slots cannot be taken again. If the log is long, the channel does this itself with
        uses older than REMEMBERED_NS.
        """
        self._first_slot = max(self._first_slot, self.grid.at(before_ns))
        return [
            self._uses.pop(slot)
            for slot in sorted(slot for slot in self._uses if slot < self._first_slot)
        ]

    def take(self, booking: Booking, slots: Iterable[int], now: int) -> list[int]:
        """Take all ``slots`` for ``booking`` and return them, ascending.

        ValueError, and none is taken, if one is past or belongs to another transfer.
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
        """Free those of ``slots`` that have not begun by ``now``."""
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
        """The first slot from ``slot`` on at one of ``places`` of its frame."""
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
    """When ``gate`` opens again, if it is closed at any moment from ``from_ns`` to ``to_ns``.

    0 if it is open all the time.
    """
    while from_ns < to_ns:
        rate_bit_s, until_ns = gate.segment(from_ns)
        if not rate_bit_s:
            return until_ns
        from_ns = until_ns
    return 0
