"""Links, queues and the network: by hand, and properties for any interruption and late host."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transfers import BYTE_PER_MS, MS, AnyTransfers, OnOff, due, transfer

from emulator.capacity.rates import Constant
from emulator.capacity.service import bytes_served, served_at
from emulator.delay import Latency
from emulator.errors import BadValue
from emulator.links.bottleneck import Bottleneck
from emulator.links.link import Bound, Link
from emulator.links.network import Network
from emulator.units import FOREVER


def network(
    delay_ns: int = 0, edges: str = "a", capacity: object | None = Constant(BYTE_PER_MS)
) -> Network:
    """A network in which every edge has the same uplink."""
    made = Network()
    for edge in edges:
        made.add_link(edge, "up", Link(capacity, Latency(delay_ns)))
    return made


@pytest.mark.parametrize(
    ("victim", "now_ms", "expected"),
    [
        (0, 4, [(1, 24), (2, 34)]),  # in service: the next starts at once
        (1, 4, [(0, 20), (2, 30)]),  # in the queue: the next one moves up
        (0, 12, [(1, 30), (2, 40)]),  # served, in flight: the link was already free
        (1, 12, [(0, 20), (2, 32)]),
    ],
)
def test_cancel_lets_the_next_one_start(
    victim: int, now_ms: int, expected: list[tuple[int, int]]
) -> None:
    net = network(delay_ns=10 * MS)
    items = [transfer(number, 10) for number in range(3)]
    for item in items:
        net.offer(item, 0)
    net.cancel(items[victim], now_ms * MS)
    assert net.progress(items[victim], FOREVER) == 0
    assert due(net) == [(number, at * MS) for number, at in expected]


def test_misuse_is_refused() -> None:
    net = network()
    model = transfer(1, 10)
    net.offer(model, 0)
    for wrong in (
        lambda: net.offer(model, 0),
        lambda: net.resume(model, 0),
        lambda: net.suspend(model, 11, 0),
        lambda: net.due_at(model, 11),
        lambda: net.add_link("a", "up", Link(None)),
        lambda: transfer(9, -1),
    ):
        with pytest.raises(ValueError):
            wrong()
    stranger = transfer(2, 10)
    for wrong in (
        lambda: net.suspend(stranger, 0, 0),
        lambda: net.resume(stranger, 0),
        lambda: net.cancel(stranger, 0),
        lambda: net.due_at(stranger, 1),
        lambda: net.offer(transfer(3, 1, "nobody"), 0),
        lambda: net.link("a", "down"),
    ):
        with pytest.raises(KeyError):
            wrong()
    assert net.started(stranger) is None
    assert due(net) == [(1, 10 * MS)]


def test_a_link_is_made_when_it_is_first_used() -> None:
    made: list[tuple[str, str]] = []

    def supply(edge: str, direction: str) -> Link | None:
        made.append((edge, direction))
        return Link(Constant(BYTE_PER_MS)) if edge != "nobody" else None

    net = Network(supply)
    net.add_link("added", "up", Link(None))
    assert net.link("added", "up").capacity is None and made == []
    net.offer(transfer(1, 5), 0)
    net.offer(transfer(2, 5), 0)
    assert net.link("a", "up").queue[1].transfer.number == 2 and made == [("a", "up")]
    assert due(net, FOREVER - 1) == [(1, 5 * MS), (2, 10 * MS)]
    assert net.change("b", "up", Constant(2 * BYTE_PER_MS), at=0) == 0
    net.offer(transfer(3, 4, "b"), 0)
    assert net.next_due() == 2 * MS
    with pytest.raises(KeyError):
        net.link("nobody", "up")


capacities = st.one_of(
    st.integers(1_000, 10**10).map(Constant),
    st.tuples(st.integers(10**5, 10**10), st.integers(10**6, 10**8), st.integers(1, 10**8)).map(
        lambda t: OnOff(t[0], t[1], t[1] + t[2])
    ),
)
sizes = st.integers(1, 20_000)
delays = st.integers(0, 10**9)


@settings(deadline=None)
@given(
    capacities,
    delays,
    sizes,
    st.lists(st.tuples(st.integers(0, 10**9), st.floats(0, 1), st.integers(0, 10**10)), max_size=6),
)
def test_interruptions_neither_lose_nor_give_bytes(
    capacity: object, delay_ns: int, size: int, breaks: list[tuple[int, float, int]]
) -> None:
    net = network(delay_ns, capacity=capacity)
    model = transfer(1, size)
    net.offer(model, 0)
    now, kept = 0, 0
    for run_ns, share, pause_ns in breaks:
        start, now = now, now + run_ns
        if net.next_due() <= now:
            break
        reached = net.progress(model, now)
        assert reached == kept + bytes_served(capacity, start, max(start, now - delay_ns))
        kept = int(share * reached)
        net.suspend(model, kept, now)
        now += pause_ns
        assert net.progress(model, now) == kept
        net.resume(model, now)
        assert net.next_due() == served_at(capacity, now, size - kept) + delay_ns
    (completion,) = net.pop_due(FOREVER)
    assert completion.due_ns >= served_at(capacity, 0, size) + delay_ns


def chain(late_ns: list[int], sizes_of: list[int], capacity: object) -> list[int]:
    """Three edges send one transfer after another, each offered when the previous one is due.

    The host wakes up late.
    """
    net, numbers, moments = network(5 * MS, "abc", capacity), count(), []
    lateness = iter(late_ns)
    left = {edge: list(sizes_of) for edge in "abc"}
    for edge in left:
        net.offer(transfer(next(numbers), left[edge].pop(), edge), 0)
    while (at := net.next_due()) < FOREVER:
        for completion in net.pop_due(at + next(lateness, 0)):
            moments.append(completion.due_ns)
            edge = completion.transfer.edge
            if left[edge]:
                net.offer(transfer(next(numbers), left[edge].pop(), edge), completion.due_ns)
    return sorted(moments)


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 10**9), max_size=30),
    st.lists(sizes, min_size=1, max_size=6),
    capacities,
)
def test_host_lateness_does_not_accumulate(
    late_ns: list[int], sizes_of: list[int], capacity: object
) -> None:
    assert chain(late_ns, sizes_of, capacity) == chain([], sizes_of, capacity)


class AnyStory(AnyTransfers):
    """After any sequence of calls, the fast answers of a network equal a full search."""

    def __init__(self) -> None:
        net = network(7 * MS, "ab")
        net.add_link("c", "up", Link(None))
        super().__init__(net)


AnyStory.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestAnyStory = AnyStory.TestCase


kinds = pytest.mark.parametrize("shared", [False, True])


def bounded_network(bound: Bound | None, shared: bool = False, delay_ns: int = 0) -> Network:
    net = Network()
    for edge in "ab":
        link = (
            Bottleneck(Constant(BYTE_PER_MS)).link(None, Latency(delay_ns), bound)
            if shared
            else Link(Constant(BYTE_PER_MS), Latency(delay_ns), bound)
        )
        net.add_link(edge, "up", link)
    return net


@kinds
def test_what_finds_no_room_is_refused_and_counted(shared: bool) -> None:
    net = bounded_network(Bound(25), shared, delay_ns=50 * MS)
    assert net.offer(transfer(1, 100), 0) is None  # an idle link accepts any size
    assert net.offer(transfer(2, 20), 0) is None
    assert net.offer(transfer(3, 6), 0) == "queue full: 20 of 25 bytes wait, no room for 6"
    assert net.offer(transfer(4, 5), 0) is None
    assert net.offer(transfer(5, 6), 100 * MS - 1) is not None
    assert (
        net.offer(transfer(6, 20), 100 * MS) is None
    )  # the second is in service, the first in flight
    assert net.offer(transfer(7, 26), 100 * MS) is not None
    assert (
        net.link("a", "up").dropped_bytes == 6 + 6 + 26
        and net.link("a", "up").waiting_bytes(100 * MS) == 25
    )
    assert (net.progress(transfer(3, 6), FOREVER), net.started(transfer(3, 6))) == (0, None)
    with pytest.raises(KeyError):
        net.due_at(transfer(3, 6), 1)
    assert due(net) == [(1, 150 * MS), (2, 170 * MS), (4, 175 * MS), (6, 195 * MS)]
    assert net.offer(transfer(3, 6), 300 * MS) is None  # after a refusal it may be offered again
    assert due(net) == [(3, 356 * MS)]


@pytest.mark.parametrize("wrong", [(-1, "drop"), (10, "tail")])
def test_a_bound_that_makes_no_sense_is_refused(wrong: tuple[int, str]) -> None:
    with pytest.raises(BadValue):
        Bound(*wrong)


offers = st.lists(st.tuples(st.integers(0, 30 * MS), st.integers(0, 40)), min_size=1, max_size=20)


@settings(deadline=None)
@given(st.booleans(), st.integers(0, 60), offers)
def test_bytes_in_are_out_under_way_or_dropped_and_the_limit_holds(
    shared: bool, limit: int, story: list[tuple[int, int]]
) -> None:
    net, now, numbers, items, told, out = (
        bounded_network(Bound(limit), shared, 11 * MS),
        0,
        count(),
        {},
        0,
        0,
    )
    link = net.link("a", "up")
    for pause_ns, size in story:
        now += pause_ns
        out += sum(items.pop(completion.transfer.number).size for completion in net.pop_due(now))
        item = transfer(next(numbers), size)
        told += size
        waiting, idle = link.waiting_bytes(now), not link.unserved(now)
        refused = net.offer(item, now)
        assert (refused is None) == (idle or waiting + size <= limit)
        if refused is None:
            items[item.number] = item
        assert link.waiting_bytes(now) <= max(limit, 0)
        arrived = out + sum(net.progress(one, now) for one in items.values())
        under_way = sum(one.size - net.progress(one, now) for one in items.values())
        assert told == arrived + under_way + link.dropped_bytes
    assert (
        out
        + sum(completion.transfer.size for completion in net.pop_due(FOREVER))
        + link.dropped_bytes
        == told
    )


@settings(deadline=None)
@given(st.booleans(), st.integers(0, 60), offers)
def test_blocking_changes_no_moment_of_service_and_keeps_order(
    shared: bool, limit: int, story: list[tuple[int, int]]
) -> None:
    bounded, endless, now, items = (
        bounded_network(Bound(limit, "block"), shared),
        bounded_network(None, shared),
        0,
        [],
    )
    for number, (pause_ns, size) in enumerate(story):
        now += pause_ns
        items.append(transfer(number, size))
        for net in (bounded, endless):
            net.offer(items[-1], now)
    admitted = [bounded.admitted_at(item) for item in items]
    started = [bounded.started(item) or 0 for item in items]
    assert admitted == sorted(admitted) and all(
        before <= after for before, after in zip(admitted, started)
    )
    for moment in admitted:  # transfers inside that have not begun are within the limit
        inside = [
            item.size
            for item, entered, began in zip(items, admitted, started)
            if entered <= moment < began
        ]
        assert sum(inside) <= limit
    assert due(bounded) == due(endless)
