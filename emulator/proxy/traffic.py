"""The two ends of each proxied connection, and the traffic between them over the lanes.

Callers pass the sockets and the clock. On a road whose bytes the kernel spaces, all next chunks of
one sender leave together, up to 400 ms ahead, and the kernel gets the rate with which the last byte
has left when it is due. The first ten segments of a connection, which no kernel spaces, are the
parts of its first chunk, which leaves alone at its moment; so do all chunks to a connection that
this kernel cannot pace.
"""

from __future__ import annotations

import errno
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from emulator.fidelity import Fidelity
from emulator.kernel_pacing import PacedConnection
from emulator.proxy.pacing import Ahead, Lane
from emulator.proxy.record import BusyPeriods, ConnectionRecord, Log, ProxyFlow, Totals
from emulator.units import FOREVER, NS_PER_S

# In transit: minimum for one connection, maximum for one whose lane has no rate that limits it, and
# maximum of all. So a shaped lane may have as much under way as its rate and latency mean.
HELD_BYTES = (64 * 1024, 16 * 2**20)
HELD_IN_ALL_BYTES = 256 * 2**20
UNTAKEN_BYTES = 512 * 1024  # due bytes that a receiver has not taken; with more, its sender waits
PASS_BYTES = 512 * 1024  # read from one lane before the turn of the next
FILL_NS = 500_000  # read from lanes for at most this time before sending what is due
ROUNDED_NS = 10_000
UNPACED_SEGMENTS = 10  # at the beginning of a connection
# MSG_EOR: what was sent is a packet, or several, of its own. So the kernel spaces our pieces;
# without it, bursts of half a congestion window, which may be 300 kB on loopback.
END_OF_RECORD = 0x80
# The kernel's stamp of arrival (timespec, CLOCK_REALTIME), for a host that reads late. An older one
# is not believed: another clock may have been set meanwhile.
TIMESTAMPS, TIMESPEC, OLDEST_NS = 35, struct.Struct("@qq"), NS_PER_S  # SO_TIMESTAMPNS
SHUT_WR = 1
NOT_SPACED = (
    "this system accepts a pacing rate and sends faster, so bytes were early: use pacing process"
)
# errors of sending after which the peer's last bytes may still be there to read
PEER_GONE = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN)
Ancillary = tuple[int, int, bytes]  # (level, type, data)


class Socket(Protocol):
    """The methods needed of a non-blocking stream socket."""

    def recv(self, size: int, /) -> bytes: ...

    def recvmsg(self, size: int, more: int, /) -> tuple[bytes, list[Ancillary], int, Any]: ...

    def send(self, data: bytes | memoryview, flags: int, /) -> int: ...

    def shutdown(self, how: int, /) -> None: ...


class Road:
    """A lane in one direction ("up" or "down"), and the ends that wait for their turn on it.

    ``busy``: what records its busy periods. ``paced_bytes``: the part of its ``bytes`` that the
    kernel spaced; ``not_paced``: why it may not, if it was asked. ``next_ns``: when ``deliver`` has
    work.
    """

    __slots__ = (
        *("busy", "bytes", "direction", "lane", "not_paced", "paced_bytes", "shaped", "turns"),
        "_next_ns",
    )

    def __init__(self, direction: str, lane: Lane[Item], not_paced: str = "") -> None:
        self.direction, self.lane, self.not_paced = direction, lane, not_paced
        self.turns: deque[ConnectionEnd] = deque()
        self.busy: BusyPeriods | None = None
        self.shaped = lane.server.capacity is not None or lane.junction is not None
        self.bytes = self.paced_bytes = 0
        self._next_ns: int | None = None

    def next_ns(self) -> int:
        if self.lane.ahead is None:
            return self.lane.next_due()
        if self._next_ns is None:
            self._next_ns = self._kernel_ns(self.lane.ahead)
        return self._next_ns

    def changed(self) -> None:
        """Compute the next moment again."""
        self._next_ns = None

    def run(self, ahead: Ahead) -> tuple[int, ConnectionEnd | None]:
        """How many of the next items leave together, and their receiver if the kernel spaces them.

        They follow each other without a pause.
        """
        items = self.lane.served
        if not items or items[0][1][1] is None or not (dest := items[0][1][0].other).spaced:
            return 1, None
        count, until_ns = 0, items[0][0]
        for due_ns, (source, data, _) in items:
            begins_ns = due_ns - ahead.takes_ns(len(data or b""))
            if source.other is not dest or data is None or begins_ns > until_ns + ROUNDED_NS:
                break
            count, until_ns = count + 1, due_ns
        return count, dest

    def _kernel_ns(self, ahead: Ahead) -> int:
        count, dest = self.run(ahead)
        if dest is None:
            return self.lane.next_due() + self._last_piece_ns(ahead)
        first_ns, (_, data, _) = self.lane.served[0]
        start_ns = first_ns - ahead.takes_ns(len(data or b""))
        if start_ns <= dest.leaves_ns + ROUNDED_NS:
            return ahead.wake_ns(dest.leaves_ns)
        return ahead.begins_ns(start_ns, self.lane.served[count - 1][0])

    def _last_piece_ns(self, ahead: Ahead) -> int:
        """A reset waits for the last piece, which the kernel would drop."""
        first = self.lane.served[0][1] if self.lane.served else None
        reset = first is not None and first[1] is None and first[0].other.spaced
        return ahead.takes_ns(ahead.piece_bytes) if reset else 0


