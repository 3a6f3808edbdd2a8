"""Transfers whose session breaks: in both directions they continue at the same byte, or are
dropped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from transport_rig import AHEAD_NS, MOST, MS, Rig, take

from edgefl.hosts.wall.coordinator.thread_messages import Carried, Heard, Whole
from edgefl.hosts.wall.edge.transfers import EdgeTransfers
from edgefl.protocol.messages import (
    Assignment,
    Credit,
    Delivered,
    Offer,
    Piece,
    Ping,
    Ready,
    Started,
    Update,
)
from edgefl.protocol.transfers import Outgoing
from edgefl.strategies.base.events_and_decisions import Grant
from emulator.units import NS_PER_S


@pytest.fixture
def rig() -> Rig:
    return Rig()


# ------------------------------------------------------------------ broken sessions
def test_an_upload_goes_on_where_it_broke(rig: Rig) -> None:
    outgoing = rig.granted()
    rig.answers(outgoing, 80 * MS)  # 20,000 bytes are due
    received = rig.pacer.flows[1].side.received
    kept = rig.network.progress(rig.pacer.flows[1].transfer, 80 * MS)
    rig.breaks("a")
    rig.until(NS_PER_S)
    assert rig.pays()[-1][0] <= 80 * MS
    rig.joins("a", tasks=[1])
    rig.until(NS_PER_S + 10 * MS)
    assert rig.pays()[-1][0] <= 80 * MS  # nothing before the edge offers it again
    rig.says("a", outgoing.offer(0))
    due = NS_PER_S + 10 * MS + take(outgoing.size - kept)
    seen = len(rig.pays())
    rig.answers(outgoing, due)
    assert rig.pays()[seen][1] == received > 20_000
    assert rig.heard(Whole)[0].now == due and rig.heard(Whole)[0].incoming.message().number == 1
    assert len([item for item in rig.told if isinstance(item, Heard)]) == 1  # Ready was sent once
    assert rig.fidelity.verdict == "faithful"


def test_an_upload_with_another_content_starts_at_byte_0(rig: Rig) -> None:
    rig.answers(rig.granted(), 80 * MS)
    rig.breaks("a")
    rig.joins("a", tasks=[1])
    other = rig.offer(value=1.0, due_ns=80 * MS)
    rig.until(80 * MS)
    assert (
        rig.told == [Heard(0, "a", Ready(1)), Heard(80 * MS, "a", Ready(1))] and not rig.pacer.flows
    )
    rig.grant(Grant("a", 1), 80 * MS)
    rig.until(80 * MS)
    assert rig.pays()[-1] == (80 * MS, 0, 7500)
    rig.upload(other, 0, 7500)


def test_a_restarted_edges_transfers_are_dropped(rig: Rig) -> None:
    rig.answers(rig.granted(1), 80 * MS)
    rig.offer(task=2, number=6)
    rig.carry(number=3)
    rig.carry("b")
    rig.breaks("a")
    rig.joins("a")
    assert [flow.transfer.edge for flow in rig.pacer.flows.values()] == ["b"]
    assert not rig.uplink.waiting["a"] and not rig.uploads and list(rig.downloads.values()) == [1]
    outgoing = rig.granted(4)  # its link is free at once, its numbers start again
    assert rig.pacer.network.started(rig.uplink.waiting["a"][5].flow.transfer) == 80 * MS
    rig.answers(outgoing, NS_PER_S)
    assert [whole.incoming.message().number for whole in rig.heard(Whole)] == [4]


def test_a_permit_for_an_absent_edge_waits_for_it(rig: Rig) -> None:
    outgoing = rig.offer()
    rig.until(5 * MS)
    rig.breaks("a")
    rig.grant(Grant("a", 1), 5 * MS)
    rig.until(300 * MS)
    assert rig.pays() == []
    rig.joins("a", tasks=[1])
    rig.says("a", outgoing.offer(0))
    rig.answers(outgoing, 300 * MS + take(outgoing.size))
    assert rig.pays()[0][:2] == (300 * MS, 0) and rig.heard(Whole)[0].now == 300 * MS + take(
        outgoing.size
    )


def test_a_permit_between_joining_and_offering_again_is_not_taken_back(rig: Rig) -> None:
    outgoing = rig.offer()
    rig.until(5 * MS)
    rig.breaks("a"), rig.joins("a", tasks=[1])
    rig.grant(Grant("a", 1), 5 * MS)
    rig.until(5 * MS)
    rig.says("a", outgoing.offer(0))  # sent before the credit came
    rig.upload(outgoing, 0, rig.pays()[-1][2])
    rig.until(5 * MS + take(outgoing.size))
    assert len({offset for _, offset, _ in rig.pays()}) == 2


def test_an_update_that_is_offered_again_after_it_came_is_ready_again(rig: Rig) -> None:
    """Its acknowledgement was lost with the session, or its digest was wrong. The coordinator knows
    which.
    """
    outgoing = rig.granted()
    rig.answers(outgoing, NS_PER_S)
    rig.breaks("a"), rig.joins("a", tasks=[1])
    rig.says("a", outgoing.offer(0))
    rig.until(NS_PER_S)
    assert rig.told[-1] == Heard(NS_PER_S, "a", Ready(1))
    rig.grant(Grant("a", 1), NS_PER_S)
    rig.until(NS_PER_S)
    assert rig.pays()[-1][:2] == (NS_PER_S, 0)


def test_a_download_goes_on_from_what_the_edge_has(rig: Rig) -> None:
    outgoing = rig.carry()
    rig.until(80 * MS)
    kept = rig.network.progress(rig.pacer.flows[1].transfer, 80 * MS)
    rig.breaks("a")
    rig.until(NS_PER_S)
    before = len(rig.sent["a"])
    rig.joins("a", tasks=[1], held=[[outgoing.number, 15_000]])
    due = NS_PER_S + take(outgoing.size - len(outgoing.meta) - 15_000)
    rig.until(due)
    pieces = rig.sent["a"][before:]
    assert (
        kept > 15_000
        and (pieces[0][0], pieces[0][1].offset) == (NS_PER_S, 15_000)
        and sum(size for *_, size in pieces) == 25_000
    )
    rig.arrived("a", outgoing)
    assert rig.sent["a"][-1][1] == Delivered(outgoing.number, due)


def test_a_download_that_had_come_whole_is_delivered_when_due(rig: Rig) -> None:
    outgoing = rig.carry()
    rig.until(take(outgoing.size) - 1)
    rig.breaks("a")  # and the edge's Arrived with it
    rig.until(NS_PER_S)
    rig.joins("a", tasks=[1], held=[[outgoing.number, 40_000]])
    rig.until(NS_PER_S + 1 * MS)
    assert [message for _, message, _ in rig.sent["a"] if isinstance(message, Delivered)] == [
        Delivered(outgoing.number, NS_PER_S + take(1))
    ]


def test_bytes_that_were_due_but_lost_are_sent_again_at_once(rig: Rig) -> None:
    outgoing = rig.carry()
    rig.until(take(outgoing.size))
    rig.breaks("a")
    rig.until(NS_PER_S)
    rig.joins("a", tasks=[1], held=[[outgoing.number, 30_000]])
    rig.until(NS_PER_S)
    assert (
        rig.sent["a"][-1][0] == NS_PER_S
        and rig.sent["a"][-1][1].offset == 30_000
        and rig.sent["a"][-1][2] == 10_000
    )
    rig.arrived("a", outgoing)
    assert (
        rig.heard(Heard) == [Heard(NS_PER_S, "a", Started(1))] and rig.fidelity.transfers_late == 1
    )


def test_a_delivery_that_was_said_to_nobody_is_said_again(rig: Rig) -> None:
    outgoing = rig.carry()
    rig.until(take(outgoing.size) - 1)
    rig.arrived("a", outgoing)
    session = rig.sessions.pop("a")  # disconnected, but not yet noticed
    rig.until(NS_PER_S)
    rig.sessions["a"] = session
    rig.breaks("a")
    rig.joins("a", tasks=[1], held=[[outgoing.number, 40_000]])
    assert rig.sent["a"][-1] == (NS_PER_S, Delivered(outgoing.number, take(outgoing.size)), 0)


@pytest.mark.parametrize("held", [[], [[1, 40_001]], [[2, 100]]])
def test_a_download_that_the_edge_does_not_hold_is_dropped(rig: Rig, held: list[list[int]]) -> None:
    rig.carry()
    rig.until(80 * MS)
    rig.breaks("a")
    rig.joins("a", held=held)
    assert not rig.pacer.flows and not rig.downloads


def test_a_download_to_an_absent_edge_moves_nothing(rig: Rig) -> None:
    rig.breaks("a")
    rig.carry()
    rig.until(NS_PER_S)
    (flow,) = rig.pacer.flows.values()
    assert rig.sent["a"] == [] and flow.released == 0 and flow.completion is None
    rig.joins("a")
    assert not rig.pacer.flows


# ------------------------------------------------------------------ both ends together
class BothEnds:
    """The coordinator's and the edge's end of one task and its update.

    Frames wait on the wire until ``flow``; a break loses them.
    """

    def __init__(self, seed: int) -> None:
        self.rng, self.rig, self.edge = (
            np.random.default_rng(seed),
            Rig(latency_ns=10 * MS),
            EdgeTransfers(MOST),
        )
        self.weights = self.rng.random(10_000, dtype=np.float32)
        self.updates: dict[int, Update] = {}
        self.down: list[tuple[Any, Any]] = []
        self.up: list[tuple[Any, Any]] = []
        self.rig.send = self.send
        self.assign()

    def send(self, edge: str, message: Any, body: Any = None) -> None:
        if edge in self.rig.sessions and not isinstance(message, Ping):
            self.down.append((message, body))

    def assign(self) -> None:
        task = Assignment(1, 0, {"weights": self.weights})
        self.rig.downlink.carry("a", Outgoing(next(self.rig.numbers), task), self.rig.clock.ns)

    def flow(self) -> None:
        """Deliver the frames on the wire to the other end."""
        down, up, self.down, self.up = self.down, self.up, [], []
        for message, body in up:
            self.rig.says("a", message, body)
        for message, body in down:
            self.edge_hears(message, body, self.rig.clock.ns + AHEAD_NS)

    def edge_hears(self, message: Any, body: Any, edge_clock_ns: int) -> None:
        match message:
            case Offer() if (arrived := self.edge.offered(message, edge_clock_ns)) is not None:
                self.up.append((arrived, None))
            case Piece() if (arrived := self.edge.piece(message, body, edge_clock_ns)) is not None:
                self.up.append((arrived, None))
            case Credit():
                self.up.extend(self.edge.credit(message))
            case Delivered() if (task := self.edge.delivered(message.transfer)) is not None:
                assert np.array_equal(task.vectors["weights"], self.weights)
                self.updates[1] = Update(1, 0, {"weights": self.weights + 1})
                due_ns = message.at_ns + 30 * MS
                self.up.append((self.edge.new(self.updates[1], due_ns).offer(due_ns), None))

    def breaks(self) -> None:
        """The session breaks; after a while the edge comes back."""
        self.rig.breaks("a")
        self.down, self.up = [], []
        self.rig.until(self.rig.clock.ns + int(self.rng.integers(0, 50 * MS)))
        self.edge.new_session()
        tasks = [*self.updates, *self.edge.tasks]
        self.rig.joins("a", tasks=tasks, held=self.edge.held)
        if not tasks:  # the offer was lost: the coordinator assigns the task anew
            self.assign()
        self.up = [
            (outgoing.offer(due_ns), None)
            for outgoing, due_ns in self.edge.unacknowledged(self.updates)
        ]


@pytest.mark.parametrize("seed", range(40))
def test_both_ends_agree_through_any_number_of_broken_sessions(seed: int) -> None:
    ends = BothEnds(seed)
    rig = ends.rig
    while not rig.heard(Whole) and rig.clock.ns < 60 * NS_PER_S:
        rig.until(rig.clock.ns + int(ends.rng.integers(1, 12 * MS)))
        for ready in [item for item in rig.heard(Heard) if isinstance(item.message, Ready)]:
            rig.grant(Grant("a", 1), ready.now)
        if ends.rng.random() < 0.08:
            ends.breaks()
        else:
            ends.flow()
    (whole,) = rig.heard(Whole)
    assert np.array_equal(whole.incoming.message().vectors["weights"], ends.weights + 1)
    assert rig.fidelity.ahead_of_curve == 0 and len(rig.heard(Carried)) == 2 and not rig.pacer.flows
