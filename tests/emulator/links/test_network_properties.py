"""Links and the network: properties for every capacity, queue, interruption and late host."""

from __future__ import annotations

from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from emulator.capacity.constant import Constant
from emulator.capacity.service import bytes_served, served_at
from emulator.delay.latency import Latency
from emulator.links.link import Link
from emulator.links.network import Completion, Network, Transfer
from emulator.units import FOREVER, NS_PER_S

MS = NS_PER_S // 1000
BYTE_PER_MS = 8_000  # bit/s: so that sizes in bytes read as milliseconds


class OnOff:
    """``rate_bit_s`` in the first ``on_ns`` of every ``period_ns``, 0 in the rest."""

    def __init__(self, rate_bit_s: int, on_ns: int, period_ns: int) -> None:
        self.rate_bit_s, self.on_ns, self.period_ns = rate_bit_s, on_ns, period_ns

    def segment(self, t_ns: int) -> tuple[int, int]:
        begin_ns = t_ns - t_ns % self.period_ns
        if t_ns < begin_ns + self.on_ns:
            return self.rate_bit_s, begin_ns + self.on_ns
        return 0, begin_ns + self.period_ns


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


capacities = st.one_of(
    st.integers(1_000, 10**10).map(Constant),
    st.tuples(st.integers(10**5, 10**10), st.integers(10**6, 10**8), st.integers(1, 10**8)).map(
        lambda t: OnOff(t[0], t[1], t[1] + t[2])
    ),
)
sizes = st.integers(1, 20_000)
delays = st.integers(0, 10**9)


@settings(deadline=None)
@given(capacities, delays, st.lists(sizes, min_size=1, max_size=6), st.data())
def test_progress_meets_due_at(
    capacity: object, delay_ns: int, queue: list[int], data: st.DataObject
) -> None:
    net = network(delay_ns, capacity=capacity)
    for number, size in enumerate(queue):
        net.offer(transfer(number, size), 10 * number)
    number = data.draw(st.integers(0, len(queue) - 1))
    asked = transfer(number, queue[number])
    n_bytes = data.draw(st.integers(1, asked.size))
    at = net.due_at(asked, n_bytes)
    assert net.progress(asked, at) >= n_bytes > net.progress(asked, at - 1)
    assert net.due_at(asked, asked.size) in [
        completion.due_ns for completion in net.pop_due(FOREVER)
    ]


@settings(deadline=None)
@given(
    capacities, delays, st.lists(st.tuples(st.integers(0, 10**9), sizes), min_size=1, max_size=8)
)
def test_a_queue_is_served_in_order_and_without_a_gap(
    capacity: object, delay_ns: int, offers: list[tuple[int, int]]
) -> None:
    net = network(delay_ns, capacity=capacity)
    now, free, expected = 0, 0, []
    for number, (pause, size) in enumerate(offers):
        now += pause
        net.offer(transfer(number, size), now)
        start = max(now, free)
        free = served_at(capacity, start, size)
        expected.append(Completion(transfer(number, size), now, start, free + delay_ns))
    assert net.pop_due(FOREVER) == expected


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


class AnyStory(RuleBasedStateMachine):
    """After any sequence of calls, the fast answers of a network equal a full search."""

    items = Bundle("items")

    def __init__(self) -> None:
        super().__init__()
        self.net = network(7 * MS, "ab")
        self.net.add_link("c", "up", Link(None))
        self.now = 0
        self.numbers = count()
        self.held: dict[int, Transfer] = {}
        self.suspended: set[int] = set()

    @rule(target=items, edge=st.sampled_from("abc"), size=st.integers(0, 50))
    def offer(self, edge: str, size: int) -> Transfer:
        item = transfer(next(self.numbers), size, edge)
        self.net.offer(item, self.now)
        self.held[item.number] = item
        return item

    @rule(item=items, share=st.floats(0, 1))
    def suspend(self, item: Transfer, share: float) -> None:
        if item.number in self.held:
            reached = self.net.progress(item, self.now)
            confirmed = int(share * item.size)
            self.net.suspend(item, confirmed, self.now)
            if item.number not in self.suspended:
                assert self.net.progress(item, self.now) == min(confirmed, reached)
            self.suspended.add(item.number)

    @rule(item=items)
    def resume(self, item: Transfer) -> None:
        if item.number in self.suspended:
            before = self.net.progress(item, self.now)
            self.net.resume(item, self.now)
            self.suspended.discard(item.number)
            assert self.net.progress(item, self.now) == before or item.edge == "c"

    @rule(item=consumes(items))
    def cancel(self, item: Transfer) -> None:
        if self.held.pop(item.number, None):
            self.net.cancel(item, self.now)
            self.suspended.discard(item.number)

    @rule(pause_ns=st.integers(0, 40 * MS))
    def pop(self, pause_ns: int) -> None:
        self.now += pause_ns
        expected = sorted(
            (self.due_of(item), item.number)
            for item in self.held.values()
            if self.due_of(item) <= self.now
        )
        popped = [
            (completion.due_ns, completion.transfer.number)
            for completion in self.net.pop_due(self.now)
        ]
        assert popped == expected
        for _, number in popped:
            del self.held[number]

    def due_of(self, item: Transfer) -> int:
        return self.net.due_at(item, item.size)

    @invariant()
    def the_next_completion_is_the_earliest_of_all(self) -> None:
        assert self.net.next_due() == min(
            (self.due_of(item) for item in self.held.values()), default=FOREVER
        )

    @invariant()
    def each_link_serves_in_order_and_never_beyond_its_rate(self) -> None:
        for edge in "abc":
            queue = [item for item in self.held.values() if item.edge == edge]
            moments = [self.due_of(item) for item in queue]
            assert moments == sorted(moments)
            stopped = [index for index, item in enumerate(queue) if item.number in self.suspended]
            assert all(
                (moment == FOREVER) == (bool(stopped) and index >= stopped[0])
                for index, moment in enumerate(moments)
            )
            begun = [self.net.started(item) for item in queue]
            planned = [moment for moment in begun if moment is not None]
            assert begun[: len(planned)] == sorted(planned)


AnyStory.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestAnyStory = AnyStory.TestCase