@dataclass(slots=True, eq=False)
class ConnectionEnd:
    """One socket of a connection.

    Bytes read from it go over ``road`` to the ``other`` end. ``out`` holds bytes that are due here
    but that the socket has not taken yet, ``untaken`` of them in all; ``held``: bytes read here
    that the other end has not got. ``refused``: why its peer takes no more bytes; those that it had
    sent before may wait to be read. ``paced``: if the kernel may space the bytes sent here, the
    last of which leaves at ``leaves_ns``; ``fresh`` segments must leave before it does.
    """

    sock: Socket
    name: str
    road: Road
    record: ConnectionRecord
    other: ConnectionEnd = field(init=False)
    out: deque[bytes | memoryview] = field(default_factory=deque)
    untaken: int = 0
    held: int = 0
    refused: OSError | None = None
    readable: bool = False
    prompt: bool = False  # read as soon as its lane has room
    writable: bool = False
    queued: bool = False
    finished: bool = False
    shut: bool = False
    dead: bool = False
    paced: PacedConnection | None = None
    fresh: int = UNPACED_SEGMENTS
    alone: int = UNPACED_SEGMENTS  # of the other end's, to be read
    leaves_ns: int = 0

    @property
    def spaced(self) -> bool:
        """Whether the kernel spaces what is sent here now."""
        return self.paced is not None and self.fresh <= 0 and not self.dead

    def flow(self) -> ProxyFlow:
        """The record of the bytes that were read here."""
        return self.record.up if self.road.direction == "up" else self.record.down


# (the end that was read, data, moment); data is b"" at the end of the stream, None after an error
Item = tuple[ConnectionEnd, bytes | None, int]


