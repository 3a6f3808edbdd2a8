"""Links and the network, by example: closed forms that can be checked by hand."""

from __future__ import annotations

import pytest

from emulator.capacity.constant import Constant
from emulator.delay.latency import Latency
from emulator.links.link import Link
from emulator.links.network import Completion, Network, Transfer
from emulator.units import FOREVER, NS_PER_S

MS = NS_PER_S // 1000
BYTE_PER_MS = 8_000  # bit/s: so that sizes in bytes read as milliseconds


def network(
    delay_ns: int = 0, edges: str = "a", capacity: object | None = Constant(BYTE_PER_MS)
) -> Network:
    """A network in which every edge has the same uplink."""
    made = Network()
    for edge in edges:
        made.add_link(edge, "up", Link(capacity, Latency(delay_ns)))
    return made


def transfer(number: int, size: int, edge: str = "a") -> Transfer:
    return Transfer(number, edge, "up", size, "update")


def due(completions: list[Completion]) -> list[tuple[int, int]]:
    return [(completion.transfer.number, completion.due_ns) for completion in completions]


def test_a_quarter_megabyte_at_two_mbit_takes_one_second() -> None:
    net = network(delay_ns=30 * MS, capacity=Constant(2_000_000))
    model = transfer(1, 250_000)
    net.offer(model, 5)
    assert net.started(model) == 5
    assert net.next_due() == 5 + 1030 * MS
    assert net.due_at(model, 0) == 5 + 30 * MS
    assert net.due_at(model, 125_000) == 5 + 530 * MS
    assert [net.progress(model, 5 + t * MS) for t in (0, 30, 530, 1029, 1030, 9999)] == [
        0,
        0,
        125_000,
        249_750,
        250_000,
        250_000,
    ]
    assert net.pop_due(4 + 1030 * MS) == []
    assert net.pop_due(5 + 1030 * MS) == [Completion(model, 5, 5, 5 + 1030 * MS)]
    assert (net.next_due(), net.pop_due(FOREVER)) == (FOREVER, [])
    assert (net.progress(model, FOREVER), net.started(model)) == (
        0,
        None,
    )  # no longer in progress


def test_first_come_first_served() -> None:
    net = network(delay_ns=100 * MS)
    first, second, third = transfer(1, 10), transfer(2, 20), transfer(3, 5)
    for item, now in ((first, 0), (second, 4 * MS), (third, 50 * MS)):
        net.offer(item, now)
    assert [net.started(item) for item in (first, second, third)] == [0, 10 * MS, 50 * MS]
    assert net.progress(second, 110 * MS) == 0
    assert net.progress(second, 115 * MS) == 5  # before the first is popped
    assert due(net.pop_due(200 * MS)) == [(1, 110 * MS), (2, 130 * MS), (3, 155 * MS)]


def test_ties_complete_in_order_of_offer() -> None:
    net = network(edges="abc")
    for number, edge in enumerate("cab"):
        net.offer(transfer(number, 10, edge), 0)
    net.suspend(transfer(0, 10, "c"), 0, 0)
    net.resume(transfer(0, 10, "c"), 0)  # planned again, to the same moment
    assert due(net.pop_due(10 * MS)) == [(0, 10 * MS), (1, 10 * MS), (2, 10 * MS)]
    assert net.next_due() == FOREVER


def test_a_native_link_is_due_when_offered() -> None:
    net = network(capacity=None)
    model = transfer(1, 10**9)
    net.offer(model, 7)
    assert [net.progress(model, now) for now in (6, 7)] == [0, 10**9]
    assert net.due_at(model, 5) == 7
    assert net.pop_due(7) == [Completion(model, 7, 7, 7)]


def test_an_empty_transfer_takes_the_latency() -> None:
    net = network(delay_ns=3)
    net.offer(transfer(1, 0), 10)
    assert due(net.pop_due(13)) == [(1, 13)]


def test_a_late_host_does_not_shift_the_next_transfer() -> None:
    net = network(edges="ab")
    net.offer(transfer(1, 10), 0)
    net.offer(transfer(2, 20, "b"), 0)
    (done,) = net.pop_due(19 * MS)  # 9 ms late
    net.offer(transfer(3, 10), done.due_ns)  # earlier than the last pop
    assert due(net.pop_due(20 * MS)) == [(2, 20 * MS), (3, 20 * MS)]


