"""When each chunk of a stream may leave a link: the arithmetic of the proxy, without a socket or a
clock.

    admit -> [ lane: its capacity ] -> [ junction: what several lanes share ] -> delay -> pop_due

A host that calls late is told the same moments: chunks are stamped as they arrive, a lane's clock
goes on from the chunk before, and it starts anew only where nothing was waiting. What is due comes
out all at once, so lateness does not add up.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Generic, TypeVar

from emulator.capacity import Capacity
from emulator.capacity.service import Curve
from emulator.delay import Delay
from emulator.units import FOREVER

Item = TypeVar("Item")

NS_PER_MS = 1_000_000
# of link time may wait: more than a host is late, less than a person notices
DEPTH_NS = 100 * NS_PER_MS
# a full lane is filled again from here, so that it costs a wake only now and then
REFILL_NS = 75 * NS_PER_MS
CHUNK_NS = 10 * NS_PER_MS
# least; most where it takes CHUNK_NS; most where it takes a millisecond
CHUNK_BYTES = (512, 16 * 1024, 64 * 1024)
OPEN_BYTES = 256 * 1024  # a chunk where nothing is shaped
LEAST_WAITING = 4  # chunks that may wait however slow the lane is
# a curve keeps its segments, so a long busy period is cut into curves; each cut costs < 1 ns
CURVE_NS = 10_000 * NS_PER_MS


class Server:
    """A capacity (None: at once) that serves one chunk after the other."""

    def __init__(self, capacity: Capacity | None) -> None:
        self.capacity = capacity
        self.free_ns = 0
        self._since_ns = -1
        self._curve: Curve | None = None
        self._bytes = 0
        self._sized_ns = -DEPTH_NS
        self._chunk_bytes = OPEN_BYTES

    def serve(self, size_bytes: int, arrived_ns: int) -> int:
        """When the last of ``size_bytes`` is served that came at ``arrived_ns``: vt = max(vt,
        arrival) + size / rate, exactly.
        """
        start_ns = max(self.free_ns, arrived_ns)
        if self.capacity is None or start_ns >= FOREVER:
            self.free_ns = start_ns
            return start_ns
        if self._curve is None or arrived_ns > self.free_ns or start_ns - self._since_ns > CURVE_NS:
            self._curve, self._since_ns, self._bytes = Curve(self.capacity, start_ns), start_ns, 0
        self._bytes += size_bytes
        self.free_ns = self._curve.when(self._bytes)
        return self.free_ns

    def chunk_bytes(self, now: int) -> int:
        """How much to take at once: about 10 ms of link time, looked up again each 100 ms."""
        if self.capacity is not None and now - self._sized_ns >= DEPTH_NS:
            self._sized_ns = now
            least, usual, most = CHUNK_BYTES
            ahead_bytes = Curve(self.capacity, now).served(now + DEPTH_NS)
            share_bytes = ahead_bytes * CHUNK_NS // DEPTH_NS
            self._chunk_bytes = max(
                least, min(share_bytes, usual), min(share_bytes * NS_PER_MS // CHUNK_NS, most)
            )
        return self._chunk_bytes


class Junction(Generic[Item]):
    """A bottleneck that lanes share: one virtual clock, start-time fair queueing over the lanes.

    Source: Goyal, Vin, Cheng, "Start-time Fair Queueing", IEEE/ACM Transactions on Networking 5(5),
    1997; all weights equal.
    """

    def __init__(self, capacity: Capacity) -> None:
        self.server = Server(capacity)
        # (arrival of its first chunk, number, lane): not yet in the contest
        self._coming: list[tuple[int, int, Lane[Item]]] = []
        self._ready: list[tuple[int, int, Lane[Item]]] = []  # (start tag, number, lane)
        self._tag = 0  # virtual time: the start tag of the chunk in service
        self._last_tag = 0  # the largest finish tag so far

    def announce(self, lane: Lane[Item]) -> None:
        """The first chunk that waits in ``lane`` has become known."""
        heapq.heappush(self._coming, (lane.waiting[0][0], lane.number, lane))

    def next_decision(self) -> int:
        """When the next chunk goes into service; FOREVER if none is known."""
        if self._ready:
            return self.server.free_ns
        return max(self.server.free_ns, self._coming[0][0]) if self._coming else FOREVER

    def advance(self, now: int) -> None:
        """Serve everything whose service begins at or before ``now``; every arrival up to
        ``now`` must have been admitted.
        """
        while (at_ns := self.next_decision()) <= now and at_ns < FOREVER:
            if at_ns > self.server.free_ns:
                self._tag = self._last_tag  # it stood idle: all begin equal
            while self._coming and self._coming[0][0] <= at_ns:
                _, number, lane = heapq.heappop(self._coming)
                lane.tag = max(lane.tag, self._tag)
                heapq.heappush(self._ready, (lane.tag, number, lane))
            self._serve(heapq.heappop(self._ready)[2], at_ns)

    def allowance_bytes(self, now: int) -> int:
        """What one lane may keep waiting here: its share of 100 ms, or a few chunks."""
        chunk_bytes = self.server.chunk_bytes(now)
        return max(
            LEAST_WAITING * chunk_bytes,
            chunk_bytes * (DEPTH_NS // CHUNK_NS) // max(1, len(self._ready) + len(self._coming)),
        )

    def _serve(self, lane: Lane[Item], at_ns: int) -> None:
        _, size_bytes, item = lane.waiting.popleft()
        lane.waiting_bytes -= size_bytes
        self._tag = lane.tag
        lane.tag += size_bytes
        self._last_tag = max(self._last_tag, lane.tag)
        lane.depart(self.server.serve(size_bytes, at_ns), item)
        if lane.waiting:
            self.announce(lane)


class Lane(Generic[Item]):
    """One direction of one link: chunks in order of arrival through ``capacity`` (None: not
    shaped), ``junction`` and ``delay``.
    """

    def __init__(
        self,
        number: int,
        capacity: Capacity | None,
        delay: Delay,
        junction: Junction[Item] | None = None,
    ) -> None:
        self.number = number
        self.delay = delay
        self.junction = junction
        self.server = Server(capacity)
        self.tag = 0  # of the junction: the start tag of the next chunk
        # (arrival at the junction, bytes, item)
        self.waiting: deque[tuple[int, int, Item]] = deque()
        self.waiting_bytes = 0
        self._served: deque[tuple[int, Item]] = deque()  # (due at the receiver, item)

    def admit(self, size_bytes: int, item: Item, now: int) -> None:
        """Queue a chunk that arrived at ``now``; ``now`` never decreases. Size 0 is a marker
        that keeps its place in the order.
        """
        served_ns = self.server.serve(size_bytes, now)
        if self.junction is None:
            self.depart(served_ns, item)
            return
        self.waiting.append((served_ns, size_bytes, item))
        self.waiting_bytes += size_bytes
        if len(self.waiting) == 1:
            self.junction.announce(self)

    def depart(self, served_ns: int, item: Item) -> None:
        """The last server is through with ``item``."""
        self._served.append((self.delay.arrival(served_ns), item))

    def next_due(self) -> int:
        """When the first of what is on its way arrives, as far as it is known; FOREVER if
        nothing is.
        """
        return self._served[0][0] if self._served else FOREVER

    def pop_due(self, now: int) -> list[tuple[int, Item]]:
        """What has arrived by ``now``, as (moment, item) in order."""
        due = []
        while self._served and self._served[0][0] <= now < FOREVER:
            due.append(self._served.popleft())
        return due

    def has_room(self, now: int) -> bool:
        """Whether another chunk may be admitted: less than 100 ms wait, or very little."""
        if self.junction is not None and self.waiting_bytes >= self.junction.allowance_bytes(now):
            return False
        return self.server.free_ns - now < DEPTH_NS

    def room_at(self, now: int) -> int:
        """From when on a full lane is worth filling again; FOREVER if it waits for its junction,
        whose next decision may make room.
        """
        return self.server.free_ns - REFILL_NS if self.server.free_ns - now >= DEPTH_NS else FOREVER

    def chunk_bytes(self, now: int) -> int:
        """How much to take at once."""
        chunk_bytes = self.server.chunk_bytes(now)
        return (
            chunk_bytes
            if self.junction is None
            else min(chunk_bytes, self.junction.server.chunk_bytes(now))
        )