class Traffic:
    """Moves bytes between ends at the due moments.

    ``hang_up`` closes the socket of an end, with a reset if its flag is true. ``pace`` prepares
    that of a new connection for the kernel's pacing.
    """

    def __init__(
        self,
        now: Callable[[], int],
        hang_up: Callable[[ConnectionEnd, bool], None],
        log: Log | None = None,
        pace: Callable[[ConnectionEnd], PacedConnection | None] | None = None,
    ) -> None:
        self.fidelity, self.totals = Fidelity(), Totals()
        self.refill_ns = FOREVER  # when to fill a full lane again
        self._now, self._hang_up, self._log, self._pace = now, hang_up, log, pace
        self._willing: dict[Road, None] = {}  # roads with ends that have something to read
        self._held = 0  # bytes in transit of all connections

    def opened(self, client: ConnectionEnd, server: ConnectionEnd) -> None:
        """Register the two ends of a new connection."""
        client.other, server.other = server, client
        self.totals.opened += 1

    def is_readable(self, end: ConnectionEnd) -> None:
        """Note that its socket has bytes, the end of the stream or an error."""
        end.readable = end.prompt = True
        self._queue(end)

    def is_writable(self, end: ConnectionEnd) -> None:
        """Note that its socket takes bytes (again)."""
        end.writable = True
        if self._pace is not None and end.fresh and end.paced is None:
            end.paced = self._pace(end) if end.other.road.lane.ahead is not None else None
            end.fresh = UNPACED_SEGMENTS if end.paced is not None else 0
        self._flush(end)

    def is_broken(self, end: ConnectionEnd, error: OSError) -> None:
        """Handle an error of its socket, if the socket is no longer read.

        A socket that is still read reports the error after its last bytes.
        """
        if end.finished and not end.dead:
            self._fail(end, error)

    def fill(self) -> bool:
        """Read in turns, one chunk each, while lanes have room, for a short time.

        Return True if there is more to read now.
        """
        began_ns, more, self.refill_ns = self._now(), False, FOREVER
        for road in list(self._willing):
            if self._now() - began_ns > FILL_NS:
                return True
            budget = PASS_BYTES
            while road.turns and budget > 0 and road.lane.has_room(self._now()):
                budget -= self._read(road.turns.popleft())
            if not road.shaped:
                self.deliver(road)
            del self._willing[road]
            if road.turns:
                self._willing[road] = None  # behind the others
                more = more or budget <= 0
                self.refill_ns = min(self.refill_ns, road.lane.room_at(self._now()))
        return more

    def deliver(self, road: Road) -> None:
        """Deliver everything that has reached the end of its lane, or that the kernel may have."""
        ahead = road.lane.ahead
        if ahead is None:
            for due_ns, item in road.lane.pop_due(self._now()):
                self._leave(road, due_ns, item)
            return
        while (planned_ns := road.next_ns()) <= self._now():
            count, dest = road.run(ahead)
            items = [road.lane.served.popleft() for _ in range(count)]
            if dest is not None:
                size = sum(len(data or b"") for _, (_, data, _) in items)
                dest.leaves_ns = items[-1][0]
                road.paced_bytes += size
                self._space(ahead, dest, size)
            for due_ns, item in items:
                self._leave(road, max(due_ns, planned_ns), item)
            if dest is not None:
                self._check_spacing(ahead, dest)
            road.changed()

    def _space(self, ahead: Ahead, dest: ConnectionEnd, size_bytes: int) -> None:
        """Let what is queued at ``dest``, and so many bytes more, leave by ``leaves_ns``."""
        if dest.paced is None or not dest.spaced:
            return
        unsent, source = dest.paced.unsent(), dest.other
        dest.paced.limit(
            ahead.rate_within(
                unsent + size_bytes,
                dest.leaves_ns - self._now(),
                began=unsent > 0,
                ended=source.finished or not source.readable,
            )
        )

    def _check_spacing(self, ahead: Ahead, dest: ConnectionEnd) -> None:
        """Let this process space the bytes from now on if the kernel sends them at once.

        Some sandboxes report the rate that they were given, and do nothing with it.
        """
        if dest.paced is None or not dest.spaced:
            return
        unsent = dest.paced.unsent()
        if unsent < ahead.takes(dest.leaves_ns - self._now()) - ahead.piece_bytes:
            self.fidelity.strain(NOT_SPACED)
            self._pace, dest.paced, dest.fresh = None, None, 0

    def _leave(self, road: Road, due_ns: int, item: Item) -> None:
        source, data, arrived_ns = item
        size, dest, at_ns = len(data or b""), source.other, max(self._now(), due_ns)
        road.bytes += size
        if road.busy is not None:
            road.busy.left(size, due_ns, at_ns)
        if dest.dead and source.dead:
            return  # was counted when they were closed
        source.held -= size
        self._held -= size
        if dest.dead:
            source.flow().dropped_bytes += size
        elif data is None:
            self._close(dest, reset=True)
        elif dest.refused is not None:
            source.flow().dropped_bytes += size
        else:
            if data:
                self._note(source, size, due_ns, arrived_ns, at_ns)
            dest.untaken += size
            self._put(dest, data)
            self._flush(dest)

    def _put(self, dest: ConnectionEnd, data: bytes) -> None:
        """Let ``dest`` send this next, in pieces if the kernel may space them."""
        ahead = dest.other.road.lane.ahead
        if dest.paced is None or ahead is None or not data:
            dest.out.append(data)
            return
        dest.paced.add(len(data))
        piece = max(len(data) // UNPACED_SEGMENTS, 1) if dest.fresh > 0 else ahead.piece_bytes
        for begin in range(0, len(data), piece):
            dest.out.append(data[begin : begin + piece])
            dest.fresh -= 1

    def cut(self, end: ConnectionEnd, reason: str) -> None:
        """End its connection now, with a reset to both ends."""
        self._blame(end, reason)
        for each in (end, end.other):
            if not each.dead:
                self._close(each, reset=True)

    def _queue(self, end: ConnectionEnd) -> None:
        """Queue it for a turn if it has something to read and its receiver is fast enough."""
        if self._is_full(end):
            end.prompt = False
        elif end.readable and not (end.queued or end.finished or end.dead):
            end.queued = True
            end.road.turns.append(end)
            self._willing[end.road] = None

    def _is_full(self, end: ConnectionEnd) -> bool:
        least, most = HELD_BYTES
        share = max(least, HELD_IN_ALL_BYTES // max(1, self.totals.open))
        return (
            end.other.dead
            or end.other.refused is not None
            or end.other.untaken >= min(UNTAKEN_BYTES, share)
            or (end.held >= least and self._held >= HELD_IN_ALL_BYTES)
            or (end.held >= most and not end.road.shaped)
        )

    def _read(self, end: ConnectionEnd) -> int:
        end.queued = False
        if end.dead or self._is_full(end):
            return 0
        lane, dest = end.road.lane, end.other
        chunk = lane.chunk_bytes(self._now())
        if lane.ahead is not None and dest.paced and end.alone <= 0 and not end.road.turns:
            chunk = lane.ahead.chunk_bytes
        arrived_ns = self._now()
        try:
            if end.prompt and lane.server.free_ns < arrived_ns:
                data, ancillary, _, _ = end.sock.recvmsg(chunk, 64)
                arrived_ns -= _age_ns(ancillary)
            else:
                data = end.sock.recv(chunk)
        except BlockingIOError:
            end.readable = False
            if lane.ahead is not None and dest.leaves_ns > self._now() and not lane.served:
                self._space(lane.ahead, dest, 0)
            return 0
        except OSError as error:
            self._fail(end, error)
            return 0
        if not data and end.refused is not None:
            self._fail(end, end.refused)
            return 0
        now = max(arrived_ns, lane.latest_ns)
        lane.admit(len(data), (end, data, now), now)
        end.road.changed()
        if end.road.busy is not None:
            end.road.busy.came(len(data), now)
        end.held += len(data)
        self._held += len(data)
        end.alone -= len(data)  # each byte may be a segment
        end.finished = not data
        self._queue(end)
        return len(data)

    def _note(
        self, source: ConnectionEnd, size_bytes: int, due_ns: int, arrived_ns: int, at_ns: int
    ) -> None:
        self.fidelity.transfer(at_ns - due_ns, due_ns - arrived_ns)
        self.totals.carried(source.road.direction, size_bytes)
        source.flow().passed(size_bytes, due_ns, at_ns)

    def _flush(self, end: ConnectionEnd) -> None:
        """Send the receiver what it takes, then let its sender continue."""
        while end.out and end.writable and not end.dead:
            self._send(end, end.out[0])
        self._queue(end.other)
        # one that is dead, after an error, has an item on the lane that closes the other
        if end.shut and end.other.shut and not (end.dead or end.other.dead):
            self._close(end, reset=False)
            self._close(end.other, reset=False)

    def _send(self, end: ConnectionEnd, data: bytes | memoryview) -> None:
        sent = 0
        try:
            if data:
                sent = end.sock.send(data, END_OF_RECORD if end.paced is not None else 0)
            else:
                end.sock.shutdown(SHUT_WR)
                end.shut = True
        except BlockingIOError:
            end.writable = False
            return
        except OSError as error:
            # nothing more can be read, or the other end takes no more
            if end.finished or end.other.refused or error.errno not in PEER_GONE:
                self._fail(end, error)
            else:
                self._refuse(end, error)
            return
        end.untaken -= sent
        if sent == len(data):
            end.out.popleft()
        else:
            end.out[0] = memoryview(data)[sent:]

    def _refuse(self, end: ConnectionEnd, error: OSError) -> None:
        """Send no more to ``end``; close it when what it had sent is read.

        A server may refuse a request before it has read all of it: its answer still counts.
        """
        self._blame(end, f"{end.name}: {error.strerror}")
        end.refused = error
        self._drop(end, reset=True)
        end.paced, end.fresh = None, 0
        end.readable = True
        self._queue(end)

    def _fail(self, end: ConnectionEnd, error: OSError) -> None:
        """Close ``end``; the other end gets the error over the link, after the earlier bytes."""
        self._blame(end, f"{end.name}: {error.strerror}")
        self._close(end, reset=True)
        if not end.other.dead:
            now = self._now()
            end.road.lane.admit(0, (end, None, now), now)
            end.road.changed()

    def _blame(self, end: ConnectionEnd, reason: str) -> None:
        if end.record.end == "closed":
            end.record.end = reason

    def _close(self, end: ConnectionEnd, reset: bool) -> None:
        end.dead = True
        self._drop(end, reset)
        self._hang_up(end, reset)
        if end.other.dead:
            for each in (end, end.other):  # bytes still on the lanes have no receiver
                each.flow().dropped_bytes += each.held
                self._held -= each.held
                each.held = 0
            self.totals.closed(failed=end.record.end != "closed")
            if self._log is not None:
                self._log.add(end.record.as_json(self._now()))

    def _drop(self, end: ConnectionEnd, reset: bool) -> None:
        """Drop what ``end`` has not taken."""
        lost = end.other.flow()
        if reset and end.paced is not None:
            end.untaken = end.paced.unsent()  # also what the kernel has not sent
        lost.bytes -= end.untaken
        lost.dropped_bytes += end.untaken
        self.totals.carried(end.other.road.direction, -end.untaken)
        end.untaken = 0
        end.out.clear()


def _age_ns(ancillary: list[Ancillary]) -> int:
    """How long ago bytes arrived that were just read; 0: their message does not say so."""
    for _, _, data in ancillary:
        if len(data) == TIMESPEC.size:
            seconds, ns = TIMESPEC.unpack(data)
            age_ns = time.time_ns() - seconds * NS_PER_S - ns
            return age_ns if 0 < age_ns < OLDEST_NS else 0
    return 0