def test_a_broken_session_keeps_what_was_confirmed() -> None:
    net = network(delay_ns=2 * MS)
    broken, behind = transfer(1, 100), transfer(2, 10)
    net.offer(broken, 0)
    net.offer(behind, 0)
    net.suspend(broken, 30, 52 * MS)  # 50 bytes were due, 30 have been confirmed
    assert net.next_due() == net.due_at(broken, 31) == net.due_at(behind, 1) == FOREVER
    assert (net.progress(broken, 10**15), net.progress(behind, 10**15)) == (30, 0)
    assert (net.started(broken), net.started(behind)) == (0, None)
    net.resume(broken, 1000 * MS)
    assert net.progress(broken, 1002 * MS) == 30  # no burst
    assert net.due_at(broken, 31) == 1003 * MS
    assert net.pop_due(2000 * MS) == [
        Completion(broken, 0, 0, 1072 * MS),
        Completion(behind, 0, 1070 * MS, 1082 * MS),
    ]


def test_the_window_is_no_gift() -> None:
    net = network()
    model = transfer(1, 100)
    net.offer(model, 0)
    net.suspend(model, 60, 40 * MS)  # the receiver was 20 bytes ahead of the curve
    net.resume(model, 40 * MS)
    assert net.next_due() == 100 * MS


def test_the_receivers_count_may_come_later() -> None:
    net = network()
    model = transfer(1, 100)
    net.offer(model, 0)
    net.suspend(model, 0, 40 * MS)
    net.suspend(model, 35, 500 * MS)
    net.resume(model, 500 * MS)
    assert net.next_due() == 565 * MS
    net.suspend(model, 40, 510 * MS)
    net.resume(model, 600 * MS)
    assert due(net.pop_due(700 * MS)) == [(1, 660 * MS)]


def test_bytes_under_way_are_lost_with_the_session() -> None:
    net = network(delay_ns=100 * MS)
    first, second = transfer(1, 50), transfer(2, 50)
    net.offer(first, 0)
    net.offer(second, 0)
    net.suspend(
        first, 20, 120 * MS
    )  # the first is served, 30 of its bytes are in flight; the second was in service
    assert (net.started(second), net.progress(second, 150 * MS)) == (50 * MS, 0)
    net.resume(first, 200 * MS)
    assert due(net.pop_due(FOREVER)) == [(1, 330 * MS), (2, 380 * MS)]


def test_suspending_both_in_any_order_keeps_both_counts() -> None:
    for order in ((0, 1), (1, 0)):
        net = network()
        pair = (transfer(0, 10), transfer(1, 10))
        for item in pair:
            net.offer(item, 0)
        for index in order:
            net.suspend(
                pair[index], (10, 4)[index], 15 * MS
            )  # a late host: the first was due, but not popped
        assert [net.progress(item, 0) for item in pair] == [10, 4]
        for item in pair:
            net.resume(item, 20 * MS)
        assert due(net.pop_due(FOREVER)) == [(0, 20 * MS), (1, 26 * MS)]


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
    assert due(net.pop_due(FOREVER)) == [(number, at * MS) for number, at in expected]


def test_cancelling_what_holds_the_link_up_frees_it() -> None:
    net = network()
    broken, behind = transfer(1, 10), transfer(2, 10)
    net.offer(broken, 0)
    net.offer(behind, 0)
    net.suspend(broken, 5, 5 * MS)
    net.cancel(broken, 50 * MS)
    assert due(net.pop_due(FOREVER)) == [(2, 60 * MS)]
    net.offer(broken, 70 * MS)  # offered again, it starts from byte 0
    assert net.progress(broken, 75 * MS) == 5
    net.cancel(broken, 75 * MS)
    net.offer(behind, 74 * MS)  # a late host: the link was in use until 75
    assert net.next_due() == 85 * MS


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
    assert due(net.pop_due(FOREVER)) == [(1, 10 * MS)]


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
    assert due(net.pop_due(FOREVER - 1)) == [(1, 5 * MS), (2, 10 * MS)]
    assert net.change("b", "up", Constant(2 * BYTE_PER_MS), at=0) == 0
    net.offer(transfer(3, 4, "b"), 0)
    assert net.next_due() == 2 * MS
    with pytest.raises(KeyError):
        net.link("nobody", "up")
