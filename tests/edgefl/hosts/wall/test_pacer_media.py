"""Pieces on shared media: none before its slot on a TDMA channel; sizes by the share at a
bottleneck.
"""

from __future__ import annotations

import itertools

import pytest
from pacer_rig import MBIT, MS, PIECE_NS, Rig

from edgefl.hosts.wall.coordinator.flow import PiecePlan
from emulator.capacity.rates import Constant
from emulator.delay import Latency
from emulator.links.bottleneck import Bottleneck
from emulator.tdma.channel import Channel, Grid
from emulator.units import NS_PER_S

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


@pytest.mark.parametrize("piece_ns", [4 * MS, PIECE_NS, 70 * MS])
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


def test_two_flows_that_are_granted_slots_as_they_come_share_none() -> None:
    rig = SlotRig(automatic=True, latency_ns=0)
    flows = {flow.transfer.number: flow for flow in (rig.start(4000, "a"), rig.start(4000, "b"))}
    while rig.step():
        pass
    of_slot: dict[int, set[int]] = {}
    for moment, number, _, _ in rig.sent:
        of_slot.setdefault(moment // SLOT_NS, set()).add(number)
    assert all(len(numbers) == 1 for numbers in of_slot.values()) and set().union(
        *of_slot.values()
    ) == set(flows)


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
