"""A TDMA channel: equal slots, each used by at most one transmitter, granted in any order.

    slot i:  [ bytes | guard ]  from start + i * slot_ns on

The bytes of a transfer are carried only in its slots, in order of time. The code uses integer
arithmetic over slot numbers. Completions are closed forms of the slots that a transfer holds. A log
keeps the uses of the slots.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from emulator.capacity import Capacity
from emulator.capacity.rates import Constant
from emulator.capacity.service import WORK_PER_BYTE
from emulator.delay import Delay, Latency
from emulator.errors import BadValue, check_whole
from emulator.links.link import Booking, Link, Plan, changed_delay
from emulator.units import FOREVER, NS_PER_S, seconds_text


@dataclass(frozen=True, slots=True)
class Grid:
    """The grid of slots: slot i begins at ``start_ns`` + i * ``slot_ns``.

    ``frame_slots`` slots make a frame, in which devices may have fixed places.
    """

    slot_ns: int
    guard_ns: int = 0
    frame_slots: int = 1
    start_ns: int = 0

    def __post_init__(self) -> None:
        for name, least in (("slot_ns", 1), ("guard_ns", 0), ("frame_slots", 1), ("start_ns", 0)):
            check_whole(name, getattr(self, name), least)
        if self.guard_ns >= self.slot_ns:
            raise BadValue(
                f"slot of {self.slot_ns} ns: expected more than its guard of {self.guard_ns} ns"
            )

    @property
    def usable_ns(self) -> int:
        return self.slot_ns - self.guard_ns

    def begins(self, slot: int) -> int:
        """The moment at which ``slot`` begins."""
        return self.start_ns + slot * self.slot_ns

    def at(self, t_ns: int) -> int:
        """The slot that contains ``t_ns``; negative before the first."""
        return (t_ns - self.start_ns) // self.slot_ns

    def next_at(self, t_ns: int) -> int:
        """The first slot that begins at ``t_ns`` or later."""
        return max(-((self.start_ns - t_ns) // self.slot_ns), 0)


class SlotCurve:
    """Service in ``slots`` (ascending): ``bytes_per`` bytes per ``per`` ns of their usable time.

    No byte is served before its slot.
    """

    __slots__ = ("_grid", "_slots", "_bytes_per", "_per", "_from_ns")

    def __init__(self, grid: Grid, slots: list[int], bytes_per: int, per: int) -> None:
        self._grid, self._slots, self._bytes_per, self._per = grid, slots, bytes_per, per
        self._from_ns = grid.begins(slots[0])

    def served(self, t_ns: int) -> int:
        index = bisect_right(self._slots, self._grid.at(t_ns)) - 1
        if index < 0:
            return 0
        within_ns = min(t_ns - self._grid.begins(self._slots[index]), self._grid.usable_ns)
        return self._bytes_per * (index * self._grid.usable_ns + within_ns) // self._per

    def when(self, size_bytes: int) -> int:
        if size_bytes <= 0:
            return self._from_ns
        index, before_ns = self._last(size_bytes)
        return (
            self._grid.begins(self._slots[index]) + before_ns
            if index < len(self._slots)
            else FOREVER
        )

    def opens_at(self, size_bytes: int) -> int:
        """The start of the slot that serves byte ``size_bytes``."""
        index, _ = self._last(max(size_bytes, 1))
        return self._grid.begins(self._slots[index]) if index < len(self._slots) else FOREVER

    def stretch_bytes(self, size_bytes: int) -> int:
        """Total bytes served by the end of the slot that serves byte ``size_bytes`` + 1.

        ``size_bytes`` if no slot serves it.
        """
        index, _ = self._last(size_bytes + 1)
        return (
            self._bytes_per * (index + 1) * self._grid.usable_ns // self._per
            if index < len(self._slots)
            else size_bytes
        )

    def _last(self, size_bytes: int) -> tuple[int, int]:
        """Return (index of the slot that serves byte ``size_bytes``, ns within that slot)."""
        index, rest_ns = divmod(
            usable(size_bytes, self._bytes_per, self._per) - 1, self._grid.usable_ns
        )
        return index, rest_ns + 1


def usable(size_bytes: int, bytes_per: int, per: int) -> int:
    """Usable ns that ``size_bytes`` take, rounded up."""
    return -(-size_bytes * per // bytes_per)


# A long log keeps at least this time. A host may report an offer so late and still get the slots
# of that moment.
REMEMBERED_NS = 10 * NS_PER_S
LEAST_USES = 4096  # a shorter log is kept whole
MOST_CLOSED = 100_000  # slots in a row in which a gate closes; after so many, none is expected


@dataclass(frozen=True, slots=True)
class Use:
    """The use of ``slot`` by transfer ``number`` in ``direction``.

    ``device`` is the transmitter ("up") or the receiver or the name of a group ("down").
    """

    slot: int
    device: str
    direction: str
    number: int


class Channel:
    """A channel with one transmitter at a time, over both directions; ``link`` makes its links.

    ``rate_bit_s``: the rate of a transmitter within its slots. ``slots_per_transfer``: if given,
    every transfer fills exactly this number of slots, whatever its size. Its last byte is served
    when the usable time of the last slot ends. ``automatic``: a transfer gets the next free slots
    when it is offered or resumed; otherwise it waits for ``Network.grant``. ``half_duplex``: a
    device does not compute while it transmits or receives; callers must ensure this.

    A second use of a slot is refused. Slots that the log has dropped cannot be taken.
    """

    def __init__(
        self,
        grid: Grid,
        rate_bit_s: int,
        slots_per_transfer: int | None = None,
        automatic: bool = False,
        half_duplex: bool = True,
    ) -> None:
        if slots_per_transfer is not None:
            check_whole("slots per transfer", slots_per_transfer, 1)
        self.grid = grid
        self.capacity, self.slots_per_transfer = Constant(rate_bit_s), slots_per_transfer
        self.automatic, self.half_duplex = automatic, half_duplex
        self._uses: dict[int, Use] = {}  # by slot
        self._first_slot = 0  # earlier slots are dropped from the log
        self._most_uses = LEAST_USES  # with more uses, old ones are dropped
        self._latest_ns = 0  # the latest moment of a call
        # a gapless range of used slots, which the search for free slots skips
        self._packed = range(0)

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
        forever. BadValue if it opens again and again, but never for a whole slot.
        """
        wanted = self._checked(places)
        found: list[int] = []
        closed = 0
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
            closed = closed + 1 if closed_ns else 0
            if closed > MOST_CLOSED:
                raise BadValue(
                    f"a link is closed in each slot of {seconds_text(self.grid.slot_ns)} s from"
                    f" {seconds_text(now)} s on: its outages or absences leave none; expected"
                    " shorter slots or frames, or longer times between them"
                )
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


MOST_SLOTS = 1_000_000  # that an automatic channel grants to one transfer


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
