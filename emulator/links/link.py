"""One direction of the link of one device: first come, first served, then a delay.

    offer -> [ queue ] -> capacity -> delay -> receiver

Every transfer in the queue has a closed-form plan from its offer on. So queries change nothing, and
a host that asks late gets the same moments as one that asks in time. Capacities and delays can be
replaced while in use; the past does not change.

Not modelled: packets and headers (bytes are a fluid; a rate is that of the payload), slow start and
congestion (links/loss.py has the steady state only), and the opening of connections. Transfers
of a few packets notice it; models of 1 MB and more do not (docs/explanation/emulator-accuracy.md).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from emulator.capacity import Capacity
from emulator.capacity.rates import Cycle, cycle_of
from emulator.capacity.service import AtOnce, Steady, curve_of
from emulator.delay import Delay, Latency
from emulator.errors import BadValue, check_whole
from emulator.units import FOREVER, seconds_text


class Transfer(Struct, frozen=True):
    """A transfer of ``size`` bytes from ("up") or to ("down") ``edge``.

    ``number`` is unique among the transfers that a network holds.
    """

    number: int
    edge: str
    direction: str
    size: int
    kind: str

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(f"transfer {self.number}: size {self.size} is negative")


class Completion(Struct, frozen=True):
    """The end of ``transfer``: its last byte is due at the receiver at ``due_ns``.

    Its service began at ``started_ns``. ``shifted_ns``: how much later than its offer a bottleneck
    accepted it, because a late host had already passed later moments; ``due_ns`` contains this.
    ``windows_ns``: on a TDMA channel, (begin, usable end) of every slot that served it.
    """

    transfer: Transfer
    offered_ns: int
    started_ns: int
    due_ns: int
    windows_ns: tuple[tuple[int, int], ...] = ()
    shifted_ns: int = 0


class Served(Protocol):
    """Bytes served over time since the start of a service; the two methods are inverses."""

    def served(self, t_ns: int) -> int:
        """Whole bytes served by ``t_ns``; 0 before the start. May exceed the transfer's size."""
        ...

    def when(self, size_bytes: int) -> int:
        """The smallest moment (ns) by which ``size_bytes`` are served.

        FOREVER if they are never served or the moment is not yet known.
        """
        ...


class Plan(Struct, frozen=True):
    """When a transfer is served: from ``start_ns`` to ``finish_ns`` along ``curve``.

    The last byte reaches the receiver at ``due_ns``.
    """

    curve: Served
    start_ns: int
    finish_ns: int
    due_ns: int


@dataclass(slots=True, eq=False)
class Booking:
    """A transfer in the queue of a link.

    ``plan`` is None while this transfer or an earlier one is suspended, and while its start is not
    yet planned.
    """

    transfer: Transfer
    order: int
    offered_ns: int
    kept: int = 0  # bytes that the receiver has already; the plan does not serve them again
    reached: int = 0  # bytes due there at the last suspension: an upper bound of ``kept``
    plan: Plan | None = None
    began_ns: int | None = None  # the first start of service; set only after an interruption
    suspended: bool = False
    # how much later than its offer the bottleneck accepted it, because it was settled further
    shifted_ns: int = 0

    def __str__(self) -> str:
        due_ns = self.plan.due_ns if self.plan else FOREVER
        due = f"due at {seconds_text(due_ns)} s" if due_ns < FOREVER else "not planned"
        transfer = self.transfer
        return f"{transfer.kind} {transfer.number}, {transfer.size} bytes, {due}"

    def started_ns(self) -> int | None:
        """The first start of service, which may be in the future; None while not planned."""
        return self.plan.start_ns if self.began_ns is None and self.plan else self.began_ns


