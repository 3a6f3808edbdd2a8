"""One direction of one device: a server of bytes, first come first served, then the delay.

    offer -> [ queue ] -> capacity -> delay -> receiver

Every transfer in the queue has a plan in closed form as soon as it is offered, so that asking
changes nothing and a host that asks late reads the same moments as one that asks in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from emulator.capacity import Capacity
from emulator.capacity.service import AtOnce, curve_of
from emulator.delay import Delay
from emulator.delay.latency import Latency
from emulator.links.booking import Booking, Plan, Served
from emulator.links.changes import changed_capacity, changed_delay
from emulator.links.queue_bound import Bound
from emulator.units import FOREVER

__all__ = ["Booking", "Link", "BottleneckLike", "Plan"]


class BottleneckLike(Protocol):
    """What several links share, as they see it. It looks ahead only as far as it is asked to."""

    on_change: Callable[[BottleneckLike, bool], None] | None
    """Called when the next completion must be sought anew, and whether that is because plans
    have changed.
    """

    def foresee(self) -> None:
        """Look ahead until no unknown completion can be earlier than the earliest that the links
        have announced.
        """
        ...

    def bookings(self) -> list[Booking]:
        """Everything on its links."""
        ...


class Link:
    """A FIFO of bookings over one capacity (None: not shaped, due when offered) and one delay, with
    a queue that may be bounded.

    ``on_change`` is called with the link whenever a plan may have changed; the network hears of its
    next completion that way.
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
        self._idle_ns = 0  # no new plan starts earlier: the link was busy, or broken, until then
        self._changed_ns = 0

    def offer(self, booking: Booking) -> None:
        """Queue it behind the others, to start at max(offered, finish of the one before)."""
        self.queue.append(booking)
        self._plan_from(len(self.queue) - 1)

    def complete(self) -> Booking:
        """Take the first booking out of the queue; its plan has come true."""
        booking = self.queue.pop(0)
        if booking.plan is not None:
            self._idle_ns = max(self._idle_ns, booking.plan.finish_ns)
        self._changed()
        return booking

    def suspend(self, booking: Booking, confirmed_bytes: int, now: int) -> None:
        """Stand still at ``booking``; bytes that were not due at the receiver by ``now`` are lost
        with the session.

        Being ahead of the service curve (a window) earns nothing: at most what was due counts as
        confirmed. May be said again when the receiver's own count is known.
        """
        self._check_confirmed(booking, confirmed_bytes)
        booking.suspended = True
        for stopped in self.queue[self.queue.index(booking) :]:
            self._stop(stopped, now)
        booking.kept = min(confirmed_bytes, booking.reached)
        self._changed()

    def resume(self, booking: Booking, now: int) -> None:
        """Serve the rest from ``now`` on, without a burst for the time that was lost."""
        booking.suspended = False
        self._idle_ns = max(self._idle_ns, now)
        self._plan_from(self.queue.index(booking))

    def grant(self, booking: Booking, slots: Iterable[int], now: int) -> list[int]:
        """Slots for it, on a link that has slots: those that it holds now. ValueError elsewhere."""
        raise ValueError(f"transfer {booking.transfer.number}: its link has no slots")

    def cancel(self, booking: Booking, now: int) -> None:
        """Drop it; if it was being served or held the link up, the next one starts at ``now``."""
        index = self.queue.index(booking)
        del self.queue[index]
        plan = booking.plan
        if (
            plan is not None and plan.finish_ns <= now
        ):  # only its last bytes were under way: the link serves others already
            self._idle_ns = max(self._idle_ns, plan.finish_ns)
            self._changed()
            return
        if plan is None or plan.start_ns <= now:
            self._idle_ns = max(self._idle_ns, now)
        self._plan_from(index)

    def change(self, capacity: Capacity | None, delay: Delay | None, now: int) -> int:
        """Another capacity or delay (None: as before) from ``now`` on, or from where the link
        stands if that is later: the moment taken.

        What was served stays served, bytes on their way keep their delay, later ones do not
        overtake them, and the rest goes on from the same byte. ValueError for the capacity of a
        link that is not shaped and in use.
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
        """Bytes due at the receiver at ``now``, under the present plan."""
        plan, size = booking.plan, booking.transfer.size
        if plan is None:
            return booking.kept
        if now >= plan.due_ns:
            return size
        return min(size, booking.kept + plan.curve.served(self.delay.departure(now)))

    def due_at(self, booking: Booking, n_bytes: int) -> int:
        """When byte ``n_bytes`` is due at the receiver; FOREVER while that is not planned."""
        if booking.plan is None:
            return FOREVER
        return self.delay.arrival(booking.plan.curve.when(n_bytes - booking.kept))

    def started(self, booking: Booking) -> int | None:
        """The first start of its service, which may lie ahead; None while it is not planned."""
        return booking.started_ns()

    def opens_at(self, booking: Booking, n_bytes: int) -> int:
        """Before that, byte ``n_bytes`` may not be on its way, however wide a window: the start
        of service. FOREVER while not planned.
        """
        return FOREVER if booking.plan is None else booking.plan.start_ns

    def stretch_end(self, booking: Booking, now: int) -> int:
        """When its service next makes way for others, at ``now`` or later. FOREVER: it does not,
        or that is not planned.
        """
        return FOREVER

    def stretch_bytes(self, booking: Booking, n_bytes: int) -> int:
        """Bytes in all by the end of the stretch of service that carries the one after
        ``n_bytes``: here the whole transfer.
        """
        return booking.transfer.size

    def windows_ns(self, booking: Booking) -> tuple[tuple[int, int], ...]:
        """(begin, usable end) of each slot that it is served in, in order of time; none where
        there are no slots.
        """
        return ()

    def unserved(self, now: int) -> list[Booking]:
        """Those of which bytes have not left the link by ``now``, in order; the first is in
        service, or holds the link up.
        """
        return [
            booking
            for booking in self.queue
            if booking.plan is None or booking.plan.finish_ns > now
        ]

    def waiting_bytes(self, now: int) -> int:
        """What waits behind the transfer in service, inside and outside of the bound."""
        return sum(booking.transfer.size for booking in self.unserved(now)[1:])

    def refuses(self, size_bytes: int, now: int) -> str | None:
        """Why so many bytes are not taken at ``now``; None if they are."""
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
        """When it found room in the queue: as it was offered, unless the bound blocks. FOREVER
        while that is not planned.
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
        # what waited too much has begun; a transfer beyond any room enters at its own start
        started_ns = self.started(self.queue[last])
        return FOREVER if started_ns is None else max(booking.offered_ns, started_ns)

    def _check_confirmed(self, booking: Booking, confirmed_bytes: int) -> None:
        if not 0 <= confirmed_bytes <= booking.transfer.size:
            raise ValueError(
                f"transfer {booking.transfer.number}: {confirmed_bytes} of {booking.transfer.size}"
                " bytes confirmed"
            )

    def _check_capacity(self, capacity: Capacity | None) -> None:
        if capacity is not None and self.capacity is None and self.queue:
            raise ValueError(
                "a link that is not shaped cannot be given a capacity while it is in use"
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
