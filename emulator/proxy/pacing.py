"""The pacing of the proxy: when each chunk of a stream may leave a link, without socket or clock.

    admit -> [ lane: its capacity ] -> [ junction: shared by several lanes ] -> delay -> pop_due

Where the kernel spaces the bytes of a lane (``Ahead``), chunks leave before they are due, and
``rate_within`` is the rate with which the last of them arrives at its moment.

A host that calls late gets the same moments: each chunk has the time of its arrival, and a lane's
clock continues from the previous chunk. It restarts only if nothing was waiting. All due chunks
come out together, so lateness does not accumulate.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

from emulator.capacity import Capacity
from emulator.capacity.service import Curve
from emulator.delay import Delay, Latency
from emulator.units import FOREVER, NS_PER_S

Item = TypeVar("Item")

NS_PER_MS = 1_000_000
# link time that may wait: more than the lateness of a host, less than a person notices
DEPTH_NS = 100 * NS_PER_MS
# a full lane is filled again at this depth, so that it needs few wake-ups
REFILL_NS = 75 * NS_PER_MS
CHUNK_NS = 10 * NS_PER_MS
# minimum; maximum if it takes CHUNK_NS; maximum if it takes 1 ms
CHUNK_BYTES = (512, 16 * 1024, 64 * 1024)
OPEN_BYTES = 256 * 1024  # chunk size if nothing is shaped
LEAST_WAITING = 4  # chunks that may always wait, even on a very slow lane
# link time that may wait if the kernel spaces the bytes; it is filled again at half of this
KERNEL_DEPTH_NS = 400 * NS_PER_MS
KERNEL_CHUNK = 100 * NS_PER_MS, 256 * 1024  # link time; maximum (bytes)
GRID = 10  # moments to fill again, while the queue becomes empty
LEAST_QUEUE_NS = 50 * NS_PER_MS  # what a send buffer must hold, more than the lateness of a host
# a curve keeps its segments, so a long busy period uses several curves; each change costs < 1 ns
CURVE_NS = 10_000 * NS_PER_MS


@dataclass(frozen=True, slots=True)
class Ahead:
    """A constant rate of which the kernel may have the next bytes ahead of their moments."""

    bytes_s: int
    depth_ns: int

    @property
    def piece_bytes(self) -> int:
        """What the kernel sends at once."""
        return _chunk_bytes(self.takes(CHUNK_NS))

    @property
    def refill_ns(self) -> int:
        """The lane is filled again when so much link time waits."""
        return self.depth_ns // 2

    @property
    def chunk_bytes(self) -> int:
        """The size of chunks; they are longer than those that leave one by one."""
        return max(self.piece_bytes, min(self.takes(KERNEL_CHUNK[0]), KERNEL_CHUNK[1]))

    def wake_ns(self, empty_ns: int) -> int:
        """When to fill a queue again that is empty at ``empty_ns``.

        Links have these moments in common, so that one wake-up serves many.
        """
        grid_ns = max(self.refill_ns // GRID, 1)
        return -(-(empty_ns - self.refill_ns) // grid_ns) * grid_ns

    def takes(self, within_ns: int) -> int:
        """The bytes that pass within this time."""
        return self.bytes_s * within_ns // NS_PER_S

    def takes_ns(self, size_bytes: int) -> int:
        return size_bytes * NS_PER_S // self.bytes_s

    def begins_ns(self, start_ns: int, end_ns: int) -> int:
        """When the kernel may have the bytes of ``start_ns`` to ``end_ns`` if it has no others.

        It sends one piece at once, the second after half of its time, and the others evenly. So
        none is early, and a single piece is exact.
        """
        return min(start_ns + self.takes_ns(3 * self.piece_bytes) // 2, end_ns)

    def rate_within(self, unsent: int, left_ns: int, began: bool, ended: bool) -> int | None:
        """The rate (bytes/s) with which ``unsent`` bytes have left within ``left_ns``.

        None: as fast as possible. ``began``: it was sending when the last bytes came. ``ended``: no
        others follow, so that the last piece may be a short one.
        """
        last = piece = self.piece_bytes
        if ended:
            last = (unsent - 1) % piece + 1
        if began:
            least_ns = left_ns - self.takes_ns(piece)  # the next piece is due within this time
            left_ns = min(max(self.takes_ns(unsent - piece), least_ns), left_ns)
            size = unsent - last
        else:
            size = unsent - last - piece // 2
        return size * NS_PER_S // left_ns if left_ns > 0 and size > 0 else None


def ahead_of(
    capacity: Capacity | None, delay: Delay, shared: bool, queue_bytes: int
) -> Ahead | str:
    """How the kernel may space the bytes of a lane, or why it cannot.

    ``queue_bytes``: what a connection's send buffer holds; 0: this system does not pace.
    """
    bytes_s, until_ns = (0, FOREVER) if capacity is None else capacity.segment(0)
    bytes_s //= 8
    if capacity is None and not shared:
        return "it is not shaped"
    if shared:
        return "it shares a rate with others"
    if until_ns < FOREVER:
        return "its rate changes"
    if not isinstance(delay, Latency):
        return "its latency varies"
    if not queue_bytes:
        return "this system does not pace connections"
    if bytes_s * LEAST_QUEUE_NS < CHUNK_BYTES[0] * NS_PER_S:
        return f"it is too slow for pieces of {CHUNK_BYTES[0]} bytes"
    depth_ns = min(queue_bytes * NS_PER_S // bytes_s, KERNEL_DEPTH_NS)
    if depth_ns < LEAST_QUEUE_NS:
        return f"it is too fast for a send buffer of {queue_bytes} bytes (net.core.wmem_max)"
    return Ahead(bytes_s, depth_ns)


class Server:
    """A capacity that serves one chunk after the other; with None, each chunk at once."""

    def __init__(self, capacity: Capacity | None) -> None:
        self.capacity = capacity
        self.free_ns = 0
        self._since_ns = -1
        self._curve: Curve | None = None
        self._bytes = 0
        self._sized_ns = -DEPTH_NS
        self._chunk_bytes = OPEN_BYTES

    def serve(self, size_bytes: int, arrived_ns: int) -> int:
        """Serve ``size_bytes`` that arrived at ``arrived_ns``; return when the last is served.

        Exactly vt = max(vt, arrival) + size / rate, with vt the virtual time of this server.
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
        """The size of the next chunk: about 10 ms of link time, computed again every 100 ms."""
        if self.capacity is not None and now - self._sized_ns >= DEPTH_NS:
            self._sized_ns = now
            ahead_bytes = Curve(self.capacity, now).served(now + DEPTH_NS)
            self._chunk_bytes = _chunk_bytes(ahead_bytes * CHUNK_NS // DEPTH_NS)
        return self._chunk_bytes


def _chunk_bytes(share_bytes: int) -> int:
    """The size of chunks if ``share_bytes`` pass within CHUNK_NS."""
    least, usual, most = CHUNK_BYTES
    return max(least, min(share_bytes, usual), min(share_bytes * NS_PER_MS // CHUNK_NS, most))


class Junction(Generic[Item]):
    """A bottleneck that several lanes share by start-time fair queueing, with equal weights.

    Source: Goyal, Vin, Cheng, "Start-time Fair Queueing", IEEE/ACM Transactions on Networking 5(5),
    1997.
    """

    def __init__(self, capacity: Capacity) -> None:
        self.server = Server(capacity)
        # (arrival of its first chunk, number, lane) of lanes that are not yet ready
        self._coming: list[tuple[int, int, Lane[Item]]] = []
        self._ready: list[tuple[int, int, Lane[Item]]] = []  # (start tag, number, lane)
        self._tag = 0  # virtual time: the start tag of the chunk in service
        self._last_tag = 0  # the largest finish tag so far

    def announce(self, lane: Lane[Item]) -> None:
        """Register the first waiting chunk of ``lane``."""
        heapq.heappush(self._coming, (lane.waiting[0][0], lane.number, lane))

    def next_decision(self) -> int:
        """When the next chunk enters service; FOREVER if none is known."""
        if self._ready:
            return self.server.free_ns
        return max(self.server.free_ns, self._coming[0][0]) if self._coming else FOREVER

    def advance(self, now: int) -> None:
        """Serve all chunks whose service begins by ``now``.

        Every chunk that has arrived by ``now`` must have been admitted before.
        """
        while (at_ns := self.next_decision()) <= now and at_ns < FOREVER:
            if at_ns > self.server.free_ns:
                self._tag = self._last_tag  # it was idle, so all lanes start with equal tags
            while self._coming and self._coming[0][0] <= at_ns:
                _, number, lane = heapq.heappop(self._coming)
                lane.tag = max(lane.tag, self._tag)
                heapq.heappush(self._ready, (lane.tag, number, lane))
            self._serve(heapq.heappop(self._ready)[2], at_ns)

    def allowance_bytes(self, now: int) -> int:
        """How many bytes of one lane may wait here: its share of 100 ms, or a few chunks."""
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
    """One direction of one link.

    Chunks pass in order of arrival through ``capacity`` (None: not shaped), ``junction`` and
    ``delay``.
    """

    def __init__(
        self,
        number: int,
        capacity: Capacity | None,
        delay: Delay,
        junction: Junction[Item] | None = None,
        ahead: Ahead | None = None,
    ) -> None:
        self.number = number
        self.delay = delay
        self.junction = junction
        self.ahead = ahead
        self.latest_ns = 0  # when the latest chunk arrived
        self._full = False  # and not yet down to a refill; if the kernel spaces the bytes
        self.server = Server(capacity)
        self.tag = 0  # start tag of the next chunk at the junction
        # (arrival at the junction, bytes, item)
        self.waiting: deque[tuple[int, int, Item]] = deque()
        self.waiting_bytes = 0
        self.served: deque[tuple[int, Item]] = deque()  # (due at the receiver, item)

    def admit(self, size_bytes: int, item: Item, now: int) -> None:
        """Queue a chunk that arrived at ``now``, which never decreases.

        A chunk of size 0 is a marker that keeps its place in the order.
        """
        self.latest_ns = now
        served_ns = self.server.serve(size_bytes, now)
        if self.junction is None:
            self.depart(served_ns, item)
            return
        self.waiting.append((served_ns, size_bytes, item))
        self.waiting_bytes += size_bytes
        if len(self.waiting) == 1:
            self.junction.announce(self)

    def depart(self, served_ns: int, item: Item) -> None:
        """Record that the last server has served ``item`` at ``served_ns``."""
        self.served.append((self.delay.arrival(served_ns), item))

    def next_due(self) -> int:
        """When the first served item arrives; FOREVER if there is none."""
        return self.served[0][0] if self.served else FOREVER

    def pop_due(self, now: int) -> list[tuple[int, Item]]:
        """Remove and return the items that have arrived by ``now``, as (moment, item) in order."""
        due = []
        while self.served and self.served[0][0] <= now < FOREVER:
            due.append(self.served.popleft())
        return due

    def has_room(self, now: int) -> bool:
        """Whether another chunk may be admitted: less than 100 ms of link time wait.

        If the kernel spaces the bytes, ``depth_ns``; and once so much waits, the refill.
        """
        if self.junction is not None and self.waiting_bytes >= self.junction.allowance_bytes(now):
            return False
        waiting_ns = self.server.free_ns - now
        if self.ahead is None:
            return waiting_ns < DEPTH_NS
        self._full = waiting_ns >= (self.ahead.refill_ns if self._full else self.ahead.depth_ns)
        return not self._full

    def room_at(self, now: int) -> int:
        """When to fill a full lane again.

        Now if it has room again. FOREVER if it waits for its junction: then the next decision of
        the junction may make room.
        """
        if self.ahead is not None:
            return self.ahead.wake_ns(self.server.free_ns) if self._full else now
        if self.server.free_ns - now >= DEPTH_NS:
            return self.server.free_ns - REFILL_NS
        return now if self.has_room(now) else FOREVER

    def chunk_bytes(self, now: int) -> int:
        """The size of the next chunk."""
        chunk_bytes = self.server.chunk_bytes(now)
        return (
            chunk_bytes
            if self.junction is None
            else min(chunk_bytes, self.junction.server.chunk_bytes(now))
        )
