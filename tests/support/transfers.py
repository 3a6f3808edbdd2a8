"""Transfers over links whose numbers are round, by hand or in any order of calls."""

from __future__ import annotations

from itertools import count

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from emulator.links.network import Network, Transfer
from emulator.units import FOREVER

MS = 1_000_000
BYTE_PER_MS = 8_000  # bit/s: so that sizes in bytes read as milliseconds


class OnOff:
    """``rate_bit_s`` in the first ``on_ns`` of every ``period_ns``, 0 in the rest.

    All is shifted by ``shift_ns``.
    """

    def __init__(self, rate_bit_s: int, on_ns: int, period_ns: int, shift_ns: int = 0) -> None:
        self.rate_bit_s, self.on_ns = rate_bit_s, on_ns
        self.period_ns, self.shift_ns = period_ns, shift_ns

    def segment(self, t_ns: int) -> tuple[int, int]:
        begin_ns = t_ns - (t_ns - self.shift_ns) % self.period_ns
        if t_ns < begin_ns + self.on_ns:
            return self.rate_bit_s, begin_ns + self.on_ns
        return 0, begin_ns + self.period_ns


def transfer(number: int, size: int, edge: str = "a", direction: str = "up") -> Transfer:
    return Transfer(number, edge, direction, size, "update")


def due(net: Network, now: int = FOREVER) -> list[tuple[int, int]]:
    """Take what is due by ``now``: (number, moment)."""
    return [(completion.transfer.number, completion.due_ns) for completion in net.pop_due(now)]


class AnyTransfers(RuleBasedStateMachine):
    """Each call goes to all ``nets``, which have the same ``edges``. Answers agree with each other.

    ``two_ways``: edges have a downlink, too. ``in_order``: links serve in order of the offers.
    """

    items = Bundle("items")
    edges, two_ways, in_order = "abc", False, True

    def __init__(self, *nets: Network) -> None:
        super().__init__()
        self.nets, self.net = nets, nets[0]
        self.now, self.behind = 100 * MS, 0
        self.numbers = count()
        self.held: dict[int, Transfer] = {}
        self.suspended: set[int] = set()

    @property
    def at(self) -> int:
        """The moment of a call: earlier than now if the host is late."""
        return self.now - self.behind

    @rule(target=items, place=st.integers(0, 2), down=st.booleans(), size=st.integers(0, 60))
    def offer(self, place: int, down: bool, size: int) -> Transfer:
        edge = self.edges[place % len(self.edges)]
        direction = "down" if down and self.two_ways else "up"
        item = Transfer(next(self.numbers), edge, direction, size, "update")
        self.held[item.number] = item
        for net in self.nets:
            net.offer(item, self.at)
        return item

    @rule(item=items, share=st.floats(0, 1))
    def suspend(self, item: Transfer, share: float) -> None:
        if item.number in self.held:
            self.suspended.add(item.number)
            for net in self.nets:
                net.suspend(item, int(share * item.size), self.at)

    @rule(item=items)
    def resume(self, item: Transfer) -> None:
        if item.number in self.suspended:
            self.suspended.discard(item.number)
            for net in self.nets:
                net.resume(item, self.at)

    @rule(item=consumes(items))
    def cancel(self, item: Transfer) -> None:
        if self.held.pop(item.number, None):
            self.suspended.discard(item.number)
            for net in self.nets:
                net.cancel(item, self.at)

    @rule(pause_ns=st.integers(0, 40 * MS))
    def pop(self, pause_ns: int) -> None:
        self.now += pause_ns
        for net in self.nets:
            moments = sorted((at, number) for number, at in self.due(net).items())
            popped = [(done.due_ns, done.transfer.number) for done in net.pop_due(self.now)]
            assert popped == [entry for entry in moments if entry[0] <= self.now]
        for _, number in popped:
            del self.held[number]
            self.suspended.discard(number)

    def due(self, net: Network) -> dict[int, int]:
        """When each transfer is due."""
        return {number: net.due_at(item, item.size) for number, item in self.held.items()}

    @invariant()
    def the_next_completion_is_the_earliest_of_all(self) -> None:
        for net in self.nets:
            assert net.next_due() == min(self.due(net).values(), default=FOREVER)

    @invariant()
    def each_link_serves_in_order_up_to_what_is_suspended(self) -> None:
        moments = self.due(self.net)
        for edge in self.edges if self.in_order else "":
            queue = [item for item in self.held.values() if item.edge == edge]
            stopped = [index for index, item in enumerate(queue) if item.number in self.suspended]
            dues = [moments[item.number] for item in queue]
            assert dues == sorted(dues)
            assert [at == FOREVER for at in dues] == [
                bool(stopped) and index >= stopped[0] for index in range(len(queue))
            ]
            begun = [self.net.started(item) for item in queue]
            planned = [moment for moment in begun if moment is not None]
            assert begun[: len(planned)] == sorted(planned)
