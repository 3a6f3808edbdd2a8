"""When chunks leave a link, and the traffic between two ends, without sockets or a clock."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.capacity.rates import Constant
from emulator.delay import Latency
from emulator.errors import BadValue
from emulator.proxy.pacing import Junction, Lane, Server
from emulator.proxy.record import BusyFile, ConnectionRecord
from emulator.proxy.routes import ProxyWay, Route, parse_address, parse_map
from emulator.proxy.traffic import ConnectionEnd, Item, Road, Traffic
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
    ``broken``: every call fails.
    """

    inbox: deque[bytes] = field(default_factory=deque)
    taken: bytearray = field(default_factory=bytearray)
    window: int = 10**9
    broken: bool = False
    shut: bool = False
    sent: bytearray = field(default_factory=bytearray)  # by the peer, in total
    ended: bool = False  # the peer sends nothing more

    def recv(self, size: int, /) -> bytes:
        if self.broken:
            raise ConnectionResetError(104, "Connection reset by peer")
        if not self.inbox:
            raise BlockingIOError(11, "again")
        data = self.inbox.popleft()
        if len(data) > size:
            self.inbox.appendleft(data[size:])
        return data[:size]

    def send(self, data: bytes | memoryview, /) -> int:
        if self.broken:
            raise BrokenPipeError(32, "Broken pipe")
        if not self.window:
            raise BlockingIOError(11, "again")
        count = min(len(data), self.window)
        self.taken += data[:count]
        self.window -= count
        return count

    def shutdown(self, how: int, /) -> None:
        if self.broken:
            raise OSError(107, "Transport endpoint is not connected")
        self.shut = True


class Rig:
    """One connection over two lanes of 8 Mbit/s, 5 ms long."""

    def __init__(self) -> None:
        self.now = 0
        self.hung_up: list[tuple[str, bool]] = []
        self.traffic = Traffic(
            lambda: self.now, lambda end, reset: self.hung_up.append((end.name, reset))
        )
        self.roads = [
            Road(name, Lane[Item](number, Constant(8_000_000), Latency(5 * MS)))
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


def test_busy_periods_are_those_in_which_bytes_are_under_way(tmp_path: Path) -> None:
    """8 Mbit/s are 1 byte in 1 us, plus 5 ms. The second piece comes before the first has left."""
    rig, file = Rig(), BusyFile(tmp_path / "busy.csv")
    rig.roads[0].busy = file.link("here", "up")
    for step_ms, size_bytes in ((0, 1000), (2, 500), (4, 0), (1, 0), (3, 2000), (8, 0)):
        rig.now += step_ms * MS
        if size_bytes:
            rig.send(0, bytes(size_bytes))
        rig.turn(0)
    rig.send(0, bytes(7))  # a period that has not ended has no row
    rig.turn(0)
    file.finish()
    header, *rows = (tmp_path / "busy.csv").read_text().splitlines()
    assert header == "listen,direction,begin_s,end_s,scheduled_end_s,bytes"
    assert rows == [
        "here,up,0.000000000,0.010000000,0.007500000,1500",
        "here,up,0.010000000,0.018000000,0.017000000,2000",
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


side = st.integers(0, 1)
events = st.lists(
    st.one_of(
        st.tuples(st.just("send"), side, st.integers(0, 5000)),
        st.tuples(st.just("window"), side, st.integers(0, 3000)),
        st.tuples(st.just("break"), side, st.just(0)),
        st.tuples(st.just("turn"), st.just(0), st.integers(0, 4 * MS)),
    ),
    max_size=40,
)


@given(events)
def test_whatever_happens_order_holds_and_both_ends_are_closed_once(
    happenings: list[tuple[str, int, int]],
) -> None:
    rig = Rig()
    for kind, number, amount in happenings:
        if kind == "send":
            rig.send(number, bytes(index % 251 for index in range(amount)))
        elif kind == "window":
            rig.socks[number].window = amount
            rig.tell(rig.ends[number])
        elif kind == "break":
            rig.socks[number].broken = True
            rig.tell(rig.ends[number])
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
    if not any(sock.broken for sock in rig.socks):
        assert rig.record.end == "closed" and all(
            sock.taken == other.sent and sock.shut
            for sock, other in zip(rig.socks, reversed(rig.socks))
        )
    flows = rig.record.up, rig.record.down
    assert [flow.bytes for flow in flows] == [len(rig.socks[1].taken), len(rig.socks[0].taken)]
    assert [flow.bytes + flow.dropped_bytes for flow in flows] == [
        len(sock.sent) - sum(map(len, sock.inbox)) for sock in rig.socks
    ], "nothing vanishes"


def test_a_break_after_the_end_of_the_stream_is_passed_on_too() -> None:
    rig = Rig()
    rig.send(0, b"")
    rig.turn(0)
    rig.turn(6 * MS)
    assert rig.socks[1].shut and not rig.hung_up
    rig.traffic.is_broken(rig.ends[1], ConnectionResetError(104, "not finished: its reads tell"))
    assert not rig.hung_up
    rig.traffic.is_broken(rig.ends[0], ConnectionResetError(104, "Connection reset by peer"))
    rig.turn(6 * MS)
    assert (
        rig.hung_up == [("client", True), ("server", True)]
        and rig.record.end == "client: Connection reset by peer"
    )
