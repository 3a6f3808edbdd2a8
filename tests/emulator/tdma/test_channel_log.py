"""The slot log of a long run is bounded and shows that no slot has two uses; places in a frame."""

from __future__ import annotations

import pytest
from channels import BYTE_PER_MS, MS, due, network, ten, transfer
from hypothesis import given
from hypothesis import strategies as st

from emulator.capacity.outage import Windows
from emulator.errors import BadValue
from emulator.links.network import Network
from emulator.tdma.channel import Channel
from emulator.tdma.slot_curve import Grid
from emulator.tdma.slot_table import LEAST_USES, REMEMBERED_NS
from emulator.units import FOREVER


def test_a_long_run_forgets_slots_that_are_long_past_and_never_gives_them_again() -> None:
    """With one transfer per 1 ms slot, the log stays below twice its minimum plus what it keeps."""
    channel = Channel(Grid(MS), BYTE_PER_MS, automatic=True)
    net, longest, seen = network(channel), 0, set()
    kept = REMEMBERED_NS // MS
    for number in range(3 * (kept + LEAST_USES)):
        net.offer(transfer(number, 1), number * MS)
        (completion,) = net.pop_due((number + 1) * MS)
        assert (
            completion.windows_ns == ((number * MS, (number + 1) * MS),)
            and completion.windows_ns not in seen
        )
        seen.add(completion.windows_ns)
        longest = max(longest, len(channel._uses))
    assert longest <= 2 * (kept + 1) + LEAST_USES < number
    assert channel.log()[-1].slot == number and len(channel.log()) == len(
        {use.slot for use in channel.log()}
    )


def test_what_was_forgotten_is_handed_over_and_cannot_be_taken_again() -> None:
    channel = ten(automatic=True)
    net = network(channel)
    net.offer(transfer(1, 30), 0)
    assert [use.slot for use in channel.forget(25 * MS)] == [0, 1] and [
        use.slot for use in channel.log()
    ] == [2]
    net.offer(transfer(2, 10), 0)  # the host is late
    assert due(net) == [(1, 30 * MS), (2, 40 * MS)]
    late = transfer(3, 10)
    manual = ten()
    other = network(manual)
    manual.forget(25 * MS)
    other.offer(late, 0)
    with pytest.raises(ValueError, match="slot 1 begins at 10000000 ns, before 20000000 ns"):
        other.grant(late, [1], 0)


def test_a_link_with_places_gets_no_others_of_a_frame() -> None:
    """Frames of 4 slots of 10 ms: a has the second place, b the first and the last."""
    channel, net = ten(automatic=True), Network()
    net.add_link("a", "up", channel.link(places=[1]))
    net.add_link("b", "up", channel.link(places=[3, 0]))
    for number, edge in enumerate("ab"):
        net.offer(transfer(number, 25, edge), 1 * MS)
    assert [(use.slot, use.device) for use in channel.log()] == [
        (1, "a"),
        (3, "b"),
        (4, "b"),
        (5, "a"),
        (7, "b"),
        (9, "a"),
    ]
    assert due(net) == [(1, 75 * MS), (0, 95 * MS)]


def test_slots_too_short_for_a_transfer_are_refused_instead_of_counted_for_ever() -> None:
    net = Network()
    net.add_link("a", "up", Channel(Grid(1), BYTE_PER_MS, automatic=True).link())
    with pytest.raises(
        BadValue,
        match=(
            r"a transfer of 100 bytes takes 100000000 slots of 0.000000001 s: expected at most"
            r" 1000000; use longer"
        ),
    ):
        net.offer(transfer(1, 100), 0)


@pytest.mark.parametrize("places", [[], [4], [-1], [0, 9]])
def test_places_lie_in_the_frame(places: list[int]) -> None:
    with pytest.raises(ValueError, match="expected some of 0 to 3"):
        ten().link(places=places)
    with pytest.raises(ValueError, match="expected some of 0 to 3"):
        ten().next_free(1, 0, places)


@given(st.data())
def test_the_next_free_slots_are_those_found_one_by_one(data: st.DataObject) -> None:
    grid = Grid(10, data.draw(st.integers(0, 9)), frame_slots=data.draw(st.integers(1, 5)))
    channel, net = Channel(grid, 8 * 10**8), Network()  # 10 ns per byte
    borders = sorted(data.draw(st.sets(st.integers(0, 400), max_size=8)))
    gate = Windows(list(zip(borders[::2], borders[1::2])))
    places = data.draw(st.none() | st.sets(st.integers(0, grid.frame_slots - 1), min_size=1))
    net.add_link("a", "up", channel.link())
    taken, now = data.draw(st.sets(st.integers(0, 30), max_size=20)), data.draw(st.integers(0, 300))
    net.offer(transfer(1, 1000), 0)
    net.grant(transfer(1, 1000), taken, 0)

    def free(slot: int) -> bool:
        times = range(grid.begins(slot), grid.begins(slot) + grid.usable_ns)
        return (
            times.start >= now
            and slot not in taken
            and (places is None or slot % grid.frame_slots in places)
            and all(gate.segment(t)[0] for t in times)
        )

    assert (
        channel.next_free(6, now, places, gate) == [slot for slot in range(200) if free(slot)][:6]
    )


def test_a_link_that_is_cut_for_good_gets_the_slots_before_and_then_none() -> None:
    channel, net = ten(automatic=True), Network()
    net.add_link("a", "up", channel.link(gate=Windows([(15 * MS, FOREVER)])))
    model = transfer(1, 30)
    net.offer(model, 0)
    assert (
        [use.slot for use in channel.log()] == [0]
        and net.next_due() == FOREVER
        and net.progress(model, 10**15) == 10
    )
