"""A TDMA channel: time in equal slots, each used by one transmitter at most, granted to transfers in any order.

    slot i:  [ bytes | guard ]  from start + i * slot_ns on; the bytes of a transfer go in its slots, in order of time, and nowhere else.

All of it is integer arithmetic over slot numbers, and completions are closed forms of the slots that a transfer holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Mapping

from emulator.booking import Booking, Plan
from emulator.capacity import Capacity
from emulator.capacity.constant import Constant
from emulator.capacity.service import WORK_PER_BYTE
from emulator.changes import changed_delay
from emulator.delay import Delay
from emulator.delay.latency import Latency
from emulator.delay.together import Together
from emulator.errors import BadValue
from emulator.link import Link
from emulator.slot_curve import Grid, SlotCurve, usable
from emulator.units import FOREVER


@dataclass(frozen=True, slots=True)
class Use:
    """``slot`` belongs to transfer ``number`` in ``direction``, of ``device``: the transmitter upwards, the receiver (or the name of a group) downwards."""

    slot: int
    device: str
    direction: str
    number: int


class Channel:
    """One transmitter at a time, in both directions together. ``link`` and ``broadcast`` make its links.

    ``rate_bit_s``: of a transmitter within its slots. ``slots_per_transfer``: every transfer fills just so many slots instead,
    whatever its size, so that its last byte is served as the last of them ends (less the guard). ``automatic``: a transfer that is
    offered or resumed is granted the next free slots at once; otherwise it waits for ``Network.grant``. ``half_duplex`` says
    that a device computes nothing while it transmits or receives: for callers to heed.
    """

    def __init__(
        self, grid: Grid, rate_bit_s: int, slots_per_transfer: int | None = None, automatic: bool = False, half_duplex: bool = True,
    ) -> None:
        if slots_per_transfer is not None and (not isinstance(slots_per_transfer, int) or slots_per_transfer < 1):
            raise BadValue(f"slots per transfer {slots_per_transfer!r}: expected a whole number, 1 or more")
        self.grid, self.capacity, self.slots_per_transfer = grid, Constant(rate_bit_s), slots_per_transfer
        self.automatic, self.half_duplex = automatic, half_duplex
        self._uses: dict[int, Use] = {}  # by slot: a slot has one use at most

    def link(self, delay: Delay | None = None) -> ChannelLink:
        """A link of one device in one direction."""
        return ChannelLink(self, Latency(0) if delay is None else delay)

    def broadcast(self, receivers: Mapping[str, Delay]) -> ChannelLink:
        """A link down on which one transfer, in its slots, reaches all of them."""
        return ChannelLink(self, Together(receivers))

    def pace(self, booking: Booking) -> tuple[int, int]:
        """(bytes, usable ns that they take) of its transfer."""
        if self.slots_per_transfer is None or not booking.transfer.size:
            return self.capacity.rate_bit_s, WORK_PER_BYTE
        return booking.transfer.size, self.slots_per_transfer * self.grid.usable_ns

    def slots_for(self, booking: Booking) -> int:
        """Slots that the rest of a transfer takes; one at least."""
        return max(-(-usable(booking.transfer.size - booking.kept, *self.pace(booking)) // self.grid.usable_ns), 1)

    def user(self, slot: int) -> Use | None:
        """Who has it, if anybody."""
        return self._uses.get(slot)

    def next_free(self, count: int, now: int, places: Iterable[int] | None = None) -> list[int]:
        """The next ``count`` free slots that begin at ``now`` or later; only those at ``places`` of their frame, if given."""
        wanted = None if places is None else frozenset(places)
        if wanted is not None and not wanted & set(range(self.grid.frame_slots)):
            raise ValueError(f"places {sorted(wanted)}: expected some of 0 to {self.grid.frame_slots - 1}")
        slot, found = self.grid.next_at(now), []
        while len(found) < count:
            if slot not in self._uses and (wanted is None or slot % self.grid.frame_slots in wanted):
                found.append(slot)
            slot += 1
        return found

    def log(self, until_ns: int = FOREVER) -> list[Use]:
        """Slots in use that begin before ``until_ns``, in order of time: one use a slot, so that no two overlap."""
        return [self._uses[slot] for slot in sorted(self._uses) if self.grid.begins(slot) < until_ns]

    def forget(self, before_ns: int) -> None:
        """Drop what ended by ``before_ns`` from the log; a long run that has written it down needs it no more."""
        for slot in [slot for slot in self._uses if self.grid.begins(slot + 1) <= before_ns]:
            del self._uses[slot]

    def take(self, booking: Booking, slots: Iterable[int], now: int) -> list[int]:
        """Check all of ``slots``, then take them for ``booking``. ValueError, and nothing taken, if one is past or another's."""
        wanted = sorted(set(slots))
        for slot in wanted:
            use = self._uses.get(slot)
            if slot < 0 or self.grid.begins(slot) < now:
                raise ValueError(f"slot {slot} begins at {self.grid.begins(slot)} ns, before {now} ns")
            if use is not None and use.number != booking.transfer.number:
                raise ValueError(f"slot {slot} belongs to transfer {use.number} of {use.device}")
        transfer = booking.transfer
        for slot in wanted:
            self._uses[slot] = Use(slot, transfer.edge, transfer.direction, transfer.number)
        return wanted

    def free(self, slots: Iterable[int], now: int) -> None:
        """Give back those that have not begun by ``now``."""
        for slot in slots:
            if self.grid.begins(slot) >= now:
                self._uses.pop(slot, None)