POLICIES = ("drop", "block")


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit of ``limit_bytes`` that may wait behind the transfer in service.

    A waiting transfer counts with its full size until its service begins. An idle link accepts a
    transfer of any size. With ``drop``, a transfer without room is refused. With ``block``, it
    waits outside until there is room. Order is kept, so its service begins as in an unlimited
    queue.
    """

    limit_bytes: int
    policy: str = "drop"

    def __post_init__(self) -> None:
        check_whole("queue limit", self.limit_bytes, unit="bytes")
        if self.policy not in POLICIES:
            raise BadValue(f"queue policy {self.policy!r}: expected one of {', '.join(POLICIES)}")


# earlier pieces that are always kept; older ones are dropped when no plan needs them
MOST_PAST = 32


class ChangedCapacity:
    """A capacity made of ``pieces``: (from_ns, capacity), ascending; the first holds from 0."""

    def __init__(self, pieces: list[tuple[int, Capacity]]) -> None:
        self._pieces = pieces
        self._from_ns = [from_ns for from_ns, _ in pieces]

    def segment(self, t_ns: int) -> tuple[int, int]:
        index = max(bisect_right(self._from_ns, t_ns) - 1, 0)
        rate_bit_s, until_ns = self._pieces[index][1].segment(t_ns)
        return rate_bit_s, min([until_ns, *self._from_ns[index + 1 : index + 2]])

    def cycle(self, t_ns: int) -> Cycle | None:
        """The cycle of the last piece, from its first period that starts within the piece."""
        from_ns, last = self._pieces[-1]
        # not earlier: a trace may start at its first query
        cycle = cycle_of(last, max(t_ns, from_ns))
        if cycle is None or cycle.from_ns >= from_ns:
            return cycle
        return cycle.moved(from_ns + (cycle.from_ns - from_ns) % cycle.period_ns)

    def then(self, capacity: Capacity, at_ns: int, needed_ns: int) -> ChangedCapacity:
        """Append ``capacity`` from ``at_ns`` on.

        Pieces that end before ``needed_ns`` may be dropped.
        """
        return ChangedCapacity(
            [*self._pieces[-_still_needed(self._from_ns, needed_ns) :], (at_ns, capacity)]
        )


class ChangedDelay:
    """A delay made of ``pieces``: (after_ns, floor_ns, delay), ascending.

    Bytes that leave after ``after_ns`` have that delay and do not arrive before ``floor_ns``. This
    is the arrival of the last byte that left before, so that no byte overtakes another.
    """

    def __init__(self, pieces: list[tuple[int, int, Delay]]) -> None:
        self._pieces = pieces
        self._after_ns = [after_ns for after_ns, _, _ in pieces]

    def arrival(self, sent_ns: int) -> int:
        if sent_ns >= FOREVER:
            return FOREVER
        _, floor_ns, delay = self._pieces[max(bisect_left(self._after_ns, sent_ns) - 1, 0)]
        return max(delay.arrival(sent_ns), floor_ns)

    def departure(self, arrival_ns: int) -> int:
        until_ns = FOREVER  # bytes that leave later have not arrived
        for after_ns, floor_ns, delay in self._pieces[:0:-1]:
            if arrival_ns >= floor_ns:
                return min(max(delay.departure(arrival_ns), after_ns), until_ns)
            until_ns = after_ns
        return min(self._pieces[0][2].departure(arrival_ns), until_ns)

    def then(self, delay: Delay, after_ns: int, floor_ns: int, needed_ns: int) -> ChangedDelay:
        """Append ``delay`` for bytes that leave after ``after_ns``.

        Pieces that only bytes before ``needed_ns`` used may be dropped.
        """
        kept = self._pieces[-_still_needed(self._after_ns, needed_ns) :]
        return ChangedDelay([*kept, (after_ns, max(floor_ns, kept[-1][1]), delay)])


def changed_capacity(before: Capacity, after: Capacity, at_ns: int, needed_ns: int) -> Capacity:
    """Return the capacity that is ``before`` until ``at_ns`` and ``after`` from then on."""
    changed = before if isinstance(before, ChangedCapacity) else ChangedCapacity([(0, before)])
    return changed.then(after, at_ns, needed_ns)


def changed_delay(before: Delay, after: Delay, at_ns: int, plans: Iterable[Plan]) -> Delay:
    """Return the delay that is ``before`` for bytes that leave by ``at_ns``, and ``after`` later.

    Later bytes do not overtake earlier ones. ``plans``: those of all transfers that have not
    arrived.
    """
    plans = list(plans)
    changed = before if isinstance(before, ChangedDelay) else ChangedDelay([(0, 0, before)])
    left_ns = [
        min(plan.curve.when(n_bytes), plan.finish_ns)
        for plan in plans
        if (n_bytes := plan.curve.served(at_ns)) or plan.finish_ns <= at_ns
    ]
    floor_ns = before.arrival(max(left_ns)) if left_ns else 0
    return changed.then(after, at_ns, floor_ns, min([at_ns, *(plan.start_ns for plan in plans)]))


def _still_needed(borders_ns: list[int], needed_ns: int) -> int:
    return max(
        len(borders_ns) - max(bisect_right(borders_ns, needed_ns) - 1, 0),
        min(MOST_PAST, len(borders_ns)),
    )


class Link:
    """A FIFO queue of bookings over one capacity and one delay; the queue may be bounded.

    With capacity None the link is not shaped: a transfer is served at the moment of its offer.
    ``on_change`` is called with the link whenever a plan may have changed, so that the network
    knows the next completion.
    """

    def __init__(
        self, capacity: Capacity | None, delay: Delay | None = None, bound: Bound | None = None
    ) -> None:
        self.capacity = capacity
        self.delay: Delay = Latency(0) if delay is None else delay
        self.bound = bound
        self.dropped_bytes = 0
        self.queue: list[Booking] = []
        self.on_change: Callable[[Link], None] | None = None
        self._idle_ns = 0  # no new plan starts earlier: the link was busy or suspended until then
        self._changed_ns = 0

    def offer(self, booking: Booking) -> None:
        """Append it to the queue; it starts at max(its offer, finish of the previous one)."""
        self.queue.append(booking)
        self._plan_from(len(self.queue) - 1)

    def complete(self) -> Booking:
        """Remove and return the first booking, which is complete."""
        booking = self.queue.pop(0)
        if booking.plan is not None:
            self._idle_ns = max(self._idle_ns, booking.plan.finish_ns)
        self._changed()
        return booking

    def suspend(self, booking: Booking, confirmed_bytes: int, now: int) -> None:
        """Stop service at ``booking``; bytes not due at the receiver by ``now`` are lost.

        At most the bytes that were due count as confirmed: bytes that the host sent ahead of the
        service curve (its window) do not. May be called again when the receiver's own count is
        known.
        """
        self._check_confirmed(booking, confirmed_bytes)
        booking.suspended = True
        for stopped in self.queue[self.queue.index(booking) :]:
            self._stop(stopped, now)
        booking.kept = min(confirmed_bytes, booking.reached)
        self._changed()

    def resume(self, booking: Booking, now: int) -> None:
        """Serve the rest from ``now`` on, without a burst for the lost time."""
        booking.suspended = False
        self._idle_ns = max(self._idle_ns, now)
        self._plan_from(self.queue.index(booking))

    def grant(self, booking: Booking, slots: Iterable[int], now: int) -> list[int]:
        """Give it slots and return all that it holds. ValueError on a link without slots."""
        raise ValueError(f"transfer {booking.transfer.number}: its link has no slots")

    def cancel(self, booking: Booking, now: int) -> None:
        """Remove it; if it was in service or blocked the link, the next one starts at ``now``."""
        index = self.queue.index(booking)
        del self.queue[index]
        plan = booking.plan
        if plan is not None and plan.finish_ns <= now:  # it was in the delay; others are in service
            self._idle_ns = max(self._idle_ns, plan.finish_ns)
            self._changed()
            return
        if plan is None or plan.start_ns <= now:
            self._idle_ns = max(self._idle_ns, now)
        self._plan_from(index)

    def change(self, capacity: Capacity | None, delay: Delay | None, now: int) -> int:
        """Replace the capacity or delay (None: unchanged) from ``now`` on; return the moment used.

        The moment is later than ``now`` if the link has already been used or changed later. Served
        bytes stay served, bytes in flight keep their delay, later ones do not overtake them, and
        service continues at the same byte. ValueError for a capacity if the link is not shaped and
        in use.
        """
        if capacity is not None and self.capacity is None and self.queue:
            raise ValueError("a link that is not shaped cannot get a capacity while it is in use")
        at_ns = self._changed_ns = max(now, self._idle_ns, self._changed_ns)
        if delay is not None:
            self.delay = changed_delay(self.delay, delay, at_ns, self._plans())
        if capacity is not None:
            needed_ns = min([at_ns, *(plan.start_ns for plan in self._plans())])
            self.capacity = (
                capacity
                if self.capacity is None
                else changed_capacity(self.capacity, capacity, at_ns, needed_ns)
            )
        self._plan_from(len(self.queue) - len(self.unserved(at_ns)), at_ns)
        return at_ns

    def progress(self, booking: Booking, now: int) -> int:
        """Bytes due at the receiver by ``now`` under the current plan."""
        plan, size = booking.plan, booking.transfer.size
        if plan is None:
            return booking.kept
        if now >= plan.due_ns:
            return size
        return min(size, booking.kept + plan.curve.served(self.delay.departure(now)))

    def due_at(self, booking: Booking, n_bytes: int) -> int:
        """When byte ``n_bytes`` is due at the receiver; FOREVER while not planned."""
        if booking.plan is None:
            return FOREVER
        return self.delay.arrival(booking.plan.curve.when(n_bytes - booking.kept))

    def steady(self, booking: Booking) -> tuple[Steady, int] | None:
        """The curve and the delay (ns) of a transfer at a constant rate behind a constant delay.

        None for all others. Byte n is then due at ``curve.when(n - booking.kept)`` plus the delay,
        and the whole transfer is one stretch: what plans many pieces needs no call for each.
        """
        plan = booking.plan
        if plan is None or type(plan.curve) is not Steady or type(self.delay) is not Latency:
            return None
        return plan.curve, self.delay.delay_ns

    def started(self, booking: Booking) -> int | None:
        """The first start of its service, which may be in the future; None while not planned."""
        return booking.started_ns()

    def opens_at(self, booking: Booking, n_bytes: int) -> int:
        """The earliest moment at which byte ``n_bytes`` may be sent, whatever the window.

        This is the start of service; FOREVER while not planned.
        """
        return FOREVER if booking.plan is None else booking.plan.start_ns

    def stretch_bytes(self, booking: Booking, n_bytes: int) -> int:
        """Total bytes by the end of the uninterrupted service that carries byte ``n_bytes`` + 1.

        Here this is the whole transfer.
        """
        return booking.transfer.size

    def windows_ns(self, booking: Booking) -> tuple[tuple[int, int], ...]:
        """(begin, usable end) of each slot that serves it, in order of time.

        Empty on a link without slots.
        """
        return ()

    def unserved(self, now: int) -> list[Booking]:
        """The bookings with bytes that have not left the link by ``now``, in order.

        The first is in service or blocks the link.
        """
        return [
            booking
            for booking in self.queue
            if booking.plan is None or booking.plan.finish_ns > now
        ]

    def waiting_bytes(self, now: int) -> int:
        """Bytes that wait behind the transfer in service, within and beyond the bound."""
        return sum(booking.transfer.size for booking in self.unserved(now)[1:])

    def refuses(self, size_bytes: int, now: int) -> str | None:
        """The reason why the queue refuses ``size_bytes`` at ``now``; None if it accepts them."""
        if self.bound is None or self.bound.policy != "drop" or not self.unserved(now):
            return None
        waiting = self.waiting_bytes(now)
        if waiting + size_bytes <= self.bound.limit_bytes:
            return None
        return (
            f"queue full: {waiting} of {self.bound.limit_bytes} bytes wait, no room for"
            f" {size_bytes}"
        )

    def admitted_at(self, booking: Booking) -> int:
        """When the queue has room for it: the moment of its offer, unless the bound blocks.

        FOREVER while this is not planned.
        """
        if self.bound is None or self.bound.policy != "block":
            return booking.offered_ns
        index = self.queue.index(booking)
        room, last = self.bound.limit_bytes - booking.transfer.size, index
        while room >= 0 and last > 0:
            last -= 1
            room -= self.queue[last].transfer.size
        if room >= 0:
            return booking.offered_ns
        # there is room once the blocking transfer starts; one larger than the bound enters at its
        # own start
        started_ns = self.started(self.queue[last])
        return FOREVER if started_ns is None else max(booking.offered_ns, started_ns)

    def at_once(self, now: int) -> bool:
        """Whether a transfer that is offered ``now`` is due now: see ``Network.at_once``."""
        return (
            self.capacity is None
            and not self.queue
            and self.bound is None
            and self._idle_ns <= now
            and type(self.delay) is Latency
            and self.delay.delay_ns == 0
        )

    def _check_confirmed(self, booking: Booking, confirmed_bytes: int) -> None:
        if not 0 <= confirmed_bytes <= booking.transfer.size:
            raise ValueError(
                f"transfer {booking.transfer.number}: {confirmed_bytes} of {booking.transfer.size}"
                " bytes confirmed"
            )

    def _plans(self) -> list[Plan]:
        return [booking.plan for booking in self.queue if booking.plan is not None]

    def _stop(self, booking: Booking, now: int) -> None:
        plan = booking.plan
        if plan is None:
            return
        booking.kept = booking.reached = self.progress(booking, now)
        if plan.start_ns <= now and booking.began_ns is None:
            booking.began_ns = plan.start_ns
        booking.plan = None

    def _plan_from(self, index: int, begun_ns: int = -1) -> None:
        """Plan the bookings from ``index`` on; service that began by ``begun_ns`` keeps its start.

        The link may have been suspended since then for a transfer behind it.
        """
        before = self.queue[index - 1].plan if index else None
        blocked = index > 0 and before is None
        free_ns = before.finish_ns if before else 0
        for booking in self.queue[index:]:
            blocked = blocked or booking.suspended or free_ns >= FOREVER
            start_ns = max(booking.offered_ns, self._idle_ns, free_ns)
            if booking.plan is not None and booking.plan.start_ns <= begun_ns:
                start_ns = booking.plan.start_ns
            booking.plan = None if blocked else self._plan(booking, start_ns)
            free_ns = booking.plan.finish_ns if booking.plan else free_ns
        self._changed()

    def _plan(self, booking: Booking, start_ns: int) -> Plan:
        curve: Served = (
            AtOnce(start_ns) if self.capacity is None else curve_of(self.capacity, start_ns)
        )
        finish_ns = curve.when(booking.transfer.size - booking.kept)
        return Plan(curve, start_ns, finish_ns, self.delay.arrival(finish_ns))

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change(self)
