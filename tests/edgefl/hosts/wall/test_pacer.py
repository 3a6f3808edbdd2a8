"""Pieces against the service curve, in virtual time: never far ahead of it and never behind,
whatever the host does.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pacer_rig import MBIT, MS, Rig

from edgefl.hosts.wall.coordinator.flow import LARGEST_PIECE, SMALLEST_PIECE, Flow, PiecePlan
from edgefl.protocol.messages import Update
from edgefl.protocol.transfers import Incoming, Outgoing
from emulator.capacity.rates import Constant
from emulator.delay import Latency
from emulator.links.link import Link
from emulator.links.network import Network, Transfer
from emulator.units import FOREVER, NS_PER_S


def take(rate_bit_s: int, size: int) -> int:
    """ns for ``size`` bytes, rounded up; computed here again, so that the emulator is not its own
    check.
    """
    return -(-size * 8 * NS_PER_S // rate_bit_s)


rates = st.integers(20_000, 500 * MBIT)
elements_ = st.integers(1, 30_000)
latencies = st.integers(0, 300 * MS)
windows = st.integers(0, 200 * MS)


# ------------------------------------------------------------------ one transfer
@settings(deadline=None)
@given(rates, elements_, latencies, windows, st.integers(1, 3), st.integers(1, 20 * MS))
def test_bytes_are_never_far_ahead_of_the_curve_and_never_behind_it(
    rate: int, elements: int, latency: int, window: int, vectors: int, grain: int
) -> None:
    rig = Rig(rate, latency, window, grain_ns=grain)
    flow = rig.start(elements, vectors=vectors)
    allowed, wakes = rig.allowed(flow, rate), 0
    while rig.step():
        wakes += 1
        if flow.completion is None:
            assert rig.ahead(flow) <= allowed
        for moment, _, _, end in rig.sent[-1:]:
            assert moment <= latency + take(rate, flow.meta + end)
    assert flow.released == flow.body and wakes <= -(-flow.body // flow.piece) + 2
    assert [first for _, _, first, _ in rig.sent[1:]] == [
        end for _, _, _, end in rig.sent[:-1]
    ]  # each byte once, in order
    assert flow.completion is not None and flow.completion.due_ns == latency + take(
        rate, flow.transfer.size
    )


@settings(deadline=None)
@given(
    rates,
    elements_,
    latencies,
    windows,
    st.lists(st.integers(0, 3 * NS_PER_S), min_size=1, max_size=20),
    st.integers(0, NS_PER_S),
)
def test_a_host_that_wakes_late_bends_nothing(
    rate: int, elements: int, latency: int, window: int, delays: list[int], heard: int
) -> None:
    rig = Rig(rate, latency, window)
    rig.now = 5 * NS_PER_S + heard
    flow = rig.start(elements, at=5 * NS_PER_S)
    allowed, late = rig.allowed(flow, rate), iter(delays * 1000)
    while rig.step(next(late)):
        if flow.completion is None:
            assert rig.ahead(flow) <= allowed
    assert flow.released == flow.body
    assert flow.completion is not None and flow.completion.due_ns == 5 * NS_PER_S + latency + take(
        rate, flow.transfer.size
    )


@settings(deadline=None)
@given(
    rates,
    st.integers(100, 30_000),
    latencies,
    windows,
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(0, 10 * NS_PER_S),
    st.integers(0, 50 * MS),
)
def test_a_broken_session_goes_on_without_a_burst(
    rate: int,
    elements: int,
    latency: int,
    window: int,
    when: float,
    kept: float,
    outage: int,
    late: int,
) -> None:
    rig = Rig(rate, latency, window)
    flow = rig.start(elements)
    allowed = rig.allowed(flow, rate)
    rig.until(int(when * (latency + take(rate, flow.transfer.size) - 1)))
    due_by_then = rig.network.progress(flow.transfer, rig.now)
    rig.pacer.suspend("a", rig.now)
    assert rig.pacer.next_due() == FOREVER  # an outage: no byte moves
    rig.now = back = rig.now + outage
    held = int(kept * flow.released)
    rig.pacer.resume(flow, held, back)
    confirmed = min(flow.meta + held, due_by_then)
    while rig.step(late):
        served = max(rig.now - back - latency, 0) * rate // (8 * NS_PER_S)
        if flow.completion is None and flow.released > held:
            assert flow.meta + flow.released <= confirmed + served + allowed
    assert flow.released == flow.body
    assert flow.completion is not None and flow.completion.due_ns == back + latency + take(
        rate, flow.transfer.size - confirmed
    )


def test_pieces_of_many_links_leave_together_where_they_can_wait() -> None:
    """Ten links that start 0.3 ms apart, with a grain of 2 ms.

    After the first piece of each, every piece is sent at a multiple of 2 ms.
    """
    rig, flows = Rig(edges="abcdefghij", grain_ns=2 * MS), []
    for number, edge in enumerate("abcdefghij"):
        rig.until(number * 300_000)
        flows.append(rig.start(10_000, edge))
    while rig.step():
        pass
    later = [moment for moment, _, first, _ in rig.sent if first]
    assert all(flow.released == flow.body for flow in flows) and len(later) > 50
    assert all(moment % (2 * MS) == 0 for moment in later)
    assert len(set(later)) <= len(later) / 4


def test_one_transfer_by_hand() -> None:
    """0.25 MB/s, pieces of 3750 bytes (15 ms), a window of 50 ms.

    A quarter of the 40,000 bytes takes 40 ms.
    """
    rig = Rig(2 * MBIT, latency_ns=5 * MS)
    flow = rig.start(10_000)
    quarter = flow.transfer.size // 4
    while rig.step():
        pass
    # A quarter is sent when service begins. Each later piece is sent when the bytes up to its end,
    # except a quarter, are due.
    ends = [min(3750 * n, 40_000) for n in range(1, 12)]
    moments = [0, 0, *(5 * MS + take(2 * MBIT, flow.meta + end - quarter) for end in ends[2:])]
    assert flow.piece == 3750 and ends[1] < quarter < ends[2]
    assert flow.due_at == {end: 5 * MS + take(2 * MBIT, flow.meta + end) for end in ends}
    assert {moment for moment, *_ in rig.sent} == set(moments)


def test_the_round_trip_widens_the_window() -> None:
    moments = []
    for rtt_ns in (0, 20 * MS):
        rig = Rig(window_ns=50 * MS)
        flow = rig.start(100_000, rtt_ns=rtt_ns)
        rig.until(1 * NS_PER_S)
        moments.append(next(moment for moment, _, _, end in rig.sent if end == flow.piece * 10))
    assert (
        moments[0] - moments[1] == 20 * MS
        and moments[0] == take(2 * MBIT, flow.meta + flow.piece * 10) - 50 * MS
    )


@pytest.mark.parametrize(
    ("rate", "piece"), [(20_000, SMALLEST_PIECE), (2 * MBIT, 3750), (10**9, LARGEST_PIECE)]
)
def test_a_piece_is_some_ms_of_link_time_within_bounds(rate: int, piece: int) -> None:
    assert Rig(rate).start(10).piece == piece


def test_a_body_of_nothing_is_done_when_its_header_is_due() -> None:
    rig = Rig(1 * MBIT)
    flow = rig.start(0)
    assert flow.body == 0 and flow.meta > 0
    rig.until(NS_PER_S)
    assert rig.sent == [] and rig.done == [flow] and flow.finished_ns() == take(1 * MBIT, flow.meta)


# ------------------------------------------------------------------ ends
def test_a_transfer_ends_at_its_due_moment_if_the_bytes_were_there_before() -> None:
    rig = Rig()
    flow = rig.start(10_000)
    due = take(2 * MBIT, flow.transfer.size)
    rig.until(due - 1)
    assert rig.pacer.last_byte(flow, due - 7 * MS) == [] and not rig.done
    rig.until(due)
    assert rig.done == [flow] and flow.finished_ns() == due and not rig.pacer.flows
    assert (rig.fidelity.transfer_lag.max, rig.fidelity.last_byte_lead.max) == (0, 7 * MS)


def test_a_transfer_ends_with_its_last_byte_if_that_is_late() -> None:
    rig = Rig()
    flow = rig.start(10_000)
    due = take(2 * MBIT, flow.transfer.size)
    rig.until(due + 30 * MS)
    assert rig.done == [] and rig.pacer.next_due() == FOREVER
    assert (
        rig.pacer.last_byte(flow, due + 30 * MS) == [flow] and flow.finished_ns() == due + 30 * MS
    )
    assert (
        rig.fidelity.transfer_lag.max,
        rig.fidelity.last_byte_lead.max,
        rig.fidelity.transfers_late,
    ) == (30 * MS, 0, 1)


def test_late_wakes_and_late_offers_are_told_apart() -> None:
    rig = Rig()
    rig.now = 300 * MS
    rig.start(10_000, at=0)  # all of it is already due
    rig.step()
    assert rig.fidelity.wake_lag.max == 0
    rig.start(10_000)
    rig.step(late_ns=4 * MS)
    assert rig.fidelity.wake_lag.max == 4 * MS


def test_arrivals_ahead_of_the_service_curve_are_seen() -> None:
    rig = Rig(2 * MBIT)
    flow = rig.start(20_000)  # 80 kB: 15 ms per piece, a quarter is 80 ms, the window 50 ms
    rig.until(40 * MS)
    (first, _), (second, due) = list(flow.due_at.items())[:2]
    earliest = due - flow.window_ns - flow.piece_ns
    assert not flow.ahead(rig.network, first, 0, 0) and not flow.ahead(
        rig.network, second, earliest, 0
    )
    assert flow.ahead(rig.network, second, earliest - 1, 0) and flow.ahead(
        rig.network, second, earliest - 2 * MS, 1 * MS
    )
    assert not flow.ahead(
        rig.network, second, earliest - 1 * MS, 1 * MS
    )  # the clocks are compared with this precision
    assert not flow.ahead(
        rig.network, second - 1, -NS_PER_S, 0
    )  # bytes between two piece ends are not judged


def test_a_small_transfer_may_be_ahead_by_a_quarter_and_a_piece_only() -> None:
    rig = Rig(2 * MBIT)
    flow = rig.start(5_000)  # 20 kB: 80 ms in total, well within the window and a piece
    rig.until(70 * MS)
    assert not flow.ahead(rig.network, 7_500, 0, 0)
    assert flow.ahead(rig.network, 11_250, 0, 0)


def test_a_pacer_that_lets_go_too_early_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(flow: Flow, network: Network) -> None:
        flow.release_at = 0 if flow.released < flow.body else FOREVER

    monkeypatch.setattr(Flow, "plan_release", at_once)
    rig = Rig(2 * MBIT)
    flow = rig.start(62_500)
    rig.until(1 * MS)
    assert [flow.ahead(rig.network, size, 1 * MS, 0) for size in (3_750, 240_000)] == [False, True]


# ------------------------------------------------------------------ native links
def test_a_native_link_is_not_shaped_and_ends_with_the_last_byte() -> None:
    rig = Rig(None)
    flow = rig.start(1_000_000)
    rig.step()
    assert rig.sent == [(0, 1, 0, 4_000_000)] and rig.done == []
    assert rig.pacer.last_byte(flow, 123) == [flow] and flow.finished_ns() == 123
    assert not flow.ahead(rig.network, 4_000_000, -1, 0)
    assert (
        rig.fidelity.transfer_lag.count
        == rig.fidelity.wake_lag.count
        == rig.fidelity.last_byte_lead.count
        == 0
    )


def test_a_native_transfer_goes_on_after_a_broken_session() -> None:
    rig = Rig(None)
    flow = rig.start(1_000_000)
    rig.step()
    rig.pacer.suspend("a", 5)
    rig.pacer.resume(flow, 3_000_000, 9)
    rig.now = 9
    rig.step()
    assert rig.sent[1:] == [(9, 1, 3_000_000, 4_000_000)] and rig.pacer.last_byte(flow, 20) == [
        flow
    ]


# ------------------------------------------------------------------ several transfers
def test_two_transfers_on_one_link_go_one_after_the_other() -> None:
    rig = Rig(latency_ns=30 * MS)
    first, second = rig.start(10_000), rig.start(10_000)
    rig.until(10 * NS_PER_S)
    border = take(2 * MBIT, first.transfer.size)
    assert [number for _, number, _, _ in rig.sent] == sorted(
        number for _, number, _, _ in rig.sent
    )
    assert (
        min(moment for moment, number, *_ in rig.sent if number == second.transfer.number) == border
    )  # no byte before its service
    assert (first.completion.due_ns, second.completion.due_ns) == (
        border + 30 * MS,
        border + 30 * MS + take(2 * MBIT, second.transfer.size),
    )


def test_other_edges_and_the_other_direction_do_not_wait() -> None:
    rig = Rig(edges="ab")
    flows = [rig.start(10_000, "a"), rig.start(10_000, "b")]
    offer = Outgoing(1, Update(1, 0, {"weights": np.zeros(10_000, np.float32)})).offer(0)
    up = Transfer(next(rig.numbers), "a", "up", len(offer.meta) + offer.size, "update")
    flows.append(rig.pacer.start(up, len(offer.meta), Incoming(offer, 1 << 20), 0, 0, 0))
    rig.step()
    assert [number for _, number, _, _ in rig.sent] == [1, 2, 3] and rig.now == 0
    rig.until(NS_PER_S)
    assert all(
        flow.completion is not None and flow.completion.due_ns == take(2 * MBIT, flow.transfer.size)
        for flow in flows
    )


@pytest.mark.parametrize("suspended", [False, True])
def test_the_next_transfer_takes_the_place_of_one_that_was_dropped(suspended: bool) -> None:
    rig = Rig()
    first, second = rig.start(10_000), rig.start(10_000)
    rig.until(40 * MS)
    if suspended:
        rig.pacer.suspend("a", rig.now)
    rig.pacer.drop(first, 40 * MS, 41 * MS)
    if suspended:
        rig.now = 70 * MS
        rig.pacer.resume(second, 0, 70 * MS)
    rig.until(NS_PER_S)
    begin = 70 * MS if suspended else 40 * MS
    assert [(moment, number) for moment, number, first_byte, _ in rig.sent if first_byte == 0][
        1
    ] == (70 * MS if suspended else 41 * MS, 2)
    assert second.completion is not None and second.completion.due_ns == begin + take(
        2 * MBIT, second.transfer.size
    )
    assert rig.fidelity.wake_lag.max == 0 and list(rig.pacer.flows) == [2]


def test_what_waits_behind_a_broken_transfer_moves_with_it() -> None:
    rig = Rig()
    first, second = rig.start(10_000), rig.start(10_000)
    rig.until(40 * MS)
    confirmed = rig.network.progress(first.transfer, rig.now)
    rig.pacer.suspend("a", rig.now)
    third = rig.start(10)
    rig.pacer.resume(first, first.released, 500 * MS)
    rig.now = 500 * MS
    rig.pacer.resume(second, 0, 500 * MS)
    rig.until(10 * NS_PER_S)
    moments = [flow.completion.due_ns for flow in (first, second, third)]
    sizes = [first.transfer.size - confirmed, second.transfer.size, third.transfer.size]
    assert moments == [500 * MS + take(2 * MBIT, sum(sizes[: n + 1])) for n in range(3)]
    assert third.released == third.body and rig.sent[-1] == (moments[1], 3, 0, 40)
    assert [number for _, number, _, _ in rig.sent] == sorted(
        number for _, number, _, _ in rig.sent
    )


def test_bytes_that_were_due_but_lost_are_sent_again_at_once() -> None:
    rig = Rig()
    flow = rig.start(10_000)
    due = take(2 * MBIT, flow.transfer.size)
    rig.until(due)
    rig.pacer.suspend("a", due + 1)
    rig.pacer.resume(flow, 39_000, due + 300 * MS)
    rig.until(due + 300 * MS)
    assert rig.sent[-1] == (due + 300 * MS, 1, 39_000, 40_000)
    assert rig.pacer.last_byte(flow, due + 301 * MS) == [flow] and rig.fidelity.transfers_late == 1


def test_nothing_is_released_for_an_edge_that_is_gone_even_if_it_is_due() -> None:
    rig = Rig()
    flow = rig.start(10_000)
    rig.now = 2 * NS_PER_S
    rig.done += rig.pacer.completed(rig.now)  # due, but the host had no time to send a byte
    rig.pacer.suspend("a", rig.now)
    assert rig.pacer.next_due() == FOREVER
    rig.pacer.resume(flow, 0, rig.now + 5)
    rig.until(rig.now + 5)
    assert rig.sent == [(rig.now, 1, 0, 40_000)]


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_every_transfer_that_is_not_dropped_comes_to_its_end(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rig, gone = Rig(latency_ns=int(rng.integers(0, 50 * MS)), edges="ab"), set()
    flows: list[Flow] = []
    for _ in range(80):
        rig.until(rig.now + int(rng.integers(0, 30 * MS)))
        edge = str(rng.choice(["a", "b"]))
        mine = [flow for flow in rig.pacer.flows.values() if flow.transfer.edge == edge]
        match rng.integers(5):
            case 0:
                flows.append(rig.start(int(rng.integers(1, 8_000)), edge))
                if edge in gone:
                    rig.pacer.suspend(edge, rig.now)
            case 1 if mine:
                dropped = mine[int(rng.integers(len(mine)))]
                rig.pacer.drop(dropped, rig.now, rig.now)
                flows.remove(dropped)
            case 2 | 3:
                rig.pacer.suspend(edge, rig.now)
                gone.add(edge)
            case 4:
                gone.discard(edge)
                for flow in mine:
                    rig.pacer.resume(flow, int(rng.integers(0, flow.released + 1)), rig.now)
    for flow in [flow for flow in rig.pacer.flows.values() if flow.suspended]:
        rig.pacer.resume(flow, flow.released // 2, rig.now)
    rig.until(rig.now + 60 * NS_PER_S)
    assert flows and all(
        flow.released == flow.body and flow.completion is not None for flow in flows
    )
    assert rig.fidelity.wake_lag.max == 0  # no moment was planned in the past


def test_a_dropped_transfer_is_never_heard_of_again() -> None:
    rig = Rig(edges="ab")
    gone, other = rig.start(10_000), rig.start(10_000, "b")
    rig.until(40 * MS)
    rig.pacer.drop(gone, rig.now, rig.now)
    before = len([number for _, number, _, _ in rig.sent if number == 1])
    rig.until(NS_PER_S)
    rig.pacer.last_byte(other, rig.now)
    assert len([number for _, number, _, _ in rig.sent if number == 1]) == before
    assert (
        not rig.pacer.flows
        and not any(rig.pacer.of_edge.values())
        and rig.pacer.next_due() == FOREVER
    )


# ------------------------------------------------------------------ many flows
MANY = [f"e{number}" for number in range(130)]


def many(elements: int, edges: int = 40, grain_ns: int = 1) -> tuple[Rig, list[Flow]]:
    """A rig whose first ``edges`` edges begin a transfer at once, and their flows."""
    rig = Rig(edges="", grain_ns=grain_ns)
    for edge in MANY:
        for direction in ("up", "down"):
            rig.network.add_link(edge, direction, Link(Constant(2 * MBIT), Latency(0)))
    return rig, [rig.start(elements, edge) for edge in MANY[:edges]]


def test_pieces_are_longer_with_many_flows_and_never_further_ahead() -> None:
    rig, flows = many(elements=100_000)
    short, long = 3750, 7500  # 15 ms and 30 ms of the link
    rig.step()
    assert {flow.piece for flow in flows} == {long}
    while rig.pacer.next_due() < FOREVER:
        rig.step()
        for flow in rig.pacer.flows.values():
            if flow.completion is None:
                assert rig.ahead(flow) <= rig.allowed(flow, 2 * MBIT) + 1
    sizes = [end - first for _, number, first, end in rig.sent if number == 1]
    assert sizes.count(long) > 0.9 * len(sizes)
    assert {flow.completion.due_ns for flow in flows if flow.completion} == {
        take(2 * MBIT, flows[0].transfer.size)
    }
    few, alone = many(elements=100_000, edges=31)
    few.step()
    assert {flow.piece for flow in alone} == {short}


def test_pieces_longer_than_the_window_are_neither_too_early_nor_late_at_their_ends() -> None:
    """130 flows: pieces of 75 ms with a window of 50 ms; the first piece is shorter."""
    rig, flows = many(elements=100_000, edges=130, grain_ns=2 * MS)
    window = 50 * MS * 2 * MBIT // (8 * NS_PER_S)
    while rig.pacer.next_due() < FOREVER:
        rig.step()
        for flow in rig.pacer.flows.values():
            if flow.completion is None:
                assert rig.ahead(flow) <= window + 1
                assert not any(
                    flow.ahead(rig.network, end, rig.now, 0)
                    for _, number, _, end in rig.sent[-1:]
                    if number == flow.transfer.number
                )
    last = [(moment, first, end) for moment, number, first, end in rig.sent if number == 130]
    assert last[0][2] - last[0][1] <= window < 18_750 <= max(end - first for _, first, end in last)
    assert all(moment <= take(2 * MBIT, flows[0].meta + end) for moment, _, end in last)
    assert {flow.completion.due_ns for flow in flows if flow.completion} == {
        take(2 * MBIT, flows[0].transfer.size)
    }


def test_one_wake_up_serves_more_pieces_with_many_flows() -> None:
    for edges, grain in ((63, 2 * MS), (64, 4 * MS)):
        rig, _ = many(elements=100_000, edges=edges, grain_ns=2 * MS)
        assert rig.pacer.grain_ns == grain
        rig.until(NS_PER_S)
        later = {moment for moment, _, first, _ in rig.sent if first and moment > 100 * MS}
        assert later and all(moment % grain == 0 for moment in later)


def test_longer_pieces_stay_within_four_windows_and_an_eighth_of_the_transfer() -> None:
    pace = PiecePlan(50 * MS, 15 * MS)
    lengths = [pace.length_ns(flows) // MS for flows in (1, 31, 32, 64, 128, 300, 1000)]
    assert lengths == [15, 15, 30, 45, 75, 150, 190]
    assert PiecePlan(3 * MS, 15 * MS).length_ns(1000) == 15 * MS
    rig, flows = many(elements=12_000)
    rig.step()
    assert {flow.piece for flow in flows[32:]} == {flows[0].transfer.size // 8}