class ChannelLink(Link):
    """One device's transfers on a channel. Its queue is in order of completion, since slots may be granted in any order."""

    def __init__(self, channel: Channel, delay: Delay) -> None:
        super().__init__(channel.capacity, delay)
        self.channel = channel
        self._slots: dict[Booking, list[int]] = {}  # held for what is left of a transfer, ascending

    def grant(self, booking: Booking, slots: Iterable[int], now: int) -> list[int]:
        """More slots for it; what it needs not, of all that it holds, is free again. Those that it holds now, ascending."""
        if booking.suspended:
            raise ValueError(f"transfer {booking.transfer.number} stands still")
        held = sorted({*self._slots.get(booking, []), *self.channel.take(booking, slots, now)})
        needed = self.channel.slots_for(booking)
        self.channel.free(held[needed:], now)
        self._slots[booking] = held[:needed]
        self._plan_slots(booking)
        return held[:needed]

    def offer(self, booking: Booking) -> None:
        self.queue.append(booking)
        self._await_slots(booking, booking.offered_ns)

    def complete(self) -> Booking:
        booking = self.queue.pop(0)
        self._slots.pop(booking, None)
        self._changed()
        return booking

    def suspend(self, booking: Booking, confirmed_bytes: int, now: int) -> None:
        """What the receiver has stays, slots that have not begun are free again; other transfers keep theirs."""
        self._check_confirmed(booking, confirmed_bytes)
        booking.suspended = True
        self._stop(booking, now)
        booking.kept = min(confirmed_bytes, booking.reached)
        self.channel.free(self._slots.pop(booking, []), now)
        self._sort()

    def resume(self, booking: Booking, now: int) -> None:
        booking.suspended = False
        self._await_slots(booking, now)

    def cancel(self, booking: Booking, now: int) -> None:
        self.queue.remove(booking)
        self.channel.free(self._slots.pop(booking, []), now)
        self._changed()

    def change(self, capacity: Capacity | None, delay: Delay | None, now: int) -> int:
        if capacity is not None:
            raise ValueError("a TDMA channel has no capacity of a single link that could be changed")
        at_ns = self._changed_ns = max(now, self._changed_ns)
        if delay is not None:
            plans = self._plans()
            if isinstance(self.delay, Together):
                self.delay = Together({name: changed_delay(one, delay, at_ns, plans) for name, one in self.delay.receivers.items()})
            else:
                self.delay = changed_delay(self.delay, delay, at_ns, plans)
        for booking in [booking for booking in self.queue if booking.plan is not None]:
            self._plan_slots(booking)
        return at_ns

    def opens_at(self, booking: Booking, n_bytes: int) -> int:
        curve = None if booking.plan is None else booking.plan.curve
        return curve.opens_at(n_bytes - booking.kept) if isinstance(curve, SlotCurve) else FOREVER

    def in_service(self, now: int) -> list[Booking]:
        return [booking for booking in self.queue if booking.plan is not None and booking.plan.start_ns <= now]

    def receptions(self, booking: Booking) -> dict[str, int]:
        """Receiver of a broadcast -> when the last byte is due there; FOREVER while slots are missing."""
        finish_ns = FOREVER if booking.plan is None else booking.plan.finish_ns
        return self.delay.each(finish_ns) if isinstance(self.delay, Together) else {booking.transfer.edge: self.delay.arrival(finish_ns)}

    def _await_slots(self, booking: Booking, now: int) -> None:
        if self.channel.automatic:
            self.grant(booking, self.channel.next_free(self.channel.slots_for(booking), now), now)
        else:
            self._sort()

    def _plan_slots(self, booking: Booking) -> None:
        slots = self._slots[booking]
        booking.plan = None
        if slots:
            curve = SlotCurve(self.channel.grid, slots, *self.channel.pace(booking))
            finish_ns = curve.when(booking.transfer.size - booking.kept)
            booking.plan = Plan(curve, self.channel.grid.begins(slots[0]), finish_ns, self.delay.arrival(finish_ns))
        self._sort()

    def _sort(self) -> None:
        self.queue.sort(key=lambda booking: (FOREVER if booking.plan is None else booking.plan.due_ns, booking.order))
        self._changed()
