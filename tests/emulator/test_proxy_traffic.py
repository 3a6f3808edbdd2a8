"""When chunks leave a link, and the traffic between two ends, without sockets or a clock."""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.capacity import Capacity
from emulator.capacity.rates import Constant, Windows
from emulator.delay import Delay, Jitter, Latency
from emulator.errors import BadValue
from emulator.links.loss import Lossy
from emulator.proxy import traffic
from emulator.proxy.pacing import Ahead, Junction, Lane, Server, ahead_of
from emulator.proxy.record import BusyFile, ConnectionRecord
from emulator.proxy.routes import ProxyWay, Route, parse_address, parse_map
from emulator.proxy.traffic import Ancillary, ConnectionEnd, Item, Road, Traffic
from emulator.units import FOREVER

MS = 1_000_000


def lane(
    rate_bit_s: int | None,
    delay_ns: int = 0,
    junction: Junction[str] | None = None,
    number: int = 0,
) -> Lane[str]:
    return Lane(
        number, None if rate_bit_s is None else Constant(rate_bit_s), Latency(delay_ns), junction
    )


def test_a_chunk_leaves_when_its_last_byte_is_served_and_arrives_a_delay_later() -> None:
    link = lane(8_000_000, delay_ns=30 * MS)
    link.admit(1000, "a", 5 * MS)
    link.admit(500, "b", 5 * MS)
    assert link.next_due() == 36 * MS
    assert link.pop_due(36 * MS - 1) == []
    assert link.pop_due(36 * MS) == [(36 * MS, "a")]
    assert link.pop_due(90 * MS) == [(36 * MS + MS // 2, "b")]
    assert link.next_due() == FOREVER


@given(
    st.lists(st.tuples(st.integers(0, 3 * MS), st.integers(1, 5000)), min_size=1, max_size=30),
    st.integers(1000, 10**9),
)
def test_any_arrivals_follow_the_recursion(
    arrivals: list[tuple[int, int]], rate_bit_s: int
) -> None:
    server, now, free, exact = Server(Constant(rate_bit_s)), 0, 0, Fraction(0)
    for gap_ns, size_bytes in arrivals:
        now += gap_ns
        exact = (Fraction(now) if now > free else exact) + Fraction(
            size_bytes * 8 * 10**9, rate_bit_s
        )
        free = ceil(exact)
        # A busy period of more than 10 s uses several curves, each less than 1 ns late.
        assert 0 <= server.serve(size_bytes, now) - free <= free // (10 * 10**9)


@pytest.mark.parametrize(
    ("rate_bit_s", "size_bytes"),
    [
        (10_000, 512),
        (2_000_000, 2500),
        (10**10, 64 * 1024),
    ],
)
def test_chunks_are_about_ten_milliseconds(rate_bit_s: int, size_bytes: int) -> None:
    assert lane(rate_bit_s).chunk_bytes(0) == size_bytes


def test_a_full_lane_is_filled_again_even_if_it_has_got_room_since_it_was_asked() -> None:
    """On a host that stands still between both questions, nothing else may wake the proxy up."""
    link = lane(8_000_000, delay_ns=600 * MS)
    link.admit(100_000, "a", 0)
    assert not link.has_room(0) and link.room_at(0) == 25 * MS
    assert link.has_room(1) and link.room_at(1) == 1


def junction_of(
    *rates_bit_s: int | None, shared_bit_s: int = 8_000_000
) -> tuple[Junction[str], list[Lane[str]]]:
    junction: Junction[str] = Junction(Constant(shared_bit_s))
    return junction, [
        lane(rate, junction=junction, number=number) for number, rate in enumerate(rates_bit_s)
    ]


arrivals = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 3000), st.integers(0, 2 * MS)),
    min_size=1,
    max_size=40,
)


@given(arrivals, st.integers(1, 7 * MS))
def test_a_late_host_changes_no_moment(offers: list[tuple[int, int, int]], late_ns: int) -> None:
    prompt, late = (_moments(offers, step_ns) for step_ns in (0, late_ns))
    assert prompt == late
    assert len(prompt) == len(offers)
    moments = [at_ns for at_ns, _ in sorted(prompt)]
    total_ns = sum(size_bytes for _, size_bytes, _ in offers) * 1000
    assert moments[-1] <= sum(gap_ns for *_, gap_ns in offers) + total_ns * 5 + len(
        offers
    )  # the slowest lane alone would take four times as long


