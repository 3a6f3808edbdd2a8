"""One direction of one device: a server of bytes, first come first served, and the delay behind it.

    offer -> [ queue ] -> capacity -> delay -> receiver

Every transfer in the queue has a plan in closed form as soon as it is offered, so that asking changes nothing and a host that
asks late reads the same moments as one that asks in time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

from emulator.capacity import Capacity
from emulator.capacity.service import AtOnce, Curve
from emulator.delay import Delay
from emulator.delay.latency import Latency
from emulator.transfer import Transfer
from emulator.units import FOREVER


@dataclass(frozen=True, slots=True)
class Plan:
    """When a transfer is served: from ``start_ns`` to ``finish_ns`` along ``curve``, the last byte at the receiver at ``due_ns``."""

    curve: Curve | AtOnce
    start_ns: int
    finish_ns: int
    due_ns: int


@dataclass(slots=True, eq=False)
class Booking:
    """A transfer's place in a link's queue; ``plan`` is None while the link stands still before it or at it."""

    transfer: Transfer
    order: int
    offered_ns: int
    kept: int = 0  # bytes at the receiver that the plan need not serve again
    reached: int = 0  # bytes that were due there when the link last stood still: more cannot have been kept
    plan: Plan | None = None
    began_ns: int | None = None  # the first start of service, once an interruption has followed it
    suspended: bool = False

    def started_ns(self) -> int | None:
        """The first start of service, which may lie ahead; None while it is not planned."""
        return self.plan.start_ns if self.began_ns is None and self.plan else self.began_ns


class Link:
    """A FIFO of bookings over one capacity (None: not shaped, due when offered) and one delay.

    ``on_change`` is called with the link whenever a plan may have changed; the network hears of its next completion that way.
    """

    def __init__(self, capacity: Capacity | None, delay: Delay | None = None) -> None:
        self.capacity = capacity
        self.delay: Delay = Latency(0) if delay is None else delay
        self.queue: list[Booking] = []
        self.on_change: Callable[[Link], None] | None = None
        self._idle_ns = 0  # no new plan starts earlier: the link was busy, or broken, until then

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
        """Stand still at ``booking``; bytes that were not due at the receiver by ``now`` are lost with the session.

        Being ahead of the service curve (a window) earns nothing: at most what was due counts as confirmed. May be said again
        when the receiver's own count is known.
        """
        if not 0 <= confirmed_bytes <= booking.transfer.size:
            raise ValueError(f"transfer {booking.transfer.number}: {confirmed_bytes} of {booking.transfer.size} bytes confirmed")
        booking.suspended = True
        index = self.queue.index(booking)
        for stopped in self.queue[index:]:
            self._stop(stopped, now)
        booking.kept = min(confirmed_bytes, booking.reached)
        self._changed()

    def resume(self, booking: Booking, now: int) -> None:
        """Serve the rest from ``now`` on, without a burst for the time that was lost."""
        booking.suspended = False
        self._idle_ns = max(self._idle_ns, now)
        self._plan_from(self.queue.index(booking))

    def cancel(self, booking: Booking, now: int) -> None:
        """Drop it; if it was being served or held the link up, the next one starts at ``now``."""
        index = self.queue.index(booking)
        del self.queue[index]
        plan = booking.plan
        if plan is not None and plan.finish_ns <= now:  # only its last bytes were under way: the link serves others already
            self._idle_ns = max(self._idle_ns, plan.finish_ns)
            self._changed()
            return
        if plan is None or plan.start_ns <= now:
            self._idle_ns = max(self._idle_ns, now)
        self._plan_from(index)

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
            booking.plan = None if blocked else self._plan(booking, max(booking.offered_ns, self._idle_ns, free_ns))
            free_ns = booking.plan.finish_ns if booking.plan else free_ns
        self._changed()

    def _plan(self, booking: Booking, start_ns: int) -> Plan:
        curve = AtOnce(start_ns) if self.capacity is None else Curve(self.capacity, start_ns)
        finish_ns = curve.when(booking.transfer.size - booking.kept)
        return Plan(curve, start_ns, finish_ns, self.delay.arrival(finish_ns))

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change(self)
