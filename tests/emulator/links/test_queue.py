"""Bounded queues: what is refused, what waits outside, and that all else stays equal."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.capacity.constant import Constant
from emulator.delay.latency import Latency
from emulator.errors import BadValue
from emulator.links.bottleneck import Bottleneck
from emulator.links.link import Link
from emulator.links.network import Network, Transfer
from emulator.links.queue_bound import Bound
from emulator.units import FOREVER, NS_PER_S

MS = NS_PER_S // 1000
BYTE_PER_MS = 8_000  # bit/s: so that sizes in bytes read as milliseconds
kinds = pytest.mark.parametrize("shared", [False, True])


def network(bound: Bound | None, shared: bool = False, delay_ns: int = 0) -> Network:
    net = Network()
    for edge in "ab":
        link = (
            Bottleneck(Constant(BYTE_PER_MS)).link(None, Latency(delay_ns), bound)
            if shared
            else Link(Constant(BYTE_PER_MS), Latency(delay_ns), bound)
        )
        net.add_link(edge, "up", link)
    return net


def transfer(number: int, size: int, edge: str = "a") -> Transfer:
    return Transfer(number, edge, "up", size, "update")


def due(net: Network, now: int = FOREVER) -> list[tuple[int, int]]:
    return [(completion.transfer.number, completion.due_ns) for completion in net.pop_due(now)]


@kinds
def test_what_finds_no_room_is_refused_and_counted(shared: bool) -> None:
    net = network(Bound(25), shared, delay_ns=50 * MS)
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


@kinds
def test_what_is_blocked_waits_outside_in_order(shared: bool) -> None:
    net = network(Bound(25, "block"), shared)
    sizes = {1: 10, 2: 20, 3: 10, 4: 5, 5: 100, 6: 1}
    for number, size in sizes.items():
        assert net.offer(transfer(number, size), number) is None
    admitted = [net.admitted_at(transfer(number, size)) for number, size in sizes.items()]
    # 3 and 4 enter when 2 begins; 5 never fits and enters when it begins itself; 6 enters when 5
    # begins
    began = 1
    assert admitted == [1, 2, began + 10 * MS, began + 10 * MS, began + 45 * MS, began + 45 * MS]
    assert [at for _, at in due(net)] == [began + at * MS for at in (10, 30, 40, 45, 145, 146)]


@kinds
def test_a_broken_session_holds_the_queue_up(shared: bool) -> None:
    net = network(Bound(10, "block"), shared)
    for number in range(3):
        net.offer(transfer(number, 10), 0)
    net.suspend(transfer(0, 10), 5, 5 * MS)
    assert net.admitted_at(transfer(2, 10)) == FOREVER
    net.resume(transfer(0, 10), 20 * MS)
    assert net.admitted_at(transfer(2, 10)) == 25 * MS
    other = network(Bound(10), shared)
    for number in range(2):
        other.offer(transfer(number, 10), 0)
    other.suspend(transfer(0, 10), 5, 5 * MS)
    assert other.offer(transfer(2, 10), 500 * MS) is not None
    other.cancel(transfer(0, 10), 600 * MS)
    assert other.offer(transfer(2, 10), 600 * MS) is None
    assert due(other) == [(1, 610 * MS), (2, 620 * MS)]


def test_without_a_bound_nothing_is_refused_or_waits_outside() -> None:
    net = network(None)
    for number in range(50):
        assert net.offer(transfer(number, 10**6), number) is None
    assert net.admitted_at(transfer(49, 10**6)) == 49


@pytest.mark.parametrize("wrong", [(-1, "drop"), (True, "drop"), (1.5, "drop"), (10, "tail")])
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
        network(Bound(limit), shared, 11 * MS),
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
        network(Bound(limit, "block"), shared),
        network(None, shared),
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
