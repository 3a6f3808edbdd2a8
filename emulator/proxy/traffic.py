"""The two ends of each proxied connection, and the traffic between them over the lanes.

Callers pass the sockets and the clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from emulator.fidelity import Fidelity
from emulator.proxy.pacing import Lane
from emulator.proxy.record import BusyPeriods, ConnectionRecord, Log, ProxyFlow, Totals
from emulator.units import FOREVER

HELD_BYTES = (64 * 1024, 16 * 2**20)  # minimum and maximum in transit for one connection
HELD_IN_ALL_BYTES = 256 * 2**20
UNTAKEN_BYTES = 512 * 1024  # due bytes that a receiver has not taken; with more, its sender waits
PASS_BYTES = 512 * 1024  # read from one lane before the turn of the next
FILL_NS = 500_000  # read from lanes for at most this time before sending what is due
SHUT_WR = 1


class Socket(Protocol):
    """The methods needed of a non-blocking stream socket."""

    def recv(self, size: int, /) -> bytes: ...

    def send(self, data: bytes | memoryview, /) -> int: ...

    def shutdown(self, how: int, /) -> None: ...


class Road:
    """A lane in one direction ("up" or "down"), and the ends that wait for their turn on it.

    ``busy``: what records its busy periods.
    """

    __slots__ = ("busy", "direction", "lane", "turns", "shaped")

    def __init__(self, direction: str, lane: Lane[Item]) -> None:
        self.direction, self.lane = direction, lane
        self.turns: deque[ConnectionEnd] = deque()
        self.busy: BusyPeriods | None = None
        self.shaped = lane.server.capacity is not None or lane.junction is not None


@dataclass(slots=True, eq=False)
class ConnectionEnd:
    """One socket of a connection.

    Bytes read from it go over ``road`` to the ``other`` end. ``out`` holds bytes that are due here
    but that the socket has not taken yet, ``untaken`` of them in all; ``held``: bytes read here
    that the other end has not got.
    """

    sock: Socket
    name: str
    road: Road
    record: ConnectionRecord
    other: ConnectionEnd = field(init=False)
    out: deque[bytes | memoryview] = field(default_factory=deque)
    untaken: int = 0
    held: int = 0
    readable: bool = False
    writable: bool = False
    queued: bool = False
    finished: bool = False
    shut: bool = False
    dead: bool = False

    def flow(self) -> ProxyFlow:
        """The record of the bytes that were read here."""
        return self.record.up if self.road.direction == "up" else self.record.down


# (the end that was read, data, moment); data is b"" at the end of the stream, None after an error
Item = tuple[ConnectionEnd, bytes | None, int]


class Traffic:
    """Moves bytes between ends at the due moments.

    ``hang_up`` closes the socket of an end, with a reset if its flag is true.
    """

    def __init__(
        self,
        now: Callable[[], int],
        hang_up: Callable[[ConnectionEnd, bool], None],
        log: Log | None = None,
    ) -> None:
        self.fidelity, self.totals = Fidelity(), Totals()
        self.refill_ns = FOREVER  # when to fill a full lane again
        self._now, self._hang_up, self._log = now, hang_up, log
        self._willing: dict[Road, None] = {}  # roads with ends that have something to read

    def opened(self, client: ConnectionEnd, server: ConnectionEnd) -> None:
        """Register the two ends of a new connection."""
        client.other, server.other = server, client
        self.totals.opened += 1

    def is_readable(self, end: ConnectionEnd) -> None:
        """Note that its socket has bytes, the end of the stream or an error."""
        end.readable = True
        self._queue(end)

    def is_writable(self, end: ConnectionEnd) -> None:
        """Note that its socket takes bytes (again)."""
        end.writable = True
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
        """Deliver everything that has reached the end of its lane."""
        for due_ns, (source, data, arrived_ns) in road.lane.pop_due(self._now()):
            if road.busy is not None:
                road.busy.left(len(data or b""), due_ns, self._now())
            dest = source.other
            if dest.dead and source.dead:
                continue  # was counted when they were closed
            source.held -= len(data or b"")
            if dest.dead:
                source.flow().dropped_bytes += len(data or b"")
            elif data is None:
                self._close(dest, reset=True)
            else:
                if data:
                    self._note(source, len(data), due_ns, arrived_ns)
                dest.out.append(data)
                dest.untaken += len(data)
                self._flush(dest)

    def cut(self, end: ConnectionEnd, reason: str) -> None:
        """End its connection now, with a reset to both ends."""
        self._blame(end, reason)
        for each in (end, end.other):
            if not each.dead:
                self._close(each, reset=True)

    def _queue(self, end: ConnectionEnd) -> None:
        """Queue it for a turn if it has something to read and its receiver is fast enough."""
        if end.readable and not (end.queued or end.finished or end.dead or self._is_full(end)):
            end.queued = True
            end.road.turns.append(end)
            self._willing[end.road] = None

    def _is_full(self, end: ConnectionEnd) -> bool:
        least, most = HELD_BYTES
        share = max(least, HELD_IN_ALL_BYTES // max(1, self.totals.open))
        return (
            end.other.dead
            or end.other.untaken >= min(UNTAKEN_BYTES, share)
            or end.held >= min(most, share)
        )

    def _read(self, end: ConnectionEnd) -> int:
        end.queued = False
        if end.dead or self._is_full(end):
            return 0
        lane = end.road.lane
        try:
            data = end.sock.recv(lane.chunk_bytes(self._now()))
        except BlockingIOError:
            end.readable = False
            return 0
        except OSError as error:
            self._fail(end, error)
            return 0
        now = self._now()
        lane.admit(len(data), (end, data, now), now)
        if end.road.busy is not None:
            end.road.busy.came(len(data), now)
        end.held += len(data)
        end.finished = not data
        self._queue(end)
        return len(data)

    def _note(self, source: ConnectionEnd, size_bytes: int, due_ns: int, arrived_ns: int) -> None:
        now = self._now()
        self.fidelity.transfer(now - due_ns, due_ns - arrived_ns)
        self.totals.carried(source.road.direction, size_bytes)
        source.flow().passed(size_bytes, due_ns, now)

    def _flush(self, end: ConnectionEnd) -> None:
        """Send the receiver what it takes, then let its sender continue."""
        while end.out and end.writable and not end.dead:
            self._send(end, end.out[0])
        self._queue(end.other)
        if end.shut and end.other.shut and not end.dead:
            self._close(end, reset=False)
            self._close(end.other, reset=False)

    def _send(self, end: ConnectionEnd, data: bytes | memoryview) -> None:
        sent = 0
        try:
            if data:
                sent = end.sock.send(data)
            else:
                end.sock.shutdown(SHUT_WR)
                end.shut = True
        except BlockingIOError:
            end.writable = False
            return
        except OSError as error:
            self._fail(end, error)
            return
        end.untaken -= sent
        if sent == len(data):
            end.out.popleft()
        else:
            end.out[0] = memoryview(data)[sent:]

    def _fail(self, end: ConnectionEnd, error: OSError) -> None:
        """Close ``end``; the other end gets the error over the link, after the earlier bytes."""
        self._blame(end, f"{end.name}: {error.strerror}")
        self._close(end, reset=True)
        if not end.other.dead:
            now = self._now()
            end.road.lane.admit(0, (end, None, now), now)

    def _blame(self, end: ConnectionEnd, reason: str) -> None:
        if end.record.end == "closed":
            end.record.end = reason

    def _close(self, end: ConnectionEnd, reset: bool) -> None:
        end.dead = True
        lost = end.other.flow()
        lost.bytes -= end.untaken
        lost.dropped_bytes += end.untaken
        end.untaken = 0
        end.out.clear()
        self._hang_up(end, reset)
        if end.other.dead:
            for each in (end, end.other):  # bytes still on the lanes have no receiver
                each.flow().dropped_bytes += each.held
                each.held = 0
            self.totals.closed(failed=end.record.end != "closed")
            if self._log is not None:
                self._log.add(end.record.as_json(self._now()))