def _moments(offers: list[tuple[int, int, int]], late_ns: int) -> list[tuple[int, str]]:
    """When each chunk leaves if the host calls at each arrival, or only every ``late_ns``."""
    junction, lanes = junction_of(None, 4_000_000, 2_000_000)
    now = looked_ns = 0
    for count, (number, size_bytes, gap_ns) in enumerate(offers):
        now += gap_ns
        if now - looked_ns >= late_ns:
            junction.advance(now - 1)
            looked_ns = now
        lanes[number].admit(size_bytes, str(count), now)
    junction.advance(10**15)
    return sorted(due for each in lanes for due in each.pop_due(10**15))


@given(st.lists(st.integers(1, 2000), min_size=40, max_size=40))
def test_backlogged_lanes_get_equal_shares(sizes: list[int]) -> None:
    junction, lanes = junction_of(None, None)
    for size_bytes in sizes[:20]:
        lanes[0].admit(size_bytes, "a", 0)
    for size_bytes in sizes[20:]:
        lanes[1].admit(size_bytes, "b", 0)
    while lanes[0].waiting and lanes[1].waiting:
        junction.advance(junction.next_decision())
        served = [
            sum(part) - each.waiting_bytes for part, each in zip((sizes[:20], sizes[20:]), lanes)
        ]
        assert (
            abs(served[0] - served[1]) <= 2 * 2000
        )  # the bound of start-time fair queueing: one largest chunk of each


@pytest.mark.parametrize(
    "text",
    [
        "9000",
        ":9000",
        "127.0.0.1:65536",
        "::1:9000",
    ],
)
def test_odd_addresses_are_refused(text: str) -> None:
    with pytest.raises(BadValue, match="expected HOST:PORT"):
        parse_address(text, "listen")


def test_a_proxy_in_front_of_itself_is_refused() -> None:
    way = ProxyWay(None, Latency(0))
    with pytest.raises(BadValue, match="connect to itself"):
        Route(("127.0.0.1", 9000), ("127.0.0.1", 9000), way, way)
    with pytest.raises(BadValue, match="expected LISTEN=TO"):
        parse_map("127.0.0.1:9000")


@dataclass
class FakeSocket:
    """A socket of plain Python.

    ``inbox``: what a peer has sent (b"": end of stream); ``window``: how many bytes it still takes;
    ``broken``: every call fails. ``gone``: the peer takes nothing more, but what it has sent is
    there to read, and then the end of its stream.
    """

    inbox: deque[bytes] = field(default_factory=deque)
    taken: bytearray = field(default_factory=bytearray)
    window: int = 10**9
    broken: bool = False
    gone: bool = False
    shut: bool = False
    sent: bytearray = field(default_factory=bytearray)  # by the peer, in total
    ended: bool = False  # the peer sends nothing more
    kernel: FakeKernel | None = None
    age_ns: int = 0  # how long ago the bytes in the inbox came, if the kernel tells

    def recv(self, size: int, /) -> bytes:
        if self.broken:
            raise ConnectionResetError(104, "Connection reset by peer")
        if not self.inbox and self.gone:
            return b""
        if not self.inbox:
            raise BlockingIOError(11, "again")
        data = self.inbox.popleft()
        if len(data) > size:
            self.inbox.appendleft(data[size:])
        return data[:size]

    def recvmsg(self, size: int, more: int, /) -> tuple[bytes, list[Ancillary], int, None]:
        if not self.age_ns:
            return self.recv(size), [], 0, None
        stamp = struct.pack("@qq", *divmod(time.time_ns() - self.age_ns, 10**9))
        return self.recv(size), [(1, 35, stamp)], 0, None

    def send(self, data: bytes | memoryview, flags: int, /) -> int:
        if self.broken or self.gone:
            raise BrokenPipeError(32, "Broken pipe")
        if not self.window:
            raise BlockingIOError(11, "again")
        count = min(len(data), self.window)
        if flags:
            assert self.kernel is not None
            self.kernel.write(bytes(data[:count]))
        else:
            self.taken += data[:count]
        self.window -= count
        return count

    def shutdown(self, how: int, /) -> None:
        if self.broken or self.gone:
            raise OSError(107, "Transport endpoint is not connected")
        self.shut = True


