"""One direction of the link of one device: first come, first served, then a delay.

    offer -> [ queue ] -> capacity -> delay -> receiver

Every transfer in the queue has a closed-form plan from its offer on. So queries change nothing, and
a host that asks late gets the same moments as one that asks in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from emulator.capacity import Capacity
from emulator.capacity.service import AtOnce, Steady, curve_of
from emulator.delay import Delay
from emulator.delay.latency import Latency
from emulator.links.booking import Booking, Plan, Served
from emulator.links.changes import changed_capacity, changed_delay
from emulator.links.queue_bound import Bound
from emulator.units import FOREVER

__all__ = ["Booking", "Link", "BottleneckLike", "Plan"]


class BottleneckLike(Protocol):
    """What a network needs from a bottleneck. It plans ahead only as far as a query needs."""

    on_change: Callable[[BottleneckLike, bool], None] | None
    """Called when the next completion must be found again.

    The flag is true if this is because plans have changed.
    """

    def foresee(self) -> None:
        """Plan ahead until the earliest completion that the links have announced is final.

        Then no completion that is still unknown can be earlier.
        """
        ...

    def bookings(self) -> list[Booking]:
        """All bookings on its links."""
        ...


class Link:
    """A FIFO queue of bookings over one capacity and one delay; the queue may be bounded.

    With capacity None the link is not shaped: a transfer is served at the moment of its offer.
    ``on_change`` is called with the link whenever a plan may have changed, so that the network
    knows the next completion.
    """

    bottleneck: BottleneckLike | None = None

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
        self._check_capacity(capacity)
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
        self._plan_from(len(self.queue) - len(self.unserved(at_ns)))
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

    def stretch_end(self, booking: Booking, now: int) -> int:
        """When its service next pauses for others, at ``now`` or later.

        FOREVER if it does not pause or this is not planned.
        """
        return FOREVER

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
            and self.bottleneck is None
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

    def _check_capacity(self, capacity: Capacity | None) -> None:
        if capacity is not None and self.capacity is None and self.queue:
            raise ValueError("a link that is not shaped cannot get a capacity while it is in use")

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

    def _plan_from(self, index: int) -> None:
        before = self.queue[index - 1].plan if index else None
        blocked = index > 0 and before is None
        free_ns = before.finish_ns if before else 0
        for booking in self.queue[index:]:
            blocked = blocked or booking.suspended or free_ns >= FOREVER
            booking.plan = (
                None
                if blocked
                else self._plan(booking, max(booking.offered_ns, self._idle_ns, free_ns))
            )
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
