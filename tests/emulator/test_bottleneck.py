"""A shared bottleneck: by hand, against an exact rational simulation, and against a plain link."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule
from transfers import BYTE_PER_MS, MS, AnyTransfers, OnOff, due

from edgefl.exchange.machine import Exchange
from edgefl.exchange.pacer import PacedFlow, Pacer, PiecePlan
from emulator.capacity.rates import Constant, Lowest, Slotted, Windows
from emulator.capacity.service import served_at
from emulator.capacity.trace import Trace
from emulator.delay import Latency
from emulator.errors import BadValue
from emulator.fidelity import Fidelity
from emulator.links import bottleneck
from emulator.links.bottleneck import Bottleneck, shares
from emulator.links.link import Link
from emulator.links.network import Network, Transfer
from emulator.units import FOREVER, NS_PER_S


def cell(rate: object, caps: list[object | None], delay_ns: int = 0) -> tuple[Network, Bottleneck]:
    """A network with edges "0", "1", ..., each with a cap."""
    net, shared = Network(), Bottleneck(rate)
    for edge, cap in enumerate(caps):
        net.add_link(str(edge), "up", shared.link(cap, Latency(delay_ns)))
    return net, shared


def transfer(number: int, size: int, edge: int = 0) -> Transfer:
    return Transfer(number, str(edge), "up", size, "update")


# ------------------------------------------------------------------ shares
@pytest.mark.parametrize(
    ("rate", "caps", "expected"),
    [
        (10, [2, 10, 10], [2, 4, 4]),
        (10, [10, 10, 10], [4, 3, 3]),  # the remainder is not lost
        (10, [3, 1, 9, 2], [3, 1, 4, 2]),
        (10, [0, 4, 0], [0, 4, 0]),
        (0, [5, 5], [0, 0]),
    ],
)
def test_shares_by_hand(rate: int, caps: list[int], expected: list[int]) -> None:
    assert shares(rate, caps) == expected


@given(st.integers(0, 10**6), st.lists(st.integers(0, 10**6), max_size=12))
def test_shares_are_max_min_fair_and_lose_nothing(rate: int, caps: list[int]) -> None:
    given_ = shares(rate, caps)
    assert sum(given_) == min(rate, sum(caps))
    assert all(0 <= one <= cap for one, cap in zip(given_, caps))
    for one, cap in zip(given_, caps):
        if (
            one < cap
        ):  # a link below its cap has the largest share, except for the remainder of 1 bit/s
            assert one >= max(given_) - 1


# ------------------------------------------------------------------ by hand
def test_two_share_and_the_one_that_is_left_has_all() -> None:
    net, _ = cell(Constant(BYTE_PER_MS), [None, None], delay_ns=5 * MS)
    short, long = transfer(0, 10, 0), transfer(1, 20, 1)
    net.offer(short, 0)
    net.offer(long, 0)
    assert [net.progress(long, at * MS) for at in (5, 7, 25, 26, 35)] == [0, 1, 10, 11, 20]
    assert [net.due_at(long, n) // MS for n in (0, 1, 10, 11, 20)] == [5, 7, 25, 26, 35]
    assert net.next_due() == 25 * MS
    assert due(net) == [(0, 25 * MS), (1, 35 * MS)]


def test_a_late_comer_slows_the_other_down_and_both_are_told() -> None:
    net, _ = cell(Constant(BYTE_PER_MS), [None, None])
    first, second = transfer(0, 20, 0), transfer(1, 5, 1)
    net.offer(first, 0)
    net.take_replanned()
    assert net.next_due() == 20 * MS
    net.offer(second, 10 * MS)
    assert net.take_replanned() == [first, second]
    assert (net.progress(first, 10 * MS), net.next_due()) == (10, 20 * MS)
    assert due(net) == [(1, 20 * MS), (0, 25 * MS)]
    assert net.take_replanned() == []  # an expected completion changes no plan


def test_moments_before_the_settled_one_count_from_there_and_are_counted() -> None:
    net, shared = cell(Constant(BYTE_PER_MS), [None, None])
    net.offer(transfer(0, 10, 0), 0)
    assert due(net, 12 * MS) == [(0, 10 * MS)] and shared.settled_ns == 10 * MS
    net.offer(transfer(1, 10, 1), 4 * MS)  # the first had all of the bottleneck until 10
    assert net.started(transfer(1, 10, 1)) == 10 * MS
    assert [(done.due_ns, done.shifted_ns) for done in net.pop_due(FOREVER)] == [(20 * MS, 6 * MS)]
    net.offer(transfer(2, 10, 0), 30 * MS)
    assert due(net, 45 * MS) == [(2, 40 * MS)]
    net.offer(transfer(3, 10, 0), 40 * MS)  # a late host that passes the true moments loses nothing
    assert [(done.due_ns, done.shifted_ns) for done in net.pop_due(FOREVER)] == [(50 * MS, 0)]


@pytest.mark.parametrize("silent", ["cell", "link"])
def test_a_silence_is_one_epoch_however_often_the_other_rate_changes(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bottleneck, "MOST_IDLE_EPOCHS", 2)
    lively = Trace([(12_000_000, MS), (24_000_000, MS)])
    silence = Windows([(100 * MS, 101 * NS_PER_S)], 10**7)
    rate, cap = (silence, lively) if silent == "cell" else (lively, silence)
    net, _ = cell(rate, [cap])
    net.offer(transfer(0, 10**6), 0)
    assert net.next_due() == served_at(Lowest(rate, cap), 0, 10**6) > 101 * NS_PER_S


def test_a_search_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bottleneck, "MOST_IDLE_EPOCHS", 1000)
    net, shared = cell(Slotted(10, 2, [0]), [Slotted(10, 2, [1])])
    net.offer(transfer(0, 1), 0)
    for at_ns in range(2000):  # looks as such are no search
        shared.look(at_ns)
    with pytest.raises(BadValue, match="until 0.000010010 s: are they ever open together"):
        net.next_due()


# ---------------------------------------------------------------- against exact rational arithmetic
def fluid(rate: int, caps: list[int], offers: list[tuple[int, int, int]]) -> dict[int, Fraction]:
    """The completion of each transfer number, by an event simulation in rational numbers.

    ``offers``: (moment, edge, bytes) in order of time, one after another on each edge.
    """
    now, pending, queues = Fraction(0), list(enumerate(offers)), [[] for _ in caps]
    done: dict[int, Fraction] = {}
    while pending or any(queues):
        while pending and pending[0][1][0] <= now:
            number, (_, edge, size) = pending.pop(0)
            queues[edge].append([number, Fraction(size * 8 * NS_PER_S)])
        busy = sorted((edge for edge, queue in enumerate(queues) if queue), key=caps.__getitem__)
        left, speeds = Fraction(rate), {}
        for place, edge in enumerate(busy):
            speeds[edge] = min(Fraction(caps[edge]), left / (len(busy) - place))
            left -= speeds[edge]
        moments = [now + queues[edge][0][1] / speed for edge, speed in speeds.items()] + [
            Fraction(offer[0]) for _, offer in pending[:1]
        ]
        step = min(moments) - now
        now += step
        for edge, speed in speeds.items():
            queues[edge][0][1] -= step * speed
            if queues[edge][0][1] <= 0:
                done[queues[edge].pop(0)[0]] = now
    return done


offers = st.lists(
    st.tuples(st.integers(0, 100 * MS), st.integers(0, 4), st.integers(1, 60_000)),
    min_size=1,
    max_size=12,
)


@settings(deadline=None)
@given(
    st.integers(10**6, 10**8),
    st.lists(st.integers(10**6, 10**8), min_size=5, max_size=5),
    offers,
    st.lists(st.integers(0, 200 * MS), max_size=12),
)
def test_completions_are_those_of_a_fluid(
    rate: int, caps: list[int], offers: list[tuple[int, int, int]], asked: list[int]
) -> None:
    net, _ = cell(Constant(rate), [Constant(cap) for cap in caps], delay_ns=3 * MS)
    now, told, popped, questions = 0, [], {}, iter(asked)
    for number, (pause_ns, edge, size) in enumerate(offers):
        now += pause_ns
        told.append((now, edge, size))
        popped.update(due(net, now))
        net.offer(transfer(number, size, edge), now)
        question = next(questions, None)
        if question is not None:  # looking ahead changes nothing
            assert 0 <= net.progress(transfer(number, size, edge), now + question) <= size
            assert now <= net.next_due() <= net.due_at(transfer(number, size, edge), size)
    popped.update(due(net))
    expected = fluid(rate, caps, told)
    for number, moment in expected.items():
        elapsed = moment - min(at for at, _, _ in told)
        # each epoch may cost a ns, and a share is a whole number of bit/s (at least 200,000 here)
        assert abs(popped[number] - 3 * MS - moment) <= 30 + elapsed / 100_000


# ------------------------------------------------------------------ a link alone is a plain one
class Alone(AnyTransfers):
    """A link alone in its bottleneck behaves as a plain link, after any calls and queries."""

    edges = "01"

    def __init__(self) -> None:
        caps = [OnOff(BYTE_PER_MS, 11 * MS, 20 * MS), Constant(BYTE_PER_MS)]
        plain, shared = Network(), Network()
        for edge, cap in enumerate(caps):
            plain.add_link(str(edge), "up", Link(cap, Latency(7 * MS)))
        shared.add_link("0", "up", Bottleneck(caps[0]).link(None, Latency(7 * MS)))
        shared.add_link("1", "up", Bottleneck(Constant(10**12)).link(caps[1], Latency(7 * MS)))
        super().__init__(plain, shared)

    @rule(item=AnyTransfers.items, ahead=st.integers(-20 * MS, 200 * MS), share=st.floats(0, 1))
    def ask(self, item: Transfer, ahead: int, share: float) -> None:
        if item.number in self.held:
            first, second = (
                (
                    net.progress(item, self.now + ahead),
                    net.due_at(item, int(share * item.size)),
                    net.started(item),
                )
                for net in self.nets
            )
            assert first == second


TestAlone = Alone.TestCase
TestAlone.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


# ------------------------------------------------------------------ a host that is late
class Late(AnyTransfers):
    """Three devices in a cell and a host whose moments jump back.

    Answers agree with each other, and no service exceeds a rate.
    """

    edges = "012"
    rate, caps = 3 * BYTE_PER_MS, (2 * BYTE_PER_MS, 10 * BYTE_PER_MS, BYTE_PER_MS)

    def __init__(self) -> None:
        caps = [Constant(cap) for cap in self.caps]
        net, self.shared = cell(Constant(self.rate), caps, delay_ns=9 * MS)
        super().__init__(net)

    @rule(edge=st.integers(0, 2), share=st.integers(1, 4), delay_ms=st.integers(0, 30))
    def change(self, edge: int, share: int, delay_ms: int) -> None:
        self.net.change(
            str(edge),
            "up",
            Constant(self.caps[edge] * share // 4),
            Latency(delay_ms * MS),
            at=self.at,
        )

    @rule(behind_ns=st.integers(0, 30 * MS))
    def fall_behind(self, behind_ns: int) -> None:
        self.behind = behind_ns

    @rule(step_ns=st.integers(1, 50 * MS))
    def nobody_is_served_beyond_a_rate(self, step_ns: int) -> None:
        from_ns = (
            max(self.now, self.shared.settled_ns) + 40 * MS
        )  # later than all bytes in flight with an earlier delay
        delays = {
            number: self.net.link(item.edge, "up").delay for number, item in self.held.items()
        }
        before, after = (
            {
                number: self.net.progress(item, delays[number].arrival(served_ns))
                for number, item in self.held.items()
            }
            for served_ns in (from_ns, from_ns + step_ns)
        )
        assert all(before[number] <= after[number] for number in before)
        for edges, rate in [("012", self.rate), *zip("012", self.caps)]:
            carried = sum(
                after[number] - before[number]
                for number, item in self.held.items()
                if item.edge in edges
            )
            assert carried <= rate * step_ns // (8 * NS_PER_S) + 1 + len(self.held)


TestLate = Late.TestCase
TestLate.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


# ------------------------------------------------------------------ the pacer is notified
def test_the_pacer_follows_when_others_come_and_go() -> None:
    net, _shared = cell(Constant(2_000_000), [None, None])
    pacer = Pacer(Exchange(net, {}), PiecePlan(20 * MS, 10 * MS), Fidelity())
    moments: list[tuple[int, int, int]] = []

    def until(t_ns: int) -> None:
        while (at := pacer.next_due()) <= t_ns:
            moments.extend((at, flow.transfer.number, end) for flow, _, end in pacer.release(at))
            pacer.carried(at)

    flows = []
    for edge, at in ((0, 0), (1, 200 * MS)):
        until(at)
        flows.append(PacedFlow(transfer(edge, 250_000, edge), 1, None))
        pacer.begin(flows[-1], 0, at, at)
    until(600 * MS)
    for flow in flows:
        ahead = flow.released - net.progress(flow.transfer, 600 * MS)
        assert 0 <= ahead <= 20 * MS * 1_000_000 // (8 * NS_PER_S) + 1
    pacer.exchange.cancel(flows[1], 600 * MS)
    pacer.cancelled(flows[1], 600 * MS)
    until(5 * NS_PER_S)
    assert [at for at, number, end in moments if (number, end) == (0, 250_000)] == [1180 * MS]
    assert pacer.fidelity.wake_lag.max == 0
