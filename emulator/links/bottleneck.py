"""A bottleneck that several links share in one direction.

The links with a transfer in service get max-min fair rates, each limited by its own capacity. Time
is divided into epochs. In an epoch the set of links in service and all capacities are constant, so
each link has one rate, a whole number of bit/s. Epochs are computed ahead only as far as a caller
needs them. If an event changes them, they are computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from emulator.capacity import Capacity
from emulator.capacity.service import WORK_PER_BYTE
from emulator.delay import Delay
from emulator.links.booking import Booking, Plan
from emulator.links.changes import changed_delay
from emulator.links.fair import Share, shares
from emulator.links.link import BottleneckLike, Link
from emulator.links.queue_bound import Bound
from emulator.units import FOREVER

# in a row without service; after so many, assume that the capacities never serve together
MOST_IDLE_EPOCHS = 100_000


class Bottleneck:
    """A capacity that the links made by ``link`` share.

    A cell is a bottleneck with the aggregate rate; its links have the capacities of the devices.

    Everything before ``settled_ns``, the latest change or completed service, is final. A call for
    an earlier moment takes effect at ``settled_ns``. For a transfer that is offered so late,
    ``Completion.shifted_ns`` says by how much.
    """

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self.settled_ns = 0
        self.on_change: Callable[[BottleneckLike, bool], None] | None = None
        self.links: list[SharedLink] = []
        self.busy: dict[SharedLink, None] = {}  # links with a non-empty queue
        # links with a transfer in service at ``seen_ns``
        self._serving: dict[SharedLink, None] = {}
        self.seen_ns = 0  # epochs are computed up to this moment
        self._idle_epochs = 0

    def link(
        self,
        capacity: Capacity | None = None,
        delay: Delay | None = None,
        bound: Bound | None = None,
    ) -> SharedLink:
        """Make another link through this bottleneck.

        ``capacity`` is the link's own limit; None if it has none.
        """
        self.links.append(SharedLink(self, len(self.links), capacity, delay, bound))
        return self.links[-1]

    def change(self, capacity: Capacity, now: int) -> int:
        """Replace the capacity of the bottleneck from ``now`` on; return the moment used.

        It is ``settled_ns`` if that is later than ``now``.
        """
        at_ns = self.settle(now)
        self.capacity = capacity
        for link in self.links:
            link.capacity = capacity if link.own is None else link.own
        return at_ns

    def bookings(self) -> list[Booking]:
        return [booking for link in self.busy for booking in link.queue]

    def settle(self, now: int) -> int:
        """Fix everything up to ``now``, before a change; return the moment used.

        It is ``settled_ns`` if that is later than ``now``.
        """
        at_ns = max(now, self.settled_ns)
        if at_ns < self.seen_ns:
            self._serving = {link: None for link in self.busy if link.take_back(at_ns)}
            self.seen_ns = at_ns
        self.look(at_ns)
        self.seen_ns = self.settled_ns = at_ns
        self._idle_epochs = 0
        self._tell(replanned=True)
        return at_ns

    def completed(self, booking: Booking) -> None:
        """Record that ``booking`` has left its link; its service becomes final."""
        if booking.plan is not None:
            self.settled_ns = max(self.settled_ns, booking.plan.finish_ns)
        self._tell(replanned=False)

    def foresee(self) -> None:
        while True:
            due_ns = min(
                (link.queue[0].plan.due_ns for link in self.busy if link.queue[0].plan is not None),
                default=FOREVER,
            )
            if due_ns <= self.seen_ns or not self.step(due_ns):
                return

    def look(self, until_ns: int) -> None:
        """Compute epochs up to ``until_ns``, or until nothing can change any more."""
        while self.seen_ns < until_ns and self.step(until_ns):
            pass

    def mark(self, link: SharedLink) -> None:
        """Update the sets of links after the queue of ``link`` or its service has changed."""
        for links, member in (
            (self.busy, bool(link.queue)),
            (self._serving, link.serving is not None),
        ):
            if member:
                links[link] = None
            else:
                links.pop(link, None)

    def step(self, limit_ns: int) -> bool:
        """Compute one more epoch, up to ``limit_ns`` at most.

        Return False if nothing will change without a new event.
        """
        now, links = self.seen_ns, sorted(self._serving, key=attrgetter("index"))
        if not links:
            return False
        rate_bit_s, end_ns = self.capacity.segment(now)
        caps = []
        for link in links:
            cap, until_ns = (rate_bit_s, FOREVER) if link.own is None else link.own.segment(now)
            caps.append(cap)
            end_ns = min(end_ns, until_ns)
        rates = shares(rate_bit_s, caps)
        finishes = [link.give(now, rate) for link, rate in zip(links, rates)]
        end_ns = min(end_ns, limit_ns, *finishes)
        self._idle_epochs = 0 if any(rates) else self._idle_epochs + 1
        if end_ns >= FOREVER or self._idle_epochs > MOST_IDLE_EPOCHS:
            return False
        self.seen_ns = end_ns
        for link, finish_ns in zip(links, finishes):
            if finish_ns == end_ns:
                link.finish(end_ns)
        return True

    def _tell(self, replanned: bool) -> None:
        if self.on_change is not None:
            self.on_change(self, replanned)


class SharedLink(Link):
    """A link through a bottleneck.

    Transfers within the link are first come, first served. The one in service gets the link's fair
    share of the bottleneck.
    """

    def __init__(
        self,
        bottleneck: Bottleneck,
        index: int,
        capacity: Capacity | None,
        delay: Delay | None,
        bound: Bound | None,
    ) -> None:
        super().__init__(bottleneck.capacity if capacity is None else capacity, delay, bound)
        self.bottleneck: Bottleneck = bottleneck
        self.index, self.own = index, capacity
        self.serving: Booking | None = None

    # ------------------------------------------------------------------ changes
    def offer(self, booking: Booking) -> None:
        at_ns = self.bottleneck.settle(booking.offered_ns)
        booking.shifted_ns = at_ns - booking.offered_ns
        self.queue.append(booking)
        self._go_on(at_ns)

    def complete(self) -> Booking:
        booking = self.queue.pop(0)
        self.bottleneck.mark(self)
        self.bottleneck.completed(booking)
        self._changed()
        return booking

    def suspend(self, booking: Booking, confirmed_bytes: int, now: int) -> None:
        self._check_confirmed(booking, confirmed_bytes)
        at_ns = self.bottleneck.settle(now)
        booking.suspended = True
        for stopped in self.queue[self.queue.index(booking) :]:
            self._stop(stopped, at_ns)
        booking.kept = min(confirmed_bytes, booking.reached)
        self._go_on(at_ns)

    def resume(self, booking: Booking, now: int) -> None:
        at_ns = self.bottleneck.settle(now)
        booking.shifted_ns += at_ns - now
        booking.suspended = False
        self._go_on(at_ns)

    def cancel(self, booking: Booking, now: int) -> None:
        at_ns = self.bottleneck.settle(now)
        self.queue.remove(booking)
        self._go_on(at_ns)

    def change(self, capacity: Capacity | None, delay: Delay | None, now: int) -> int:
        at_ns = self.bottleneck.settle(now)
        if capacity is not None:
            self.capacity = self.own = capacity
        if delay is not None:
            self.delay = changed_delay(self.delay, delay, at_ns, self._plans())
        self._changed()
        return at_ns

    # ------------------------------------------------------------------ queries
    def progress(self, booking: Booking, now: int) -> int:
        left_ns = self.delay.departure(now)
        self._ahead(booking, lambda plan: self.bottleneck.seen_ns >= left_ns)
        return super().progress(booking, now)

    def due_at(self, booking: Booking, n_bytes: int) -> int:
        need = n_bytes - booking.kept
        self._ahead(
            booking,
            lambda plan: plan is not None and plan.curve.when(need) <= self.bottleneck.seen_ns,
        )
        return super().due_at(booking, n_bytes)

    def steady(self, booking: Booking) -> None:
        return None  # others may change its rate

    def started(self, booking: Booking) -> int | None:
        self._ahead(booking, lambda plan: plan is not None)
        return super().started(booking)

    def opens_at(self, booking: Booking, n_bytes: int) -> int:
        self._ahead(booking, lambda plan: plan is not None)
        return super().opens_at(booking, n_bytes)

    def unserved(self, now: int) -> list[Booking]:
        self.bottleneck.look(now)
        return super().unserved(now)

    # ------------------------------------------------------------------ for the bottleneck
    def give(self, now: int, rate_bit_s: int) -> int:
        """Serve at ``rate_bit_s`` from ``now`` on; return when the transfer would finish at it."""
        booking = self.serving
        assert booking is not None and booking.plan is not None
        share = booking.plan.curve
        assert isinstance(share, Share)
        share.add(now, rate_bit_s)
        left = (booking.transfer.size - booking.kept) * WORK_PER_BYTE - share.work(now)
        if left <= 0:
            return now
        return now - (-left // rate_bit_s) if rate_bit_s else FOREVER

    def finish(self, now: int) -> None:
        """Finish the transfer in service at ``now`` and start the next one."""
        booking = self.serving
        assert booking is not None and booking.plan is not None
        booking.plan = Plan(booking.plan.curve, booking.plan.start_ns, now, self.delay.arrival(now))
        self._go_on(now)

    def take_back(self, at_ns: int) -> bool:
        """Discard the plans after ``at_ns``; return whether a transfer is in service then."""
        for booking in self.queue:
            plan = booking.plan
            if plan is None:
                continue
            if plan.start_ns > at_ns:
                booking.plan = None
            elif plan.finish_ns > at_ns:
                share = plan.curve
                assert isinstance(share, Share)
                share.cut(at_ns)
                booking.plan = Plan(plan.curve, plan.start_ns, FOREVER, FOREVER)
        self._choose(at_ns)
        self._changed()
        return self.serving is not None

    def _choose(self, at_ns: int) -> None:
        first = next(
            (
                booking
                for booking in self.queue
                if booking.plan is None or booking.plan.finish_ns >= FOREVER
            ),
            None,
        )
        self.serving = None if first is None or first.suspended else first
        if self.serving is not None and self.serving.plan is None:
            self.serving.plan = Plan(Share(at_ns), at_ns, FOREVER, FOREVER)

    def _go_on(self, at_ns: int) -> None:
        self._choose(at_ns)
        self.bottleneck.mark(self)
        self._changed()

    def _ahead(self, booking: Booking, known: Callable[[Plan | None], bool]) -> None:
        """Compute epochs until ``known(plan)`` is true, the service has ended, or nothing changes.

        Nothing is computed while this booking or an earlier one is suspended.
        """
        index = self.queue.index(booking)
        if any(before.suspended for before in self.queue[: index + 1]):
            return
        while (
            (booking.plan is None or booking.plan.finish_ns >= FOREVER)
            and not known(booking.plan)
            and self.bottleneck.step(FOREVER)
        ):
            pass