class FakeKernel:
    """Linux' pacing of a connection whose bytes are written as records.

    It sends a record at once, the next one after its time at the rate of then, and the second one
    after a pause in half of this time. ``left``: (moment, bytes in all).
    """

    segment = 1000

    def __init__(self, sock: FakeSocket, now: Callable[[], int]) -> None:
        self.sock, self.now = sock, now
        self.records: deque[bytes] = deque()
        self.left: list[tuple[int, int]] = []
        self.added = self.next_ns = 0
        self.rate: int | None = None
        self.halves = False  # the next gap

    def add(self, size_bytes: int) -> None:
        self.added += size_bytes

    def limit(self, bytes_s: int | None) -> None:
        self.run()
        self.rate = bytes_s

    def write(self, data: bytes) -> None:
        self.run()
        if not self.records and self.next_ns < self.now():
            self.next_ns, self.halves = self.now(), True
        self.records.append(data)
        self.run()

    def unsent(self) -> int:
        self.run()
        return self.added - (self.left[-1][1] if self.left else 0)

    def run(self, at_once: bool = False) -> None:
        while self.records and (at_once or self.next_ns <= self.now()):
            record = self.records.popleft()
            self.sock.taken += record
            self.left.append((self.next_ns, (self.left[-1][1] if self.left else 0) + len(record)))
            gap_ns = 0 if self.rate is None else len(record) * 10**9 // self.rate
            self.next_ns += gap_ns // 2 if self.halves else gap_ns
            self.halves = False


class Rig:
    """One connection over two lanes of 8 Mbit/s, 5 ms long; ``kernel``: it spaces the bytes."""

    def __init__(self, kernel: bool = False) -> None:
        self.now = 0
        self.hung_up: list[tuple[str, bool]] = []
        self.traffic = Traffic(lambda: self.now, self.hang_up, None, self.pace)
        ahead = Ahead(1_000_000, 400 * MS) if kernel else None
        self.roads = [
            Road(name, Lane[Item](number, Constant(8_000_000), Latency(5 * MS), None, ahead))
            for number, name in enumerate(("up", "down"))
        ]
        self.record = ConnectionRecord(0, "here", "there", 0)
        self.socks = FakeSocket(), FakeSocket()
        self.ends = [
            ConnectionEnd(sock, name, road, self.record)
            for sock, name, road in zip(self.socks, ("client", "server"), self.roads)
        ]
        self.traffic.opened(*self.ends)
        for end in self.ends:
            self.traffic.is_writable(end)

    def pace(self, end: ConnectionEnd) -> Any:
        assert isinstance(end.sock, FakeSocket)
        end.sock.kernel = FakeKernel(end.sock, lambda: self.now)
        return end.sock.kernel

    def hang_up(self, end: ConnectionEnd, reset: bool) -> None:
        self.hung_up.append((end.name, reset))
        assert isinstance(end.sock, FakeSocket)
        kernel = end.sock.kernel
        if kernel is not None and reset:
            kernel.records.clear()
        elif kernel is not None:
            kernel.run(at_once=True)

    def turn(self, step_ns: int) -> None:
        self.now += step_ns
        for road in self.roads:
            self.traffic.deliver(road)
        self.traffic.fill()

    def tell(self, end: ConnectionEnd) -> None:
        """The events that epoll reports for an open end."""
        if not end.dead:
            self.traffic.is_writable(end)
        if not end.dead:
            self.traffic.is_readable(end)

    def send(self, side: int, data: bytes) -> None:
        """The peer of ``side`` sends; b"" ends its stream."""
        sock = self.socks[side]
        if not sock.ended:
            sock.inbox.append(data)
            sock.sent += data
            sock.ended = not data
        self.tell(self.ends[side])

    def leave(self, side: int, data: bytes) -> None:
        """The peer of ``side`` sends, and goes away without reading what it has got."""
        sock = self.socks[side]
        if not sock.ended:
            sock.inbox.extend([data] if data else [])
            sock.sent += data
        sock.gone = sock.ended = True
        if sock.kernel is not None:
            sock.kernel.records.clear()
        self.tell(self.ends[side])


