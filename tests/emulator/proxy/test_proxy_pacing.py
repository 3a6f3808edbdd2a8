"""When chunks may leave a link: exact moments with explicit time, also if the caller is late."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.capacity.constant import Constant
from emulator.capacity.outage import Windows
from emulator.delay.latency import Latency
from emulator.errors import BadValue
from emulator.proxy.pacing import DEPTH_NS, OPEN_BYTES, Junction, Lane, Server
from emulator.proxy.routes import ProxyWay, Route, address_text, parse_address, parse_map
from emulator.units import FOREVER

MS = 1_000_000
MBIT = Constant(8_000_000)  # 1000 bytes take 1 ms


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


def test_a_late_reader_loses_nothing_while_something_waits() -> None:
    server = Server(MBIT)
    # Read late, but before the end of the chunk in service: the clock of the lane continues.
    assert [server.serve(1000, at_ns) for at_ns in (0, 999_999, 2 * MS)] == [MS, 2 * MS, 3 * MS]


def test_the_clock_starts_anew_only_after_nothing_waited() -> None:
    server = Server(MBIT)
    assert [server.serve(1000, at_ns) for at_ns in (0, 5 * MS, 5 * MS)] == [MS, 6 * MS, 7 * MS]


def test_rounding_does_not_add_up() -> None:
    server = Server(Constant(3_000_000_000))
    assert [server.serve(1, 0) for _ in range(300_000)][-1] == 800_000  # each byte takes 8/3 ns


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


def test_an_outage_holds_up_what_waits() -> None:
    link: Lane[str] = Lane(0, Windows([(MS, 11 * MS)], 8_000_000), Latency(0))
    link.admit(2000, "a", 0)
    assert link.next_due() == 12 * MS


def test_a_marker_keeps_its_place() -> None:
    link = lane(8_000_000)
    for size_bytes, item in ((1000, "data"), (0, "end")):
        link.admit(size_bytes, item, 0)
    assert link.pop_due(MS) == [(MS, "data"), (MS, "end")]


def test_what_is_not_shaped_is_due_at_once() -> None:
    link = lane(None)
    link.admit(10**9, "a", 7)
    assert link.pop_due(7) == [(7, "a")] and link.has_room(7) and link.chunk_bytes(7) == OPEN_BYTES


def test_a_dead_link_delivers_nothing() -> None:
    link: Lane[str] = Lane(0, Windows([(0, FOREVER)]), Latency(MS))
    link.admit(1, "a", 0)
    assert link.next_due() == FOREVER and link.pop_due(FOREVER) == [] and not link.has_room(10**15)


def test_room_is_a_tenth_of_a_second_of_link_time() -> None:
    link = lane(8_000_000)
    link.admit(100_000 - 1, "a", 0)
    assert link.has_room(0)
    link.admit(1, "b", 0)
    assert not link.has_room(0) and link.has_room(1)
    assert link.room_at(0) == 25 * MS  # filled again at three quarters
    assert link.room_at(1) == FOREVER  # no need to wait


@pytest.mark.parametrize(
    ("rate_bit_s", "size_bytes"),
    [
        (10_000, 512),
        (2_000_000, 2500),
        (100_000_000, 16 * 1024),
        (200_000_000, 25_000),
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


def test_two_lanes_take_turns_at_their_bottleneck() -> None:
    junction, (first, second) = junction_of(None, None)
    for _ in range(3):
        first.admit(1000, "a", 0)
    second.admit(1000, "b", 0)
    junction.advance(10 * MS)
    assert [at_ns for at_ns, _ in first.pop_due(10 * MS)] == [MS, 3 * MS, 4 * MS]
    assert second.pop_due(10 * MS) == [(2 * MS, "b")]


def test_who_comes_later_owes_nothing_and_is_owed_nothing() -> None:
    junction, (first, second) = junction_of(None, None)
    for _ in range(6):
        first.admit(1000, "a", 0)
    junction.advance(3 * MS - 1)  # three of them have begun
    second.admit(1000, "b", 3 * MS - 1)
    second.admit(1000, "b", 3 * MS - 1)
    junction.advance(20 * MS)
    # Both tags are behind that of the chunk in service; from here on the lanes take turns.
    assert [at_ns // MS for at_ns, _ in second.pop_due(20 * MS)] == [4, 6]
    assert [at_ns // MS for at_ns, _ in first.pop_due(20 * MS)] == [1, 2, 3, 5, 7, 8]


def test_after_idleness_all_begin_equal() -> None:
    junction, (first, second) = junction_of(None, None)
    for _ in range(5):
        first.admit(1000, "a", 0)
    junction.advance(100 * MS)
    first.pop_due(100 * MS)
    for _ in range(2):
        second.admit(1000, "b", 100 * MS)
        first.admit(1000, "a", 100 * MS)
    junction.advance(200 * MS)
    assert [at_ns // MS for at_ns, _ in first.pop_due(200 * MS)] == [101, 103]
    assert [at_ns // MS for at_ns, _ in second.pop_due(200 * MS)] == [102, 104]


def test_a_slow_lane_leaves_the_rest_to_others() -> None:
    junction, (slow, fast) = junction_of(2_000_000, None)  # a quarter of the shared rate
    for _ in range(3):
        slow.admit(1000, "slow", 0)
    for _ in range(12):
        fast.admit(1000, "fast", 0)
    junction.advance(100 * MS)
    assert [at_ns // MS for at_ns, _ in slow.pop_due(100 * MS)] == [
        5,
        9,
        13,
    ]  # through its own lane at 4, 8, 12
    assert [at_ns // MS for at_ns, _ in fast.pop_due(100 * MS)] == [
        1,
        2,
        3,
        4,
        6,
        7,
        8,
        10,
        11,
        12,
        14,
        15,
    ]


def test_a_decision_comes_no_sooner_than_its_moment() -> None:
    junction, (first,) = junction_of(None)
    first.admit(1000, "a", 0)
    first.admit(1000, "b", 0)
    junction.advance(0)
    assert first.next_due() == MS and junction.next_decision() == MS
    assert len(first.waiting) == 1 and first.waiting_bytes == 1000


def test_a_junction_limits_what_waits_for_it() -> None:
    _junction, lanes = junction_of(None, None)  # 100 ms are 100 kB, chunks of 10 kB
    while lanes[0].has_room(0):
        lanes[0].admit(10_000, "a", 0)
    assert lanes[0].waiting_bytes == 100_000 and lanes[1].chunk_bytes(0) == 10_000
    while lanes[1].has_room(0):
        lanes[1].admit(10_000, "b", 0)
    assert lanes[1].waiting_bytes == 50_000  # now there are two of them
    assert not lanes[0].has_room(0)


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


def test_addresses() -> None:
    assert parse_address("127.0.0.1:9000", "listen") == ("127.0.0.1", 9000)
    assert (
        parse_address("[::1]:0", "listen") == ("::1", 0) and address_text(("::1", 0)) == "[::1]:0"
    )
    assert parse_map("localhost:1=[::1]:2") == (("localhost", 1), ("::1", 2))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "9000",
        ":9000",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "127.0.0.1:x",
        "::1:9000",
        "a:١",
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


def test_the_queue_is_deeper_than_a_host_is_late() -> None:
    link, chunks = lane(100_000_000), 0
    while link.has_room(0):
        link.admit(link.chunk_bytes(0), "a", 0)
        chunks += 1
    assert chunks * 16 * 1024 * 80 >= DEPTH_NS  # 80 ns per byte
