"""The TDMA channel: examples by hand, its log, stretches, and properties of every slot table."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from transfers import BYTE_PER_MS, MS, AnyTransfers, due, transfer

from emulator.capacity.rates import Constant, Slotted, Windows
from emulator.delay import Latency
from emulator.errors import BadValue
from emulator.links.network import Completion, Network, Transfer
from emulator.tdma.channel import LEAST_USES, REMEMBERED_NS, Channel, ChannelLink, Grid, Use
from emulator.units import FOREVER, NS_PER_S


def network(channel: Channel, delay_ns: int = 0, edges: str = "ab") -> Network:
    """Return a network in which every edge has an uplink and a downlink."""
    net = Network()
    for edge in edges:
        for direction in ("up", "down"):
            net.add_link(edge, direction, channel.link(Latency(delay_ns)))
    return net


def ten(guard_ms: int = 0, **more: object) -> Channel:
    """Return a channel with slots of 10 ms."""
    return Channel(Grid(10 * MS, guard_ms * MS, frame_slots=4), BYTE_PER_MS, **more)


# ------------------------------------------------------------------ by hand
def test_a_transfer_goes_in_its_slots_and_nowhere_else() -> None:
    net, model = network(ten(guard_ms=2), delay_ns=3 * MS), transfer(1, 20)
    net.offer(model, 5 * MS)
    assert (net.next_due(), net.started(model)) == (FOREVER, None)
    assert net.grant(model, [7, 2, 4], 5 * MS) == [2, 4, 7]  # 8 + 8 + 4 bytes
    assert net.started(model) == 20 * MS
    assert [net.progress(model, at * MS) for at in (23, 24, 31, 33, 43, 44, 51, 73, 75)] == [
        0,
        1,
        8,
        8,
        8,
        9,
        16,
        16,
        18,
    ]
    assert [net.due_at(model, n) // MS for n in (0, 1, 8, 9, 16, 17, 20)] == [
        23,
        24,
        31,
        44,
        51,
        74,
        77,
    ]
    assert [net.opens_at(model, n) // MS for n in (0, 1, 8, 9, 20)] == [20, 20, 20, 40, 70]
    windows = tuple((at * MS, (at + 8) * MS) for at in (20, 40, 70))
    assert net.pop_due(77 * MS) == [Completion(model, 5 * MS, 20 * MS, 77 * MS, windows)]


def test_slots_are_granted_in_any_order_and_completions_follow_the_slots() -> None:
    channel = ten()
    net = network(channel)
    first, second, third = transfer(1, 20), transfer(2, 10), transfer(3, 10, "b")
    for item in (first, second, third):
        net.offer(item, 0)
    net.grant(third, [5], 0)
    net.grant(first, [9], 0)
    assert net.next_due() == 60 * MS and net.due_at(first, 20) == FOREVER
    net.grant(second, [3], 0)
    net.grant(first, [0], 0)  # offered later, served earlier
    assert (
        sorted(item.number for item in net.take_replanned()) == [1, 2, 3]
        and net.take_replanned() == []
    )
    assert due(net, 35 * MS) == []
    assert [net.started(item) for item in (first, second, third)] == [0, 30 * MS, 50 * MS]
    assert due(net) == [(2, 40 * MS), (3, 60 * MS), (1, 100 * MS)]
    assert channel.log() == [
        Use(0, "a", "up", 1),
        Use(3, "a", "up", 2),
        Use(5, "b", "up", 3),
        Use(9, "a", "up", 1),
    ]
    assert channel.log(50 * MS) == channel.log()[:2]
    channel.forget(50 * MS)
    assert [use.slot for use in channel.log()] == [5, 9]


def test_a_broken_session_gives_its_slots_back_and_needs_others() -> None:
    channel = ten()
    net = network(channel)
    model = transfer(1, 30)
    net.offer(model, 0)
    net.grant(model, [0, 1, 4], 0)
    net.suspend(model, 12, 15 * MS)  # 15 were due
    assert [use.slot for use in channel.log()] == [0, 1]  # slot 1 is used up
    assert (net.next_due(), net.progress(model, FOREVER), net.started(model)) == (FOREVER, 12, 0)
    with pytest.raises(ValueError):
        net.grant(model, [4], 15 * MS)
    net.resume(model, 50 * MS)
    assert net.next_due() == FOREVER
    assert net.grant(model, [5, 8], 50 * MS) == [5, 8]
    windows = tuple(
        (at * MS, (at + 10) * MS) for at in (0, 10, 50, 80)
    )  # also those used before the interruption
    assert net.pop_due(FOREVER) == [Completion(model, 0, 0, 88 * MS, windows)]


def test_delays_change_and_nothing_is_overtaken() -> None:
    net, model = network(ten(), delay_ns=50 * MS), transfer(1, 20)
    net.offer(model, 0)
    net.grant(model, [0, 2], 0)
    assert net.change("a", "up", delay=Latency(0), at=25 * MS) == 25 * MS
    assert [net.due_at(model, n) // MS for n in (10, 15, 16, 20)] == [60, 75, 75, 75]
    with pytest.raises(ValueError):
        net.change("a", "up", Constant(5), at=25 * MS)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Grid(10, 10),
        lambda: Grid(10, -1),
        lambda: Grid(True),
        lambda: Channel(Grid(10), 5, slots_per_transfer=0),
    ],
)
def test_bad_numbers_are_refused(wrong: object) -> None:
    with pytest.raises(BadValue):
        wrong()


# ------------------------------------------------------------------ properties of every table
@settings(deadline=None)
@given(
    st.integers(2, 10**7),
    st.floats(0, 0.99),
    st.integers(0, 10**6),
    st.integers(1_000, 10**10),
    st.one_of(st.none(), st.integers(1, 5)),
    st.integers(1, 3_000),
    st.sets(st.integers(0, 60), min_size=1, max_size=8),
    st.integers(0, 10**8),
)
def test_the_closed_form_is_a_count_slot_by_slot(
    slot_ns: int,
    guard: float,
    start_ns: int,
    rate: int,
    per: int | None,
    size: int,
    slots: set[int],
    delay_ns: int,
) -> None:
    grid = Grid(slot_ns, int(guard * slot_ns), start_ns=start_ns)
    net, model = network(Channel(grid, rate, per), delay_ns), transfer(1, size)
    net.offer(model, 0)
    held = net.grant(model, slots, 0)
    assert held == sorted(slots)[: len(held)] and (
        held == sorted(slots) or net.next_due() < FOREVER
    )
    bytes_per, ns = (rate, 8 * NS_PER_S) if per is None else (size, per * grid.usable_ns)
    before_ns = 0
    for slot in held:
        begin = grid.begins(slot)
        assert net.progress(model, begin + delay_ns) == min(
            before_ns * bytes_per // ns, size
        )  # no byte before its slot
        middle = begin + grid.usable_ns // 2
        assert net.progress(model, middle + delay_ns) == min(
            (before_ns + middle - begin) * bytes_per // ns, size
        )
        before_ns += grid.usable_ns
        for t_ns in (begin + grid.usable_ns, grid.begins(slot + 1)):
            assert net.progress(model, t_ns + delay_ns) == min(before_ns * bytes_per // ns, size)
    for n in {1, size // 2 + 1, size}:
        at = net.due_at(model, n)
        assert (at == FOREVER) == (before_ns * bytes_per // ns < n)
        if at < FOREVER:
            assert net.progress(model, at) >= n > net.progress(model, at - 1)
            assert net.opens_at(model, n) < at - delay_ns <= net.opens_at(model, n) + grid.usable_ns
            assert net.opens_at(model, n) in [grid.begins(slot) for slot in held]


class AnyTable(AnyTransfers):
    """Grants, interruptions and cancellations in any order.

    Bytes move only in logged slots, and each slot has one transmitter.
    """

    two_ways, in_order = True, False

    def __init__(self) -> None:
        self.channel = ten(guard_ms=2)
        super().__init__(network(self.channel, edges="abc"))
        self.moved: dict[int, set[int]] = {}  # slot -> transfers of which bytes were served in it

    @rule(item=AnyTransfers.items, ahead=st.lists(st.integers(0, 12), max_size=6))
    def grant(self, item: Transfer, ahead: list[int]) -> None:
        slots = [self.channel.grid.next_at(self.now) + slot for slot in ahead]
        if item.number not in self.held:
            return
        taken = any(
            use is not None and use.number != item.number for use in map(self.channel.user, slots)
        )
        if taken or item.number in self.suspended:
            before = self.channel.log()
            with pytest.raises(ValueError):
                self.net.grant(item, slots, self.now)
            assert self.channel.log() == before
        else:
            self.net.grant(item, slots, self.now)

    @rule(pause_ms=st.integers(0, 60))
    def pass_time(self, pause_ms: int) -> None:
        for _ in range(pause_ms):  # ms by ms, so that each step lies in one slot
            before = {
                number: self.net.progress(item, self.now) for number, item in self.held.items()
            }
            slot = self.channel.grid.at(self.now)
            self.now += MS
            for number, item in self.held.items():
                if self.net.progress(item, self.now) > before[number]:
                    use = self.channel.user(slot)
                    assert use == Use(slot, item.edge, item.direction, number)
                    self.moved.setdefault(slot, set()).add(number)

    @invariant()
    def a_slot_has_one_transmitter(self) -> None:
        slots = [use.slot for use in self.channel.log()]
        assert len(slots) == len(set(slots))
        assert all(len(numbers) == 1 for numbers in self.moved.values())

    @invariant()
    def what_is_reserved_ahead_belongs_to_somebody(self) -> None:
        ahead = {
            use.number
            for use in self.channel.log()
            if self.channel.grid.begins(use.slot) >= self.now
        }
        assert ahead <= set(self.held) - self.suspended
        assert all(
            isinstance(self.net.link(item.edge, item.direction), ChannelLink)
            for item in self.held.values()
        )


TestAnyTable = AnyTable.TestCase
TestAnyTable.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


@pytest.mark.slow
def test_a_long_run_forgets_slots_that_are_long_past_and_never_gives_them_again() -> None:
    """With one transfer per 1 ms slot, the log stays below twice its minimum plus what it keeps."""
    channel = Channel(Grid(MS), BYTE_PER_MS, automatic=True)
    net, longest, seen = network(channel), 0, set()
    kept = REMEMBERED_NS // MS
    for number in range(2 * (kept + LEAST_USES)):
        net.offer(transfer(number, 1), number * MS)
        (completion,) = net.pop_due((number + 1) * MS)
        assert (
            completion.windows_ns == ((number * MS, (number + 1) * MS),)
            and completion.windows_ns not in seen
        )
        seen.add(completion.windows_ns)
        longest = max(longest, len(channel.log()) if number % 500 == 0 else 0)
    assert longest <= 2 * (kept + 1) + LEAST_USES < number
    assert channel.log()[-1].slot == number and len(channel.log()) == len(
        {use.slot for use in channel.log()}
    )


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


def test_a_link_that_never_opens_for_a_whole_slot_is_refused_instead_of_searched_for_ever() -> None:
    """Slot 3 of each frame of 40 ms lies in the half that the link is closed."""
    channel = ten(automatic=True)
    gate = Slotted(20 * MS, 2, [0])
    assert channel.next_free(2, 0, [1], gate) == [1, 5]
    with pytest.raises(BadValue, match=r"closed in each slot of 0\.010000000 s"):
        channel.next_free(1, 0, [3], gate)


def on_channel(grid: Grid, rate_bit_s: int = BYTE_PER_MS, delay_ns: int = 0) -> Network:
    net = Network()
    net.add_link("a", "up", Channel(grid, rate_bit_s).link(Latency(delay_ns)))
    return net


@given(st.data())
def test_pieces_cut_by_stretches_lie_in_one_slot_each_and_fill_it(data: st.DataObject) -> None:
    slot_ns = data.draw(st.integers(1, 50))
    grid = Grid(slot_ns, data.draw(st.integers(0, slot_ns - 1)))
    rate_bit_s = data.draw(
        st.sampled_from([10**8, 8 * 10**8, 8 * 10**9, 3 * 10**10])
    )  # from 80 ns per byte (several slots) to 4 bytes per ns
    net, model = (
        on_channel(grid, rate_bit_s),
        Transfer(1, "a", "up", data.draw(st.integers(1, 20)), "update"),
    )
    net.offer(model, 0)
    net.grant(
        model,
        data.draw(st.sets(st.integers(0, 10_000), min_size=0, max_size=40))
        | set(range(20_000, 21_700)),
        0,
    )
    first = 0
    while first < model.size:
        end = net.stretch_bytes(model, first)
        assert first < end <= model.size
        opens = {net.opens_at(model, n) for n in range(first + 1, end + 1)}
        assert len(opens) == 1
        if end < model.size:
            assert net.opens_at(model, end + 1) > net.opens_at(model, end)
        first = end
