"""A bottleneck that several links share in one direction.

The links with a transfer in service get max-min fair rates, each limited by its own capacity. Time
is divided into epochs. In an epoch the set of links in service and all capacities are constant, so
each link has one rate, a whole number of bit/s. Epochs are computed ahead only as far as a caller
needs them. If an event changes them, they are computed again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import attrgetter

from emulator.capacity import Capacity
from emulator.capacity.service import WORK_PER_BYTE, bytes_by, moment_of
from emulator.delay import Delay
from emulator.errors import BadValue
from emulator.links.link import Booking, Bound, Link, Plan, changed_delay
from emulator.units import FOREVER, seconds_text


def shares(rate_bit_s: int, caps_bit_s: Sequence[int]) -> list[int]:
    """Divide ``rate_bit_s`` max-min fairly, in whole bit/s, by progressive filling.

    Shares are equal, except that none exceeds its cap; the others share what remains. The first
    uncapped ones get 1 bit/s more each for the remainder of the division, so no rate is lost.
    """
    given = [0] * len(caps_bit_s)
    left = len(caps_bit_s)
    order = sorted(range(left), key=caps_bit_s.__getitem__)
    for place, index in enumerate(order):
        if caps_bit_s[index] > rate_bit_s // left:
            for rest in sorted(order[place:]):
                given[rest] = -(-rate_bit_s // left) if rate_bit_s % left else rate_bit_s // left
                rate_bit_s, left = rate_bit_s - given[rest], left - 1
            break
        given[index] = caps_bit_s[index]
        rate_bit_s, left = rate_bit_s - given[index], left - 1
    return given


class Share:
    """The known service of one transfer.

    Rates are appended as time goes on, and removed if they must be computed again. Work is in bit *
    ns / s, as in ``emulator.capacity.service``.
    """

    __slots__ = ("_starts_ns", "_works", "_rates_bit_s")

    def __init__(self, start_ns: int) -> None:
        self._starts_ns, self._works, self._rates_bit_s = [start_ns], [0], [0]

    def add(self, from_ns: int, rate_bit_s: int) -> None:
        """Append ``rate_bit_s`` from ``from_ns`` on, which is not before the previous rate."""
        if rate_bit_s == self._rates_bit_s[-1]:
            return
        if from_ns == self._starts_ns[-1]:
            self._rates_bit_s[-1] = rate_bit_s
            return
        self._works.append(self.work(from_ns))
        self._starts_ns.append(from_ns)
        self._rates_bit_s.append(rate_bit_s)

    def cut(self, at_ns: int) -> None:
        """Remove the rates from ``at_ns`` on."""
        kept = max(bisect_left(self._starts_ns, at_ns), 1)
        del self._starts_ns[kept:], self._works[kept:], self._rates_bit_s[kept:]
        if self._starts_ns[0] >= at_ns:
            self._rates_bit_s[0] = 0

    def work(self, t_ns: int) -> int:
        """The work done by ``t_ns``, which is not before the last change of rate."""
        return self._works[-1] + self._rates_bit_s[-1] * (t_ns - self._starts_ns[-1])

    def served(self, t_ns: int) -> int:
        if t_ns <= self._starts_ns[0]:
            return 0
        return bytes_by(t_ns, self._starts_ns, self._works, self._rates_bit_s)

    def when(self, size_bytes: int) -> int:
        if size_bytes <= 0:
            return self._starts_ns[0]
        return moment_of(
            size_bytes * WORK_PER_BYTE, self._starts_ns, self._works, self._rates_bit_s
        )


# in a row without service: probably capacities that never serve together and cannot detect it
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
        # called when the next completion must be found again; true if plans have changed
        self.on_change: Callable[[Bottleneck, bool], None] | None = None
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
        """All bookings on its links."""
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
        """Plan ahead until the earliest completion that the links have announced is final.

        Then no completion that is still unknown can be earlier.
        """
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
        caps, ends_ns = [], []
        for link in links:
            cap, until_ns = (rate_bit_s, FOREVER) if link.own is None else link.own.segment(now)
            caps.append(cap)
            ends_ns.append(until_ns)
        rates = shares(rate_bit_s, caps)
        finishes = [link.give(now, rate) for link, rate in zip(links, rates)]
        # A silent side lasts as long as it says, however often the rates of the other one change.
        if any(caps) and rate_bit_s:
            end_ns = min(end_ns, *ends_ns)
        elif rate_bit_s:
            end_ns = min(ends_ns)
        self._idle_epochs = 0 if any(rates) else self._idle_epochs + (end_ns <= limit_ns)
        end_ns = min(end_ns, limit_ns, *finishes)
        if end_ns >= FOREVER:
            return False
        if self._idle_epochs > MOST_IDLE_EPOCHS:
            raise BadValue(
                f"a shared rate and its links serve nothing until {seconds_text(end_ns)} s: are"
                " they ever open together?"
            )
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
        self.bottleneck = bottleneck
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

    def at_once(self, now: int) -> bool:
        return False

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
