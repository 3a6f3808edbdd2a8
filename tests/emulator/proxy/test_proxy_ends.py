"""Traffic between two ends, with sockets and a clock made of plain Python.

Whatever they do, nothing breaks and order is kept.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.capacity.constant import Constant
from emulator.delay.latency import Latency
from emulator.errors import BadValue
from emulator.proxy.busy import BusyFile
from emulator.proxy.pacing import Lane
from emulator.proxy.record import ConnectionRecord
from emulator.proxy.traffic import ConnectionEnd, Item, Road, Traffic

MS = 1_000_000


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


def test_a_byte_takes_the_lane_and_the_delay() -> None:
    rig = Rig()
    rig.send(0, bytes(1000))
    rig.turn(0)
    rig.turn(6 * MS - 1)
    assert not rig.socks[1].taken
    rig.turn(1)
    assert len(rig.socks[1].taken) == 1000
    flow = rig.record.up
    assert (flow.bytes, flow.first_ns, flow.last_due_ns, flow.lag_max_ns) == (
        1000,
        6 * MS,
        6 * MS,
        0,
    )


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
    file.close()
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
        full.close()


def test_both_ends_finish_in_peace() -> None:
    rig = Rig()
    for side in (0, 1):
        rig.send(side, b"bye")
        rig.send(side, b"")
    for _ in range(3):
        rig.turn(10 * MS)
    assert [bytes(sock.taken) for sock in rig.socks] == [b"bye", b"bye"]
    assert rig.hung_up == [("server", False), ("client", False)] or rig.hung_up == [
        ("client", False),
        ("server", False),
    ]
    assert rig.record.end == "closed" and rig.traffic.totals.failed == 0


def test_a_break_comes_behind_the_bytes_and_is_passed_on() -> None:
    rig = Rig()
    rig.send(0, b"last words")
    rig.turn(0)
    rig.socks[0].broken = True
    rig.tell(rig.ends[0])
    rig.turn(0)
    assert rig.hung_up == [("client", True)] and not rig.ends[1].dead
    rig.turn(6 * MS)
    assert rig.socks[1].taken == b"last words"
    assert rig.hung_up == [("client", True), ("server", True)]
    assert rig.record.end == "client: Connection reset by peer" and rig.traffic.totals.failed == 1


def test_a_break_behind_two_finished_streams_closes_once() -> None:
    rig = Rig()
    for side in (0, 1):
        rig.send(side, b"")
    rig.turn(0)
    rig.socks[1].broken = True  # after its end of stream was read, before it got that of the other
    for _ in range(4):
        rig.turn(5 * MS)
    assert sorted(name for name, _ in rig.hung_up) == ["client", "server"]


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


def test_one_of_very_many_connections_holds_less() -> None:
    """Thousands of receivers that take nothing must not fill the memory.

    Each has its share of the total limit, at least 64 KiB.
    """
    for others, held in ((1000, 268_173), (100_000, 65_536)):
        rig = Rig()
        rig.traffic.totals.opened += others
        rig.socks[1].window = 0
        for _ in range(200):
            rig.send(0, bytes(100_000))
            rig.turn(20 * MS)
        assert held <= rig.ends[1].untaken + rig.ends[0].held <= 2 * (held + 16_384)


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


def test_what_is_on_its_way_as_both_ends_are_cut_counts_as_dropped() -> None:
    rig = Rig()
    rig.send(0, bytes(3000))
    rig.turn(0)
    rig.traffic.cut(rig.ends[0], "the proxy stopped")
    assert len(rig.hung_up) == 2 and (rig.record.up.bytes, rig.record.up.dropped_bytes) == (0, 3000)
    rig.turn(20 * MS)
    assert rig.record.up.dropped_bytes == 3000


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
