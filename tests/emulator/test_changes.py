"""Links that change while in use: the past stays, only the future changes, without a jump."""

from __future__ import annotations

from bisect import bisect_right
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transfers import BYTE_PER_MS, MS, due, transfer

from emulator.capacity.rates import Constant
from emulator.capacity.service import bytes_served, served_at
from emulator.delay import Delay, Jitter, Latency
from emulator.links.bottleneck import Bottleneck
from emulator.links.link import Link
from emulator.links.network import Network, Transfer
from emulator.units import FOREVER


class Steps:
    """A capacity whose steps are known in advance: (from_ns, rate_bit_s)."""

    def __init__(self, steps: list[tuple[int, int]]) -> None:
        self.steps = steps

    def segment(self, t_ns: int) -> tuple[int, int]:
        index = max(bisect_right([at for at, _ in self.steps], t_ns) - 1, 0)
        return self.steps[index][1], (
            self.steps[index + 1][0] if index + 1 < len(self.steps) else FOREVER
        )


def network(kind: str = "plain", delay_ns: int = 0, rate: int = BYTE_PER_MS) -> Network:
    """One uplink: plain, with its rate in a fast bottleneck, or in a bottleneck of that rate."""
    made = Network()
    match kind:
        case "plain":
            link = Link(Constant(rate), Latency(delay_ns))
        case "own":
            link = Bottleneck(Constant(10**15)).link(Constant(rate), Latency(delay_ns))
        case _:
            link = Bottleneck(Constant(rate)).link(None, Latency(delay_ns))
    made.add_link("a", "up", link)
    return made


def offered(kind: str, *sizes: int, delay_ns: int = 0) -> tuple[Network, list[Transfer]]:
    """A network, and transfers 1, 2, ... offered to its link at 0."""
    net, items = (
        network(kind, delay_ns),
        [transfer(number, size) for number, size in enumerate(sizes, 1)],
    )
    for item in items:
        net.offer(item, 0)
    return net, items


kinds = pytest.mark.parametrize("kind", ["plain", "own"])


@kinds
def test_a_rate_that_doubles_in_the_middle(kind: str) -> None:
    net, (first, second) = offered(kind, 100, 20, delay_ns=5 * MS)
    assert net.change("a", "up", Constant(2 * BYTE_PER_MS), at=60 * MS) == 60 * MS
    assert [net.progress(first, at * MS) for at in (64, 65, 66, 85)] == [59, 60, 62, 100]
    assert (net.started(first), net.started(second)) == (0, 80 * MS)
    assert due(net) == [(1, 85 * MS), (2, 95 * MS)]


@kinds
@pytest.mark.parametrize("goes_on", ["resume", "cancel"])
def test_a_change_keeps_what_was_served_before_an_interruption_behind_it(
    kind: str, goes_on: str
) -> None:
    """The first has 60 of its 100 bytes at 60 ms, whatever happened to the second meanwhile."""
    net, (first, second) = offered(kind, 100, 20)
    net.suspend(second, 0, 10 * MS)
    if goes_on == "resume":
        net.resume(second, 30 * MS)
    else:
        net.cancel(second, 30 * MS)
    net.change("a", "up", Constant(2 * BYTE_PER_MS), at=60 * MS)
    assert (net.started(first), net.progress(first, 60 * MS)) == (0, 60)
    assert due(net)[0] == (1, 80 * MS)


@kinds
def test_a_change_in_the_past_counts_from_where_the_link_stands(kind: str) -> None:
    net, _ = offered(kind, 10, 10)
    assert net.pop_due(10 * MS)
    assert (
        net.change("a", "up", Constant(2 * BYTE_PER_MS), at=4 * MS) == 10 * MS
    )  # the first is complete
    assert net.change("a", "up", Constant(BYTE_PER_MS), at=12 * MS) == 12 * MS
    assert net.change("a", "up", Constant(2 * BYTE_PER_MS), at=11 * MS) == 12 * MS
    assert due(net) == [(2, 15 * MS)]


def test_a_bottleneck_changes_for_all_its_links() -> None:
    shared, net = Bottleneck(Constant(2 * BYTE_PER_MS)), Network()
    for edge in "ab":
        net.add_link(edge, "up", shared.link())
        net.offer(transfer(ord(edge), 20, edge), 0)
    assert net.next_due() == 20 * MS
    net.take_replanned()
    assert shared.change(Constant(BYTE_PER_MS), 10 * MS) == 10 * MS
    assert {item.edge for item in net.take_replanned()} == {"a", "b"} and net.take_replanned() == []
    assert net.link("a", "up").capacity.segment(0)[0] == BYTE_PER_MS
    assert due(net) == [(97, 30 * MS), (98, 30 * MS)]


