"""All links of a run, and the next completion on any of them; no call loops over all links."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from emulator.capacity import Capacity
from emulator.delay import Delay
from emulator.links.bottleneck import Bottleneck, SharedLink
from emulator.links.link import Booking, Completion, Link, Transfer
from emulator.units import FOREVER

__all__ = ["Completion", "Network", "Supply", "Transfer"]

Supply = Callable[[str, str], Link | None]  # (edge, direction) -> its link; None: there is none


class Network:
    """Links by (edge, direction). All moments are in emulated ns.

    ``now`` may be earlier than the last ``pop_due``, if the host is late. Plans depend only on the
    moments that callers pass, so a late host does not distort them and lateness does not
    accumulate.
    """

    def __init__(self, supply: Supply | None = None) -> None:
        """``supply`` makes a link that was not added, when it is first used."""
        self._supply = supply
        self._links: dict[tuple[str, str], Link] = {}
        self._bookings: dict[int, Booking] = {}  # by transfer number
        self._by_order: dict[int, Booking] = {}  # by order of offer
        # (due, order) of the first booking of each link; outdated entries are skipped
        self._heap: list[tuple[int, int]] = []
        # links with a queue -> the heap entry of its first booking
        self._busy: dict[Link, tuple[int, int]] = {}
        # bottlenecks whose next completion is not known yet
        self._unsure: dict[Bottleneck, None] = {}
        # plans changed since the last query, except by calls about the transfer itself
        self._touched: dict[Link | Bottleneck, None] = {}
        self._offered = 0

    def __str__(self) -> str:
        """A line for each link, with the transfers in its queue."""
        lines = []
        for (edge, direction), link in sorted(self._links.items(), key=lambda item: item[0]):
            queue = ", ".join(str(booking) for booking in link.queue)
            lines.append(f"{edge} {direction}: {queue or 'idle'}")
        return "\n".join(lines)

    def add_link(self, edge: str, direction: str, link: Link) -> None:
        """Give ``edge`` its link for ``direction``. ValueError if it has one."""
        if (edge, direction) in self._links:
            raise ValueError(f"edge {edge} has a link {direction} already")
        link.on_change = self._announce
        if isinstance(link, SharedLink):
            link.bottleneck.on_change = self._mark
        self._links[edge, direction] = link

    def link(self, edge: str, direction: str) -> Link:
        """Return the link of ``edge`` in ``direction``. KeyError if there is none."""
        try:
            return self._links[edge, direction]
        except KeyError:
            link = None if self._supply is None else self._supply(edge, direction)
            if link is None:
                raise
        self.add_link(edge, direction, link)
        return link

    def booked(self, transfer: Transfer) -> tuple[Link, Booking | None]:
        """The transfer's link, and its booking there; None while it is not in progress."""
        return self._link_of(transfer), self._bookings.get(transfer.number)

    def at_once(self, edge: str, direction: str, now: int) -> bool:
        """Whether a transfer that is offered now is due now, because its link is idle and emulates
        nothing.
        """
        return self.link(edge, direction).at_once(now)

    def offer(self, transfer: Transfer, now: int) -> str | None:
        """Queue ``transfer`` on its link; return None, or why a bounded queue refuses it.

        ValueError if its number is in use; KeyError if there is no such link.
        """
        if transfer.number in self._bookings:
            raise ValueError(f"transfer {transfer.number} is already in progress")
        link = self._link_of(transfer)
        if link.bound is not None and (reason := link.refuses(transfer.size, now)) is not None:
            link.dropped_bytes += transfer.size
            return reason
        booking = Booking(transfer, self._offered, offered_ns=now)
        self._offered += 1
        self._bookings[transfer.number] = self._by_order[booking.order] = booking
        link.offer(booking)
        return None

    def progress(self, transfer: Transfer, now: int) -> int:
        """Bytes due at the receiver by ``now`` (past or future) under the current plan.

        0 if the transfer is not in progress.
        """
        booking = self._bookings.get(transfer.number)
        return 0 if booking is None else self._link_of(transfer).progress(booking, now)

    def due_at(self, transfer: Transfer, n_bytes: int) -> int:
        """When byte ``n_bytes`` is due at the receiver; FOREVER while not planned.

        KeyError if the transfer is not in progress.
        """
        if not 0 <= n_bytes <= transfer.size:
            raise ValueError(
                f"transfer {transfer.number} of {transfer.size} bytes has no byte {n_bytes}"
            )
        return self._link_of(transfer).due_at(self._booking(transfer), n_bytes)

    def started(self, transfer: Transfer) -> int | None:
        """The start of its service, which may be in the future.

        None while it is not planned or not in progress.
        """
        booking = self._bookings.get(transfer.number)
        return None if booking is None else self._link_of(transfer).started(booking)

    def opens_at(self, transfer: Transfer, n_bytes: int) -> int:
        """The earliest moment at which byte ``n_bytes`` may be sent, whatever the window.

        This is the start of its slot on a TDMA channel, otherwise the start of service.
        """
        return self._link_of(transfer).opens_at(self._booking(transfer), n_bytes)

    def stretch_bytes(self, transfer: Transfer, n_bytes: int) -> int:
        """Total bytes by the end of the slot that carries byte ``n_bytes`` + 1.

        So the bytes from ``n_bytes`` up to the result lie in one slot. The result is more than
        ``n_bytes`` unless all bytes were served; it is the transfer's size on a link without slots.
        If slots are so short that a byte takes several, a byte belongs to the slot in which it
        ends.
        """
        return self._link_of(transfer).stretch_bytes(self._booking(transfer), n_bytes)

    def admitted_at(self, transfer: Transfer) -> int:
        """When its link's queue has room for it; FOREVER while not planned.

        KeyError if the transfer is not in progress.
        """
        return self._link_of(transfer).admitted_at(self._booking(transfer))

    def next_due(self) -> int:
        """The earliest completion; FOREVER if there is none."""
        while self._unsure:
            self._unsure.popitem()[0].foresee()
        while self._heap:
            due_ns, order = self._heap[0]
            booking = self._by_order.get(order)
            if booking is not None and booking.plan is not None and booking.plan.due_ns == due_ns:
                return due_ns
            heapq.heappop(self._heap)
        return FOREVER

    def pop_due(self, now: int) -> list[Completion]:
        """Remove and return the completions due by ``now``, by due moment, then order of offer."""
        completions = []
        while self._unsure or (self._heap and self._heap[0][0] <= now):
            due_ns = self.next_due()
            if due_ns > now or due_ns >= FOREVER:
                break
            _, order = heapq.heappop(self._heap)
            booking = self._by_order[order]
            link = self._link_of(booking.transfer)
            windows_ns, started_ns = link.windows_ns(booking), booking.started_ns()
            assert started_ns is not None  # a due transfer has a plan
            link.complete()
            self._forget(booking)
            sent, offered_ns, shifted_ns = booking.transfer, booking.offered_ns, booking.shifted_ns
            completions.append(
                Completion(sent, offered_ns, started_ns, due_ns, windows_ns, shifted_ns)
            )
        return completions

    def suspend(self, transfer: Transfer, confirmed_bytes: int, now: int) -> None:
        """Stop it after its session broke; its link is blocked until ``resume`` or ``cancel``.

        ``confirmed_bytes`` stay confirmed. May be called again when the receiver's own count is
        known. KeyError if the transfer is not in progress.
        """
        self._link_of(transfer).suspend(self._booking(transfer), confirmed_bytes, now)

    def resume(self, transfer: Transfer, now: int) -> None:
        """Continue its service after the confirmed bytes, from ``now`` on.

        ValueError if it was not suspended.
        """
        booking = self._booking(transfer)
        if not booking.suspended:
            raise ValueError(f"transfer {transfer.number} was not suspended")
        self._link_of(transfer).resume(booking, now)

    def cancel(self, transfer: Transfer, now: int) -> None:
        """Drop it and start the next one on its link. KeyError if it is not in progress."""
        booking = self._booking(transfer)
        self._forget(booking)
        self._link_of(transfer).cancel(booking, now)

    def change(
        self,
        edge: str,
        direction: str,
        capacity: Capacity | None = None,
        delay: Delay | None = None,
        *,
        at: int,
    ) -> int:
        """Replace a link's capacity or delay (None: unchanged) from ``at`` on.

        Return the moment used, which is later than ``at`` if the link is settled further. Served
        bytes stay served, bytes in flight keep their delay, order is kept, and there is no burst.
        KeyError if there is no such link; ValueError for a capacity if the link is not shaped and
        in use.
        """
        link = self.link(edge, direction)
        taken_ns = link.change(capacity, delay, at)
        self._touched[link] = None
        return taken_ns

    def carried(self, transfer: Transfer, now: int, kind: str) -> Completion:
        """The part of a transfer that has arrived by ``now``, as a completion of ``kind``.

        Call it before the transfer is cancelled. KeyError if it is not in progress.
        """
        booking = self._booking(transfer)
        part = replace(transfer, size=self.progress(transfer, now), kind=kind)
        started_ns = booking.started_ns()
        return Completion(
            part, booking.offered_ns, now if started_ns is None else min(started_ns, now), now
        )

    def grant(self, transfer: Transfer, slots: Iterable[int], now: int) -> list[int]:
        """Give it slots of its TDMA channel; return all slots that it holds.

        ValueError if one is past or taken, or if its link has no slots.
        """
        link, booking = self._link_of(transfer), self._booking(transfer)
        held = link.grant(booking, slots, now)
        self._touched[link] = None
        return held

    def take_replanned(self) -> list[Transfer]:
        """Transfers whose plans may have changed since the last call of this method.

        These are changes caused by other transfers, by a link or by a bottleneck.
        """
        if not self._touched:
            return []
        touched, self._touched = self._touched, {}
        bookings = [
            booking
            for one in touched
            for booking in (one.queue if isinstance(one, Link) else one.bookings())
        ]
        return [booking.transfer for booking in dict.fromkeys(bookings)]

    def _booking(self, transfer: Transfer) -> Booking:
        if transfer.number not in self._bookings:
            raise KeyError(f"transfer {transfer.number} is not in progress")
        return self._bookings[transfer.number]

    def _link_of(self, transfer: Transfer) -> Link:
        link = self._links.get((transfer.edge, transfer.direction))
        return self.link(transfer.edge, transfer.direction) if link is None else link

    def _forget(self, booking: Booking) -> None:
        del self._bookings[booking.transfer.number], self._by_order[booking.order]

    def _mark(self, bottleneck: Bottleneck, replanned: bool) -> None:
        self._unsure[bottleneck] = None
        if replanned:
            self._touched[bottleneck] = None

    def _announce(self, link: Link) -> None:
        if not link.queue:
            self._busy.pop(link, None)
            return
        first = link.queue[0]
        due_ns = first.plan.due_ns if first.plan else FOREVER
        if due_ns < FOREVER and self._busy.get(link) != (due_ns, first.order):
            heapq.heappush(self._heap, (due_ns, first.order))
        self._busy[link] = (due_ns, first.order)
