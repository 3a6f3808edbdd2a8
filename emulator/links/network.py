"""Every link of a run, and the next thing that happens on any of them. No call looks at all
links.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import replace

from emulator.capacity import Capacity
from emulator.delay import Delay
from emulator.links.booking import Booking
from emulator.links.link import BottleneckLike, Link
from emulator.links.transfer import Completion, Transfer
from emulator.units import FOREVER

__all__ = ["Completion", "Network", "Transfer"]


class Network:
    """Links by (edge, direction). All moments are emulated ns; ``now`` may lie behind the last
    ``pop_due`` (a late host).

    Plans follow from the moments that are handed in, so the lateness of a host bends nothing and
    never adds up.
    """

    def __init__(self) -> None:
        self._links: dict[tuple[str, str], Link] = {}
        self._bookings: dict[int, Booking] = {}  # by transfer number
        self._by_order: dict[int, Booking] = {}  # by order of offer
        # (due, order) of the first booking of each link; stale ones are passed over
        self._heap: list[tuple[int, int]] = []
        # links with a queue -> the heap entry of its first booking
        self._busy: dict[Link, tuple[int, int]] = {}
        # those whose next completion is not known at present
        self._unsure: dict[BottleneckLike, None] = {}
        # whose plans changed since the last question, other than by calls about the transfer itself
        self._touched: dict[Link | BottleneckLike, None] = {}
        self._offered = 0

    def add_link(self, edge: str, direction: str, link: Link) -> None:
        """Give ``edge`` its link for ``direction``. ValueError if it has one."""
        if (edge, direction) in self._links:
            raise ValueError(f"edge {edge} has a link {direction} already")
        link.on_change = self._announce
        if link.bottleneck is not None:
            link.bottleneck.on_change = self._mark
        self._links[edge, direction] = link

    def link(self, edge: str, direction: str) -> Link:
        """KeyError if there is none."""
        return self._links[edge, direction]

    def offer(self, transfer: Transfer, now: int) -> str | None:
        """Queue ``transfer`` on its link: None, or the reason why a bounded queue refused it.

        ValueError if its number is in use, KeyError if there is no such link.
        """
        if transfer.number in self._bookings:
            raise ValueError(f"transfer {transfer.number} is on its way already")
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
        """Bytes due at the receiver at ``now`` (past or to come) under the present plan; 0 if it
        is not on its way (any more).
        """
        booking = self._bookings.get(transfer.number)
        return 0 if booking is None else self._link_of(transfer).progress(booking, now)

    def due_at(self, transfer: Transfer, n_bytes: int) -> int:
        """When byte ``n_bytes`` is due at the receiver; FOREVER while that is not planned.
        KeyError if it is not on its way.
        """
        if not 0 <= n_bytes <= transfer.size:
            raise ValueError(
                f"transfer {transfer.number} of {transfer.size} bytes has no byte {n_bytes}"
            )
        return self._link_of(transfer).due_at(self._booking(transfer), n_bytes)

    def started(self, transfer: Transfer) -> int | None:
        """Start of its service, which may lie ahead; None while it is not planned, or not on its
        way.
        """
        booking = self._bookings.get(transfer.number)
        return None if booking is None else self._link_of(transfer).started(booking)

    def opens_at(self, transfer: Transfer, n_bytes: int) -> int:
        """Before that, byte ``n_bytes`` may not be on its way, however wide a window: its slot
        on a channel, else the start of service.
        """
        return self._link_of(transfer).opens_at(self._booking(transfer), n_bytes)

    def stretch_end(self, transfer: Transfer, now: int) -> int:
        """Until when its service lasts without making way for others: the usable end of its slot at
        ``now``, else of its next one.

        A moment of service, like ``opens_at``: bytes arrive later by the delay. FOREVER where there
        are no slots, after the last one, and while none is planned.
        """
        return self._link_of(transfer).stretch_end(self._booking(transfer), now)

    def stretch_bytes(self, transfer: Transfer, n_bytes: int) -> int:
        """Bytes in all by the end of the slot that carries the byte after ``n_bytes``: a piece from
        there to here lies in one slot.

        More than ``n_bytes``, unless all were served; the transfer's size where there are no slots.
        With slots so short that a byte takes several, each byte is in the slot in which it ends.
        """
        return self._link_of(transfer).stretch_bytes(self._booking(transfer), n_bytes)

    def admitted_at(self, transfer: Transfer) -> int:
        """When it found room in its link's queue; FOREVER while that is not planned. KeyError if
        it is not on its way.
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
        """The completions due at or before ``now``, by due moment, then in order of offer."""
        completions = []
        while (due_ns := self.next_due()) <= now and due_ns < FOREVER:
            _, order = heapq.heappop(self._heap)
            booking = self._by_order[order]
            link = self._link_of(booking.transfer)
            windows_ns, started_ns = link.windows_ns(booking), booking.started_ns()
            assert started_ns is not None  # it is due, so it was planned
            link.complete()
            self._forget(booking)
            completions.append(
                Completion(
                    booking.transfer,
                    booking.offered_ns,
                    started_ns,
                    due_ns,
                    windows_ns,
                    booking.shifted_ns,
                )
            )
        return completions

    def suspend(self, transfer: Transfer, confirmed_bytes: int, now: int) -> None:
        """Its session broke: confirmed bytes stay confirmed, and its link stands still until
        ``resume``.

        May be said again when the receiver's own count is known. KeyError if it is not on its way.
        """
        self._link_of(transfer).suspend(self._booking(transfer), confirmed_bytes, now)

    def resume(self, transfer: Transfer, now: int) -> None:
        """Serve it again from the confirmed byte, starting at ``now``. ValueError if it was not
        suspended.
        """
        booking = self._booking(transfer)
        if not booking.suspended:
            raise ValueError(f"transfer {transfer.number} was not suspended")
        self._link_of(transfer).resume(booking, now)

    def cancel(self, transfer: Transfer, now: int) -> None:
        """Drop it and let the next one on its link start. KeyError if it is not on its way."""
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
        """Give a link another capacity or delay (None: as before) from ``at`` on: the moment taken,
        later if the link is settled further.

        What was served stays served, bytes on their way keep their delay, order is kept, and
        nothing bursts. KeyError if there is no such link, ValueError if it is not shaped and in
        use.
        """
        link = self._links[edge, direction]
        taken_ns = link.change(capacity, delay, at)
        self._touched[link] = None
        return taken_ns

    def carried(self, transfer: Transfer, now: int, kind: str) -> Completion:
        """What a transfer that is to be dropped at ``now`` has brought its receiver by then, as
        one of ``kind``. KeyError if it is not on its way.
        """
        booking = self._booking(transfer)
        part = replace(transfer, size=self.progress(transfer, now), kind=kind)
        started_ns = booking.started_ns()
        return Completion(
            part, booking.offered_ns, now if started_ns is None else min(started_ns, now), now
        )

    def grant(self, transfer: Transfer, slots: Iterable[int], now: int) -> list[int]:
        """Give it slots of its TDMA channel: those that it holds now. ValueError if one is past
        or taken, or its link has no slots.
        """
        link, booking = self._link_of(transfer), self._booking(transfer)
        held = link.grant(booking, slots, now)
        self._touched[link] = None
        return held

    def take_replanned(self) -> list[Transfer]:
        """Transfers whose plans may have changed, since this was last asked, by what was done to
        others, to a link or to a bottleneck.
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
            raise KeyError(f"transfer {transfer.number} is not on its way")
        return self._bookings[transfer.number]

    def _link_of(self, transfer: Transfer) -> Link:
        return self._links[transfer.edge, transfer.direction]

    def _forget(self, booking: Booking) -> None:
        del self._bookings[booking.transfer.number], self._by_order[booking.order]

    def _mark(self, bottleneck: BottleneckLike, replanned: bool) -> None:
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
