"""A TDMA channel: equal slots, each used by at most one transmitter, granted in any order.

    slot i:  [ bytes | guard ]  from start + i * slot_ns on

The bytes of a transfer are carried only in its slots, in order of time. The code uses integer
arithmetic over slot numbers. Completions are closed forms of the slots that a transfer holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from emulator.capacity import Capacity
from emulator.capacity.constant import Constant
from emulator.capacity.service import WORK_PER_BYTE
from emulator.delay import Delay
from emulator.delay.latency import Latency
from emulator.errors import BadValue
from emulator.links.booking import Booking, Plan
from emulator.links.changes import changed_delay
from emulator.links.link import Link
from emulator.tdma.slot_curve import Grid, SlotCurve, usable
from emulator.tdma.slot_table import SlotTable, closed_until
from emulator.units import FOREVER, seconds_text

MOST_SLOTS = 1_000_000  # that an automatic channel grants to one transfer


class Channel(SlotTable):
    """A channel with one transmitter at a time, over both directions; ``link`` makes its links.

    ``rate_bit_s``: the rate of a transmitter within its slots. ``slots_per_transfer``: if given,
    every transfer fills exactly this number of slots, whatever its size. Its last byte is served
    when the usable time of the last slot ends. ``automatic``: a transfer gets the next free slots
    when it is offered or resumed; otherwise it waits for ``Network.grant``. ``half_duplex``: a
    device does not compute while it transmits or receives; callers must ensure this.
    """

    def __init__(
        self,
        grid: Grid,
        rate_bit_s: int,
        slots_per_transfer: int | None = None,
        automatic: bool = False,
        half_duplex: bool = True,
    ) -> None:
        if slots_per_transfer is not None and (
            not isinstance(slots_per_transfer, int) or slots_per_transfer < 1
        ):
            raise BadValue(
                f"slots per transfer {slots_per_transfer!r}: expected a whole number, 1 or more"
            )
        super().__init__(grid)
        self.capacity, self.slots_per_transfer = Constant(rate_bit_s), slots_per_transfer
        self.automatic, self.half_duplex = automatic, half_duplex

    def link(
        self,
        delay: Delay | None = None,
        places: Collection[int] | None = None,
        gate: Capacity | None = None,
    ) -> ChannelLink:
        """Make a link of one device in one direction.

        An automatic channel grants it slots at ``places`` of a frame while ``gate`` is open.
        """
        return ChannelLink(
            self, Latency(0) if delay is None else delay, self._checked(places), gate
        )

    def pace(self, booking: Booking) -> tuple[int, int]:
        """The service rate of its transfer, as (bytes, usable ns that they take)."""
        if self.slots_per_transfer is None or not booking.transfer.size:
            return self.capacity.rate_bit_s, WORK_PER_BYTE
        return booking.transfer.size, self.slots_per_transfer * self.grid.usable_ns

    def slots_for(self, booking: Booking) -> int:
        """How many slots the rest of a transfer takes; at least one."""
        return max(
            -(
                -usable(booking.transfer.size - booking.kept, *self.pace(booking))
                // self.grid.usable_ns
            ),
            1,
        )


class ChannelLink(Link):
    """The transfers of one device on a channel.

    Its queue is in order of completion, because slots may be granted in any order.
    """

    def __init__(
        self,
        channel: Channel,
        delay: Delay,
        places: tuple[int, ...] | None = None,
        gate: Capacity | None = None,
    ) -> None:
        super().__init__(channel.capacity, delay)
        self.channel, self.places, self.gate = channel, places, gate
        self._slots: dict[Booking, list[int]] = {}  # held for the rest of a transfer, ascending
        self._used: dict[Booking, list[int]] = {}  # slots that had begun at an interruption

    def grant(self, booking: Booking, slots: Iterable[int], now: int) -> list[int]:
        """Give it more slots and return all that it holds, ascending.

        Slots that it does not need are freed. A slot during which the gate of the link closes
        carries nothing and is not held.
        """
        if booking.suspended:
            raise ValueError(f"transfer {booking.transfer.number} is suspended")
        held = sorted(
            {
                *self._slots.get(booking, []),
                *self.channel.take(booking, filter(self._open, slots), now),
            }
        )
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
        del self._slots[booking]
        self._used.pop(booking, None)
        self._changed()
        return booking

    def windows_ns(self, booking: Booking) -> tuple[tuple[int, int], ...]:
        grid, slots = (
            self.channel.grid,
            [*self._used.get(booking, []), *self._slots.get(booking, [])],
        )
        return tuple((grid.begins(slot), grid.begins(slot) + grid.usable_ns) for slot in slots)

    def suspend(self, booking: Booking, confirmed_bytes: int, now: int) -> None:
        """Stop ``booking``; bytes at the receiver stay, and slots that have not begun are freed.

        Other transfers keep their slots.
        """
        self._check_confirmed(booking, confirmed_bytes)
        booking.suspended = True
        self._stop(booking, now)
        booking.kept = min(confirmed_bytes, booking.reached)
        held = self._slots.pop(booking, [])
        self.channel.free(held, now)
        self._used.setdefault(booking, []).extend(
            slot for slot in held if self.channel.grid.begins(slot) < now
        )
        self._sort()

    def resume(self, booking: Booking, now: int) -> None:
        booking.suspended = False
        self._await_slots(booking, now)

    def cancel(self, booking: Booking, now: int) -> None:
        self.queue.remove(booking)
        self._used.pop(booking, None)
        self.channel.free(self._slots.pop(booking, []), now)
        self._changed()

    def change(self, capacity: Capacity | None, delay: Delay | None, now: int) -> int:
        if capacity is not None:
            raise ValueError(
                "the capacity of a link on a TDMA channel cannot be changed: the channel sets it"
            )
        at_ns = self._changed_ns = max(now, self._changed_ns)
        if delay is not None:
            self.delay = changed_delay(self.delay, delay, at_ns, self._plans())
        for booking in [booking for booking in self.queue if booking.plan is not None]:
            self._plan_slots(booking)
        return at_ns

    def opens_at(self, booking: Booking, n_bytes: int) -> int:
        curve = None if booking.plan is None else booking.plan.curve
        return curve.opens_at(n_bytes - booking.kept) if isinstance(curve, SlotCurve) else FOREVER

    def stretch_end(self, booking: Booking, now: int) -> int:
        curve = None if booking.plan is None else booking.plan.curve
        return curve.stretch_end(now) if isinstance(curve, SlotCurve) else FOREVER

    def stretch_bytes(self, booking: Booking, n_bytes: int) -> int:
        curve = None if booking.plan is None else booking.plan.curve
        if not isinstance(curve, SlotCurve):
            return booking.transfer.size
        return min(
            booking.kept + curve.stretch_bytes(max(n_bytes - booking.kept, 0)),
            booking.transfer.size,
        )

    def _open(self, slot: int) -> bool:
        begins_ns = self.channel.grid.begins(slot)
        return self.gate is None or not closed_until(
            self.gate, begins_ns, begins_ns + self.channel.grid.usable_ns
        )

    def _await_slots(self, booking: Booking, now: int) -> None:
        if self.channel.automatic:
            needed = self.channel.slots_for(booking)
            if needed > MOST_SLOTS:
                each = f"{needed} slots of {seconds_text(self.channel.grid.slot_ns)} s"
                raise BadValue(
                    f"a transfer of {booking.transfer.size} bytes takes {each}: expected at most"
                    f" {MOST_SLOTS}; use longer slots or a higher rate"
                )
            self.grant(booking, self.channel.next_free(needed, now, self.places, self.gate), now)
        else:
            self._sort()

    def _plan_slots(self, booking: Booking) -> None:
        slots = self._slots[booking]
        booking.plan = None
        if slots:
            curve = SlotCurve(self.channel.grid, slots, *self.channel.pace(booking))
            finish_ns = curve.when(booking.transfer.size - booking.kept)
            booking.plan = Plan(
                curve, self.channel.grid.begins(slots[0]), finish_ns, self.delay.arrival(finish_ns)
            )
        self._sort()

    def _sort(self) -> None:
        self.queue.sort(
            key=lambda booking: (
                FOREVER if booking.plan is None else booking.plan.due_ns,
                booking.order,
            )
        )
        self._changed()