def test_busy_periods_are_those_in_which_bytes_are_under_way(tmp_path: Path) -> None:
    """8 Mbit/s are 1 byte in 1 us, plus 5 ms. The second piece comes before the first has left."""
    rig, file = Rig(), BusyFile(tmp_path / "busy.csv")
    rig.roads[0].busy = file.link("here", "up")
    for step_ms, size_bytes in ((0, 1000), (2, 500), (4, 0), (1, 0), (3, 2000), (8, 0)):
        rig.now += step_ms * MS
        if size_bytes:
            rig.send(0, bytes(size_bytes))
        rig.turn(0)
    rig.send(0, bytes(7))  # the stop ends it, 2 ms before it has left
    rig.turn(0)
    for _ in range(2):  # a proxy may be closed twice
        rig.roads[0].busy.stop(rig.now + 3 * MS)
    file.finish()
    header, *rows = (tmp_path / "busy.csv").read_text().splitlines()
    assert header == "listen,direction,begin_s,end_s,scheduled_end_s,bytes"
    assert rows == [
        "here,up,0.000000000,0.010000000,0.007500000,1500",
        "here,up,0.010000000,0.018000000,0.017000000,2000",
        "here,up,0.018000000,0.021000000,0.021000000,7",
    ]


def test_a_transfer_that_the_kernel_spaces_is_one_busy_period(tmp_path: Path) -> None:
    """The kernel gets bytes up to 400 ms before they are due; 1 MB takes 1 s and 5 ms."""
    rig, file = Rig(kernel=True), BusyFile(tmp_path / "busy.csv")
    busy = rig.roads[0].busy = file.link("here", "up")
    for size_bytes in (1_000_000, 300_000):
        rig.send(0, bytes(size_bytes))
        rig.turn(0)
        for _ in range(1100):
            rig.turn(MS)
    busy.stop(rig.now)
    rig.send(0, bytes(300_000))
    for step_ms in (0, 50, 50):
        rig.turn(step_ms * MS)
    busy.stop(rig.now)  # all bytes are the kernel's, which has not sent them
    file.finish()
    _, *rows = (tmp_path / "busy.csv").read_text().splitlines()
    assert rows == [
        "here,up,0.000000000,1.005000000,1.005000000,1000000",
        "here,up,1.100000000,1.405000000,1.405000000,300000",
        "here,up,2.200000000,2.300000000,2.505000000,300000",
    ]


def test_a_busy_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="cannot be written"):
        BusyFile(tmp_path / "none" / "busy.csv")
    full = BusyFile(Path("/dev/full"))
    with pytest.raises(BadValue, match="incomplete"):
        full.finish()


def test_what_a_receiver_does_not_take_stops_its_sender_only() -> None:
    rig = Rig()
    rig.socks[1].window = 1000
    for _ in range(200):
        rig.send(0, bytes(100_000))
        rig.turn(20 * MS)
    assert rig.ends[1].untaken + rig.ends[0].held < 1_000_000
    assert len(rig.socks[1].taken) == 1000
    rig.send(1, b"still here")
    rig.turn(0)
    rig.turn(20 * MS)
    assert rig.socks[0].taken == b"still here"
    rig.socks[1].window = 10**9
    rig.tell(rig.ends[1])
    for _ in range(3000):
        rig.turn(20 * MS)
    assert rig.socks[1].taken == rig.socks[0].sent