def test_a_native_link_is_not_changed_under_its_transfers() -> None:
    net = Network()
    net.add_link("a", "up", Link(None))
    net.offer(transfer(1, 5), 0)
    with pytest.raises(ValueError):
        net.change("a", "up", Constant(BYTE_PER_MS), at=0)
    with pytest.raises(KeyError):
        net.change("a", "down", Constant(BYTE_PER_MS), at=0)
    assert due(net) == [(1, 0)]
    net.change("a", "up", Constant(BYTE_PER_MS), at=5)
    net.offer(transfer(2, 1), 5)
    assert due(net) == [(2, 5 + MS)]


stories = st.lists(
    st.tuples(
        st.sampled_from(["offer", "rate", "delay"]), st.integers(0, 300 * MS), st.integers(0, 200)
    ),
    min_size=1,
    max_size=12,
)


def play(
    kind: str, story: list[tuple[str, int, int]], delay_ns: int, ask: bool = False
) -> tuple[Network, list[Transfer], list[tuple[int, int]], list[tuple[int, Delay]]]:
    """Replay events in order of time; return (network, transfers, rate steps, delay steps)."""
    net, now, items, numbers = network(kind, delay_ns), 0, [], count()
    rates: list[tuple[int, int]] = [(0, BYTE_PER_MS)]
    delays: list[tuple[int, Delay]] = [(-1, Latency(delay_ns))]
    for what, pause_ns, value in story:
        now += pause_ns
        match what:
            case "offer":
                items.append(transfer(next(numbers), value))
                net.offer(items[-1], now)
            case "rate":
                rates.append((now, value * 400))
                net.change("a", "up", Steps([(0, value * 400)]), at=now)
            case "delay":
                delays.append(
                    (
                        now,
                        (
                            Jitter(value * MS, value * MS // 2, seed=value)
                            if value % 3 == 0
                            else Latency(value * MS)
                        ),
                    )
                )
                net.change("a", "up", delay=delays[-1][1], at=now)
        if ask:
            assert all(
                net.progress(item, now + value * MS) <= item.size
                and net.due_at(item, item.size // 2) >= 0
                for item in items
            )
            net.next_due()
    net.change("a", "up", Constant(BYTE_PER_MS), at=now)
    return net, items, [*rates, (now, BYTE_PER_MS)], delays


@settings(deadline=None)
@given(st.sampled_from(["plain", "own"]), stories, st.booleans())
def test_rate_changes_are_the_same_as_a_capacity_known_beforehand(
    kind: str, story: list[tuple[str, int, int]], ask: bool
) -> None:
    story = [step for step in story if step[0] != "delay"]
    net, items, rates, _ = play(kind, story, 7 * MS, ask)
    known, now, offered, free = Steps(rates), 0, iter(items), 0
    for what, pause_ns, _ in story:
        now += pause_ns
        if what == "offer":
            item = next(offered)
            start, free = max(now, free), served_at(known, max(now, free), item.size)
            assert net.started(item) == start
            assert net.due_at(item, item.size) == free + 7 * MS
            middle = start + (free - start) // 2
            assert (
                net.progress(item, middle + 7 * MS)
                == min(bytes_served(known, start, middle), item.size)
                or middle == free
            )


@settings(deadline=None)
@given(st.sampled_from(["plain", "own"]), stories, st.integers(0, 300 * MS), st.booleans())
def test_every_byte_takes_the_delay_of_its_departure_and_overtakes_none(
    kind: str, story: list[tuple[str, int, int]], delay_ns: int, ask: bool
) -> None:
    story = [
        ("rate", pause, max(value, 20)) if what == "rate" else (what, pause, value)
        for what, pause, value in story
    ]
    net, items, rates, delays = play(kind, story, delay_ns, ask)
    known, arrived = Steps(rates), 0
    for item in items:
        start = net.started(item)
        assert start is not None
        for n in range(min(item.size, 1), item.size + 1):
            left = served_at(known, start, n)
            arrived = max(
                arrived, [delay for after, delay in delays if after < left][-1].arrival(left)
            )
            assert net.due_at(item, n) == arrived
            assert net.progress(item, arrived) >= n and (
                n < 2 or net.progress(item, arrived - 1) < n
            )
