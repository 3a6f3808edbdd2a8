"""Pieces against the service curve, in virtual time: never far ahead of it and never behind,
whatever the host does; on shared media, and by the closed forms of frequent links.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pacer_rig import MBIT, MS, PIECE_NS, Rig
from transport_rig import Rig as TransportRig

from edgefl.clocks.wall.wire import MOST_TO_SEND
from edgefl.exchange.pacer import LARGEST_PIECE, SMALLEST_PIECE, PacedFlow, PiecePlan
from edgefl.protocol.codec import Outgoing
from edgefl.protocol.messages import Update
from emulator.capacity.rates import Constant, Lowest, Windows
from emulator.capacity.trace import Trace, mahimahi_steps
from emulator.delay import Latency
from emulator.kernel_pacing import Burst
from emulator.links.bottleneck import Bottleneck
from emulator.links.link import Link
from emulator.links.network import Network, Transfer
from emulator.tdma.channel import Channel, Grid
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
@given(
    rates,
    elements_,
    latencies,
    windows,
    st.integers(1, 3),
    st.integers(1, 20 * MS),
    st.lists(st.integers(0, 3 * NS_PER_S), max_size=20),
)
def test_bytes_are_never_far_ahead_of_the_curve_and_never_behind_it(
    rate: int,
    elements: int,
    latency: int,
    window: int,
    vectors: int,
    grain: int,
    delays: list[int],
) -> None:
    """Also if the host wakes late (``delays``) and has learned of the transfer late."""
    rig = Rig(rate, latency, window, grain_ns=grain)
    rig.now = sum(delays[:1])
    flow = rig.start(elements, at=0, vectors=vectors)
    allowed, late, wakes = rig.allowed(flow, rate), itertools.cycle(delays or [0]), 0
    while rig.step(next(late)):
        wakes += 1
        if flow.completion is None:
            assert rig.ahead(flow) <= allowed
        for moment, _, _, end in rig.sent[-1:] if not any(delays) else []:
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
    assert rig.done == [flow] and flow.finished_ns() == due and not rig.exchange.flows
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


# ------------------------------------------------------------------ native links
# ------------------------------------------------------------------ several transfers
@pytest.mark.parametrize("suspended", [False, True])
def test_the_next_transfer_takes_the_place_of_one_that_was_dropped(suspended: bool) -> None:
    rig = Rig()
    first, second = rig.start(10_000), rig.start(10_000)
    rig.until(40 * MS)
    if suspended:
        rig.pacer.suspend("a", rig.now)
    rig.pacer.exchange.cancel(first, 40 * MS)
    rig.pacer.cancelled(first, 41 * MS)
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
    assert rig.fidelity.wake_lag.max == 0 and list(rig.exchange.flows) == [2]


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


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_every_transfer_that_is_not_dropped_comes_to_its_end(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rig, gone = Rig(latency_ns=int(rng.integers(0, 50 * MS)), edges="ab"), set()
    flows: list[PacedFlow] = []
    for _ in range(80):
        rig.until(rig.now + int(rng.integers(0, 30 * MS)))
        edge = str(rng.choice(["a", "b"]))
        mine = [flow for flow in rig.exchange.flows.values() if flow.transfer.edge == edge]
        match rng.integers(5):
            case 0:
                flows.append(rig.start(int(rng.integers(1, 8_000)), edge))
                if edge in gone:
                    rig.pacer.suspend(edge, rig.now)
            case 1 if mine:
                dropped = mine[int(rng.integers(len(mine)))]
                rig.pacer.exchange.cancel(dropped, rig.now)
                rig.pacer.cancelled(dropped, rig.now)
                flows.remove(dropped)
            case 2 | 3:
                rig.pacer.suspend(edge, rig.now)
                gone.add(edge)
            case 4:
                gone.discard(edge)
                for flow in mine:
                    rig.pacer.resume(flow, int(rng.integers(0, flow.released + 1)), rig.now)
    for flow in [flow for flow in rig.exchange.flows.values() if flow.suspended]:
        rig.pacer.resume(flow, flow.released // 2, rig.now)
    rig.until(rig.now + 60 * NS_PER_S)
    assert flows and all(
        flow.released == flow.body and flow.completion is not None for flow in flows
    )
    assert rig.fidelity.wake_lag.max == 0  # no moment was planned in the past


# ------------------------------------------------------------------ many flows
MANY = [f"e{number}" for number in range(130)]


def many(elements: int, edges: int = 40, grain_ns: int = 1) -> tuple[Rig, list[PacedFlow]]:
    """A rig whose first ``edges`` edges begin a transfer at once, and their flows."""
    rig = Rig(edges="", grain_ns=grain_ns)
    for edge in MANY:
        for direction in ("up", "down"):
            rig.network.add_link(edge, direction, Link(Constant(2 * MBIT), Latency(0)))
    return rig, [rig.start(elements, edge) for edge in MANY[:edges]]


def test_pieces_longer_than_the_window_are_neither_too_early_nor_late_at_their_ends() -> None:
    """130 flows: pieces of 75 ms with a window of 50 ms; the first piece is shorter."""
    rig, flows = many(elements=100_000, edges=130, grain_ns=2 * MS)
    window = 50 * MS * 2 * MBIT // (8 * NS_PER_S)
    while rig.pacer.next_due() < FOREVER:
        rig.step()
        for flow in rig.exchange.flows.values():
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


@pytest.mark.parametrize("at_ms", [0, 4, 5])
def test_pieces_on_a_trace_of_single_ms_have_the_rate_of_many(at_ms: int) -> None:
    """1,500 bytes in the last ms of five, 12 Mbit/s: 2.4 Mbit/s, whenever a transfer begins."""
    rig = Rig()
    trace = Trace(mahimahi_steps(f"{ms}\n" for ms in range(5, 5001, 5)))
    rig.network.link("a", "down").capacity = trace
    rig.until(at_ms * MS)
    assert rig.start(125_000).piece == pytest.approx(2.4 * MBIT * PIECE_NS / 8 / NS_PER_S, rel=0.4)


@pytest.mark.parametrize("behind", [False, True])
def test_a_transfer_that_begins_while_its_link_is_cut_has_pieces_of_the_rate_after_that(
    behind: bool,
) -> None:
    """2 Mbit/s, cut from 1 to 5 s. Half of a transfer of 2 s is carried before the cut."""
    rig = Rig()
    cut = Windows([(NS_PER_S, 5 * NS_PER_S)])
    rig.network.link("a", "down").capacity = Lowest(Constant(2 * MBIT), cut)
    first = rig.start(125_000) if behind else None
    rig.until(2 * NS_PER_S)
    flow = rig.start(125_000)
    assert flow.piece == pytest.approx(2 * MBIT * PIECE_NS / 8 / NS_PER_S, rel=0.01)
    while rig.step() and flow.completion is None:
        assert flow.released == 0 or rig.ahead(flow) <= rig.allowed(flow, 2 * MBIT)
    served_ns = take(2 * MBIT, flow.transfer.size + (first.transfer.size if first else 0))
    assert flow.completion is not None and flow.released == flow.body
    assert flow.completion.due_ns == (4 if behind else 5) * NS_PER_S + served_ns


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


# ------------------------------------------------------------------ pacer media
SLOT_NS, GUARD_NS = 20 * MS, 2 * MS
PER_SLOT = 4500  # bytes of 18 ms at 2 Mbit/s


class SlotRig(Rig):
    """Edges on one channel, with a window that spans several slots."""

    def __init__(self, automatic: bool, latency_ns: int) -> None:
        super().__init__(window_ns=200 * MS, edges="")
        self.channel = Channel(Grid(SLOT_NS, GUARD_NS), 2 * MBIT, automatic=automatic)
        for edge in "ab":
            self.network.add_link(edge, "down", self.channel.link(Latency(latency_ns)))


@pytest.mark.parametrize("latency_ns", [0, 30 * MS])
@pytest.mark.parametrize("late_ns", [0, 7 * MS])
def test_no_byte_goes_before_its_slot(latency_ns: int, late_ns: int) -> None:
    """The slots are far apart. The window is wider than the time between them, but opens no slot
    early.
    """
    rig, slots = SlotRig(automatic=False, latency_ns=latency_ns), [1, 4, 5, 11]
    flow = rig.start(4000)
    assert not rig.sent and rig.network.grant(flow.transfer, slots, 0) == slots
    while rig.step(late_ns):
        pass
    assert rig.sent[-1][3] == flow.body and len(rig.sent) >= len(slots)
    for moment, _, _, end in rig.sent:
        last = flow.meta + end - 1
        begins = slots[last // PER_SLOT] * SLOT_NS
        due = begins + -(-(last % PER_SLOT + 1) * 8 * NS_PER_S // (2 * MBIT)) + latency_ns
        assert begins <= moment <= due + late_ns


@pytest.mark.parametrize("piece_ns", [4 * MS, 70 * MS])
def test_a_piece_carries_bytes_of_one_slot_only(piece_ns: int) -> None:
    """Pieces of 1000, 3750 and 17500 bytes, 4500 bytes per slot: pieces end with their slot."""
    rig, slots = SlotRig(automatic=False, latency_ns=0), [1, 2, 5, 9]
    rig.pacer.pace = PiecePlan(200 * MS, piece_ns, 2 * MS)
    flow = rig.start(4000)
    rig.network.grant(flow.transfer, slots, 0)
    while rig.step():
        pass
    borders = [flow.meta, *sorted(flow.meta + end for end in flow.due_at)]
    assert borders[-1] == flow.transfer.size and len(borders) > len(slots)
    assert all(
        (last - 1) // PER_SLOT == first // PER_SLOT for first, last in itertools.pairwise(borders)
    )


@pytest.mark.parametrize("others", [0, 3])
def test_a_piece_on_a_shared_link_takes_its_time_at_the_share(others: int) -> None:
    rig, bottleneck = Rig(edges=""), Bottleneck(Constant(8 * MBIT))
    for edge in "abcd":
        rig.network.add_link(edge, "down", bottleneck.link(delay=Latency(10 * MS)))
    for edge in "bcd"[:others]:
        rig.start(100_000, edge)
    flow = rig.start(100_000, "a")
    whole = PIECE_NS * 8 * MBIT // (8 * NS_PER_S)
    assert flow.piece == pytest.approx(whole / (1 + others), rel=0.01)
    assert flow.piece_ns == pytest.approx(PIECE_NS, rel=0.05)


def test_a_newcomer_delays_the_pieces_of_the_others() -> None:
    """Alone, a ends after 400 ms; with b from 100 ms on, after 700 ms. Its pieces follow that."""
    rig, bottleneck = Rig(edges=""), Bottleneck(Constant(8 * MBIT))
    for edge in "ab":
        rig.network.add_link(edge, "down", bottleneck.link())
    first = rig.start(100_000, "a")
    rig.until(100 * MS)
    rig.start(100_000, "b")
    while rig.step():
        moment, number, _, _end = rig.sent[-1] if rig.sent else (0, 0, 0, 0)
        if number == first.transfer.number and moment > 100 * MS and first.completion is None:
            assert rig.ahead(first) <= rig.allowed(first, 8 * MBIT) + first.piece
    ends = [
        moment
        for moment, number, _, end in rig.sent
        if number == first.transfer.number and end == first.body
    ]
    assert 600 * MS < ends[0] <= 701 * MS


# ------------------------------------------------------------------ pacer steady
class General(Link):
    """A link that offers no closed form."""

    def steady(self, booking: Any) -> None:
        return None


STORIES = st.fixed_dictionaries(
    {
        "rate_bit_s": st.integers(8_000, 100_000_000),
        "latency_ns": st.sampled_from([0, 1, 7 * MS, 300 * MS]),
        "window_ns": st.sampled_from([1, 10 * MS, 50 * MS, 2 * NS_PER_S]),
        "grain_ns": st.sampled_from([1, 3, 5 * MS]),
        "elements": st.lists(st.integers(0, 60_000), min_size=1, max_size=3),
        "late_ns": st.lists(st.sampled_from([0, 1, 4 * MS, 400 * MS]), min_size=1, max_size=8),
        # the session breaks after so many steps; part of what was sent has arrived
        "breaks_after": st.none() | st.integers(1, 12),
        "share": st.floats(0, 1),
    }
)


def played(story: dict[str, Any], link: type[Link]) -> list[Any]:
    """All pieces of a story, and the moment at which each of them is due."""
    rig = Rig(None, 0, story["window_ns"], grain_ns=story["grain_ns"])
    rig.network._links["a", "down"] = made = link(
        Constant(story["rate_bit_s"]), Latency(story["latency_ns"])
    )
    made.on_change = rig.network._announce
    flows = [rig.start(elements) for elements in story["elements"]]
    for step in range(5_000):
        if not rig.step(story["late_ns"][step % len(story["late_ns"])]):
            break
        if step + 1 == story["breaks_after"]:
            rig.pacer.suspend("a", rig.now)
            rig.now += 3 * MS
            for flow in flows:
                if flow.transfer.number in rig.exchange.flows:
                    rig.pacer.resume(flow, int(story["share"] * flow.released), rig.now)
    return [rig.sent, [flow.due_at for flow in flows], [flow.completion for flow in flows]]


# two transfers are under way when the session breaks; the rest of the first has a later start
BROKEN = {
    "rate_bit_s": 1_000_000,
    "latency_ns": 20 * MS,
    "window_ns": 50 * MS,
    "grain_ns": 1,
    "elements": [60_000, 20_000],
    "late_ns": [0],
    "breaks_after": 30,
    "share": 0.9,
}


@given(STORIES)
@example(BROKEN)
@example({**BROKEN, "breaks_after": 60})
def test_the_plan_at_a_constant_rate_is_the_general_one(story: dict[str, Any]) -> None:
    assert played(story, Link) == played(story, General)


# ------------------------------------------------------------------ native links
def native_story(monkeypatch: pytest.MonkeyPatch, at_once: bool) -> list[Any]:
    if not at_once:
        monkeypatch.setattr(Network, "at_once", lambda *_: False)
    rig = TransportRig(rate=None, stamped=False)
    first = rig.carry(number=1)
    rig.until(2 * MS)
    rig.arrived("a", first)
    second = rig.carry(number=2)
    rig.until(3 * MS)
    rig.breaks("a")
    rig.until(4 * MS)
    rig.joins("a", [], [[second.number, 0]])
    rig.until(6 * MS)
    rig.arrived("a", second)
    rig.breaks("a")
    third = rig.carry(number=3)  # the edge is away
    rig.until(7 * MS)
    rig.joins("a", [], [[third.number, 0]])
    rig.until(8 * MS)
    rig.says("a", Outgoing(7, Update(2, 0, {})).offer(0))
    rig.until(9 * MS)
    return [rig.told, rig.sent]


def test_a_download_on_a_native_link_is_as_the_network_would_carry_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quick = native_story(monkeypatch, at_once=True)
    assert quick == native_story(monkeypatch, at_once=False) and len(quick[0]) > 4


@pytest.mark.parametrize("size", [MOST_TO_SEND << 14, 1 << 30, 4 << 30])
def test_all_pieces_of_a_large_model_on_a_slow_native_link_fit_into_the_socket(size: int) -> None:
    flow = PacedFlow(Transfer(1, "a", "down", size, "task"), 1, None)
    flow.shape_native(native_bit_s=MBIT)
    assert sum(1 for _ in flow.cuts(0, size)) < MOST_TO_SEND / 2, "beside a push"


# ------------------------------------------------------------------ paced by the kernel
class KernelRig(Rig):
    """Links that the kernel paces: it sends what was released evenly until ``leave_ns``."""

    BURST = 4_000  # two of them last for 10 ms at up to 6 Mbit/s

    def kernel(self, elements: int, burst: int | None = BURST, rtt_ns: int = 0) -> PacedFlow:
        self.pacer.pace = PiecePlan(50 * MS, 20 * MS, 2 * MS, far_ns=200 * MS)
        outgoing = Outgoing(1, Update(1, 0, {"w": np.zeros(elements, np.float32)}))
        transfer = Transfer(1, "a", "down", outgoing.size, outgoing.kind)
        flow = PacedFlow(transfer, 1, outgoing, meta=len(outgoing.meta))
        of_path = None if burst is None else Burst(burst, rtt_ns)
        self.pacer.begin(flow, 0, self.now, self.now, burst=of_path)
        return flow

    def leaves(self, flow: PacedFlow, late_ns: int = 0) -> list[tuple[int, int]]:
        """When each released byte count has left the kernel, if it keeps the rates."""
        left: list[tuple[int, int]] = []
        while flow.released < flow.body and self.step(late_ns):
            left.append((flow.released, max(flow.leave_ns, self.now)))
        return left


@settings(deadline=None)
@given(st.integers(2 * MBIT, 6 * MBIT), st.integers(33_000, 500_000), latencies, st.booleans())
@example(2 * MBIT, 250_000, 0, True)
def test_the_kernel_sends_no_byte_late_or_ahead_of_the_window(
    rate: int, elements: int, latency_ns: int, late: bool
) -> None:
    rig = KernelRig(rate, latency_ns)
    flow = rig.kernel(elements)
    assert flow.kernel
    burst_ns = take(rate, KernelRig.BURST)
    for released, left_ns in rig.leaves(flow, late_ns=150 * MS if late else 0):
        due_ns = take(rate, flow.meta + released) + latency_ns
        assert left_ns <= max(due_ns, rig.now)
        # a whole burst leaves at once, and may be longer by a sixth
        most_ns = flow.window_ns + max(flow.piece_ns, burst_ns)
        assert due_ns - left_ns + 7 * burst_ns // 4 <= most_ns + 2
        assert flow.due_at[released] == due_ns


def test_a_wake_up_that_is_late_by_less_than_the_queue_delays_no_byte() -> None:
    for late_ns in (0, 150 * MS):
        rig = KernelRig()
        flow = rig.kernel(500_000)
        leaves = rig.leaves(flow, late_ns)
        # all but the first piece, which cannot be sent before its service begins
        assert all(left == flow.due_at[end] - flow.early_ns for end, left in leaves[1:])
        assert len(leaves) < 45  # of 400 pieces without the kernel


@pytest.mark.parametrize(
    ("rate", "elements", "burst", "rtt_ms"),
    [
        (2 * MBIT, 250_000, None, 0),  # a kernel that cannot
        (200_000, 250_000, 4_000, 0),  # a burst would take 160 ms
        (2 * MBIT, 30_000, 4_000, 0),  # a burst would be 1/30 of the transfer
        (100 * MBIT, 250_000, 4_000, 0),  # a congestion window would last for 0.6 ms
        (2 * MBIT, 250_000, 4_000, 30),  # for 32 ms, and an answer may take 40 ms
    ],
)
def test_where_a_burst_would_show_this_process_paces(
    rate: int, elements: int, burst: int | None, rtt_ms: int
) -> None:
    rig = KernelRig(rate)
    flow = rig.kernel(elements, burst, rtt_ms * MS)
    assert not flow.kernel
    while flow.released < flow.body:
        rig.step()
        assert rig.ahead(flow) <= rig.allowed(flow, rate)


def test_a_link_whose_rate_changes_meanwhile_goes_on_without_the_kernel() -> None:
    rig = KernelRig()
    flow = rig.kernel(500_000)
    rig.until(1_000 * MS)
    rig.network.link("a", "down").change(Constant(MBIT), None, rig.now)
    while flow.released < flow.body:
        rig.step()
    assert not flow.kernel
    rig.until(flow.due_at[flow.body] + MS)
    assert rig.pacer.exchange.flows[1].completion is not None