@pytest.mark.parametrize(
    ("rate_bit_s", "delay_ms", "idle"), [(400_000_000, 500, 0), (100_000_000, 600, 300)]
)
def test_a_fast_link_over_a_long_way_is_full(rate_bit_s: int, delay_ms: int, idle: int) -> None:
    """25 and 7.5 MB are under way, however many connections are open that send nothing."""
    rig = Rig()
    rig.traffic.totals.opened += idle
    rig.roads[0].lane.server.capacity = Constant(rate_bit_s)
    rig.roads[0].lane.delay = Latency(delay_ms * MS)
    for _ in range(100):
        rig.send(0, bytes(rate_bit_s // 800))  # a second of the link in all
    for _ in range(1000 + delay_ms + 1):
        rig.turn(MS)
    assert len(rig.socks[1].taken) == rate_bit_s // 8


def test_all_connections_together_hold_a_limited_part_of_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each may hold 64 KiB more: a connection is never stopped by the others."""
    monkeypatch.setattr(traffic, "HELD_IN_ALL_BYTES", 300_000)
    rig = Rig()
    rig.roads[0].lane.server.capacity = Constant(10**9)
    rig.roads[0].lane.delay = Latency(500 * MS)
    rig.send(0, bytes(2_000_000))
    rig.turn(0)
    assert 300_000 <= rig.ends[0].held <= 300_000 + 64 * 1024
    rig.send(1, bytes(100_000))
    rig.turn(0)
    assert 64 * 1024 <= rig.ends[1].held < 100_000
    for _ in range(20_000):
        rig.turn(MS)
    assert (len(rig.socks[0].taken), len(rig.socks[1].taken)) == (100_000, 2_000_000)


@pytest.mark.parametrize(("age_ms", "begins_ms"), [(0, 500), (200, 300), (1500, 500)])
def test_bytes_count_from_their_arrival_not_from_a_late_look(age_ms: int, begins_ms: int) -> None:
    """100 kB take 100 ms, and 5 ms more. A stamp of the last second is believed."""
    rig = Rig()
    rig.now, rig.socks[0].age_ns = 500 * MS, age_ms * MS
    rig.send(0, bytes(100_000))
    rig.turn(0)
    rig.turn((begins_ms + 90) * MS - rig.now if begins_ms == 500 else 0)
    before = len(rig.socks[1].taken)
    rig.turn(20 * MS)
    assert len(rig.socks[1].taken) == 100_000
    assert before == (100_000 if age_ms == 200 else 80_000)


def test_bytes_that_waited_for_their_receiver_get_the_rate_of_the_link() -> None:
    rig = Rig()
    rig.socks[1].window, rig.socks[0].age_ns = 0, 900 * MS
    rig.send(0, bytes(4_000_000))
    for _ in range(100):
        rig.turn(20 * MS)
    rig.socks[1].window = 10**9
    rig.tell(rig.ends[1])
    held = len(rig.socks[1].taken)
    rig.turn(0)
    rig.turn(20 * MS)
    assert len(rig.socks[1].taken) <= held + 200_000


RESET = ConnectionResetError(104, "Connection reset by peer")
side = st.integers(0, 1)
events = st.lists(
    st.one_of(
        st.tuples(st.just("send"), side, st.integers(0, 5000)),
        st.tuples(st.just("window"), side, st.integers(0, 3000)),
        st.tuples(st.just("break"), side, st.just(0)),
        st.tuples(st.just("leave"), side, st.integers(0, 5000)),
        st.tuples(st.just("turn"), st.just(0), st.integers(0, 4 * MS)),
    ),
    max_size=40,
)


@pytest.mark.parametrize("kernel", [False, True])
@given(happenings=events)
def test_whatever_happens_order_holds_and_both_ends_are_closed_once(
    kernel: bool, happenings: list[tuple[str, int, int]]
) -> None:
    rig = Rig(kernel)
    for kind, number, amount in happenings:
        if kind == "send":
            rig.send(number, bytes(index % 251 for index in range(amount)))
        elif kind == "window":
            rig.socks[number].window = amount
            rig.tell(rig.ends[number])
        elif kind == "break":
            rig.socks[number].broken = True
            rig.traffic.is_broken(rig.ends[number], RESET)
            rig.tell(rig.ends[number])
        elif kind == "leave":
            rig.leave(number, bytes(index % 251 for index in range(amount)))
        else:
            rig.turn(amount)
    for number in (0, 1):
        rig.socks[number].window = 10**9
        rig.send(number, b"")
    for _ in range(60):
        rig.turn(20 * MS)
    for sock, other in zip(rig.socks, reversed(rig.socks)):
        assert other.sent.startswith(sock.taken)
    assert sorted(name for name, _ in rig.hung_up) == ["client", "server"]
    assert rig.traffic.totals.open == 0
    for sock, other in zip(rig.socks, reversed(rig.socks)):
        if not (sock.broken or other.broken or other.gone):
            assert other.taken == sock.sent, "also what came right before the sender left"
    if not any(sock.broken or sock.gone for sock in rig.socks):
        assert rig.record.end == "closed" and all(
            sock.taken == other.sent and sock.shut
            for sock, other in zip(rig.socks, reversed(rig.socks))
        )
    flows = rig.record.up, rig.record.down
    assert [flow.bytes for flow in flows] == [len(rig.socks[1].taken), len(rig.socks[0].taken)]
    totals = rig.traffic.totals
    assert [flow.bytes for flow in flows] == [totals.up_bytes, totals.down_bytes]
    assert [flow.bytes + flow.dropped_bytes for flow in flows] == [
        len(sock.sent) - sum(map(len, sock.inbox)) for sock in rig.socks
    ], "nothing vanishes"


def test_an_answer_before_the_request_was_read_arrives_whole() -> None:
    """As from a server that says "too large" and leaves: 300 kB take 300 ms, then comes the reset.
    Only 100 kB of it are read before the first byte of the request is refused.
    """
    rig = Rig()
    rig.send(0, bytes(500_000))
    rig.turn(0)
    rig.leave(1, bytes(300_000))
    for _ in range(400):
        rig.turn(MS)
    assert (len(rig.socks[0].taken), rig.record.down.bytes) == (300_000, 300_000)
    assert rig.hung_up == [("server", True), ("client", True)]
    assert rig.record.end == "server: Broken pipe" and rig.record.up.bytes == 0


def test_a_break_after_the_end_of_the_stream_is_passed_on_too() -> None:
    rig = Rig()
    rig.send(0, b"")
    rig.turn(0)
    rig.turn(6 * MS)
    assert rig.socks[1].shut and not rig.hung_up
    rig.traffic.is_broken(rig.ends[1], ConnectionResetError(104, "not finished: its reads tell"))
    assert not rig.hung_up
    rig.traffic.is_broken(rig.ends[0], RESET)
    rig.turn(6 * MS)
    assert (
        rig.hung_up == [("client", True), ("server", True)]
        and rig.record.end == "client: Connection reset by peer"
    )


def test_a_break_while_the_end_of_the_stream_is_under_way_closes_each_end_once() -> None:
    rig = Rig()
    for number in (1, 0):
        rig.send(number, b"")
        rig.turn(0)
        rig.turn(3 * MS)
    assert (rig.socks[0].shut, rig.socks[1].shut) == (True, False)
    rig.traffic.is_broken(rig.ends[0], RESET)
    for _ in range(2):
        rig.turn(6 * MS)
    assert rig.hung_up == [("client", True), ("server", True)]


# ------------------------------------------------------------------ spaced by the kernel
@pytest.mark.parametrize("size_bytes", [700, 10_000, 25_000, 123_456, 1_000_000])
@pytest.mark.parametrize("late_ms", [0, 5, 60])
def test_the_kernel_has_sent_the_last_byte_when_it_is_due(size_bytes: int, late_ms: int) -> None:
    """1 byte in 1 us, pieces of 10 kB in 10 ms. The host looks only every 1 + ``late_ms`` ms."""
    rig = Rig(kernel=True)
    rig.send(0, bytes(100_000))  # the first chunk has ten segments, which no kernel spaces
    kernel = rig.socks[1].kernel
    assert kernel is not None
    for _ in range(400):
        rig.turn(MS)
        kernel.run()
    begin_ns = rig.now
    assert len(rig.socks[1].taken) == 100_000 and rig.ends[1].spaced
    assert [size for _, size in kernel.left[:11]] == [*range(1000, 11_000, 1000), 20_000]
    kernel.left.clear()
    kernel.added = 0
    rig.send(0, bytes(size_bytes))
    rig.turn(0)
    while len(rig.socks[1].taken) < 100_000 + size_bytes:
        rig.turn((1 + late_ms) * MS)
        kernel.run()
    errors_ns = [at_ns - begin_ns - 5 * MS - 1000 * size for at_ns, size in kernel.left]
    assert kernel.left[-1][1] == size_bytes
    # with its last pieces it may make up for a late begin
    assert -1000 <= errors_ns[-1] <= (1 + late_ms) * MS + 1000
    assert min(errors_ns) >= -10 * MS, "no byte is early by more than a piece"
    assert rig.roads[0].paced_bytes == 90_000 + size_bytes


def test_a_late_host_does_not_delay_what_the_kernel_has() -> None:
    rig = Rig(kernel=True)
    rig.send(0, bytes(1_500_000))
    for _ in range(600):
        rig.turn(MS)
    rig.turn(190 * MS)
    for _ in range(800):
        rig.turn(MS)
    kernel = rig.socks[1].kernel
    assert kernel is not None
    kernel.run()
    after = [at_ns - 5 * MS - 1000 * size for at_ns, size in kernel.left if size > 200_000]
    assert after[-1] <= 3 * MS and max(after) <= 10 * MS


def test_a_kernel_that_only_says_that_it_spaces_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what it got at once is early; the other 600 kB of 1 byte in 1 us are on time."""
    monkeypatch.setattr(FakeKernel, "limit", lambda kernel, bytes_s: None)
    rig = Rig(kernel=True)
    rig.send(0, bytes(1_000_000))
    for _ in range(804):
        rig.turn(MS)
    assert rig.traffic.fidelity.verdict == "strained"
    assert "use pacing process" in rig.traffic.fidelity.reasons()[0]
    assert len(rig.socks[1].taken) <= 800_000
    for _ in range(202):
        rig.turn(MS)
    assert len(rig.socks[1].taken) == 1_000_000


def test_bytes_of_two_senders_take_turns() -> None:
    rig = Rig(kernel=True)
    other_socks = FakeSocket(), FakeSocket()
    others = [
        ConnectionEnd(sock, name, road, rig.record)
        for sock, name, road in zip(other_socks, ("client", "server"), rig.roads)
    ]
    rig.traffic.opened(*others)
    other_socks[0].inbox.append(bytes(200_000))
    rig.send(0, bytes(200_000))
    rig.traffic.is_writable(others[1])
    rig.traffic.is_readable(others[0])
    for _ in range(500):
        rig.turn(MS)
        for sock in (rig.socks[1], other_socks[1]):
            if sock.kernel is not None:
                sock.kernel.run()
    assert abs(len(rig.socks[1].taken) - len(other_socks[1].taken)) <= 100_000
    assert len(rig.socks[1].taken) + len(other_socks[1].taken) == 400_000


@pytest.mark.parametrize(
    ("capacity", "delay", "shared", "queue_bytes", "why"),
    [
        (None, Latency(0), False, 10**6, "it is not shaped"),
        (Constant(10**6), Latency(0), True, 10**6, "it shares a rate with others"),
        (Windows([(5, 10)], 10**6), Latency(0), False, 10**6, "its rate changes"),
        (Constant(10**6), Jitter(5, 5), False, 10**6, "its latency varies"),
        (Constant(10**6), Latency(0), False, 0, "this system does not pace connections"),
        (Constant(50_000), Latency(0), False, 10**6, "it is too slow for pieces of 512 bytes"),
        (Constant(10**8), Latency(0), False, 10**5, "it is too fast for a send buffer of 100000"),
    ],
)
def test_links_that_the_kernel_does_not_pace(
    capacity: Capacity | None, delay: Delay, shared: bool, queue_bytes: int, why: str
) -> None:
    assert str(ahead_of(capacity, delay, shared, queue_bytes)).startswith(why)


def test_links_that_the_kernel_paces() -> None:
    """Also with a latency and with losses, which are a lower rate."""
    lossy = Lossy(Constant(10**7), 0.01, 30 * MS)
    for capacity in (Constant(10**7), lossy):
        found = ahead_of(capacity, Latency(30 * MS), False, 10**6)
        assert isinstance(found, Ahead) and 8 * found.bytes_s <= capacity.segment(0)[0]
