"""Where service pauses for others, so that pieces of a transfer do not cross a slot border."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from emulator.capacity.constant import Constant
from emulator.delay.latency import Latency
from emulator.links.bottleneck import Bottleneck
from emulator.links.link import Link
from emulator.links.network import Network, Transfer
from emulator.tdma.channel import Channel
from emulator.tdma.slot_curve import Grid
from emulator.units import FOREVER, NS_PER_S

MS = NS_PER_S // 1000
BYTE_PER_MS = 8_000


def on_channel(grid: Grid, rate_bit_s: int = BYTE_PER_MS, delay_ns: int = 0) -> Network:
    net = Network()
    net.add_link("a", "up", Channel(grid, rate_bit_s).link(Latency(delay_ns)))
    return net


def test_a_stretch_ends_with_the_usable_part_of_a_slot_and_carries_what_fits_into_it() -> None:
    """10 ms slots with 2 ms of guard, 1 byte/ms, slots 2, 4 and 7: 8 + 8 + 4 bytes.

    Moments are those of service, whatever the delay.
    """
    net, model = (
        on_channel(Grid(10 * MS, 2 * MS), delay_ns=3 * MS),
        Transfer(1, "a", "up", 20, "update"),
    )
    net.offer(model, 0)
    assert (
        net.stretch_end(model, 0) == FOREVER and net.stretch_bytes(model, 0) == 20
    )  # no slots yet, so no byte may be sent
    net.grant(model, [2, 4, 7], 0)
    ends = [net.stretch_end(model, at * MS) for at in (0, 20, 27)] + [
        net.stretch_end(model, 28 * MS - 1)
    ]
    assert ends == [28 * MS] * 4
    assert [net.stretch_end(model, at * MS) for at in (28, 35, 47, 48, 77)] == [
        48 * MS,
        48 * MS,
        48 * MS,
        78 * MS,
        78 * MS,
    ]
    assert net.stretch_end(model, 78 * MS) == FOREVER
    assert [net.stretch_bytes(model, n) for n in (0, 1, 7, 8, 15, 16, 19, 20)] == [
        8,
        8,
        8,
        16,
        16,
        20,
        20,
        20,
    ]


def test_after_an_interruption_stretches_count_from_the_confirmed_byte() -> None:
    net, model = on_channel(Grid(10 * MS)), Transfer(1, "a", "up", 20, "update")
    net.offer(model, 0)
    net.grant(model, [0, 1], 0)
    net.suspend(model, 4, 5 * MS)
    assert net.stretch_end(model, 5 * MS) == FOREVER
    net.resume(model, 30 * MS)
    net.grant(model, [3, 5], 30 * MS)
    assert [net.stretch_bytes(model, n) for n in (0, 4, 13, 14)] == [14, 14, 14, 20]
    assert net.stretch_end(model, 30 * MS) == 40 * MS


def test_elsewhere_a_transfer_is_one_stretch() -> None:
    net, bottleneck = Network(), Bottleneck(Constant(BYTE_PER_MS))
    net.add_link("a", "up", Link(Constant(BYTE_PER_MS)))
    net.add_link("b", "up", bottleneck.link())
    for number, edge in enumerate("ab"):
        model = Transfer(number, edge, "up", 20, "update")
        net.offer(model, 0)
        assert (net.stretch_end(model, 0), net.stretch_bytes(model, 3)) == (FOREVER, 20)


@given(st.data())
def test_pieces_cut_by_stretches_lie_in_one_slot_each_and_fill_it(data: st.DataObject) -> None:
    slot_ns = data.draw(st.integers(1, 50))
    grid = Grid(slot_ns, data.draw(st.integers(0, slot_ns - 1)))
    rate_bit_s = data.draw(
        st.sampled_from([10**8, 8 * 10**8, 8 * 10**9, 3 * 10**10])
    )  # from 80 ns per byte (several slots) to 4 bytes per ns
    net, model = (
        on_channel(grid, rate_bit_s),
        Transfer(1, "a", "up", data.draw(st.integers(1, 60)), "update"),
    )
    net.offer(model, 0)
    net.grant(
        model,
        data.draw(st.sets(st.integers(0, 10_000), min_size=0, max_size=40))
        | set(range(20_000, 25_000)),
        0,
    )
    first = 0
    while first < model.size:
        end = net.stretch_bytes(model, first)
        assert first < end <= model.size
        opens = {net.opens_at(model, n) for n in range(first + 1, end + 1)}
        assert len(opens) == 1 and net.due_at(model, end) <= net.stretch_end(model, opens.pop())
        if end < model.size:
            assert net.opens_at(model, end + 1) > net.opens_at(model, end)
        first = end
