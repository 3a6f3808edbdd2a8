"""Transfers at the coordinator's end: what is sent when, what counts as delivered when, what
goes on after a broken session, and what of native links is measured.
"""

from __future__ import annotations

import dataclasses
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from host_reports import FACTS, REPORT
from msgspec.structs import replace
from transport_rig import AHEAD_NS, MOST, MS, RATE, READY, Rig, take

from edgefl.clocks.wall.coordinator.sessions import Answered, Session
from edgefl.clocks.wall.coordinator.thread_messages import (
    Carried,
    EarlyUpdate,
    Granted,
    Heard,
    HostSaid,
    Measured,
    Whole,
)
from edgefl.clocks.wall.coordinator.transfers import (
    MOST_BEHIND_S,
    PROBE_BYTES,
    SPARE,
    TrainingTimes,
)
from edgefl.clocks.wall.edge.transfers import EdgeTransfers
from edgefl.exchange.machine import FaultLives
from edgefl.exchange.pacer import (
    LEAST_NS,
    MOST_STRETCHES,
    NATIVE_PIECE_BYTES,
    NATIVE_WINDOW,
    ONE_PIECE_NS,
    PiecePlan,
    stretches,
)
from edgefl.protocol.codec import Outgoing, encode, encode_note
from edgefl.protocol.messages import (
    SPACED_BYTES,
    UPDATE,
    Acknowledged,
    Arrived,
    Assignment,
    CancelTask,
    Credit,
    Delivered,
    Dropped,
    FreshRequest,
    Join,
    LimitExceeded,
    Offer,
    Piece,
    Ping,
    Pushed,
    Ready,
    Stamped,
    Started,
    Trained,
    Update,
    Welcome,
    WireError,
    Working,
)
from edgefl.strategies.base.events_and_decisions import Grant
from emulator.faults import Fault
from emulator.fidelity import Fidelity
from emulator.kernel_pacing import Burst
from emulator.links.network import Completion, Transfer
from emulator.units import FOREVER, NS_PER_S


@pytest.fixture
def rig() -> Rig:
    return Rig()


# ------------------------------------------------------------------ downlink
def test_a_download_is_offered_paced_and_delivered_when_it_is_due(rig: Rig) -> None:
    rig.until(7 * MS)
    outgoing = rig.carry()
    due = 7 * MS + take(outgoing.size)
    rig.until(due - 1)
    (at, offer, _), *pieces = rig.sent["a"]
    assert (at, offer) == (7 * MS, outgoing.offer(7 * MS)) and sum(
        size for *_, size in pieces
    ) == 40_000
    assert [piece.offset for _, piece, _ in pieces] == [
        0,
        *range(7500, 40_000, 3750),
    ]  # the first quarter at once
    assert all(
        at <= 7 * MS + take(len(outgoing.meta) + piece.offset + size) for at, piece, size in pieces
    )
    rig.arrived("a", outgoing)  # 1 ns early: nothing yet
    assert rig.told == []
    rig.until(due)
    assert rig.sent["a"][-1] == (due, Delivered(outgoing.number, due), 0)
    carried, started = rig.told
    assert started == Heard(due, "a", Started(1))
    assert isinstance(carried, Carried) and (
        carried.finished_ns,
        carried.completion.due_ns,
        carried.completion.transfer.size,
    ) == (due, due, outgoing.size)
    assert rig.fidelity.verdict == "faithful" and not rig.exchange.flows


def test_an_arrival_cannot_lie_in_the_future(rig: Rig) -> None:
    outgoing = rig.carry()
    rig.until(NS_PER_S)
    rig.arrived("a", outgoing, 5 * NS_PER_S)
    assert rig.heard(Heard) == [Heard(NS_PER_S, "a", Started(1))]


@pytest.mark.parametrize("rate", [RATE, None])
@pytest.mark.parametrize("clock_ns", [2**62, -(2**62)])
def test_arrivals_by_a_clock_that_is_made_up_lie_in_the_run(
    rate: int | None, clock_ns: int
) -> None:
    rig = Rig(rate=rate)
    rig.clock.at_monotonic = lambda monotonic_ns: 10 * monotonic_ns  # as with a speed of 10
    outgoing = rig.carry()
    rig.until(NS_PER_S)
    rig.sessions["a"].answered(0, -1, clock_ns)
    rig.says("a", Arrived(outgoing.number, [[0, 0], [outgoing.body, 2]]))
    rig.until(2 * NS_PER_S)
    (carried,) = rig.heard(Carried)
    moments = [at_ns for begin, end, _ in carried.stretches for at_ns in (begin, end)]
    assert all(0 <= at_ns <= NS_PER_S for at_ns in [carried.finished_ns, *moments])


def test_arrivals_ahead_of_what_was_sent_strain_the_run(rig: Rig) -> None:
    outgoing = rig.carry()
    rig.until(NS_PER_S // 8)
    flow = rig.exchange.flows[outgoing.number]
    early = {30_000: 75 * MS}  # a quarter is 40 ms, a piece 15 ms
    curve = [
        [size, due + AHEAD_NS - early.get(size, 0)]
        for size, due in flow.due_at.items()
        if size < 40_000
    ]
    rig.until(take(outgoing.size))
    rig.says("a", Arrived(outgoing.number, [*curve, [40_000, rig.clock.ns + AHEAD_NS]]))
    assert rig.fidelity.ahead_of_curve == 1 and rig.fidelity.verdict == "strained"


@pytest.mark.parametrize("curve", [[], [[39_999, 1]], [[40_001, 1]], [[40_000, 1], [0, 2]]])
def test_arrivals_that_do_not_add_up_are_refused(rig: Rig, curve: list[list[int]]) -> None:
    outgoing = rig.carry()
    rig.until(NS_PER_S)
    with pytest.raises(WireError, match=f"transfer {outgoing.number}"):
        rig.says("a", Arrived(outgoing.number, curve))


def test_bytes_cannot_arrive_before_they_were_sent(rig: Rig) -> None:
    outgoing = rig.carry()
    rig.until(20 * MS)
    with pytest.raises(WireError, match="of 40000 bytes were sent"):
        rig.arrived("a", outgoing)


def test_news_of_unknown_foreign_or_finished_transfers_is_passed_over(rig: Rig) -> None:
    outgoing = rig.carry()
    rig.says("a", Arrived(99, [[1, 1]]))
    rig.until(NS_PER_S)
    rig.arrived("b", outgoing)
    assert rig.told == []
    rig.arrived("a", outgoing)
    told = list(rig.told)
    rig.arrived("a", outgoing)
    assert rig.told == told and len(told) == 2
    assert [edge for edge, _ in rig.useless] == ["a", "b", "a"], "each was counted"


# ----------------------------------------------------- native links, notes, and frames out of place
def pieces(rig: Rig) -> list[int]:
    return [size for _, message, size in rig.sent["a"] if isinstance(message, Piece)]


def test_pieces_of_a_native_path_are_as_long_as_its_last_transfer_was_fast() -> None:
    rig = Rig(rate=None)
    slowly = [16_384, 16_384, 7_232]
    for taken_ms, expected in ((20, slowly), (100, [40_000]), (400, [40_000])):
        rig.sent.clear()
        down = rig.carry(number=taken_ms)
        began = rig.clock.ns
        rig.until(began + taken_ms * MS)
        stamps = [[0, began + AHEAD_NS], [40_000, rig.clock.ns + AHEAD_NS]]
        rig.says("a", Arrived(down.number, stamps))
        assert pieces(rig) == expected
    assert rig.pacer.native_bit_s["a", "down"] == 800_000  # more than 200 ms: 5000 bytes in 50 ms
    rig.sent.clear()
    rig.carry(number=5)
    assert pieces(rig) == slowly
    rig.pacer.native_bit_s["a", "down"] = 3_600_000
    rig.sent.clear()
    rig.carry(number=6, elements=25_000)  # 222 ms
    assert pieces(rig) == [*[22_500] * 4, 10_000]


def test_native_links_carry_all_at_once_and_end_with_the_last_byte() -> None:
    rig = Rig(rate=None)
    down = rig.carry()
    up = rig.granted()
    rig.until(0)
    assert [type(message) for _, message, _ in rig.sent["a"]][:2] == [Offer, Piece]
    assert pieces(rig) == [16_384, 16_384, 7_232]
    # the first credit's piece marks the first arrival
    assert [limit for _, _, limit in rig.pays()] == [1024, 17_408, 33_792, 40_000]
    rig.until(30 * MS)
    rig.upload(up, 0, 40_000)
    rig.until(50 * MS)
    rig.arrived("a", down, 45 * MS)
    assert rig.heard(Whole)[0].now == 30 * MS and rig.sent["a"][-1][1] == Delivered(
        down.number, 45 * MS
    )
    assert rig.fidelity.transfer_lag.count == 0


@pytest.mark.parametrize("note", [encode_note(CancelTask(1)), encode(Welcome(), 0, 0), b"\xc1"])
def test_an_edge_may_send_no_other_note(rig: Rig, note: bytes) -> None:
    with pytest.raises(WireError):
        rig.says("a", Stamped(0, note))


@pytest.mark.parametrize("message", [Credit(1, 0, 9), Piece(1, 0), FreshRequest(1, 2, 3)])
def test_an_edge_may_send_no_other_frame(rig: Rig, message: Any) -> None:
    with pytest.raises(WireError, match=f"{type(message).__name__} from an edge"):
        rig.says("a", message)


def test_what_edges_say_about_their_hosts_goes_to_the_logic_thread() -> None:
    rig = Rig()
    rig.says("a", FACTS)
    rig.until(90 * MS)
    rig.says("a", REPORT)
    assert rig.told == [HostSaid(0, "a", FACTS), HostSaid(90 * MS, "a", REPORT)]
    with pytest.raises(LimitExceeded, match="twice in one session"):
        rig.says("a", FACTS)
    rig.breaks("a")
    rig.joins("a")
    rig.says("a", FACTS)
    reports = iter(lambda: rig.says("a", REPORT), "for ever")
    with pytest.raises(LimitExceeded, match="too often"):
        list(islice(reports, 100))


# ------------------------------------------------------------------ the end of a run
def test_the_last_messages_wait_for_the_models_before_them() -> None:
    """They stand in one queue with models that were sent at once on native links."""
    rig = Rig(rate=None)
    assert rig.transport.behind_s() == 0.0
    first = rig.carry("a")
    assert rig.transport.behind_s() == MOST_BEHIND_S  # the path was never measured
    rig.pacer.native_bit_s["a", "down"] = 8 * first.body  # the body takes a second
    assert rig.transport.behind_s() == SPARE
    second = rig.carry("a", number=2)
    assert rig.transport.behind_s() == SPARE * (1 + second.body / first.body)
    rig.pacer.native_bit_s["a", "down"] = 1
    assert rig.transport.behind_s() == MOST_BEHIND_S
    rig.until(1 * MS)
    for down in (first, second):
        rig.arrived("a", down)
    assert rig.transport.behind_s() == 0.0
    rig.carry("b")
    rig.breaks("b")  # nothing reaches an edge that is away
    assert rig.transport.behind_s() == 0.0


# ------------------------------------------------------------------ broken sessions
def test_an_upload_goes_on_where_it_broke(rig: Rig) -> None:
    outgoing = rig.granted()
    rig.answers(outgoing, 80 * MS)  # 20,000 bytes are due
    received = rig.exchange.flows[1].content.received
    kept = rig.network.progress(rig.exchange.flows[1].transfer, 80 * MS)
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
    assert rig.told == [Heard(0, "a", READY), Heard(80 * MS, "a", READY)] and not rig.exchange.flows
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
    assert [flow.transfer.edge for flow in rig.exchange.flows.values()] == ["b"]
    assert not rig.exchange.uploads["a"] and not rig.uploads and list(rig.downloads.values()) == [1]
    outgoing = rig.granted(4)  # its link is free at once, its numbers start again
    assert rig.pacer.network.started(rig.exchange.uploads["a"][5].transfer) == 80 * MS
    rig.answers(outgoing, NS_PER_S)
    assert [whole.incoming.message().number for whole in rig.heard(Whole)] == [4]


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


def test_an_edge_whose_download_is_given_up_does_not_have_its_task(rig: Rig) -> None:
    """Another process of the edge had the model meanwhile, in a transfer of its own."""
    outgoing = rig.carry()
    rig.until(80 * MS)
    rig.breaks("a")
    assert rig.joins("a", [1, 7], [[99, 30_000], [outgoing.number, 0]], [[99, 7]]) == [1]
    assert [
        message.transfer for _, message, _ in rig.sent["a"] if isinstance(message, Dropped)
    ] == [99]
    rig.breaks("a")
    held = [[outgoing.number, 0]]
    assert rig.joins("a", [1], held, [[outgoing.number, 1]]) == [1], "it goes on"
    assert rig.joins("a", [3], [[98, 10]]) == [3], "a fresher model for a task that it works on"


@pytest.mark.parametrize("held", [[], [[1, 40_001]], [[2, 100]]])
def test_a_download_that_the_edge_does_not_hold_is_dropped(rig: Rig, held: list[list[int]]) -> None:
    rig.carry()
    rig.until(80 * MS)
    rig.breaks("a")
    rig.joins("a", held=held)
    assert not rig.exchange.flows and not rig.downloads


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
        self.rig.transport.carry("a", Outgoing(next(self.rig.numbers), task), self.rig.clock.ns)

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


@pytest.mark.parametrize("seed", range(8))
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
    assert (
        rig.fidelity.ahead_of_curve == 0 and len(rig.heard(Carried)) == 2 and not rig.exchange.flows
    )


# ------------------------------------------------------------------ uplink
def test_another_offer_of_a_task_takes_the_first_one_s_place(rig: Rig) -> None:
    """An urged edge replaces its offer for a later moment: only the new moment counts."""
    rig.offer(due_ns=300 * MS, number=5, value=1.0)
    rig.until(100 * MS)
    outgoing = rig.offer(due_ns=200 * MS, number=6, value=2.0)
    assert list(rig.exchange.uploads["a"]) == [6]
    rig.until(200 * MS)
    rig.grant(Grant("a", 1), 200 * MS)
    rig.answers(outgoing, NS_PER_S)
    assert rig.heard(Heard) == [Heard(200 * MS, "a", READY)]
    assert rig.heard(Whole)[0].incoming.message().vectors["weights"][0] == 2.0


def test_a_native_uplink_has_only_so_much_under_way() -> None:
    rig = Rig(rate=None)
    outgoing = rig.offer(elements=3_000_000)
    rig.grant(Grant("a", 1), 0)
    rig.until(5)
    window = rig.pays()[-1][2]
    assert window - NATIVE_PIECE_BYTES[1] < NATIVE_WINDOW <= window
    rig.until(9)
    rig.upload(outgoing, 0, 1 << 20)
    rig.upload(outgoing, 1 << 20, 2 << 20)
    rig.until(9)
    (_, first, more) = rig.pays()[-1]
    assert first == 2 << 20 and more - NATIVE_PIECE_BYTES[1] < NATIVE_WINDOW + (2 << 20) <= more
    for megabyte in range(2, 12):
        rig.upload(outgoing, megabyte << 20, min((megabyte + 1) << 20, 12_000_000))
        rig.until(10 * megabyte)
    assert (
        rig.pays()[-1][2] == 12_000_000
        and rig.heard(Whole)[0].now == 100
        and rig.pacer.next_due() == FOREVER
    )


def test_an_offer_that_comes_late_is_ready_at_once_and_an_overrun(rig: Rig) -> None:
    task = rig.carry()
    rig.until(NS_PER_S)
    rig.arrived("a", task)
    rig.until(4 * NS_PER_S)
    rig.offer(due_ns=3 * NS_PER_S)  # 2 s of training took 3 s
    rig.until(4 * NS_PER_S)
    assert rig.told[-1] == Heard(4 * NS_PER_S, "a", READY)
    assert (rig.fidelity.tasks, rig.fidelity.overruns) == (1, 1)
    rig.breaks("a"), rig.joins("a")
    rig.offer(due_ns=3 * NS_PER_S, number=6)  # a repeated offer is no second overrun
    assert (rig.fidelity.tasks, rig.fidelity.overruns) == (1, 1)


def test_bytes_beyond_the_credit_end_the_session(rig: Rig) -> None:
    outgoing = rig.granted()
    rig.until(0)
    rig.upload(outgoing, 0, 7500)
    with pytest.raises(
        WireError, match="bytes up to 7501 of transfer 5 came, up to 7500 were credited"
    ):
        rig.upload(outgoing, 7500, 7501)


def test_a_piece_out_of_order_ends_the_session(rig: Rig) -> None:
    outgoing = rig.granted()
    rig.until(100 * MS)
    rig.upload(outgoing, 0, 100)
    with pytest.raises(WireError, match="expected from 100"):
        rig.upload(outgoing, 200, 300)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "task"},
        {"kind": "fresh"},
        {"kind": "gossip"},
        {"size": MOST + 4},
        {"size": 44},
        {"meta": b"\x90"},
    ],
)
def test_offers_that_cannot_be_are_refused(rig: Rig, change: dict[str, Any]) -> None:
    offer = Outgoing(1, Update(1, 0, {"weights": np.zeros(10, np.float32)})).offer(0)
    with pytest.raises(WireError):
        rig.says("a", replace(offer, **change))
    assert not rig.exchange.uploads["a"]


def test_what_is_on_record_is_forgotten_and_frees_its_link(rig: Rig) -> None:
    first, second = rig.granted(1), rig.offer(task=2, number=6)
    rig.grant(Grant("a", 2), 0)
    rig.until(40 * MS)
    rig.transport.end("a", Acknowledged(1), 40 * MS)
    assert rig.uploads == {2: 6}
    rig.upload(first, 0, 100)  # was in transit
    rig.until(40 * MS + take(second.size))
    assert rig.heard(Whole) == [] and rig.sent["a"][-1][1] == Credit(6, 0, 40_000)


# ------------------------------------------------------------------ injected faults
def struck(kind: str) -> Rig:
    """A rig in which a fault of this kind has struck edge a."""
    lives = FaultLives("ab", revives=False)
    assert not list(lives.strike(Fault(0, "a", kind), 0))
    return Rig(faults=lives)


def test_a_damaged_piece_is_found_out_by_the_digest() -> None:
    rig = struck("corrupt")
    rig.answers(rig.granted(), NS_PER_S)
    (whole,) = rig.heard(Whole)
    with pytest.raises(WireError, match="does not match its digest"):
        whole.incoming.message()


def test_an_update_that_comes_twice_has_its_own_bytes_each_time() -> None:
    rig = struck("duplicate")
    rig.answers(rig.granted(), NS_PER_S)
    first, second = rig.heard(Whole)
    assert (first.now, first.edge) == (second.now, second.edge)
    first.incoming.body = None  # as the logic thread does
    assert second.incoming.message().number == 1 and not rig.exchange.uploads["a"]


# ------------------------------------------------------------------ ahead
ALL = 40_000
ALL_BIT_S = ALL * 8 * 5  # the update takes as long as one piece may


def native(stamped: bool = False, gives_ahead: bool = True) -> Rig:
    """A rig whose edge a has sent an update in 20 ms over its native uplink, at 8 Mbit/s."""
    rig = Rig(rate=None, stamped=stamped, gives_ahead=gives_ahead)
    first = rig.granted()
    rig.until(0)
    rig.upload(first, 0, 20_000)
    rig.until(20 * MS)
    rig.upload(first, 20_000, ALL)
    rig.until(20 * MS)
    return rig


def delivered(rig: Rig, task: int) -> int:
    """Deliver a task to edge a, and return how much of its update may come ahead."""
    began = len(rig.sent["a"])
    down = rig.carry(number=task)
    rig.until(rig.clock.ns)
    rig.arrived("a", down)
    offer, *others = [each for _, each, _ in rig.sent["a"][began:] if not isinstance(each, Piece)]
    assert others == ([] if offer.starts else [Delivered(down.number, rig.clock.ns)])
    assert offer.starts == (not rig.transport.training.stamped)
    assert rig.heard(Heard)[-1] == Heard(rig.clock.ns, "a", Started(task))
    return offer.ahead


def offered(rig: Rig, ahead: int, task: int = 2) -> Outgoing:
    outgoing = Outgoing(7, Update(task, 0, {"weights": np.ones(10_000, np.float32)}))
    rig.says("a", outgoing.offer(0, ahead))
    return outgoing


def test_bytes_ahead_arrive_before_the_grant_and_are_measured() -> None:
    rig = native()
    rig.pacer.native_bit_s["a", "up"] = ALL_BIT_S
    assert delivered(rig, 2) == ALL
    began = len(rig.pays())
    outgoing = offered(rig, ALL)
    rig.until(23 * MS)
    rig.upload(outgoing, 0, ALL)
    rig.until(300 * MS)
    assert len(rig.pays()) == began and not rig.exchange.flows
    (came,) = rig.heard(EarlyUpdate)
    assert (came.now, came.edge, came.ready) == (20 * MS, "a", Ready(2, outgoing.size))
    assert came.incoming.complete and not rig.heard(Whole)[1:]
    assert Ready(2, outgoing.size) not in [each.message for each in rig.heard(Heard)]
    assert rig.pacer.native_bit_s["a", "up"] == ALL * 8 * 1000 // 3
    carried, whole = came.granted(Granted(20 * MS, 8, Grant("a", 2)))
    assert carried == Carried(
        Completion(Transfer(8, "a", "up", outgoing.size, UPDATE), *[20 * MS] * 3),
        23 * MS,
        [(20 * MS, 23 * MS, ALL)],
    )
    assert whole == Whole(23 * MS, "a", came.incoming)  # not the moment of the grant
    rig.transport.no_upload("a", outgoing.number)
    assert not rig.exchange.uploads["a"]


def test_a_slow_update_is_ready_before_its_bytes_have_come() -> None:
    rig = native()
    rig.pacer.native_bit_s["a", "up"] = ALL_BIT_S
    delivered(rig, 2)
    outgoing = offered(rig, ALL)
    rig.until(20 * MS + ONE_PIECE_NS)
    assert rig.heard(Heard)[-1] == Heard(20 * MS, "a", Ready(2, outgoing.size))
    rig.upload(outgoing, 0, ALL)
    assert not rig.heard(EarlyUpdate)
    rig.grant(Grant("a", 2), 220 * MS)
    rig.until(220 * MS)
    assert rig.heard(Whole)[-1].now == 220 * MS


@pytest.mark.parametrize(("stamped", "gives"), [(True, True), (False, False)])
def test_nothing_comes_ahead_of_an_emulated_training_or_of_a_scheduled_upload(
    stamped: bool, gives: bool
) -> None:
    rig = native(stamped, gives)
    rig.pacer.native_bit_s["a", "up"] = ALL_BIT_S
    assert delivered(rig, 2) == 0


@pytest.mark.parametrize(("ahead", "task"), [(ALL + 1, 2), (30_000, 3)])
def test_more_than_allowed_is_an_error(ahead: int, task: int) -> None:
    rig = native()
    rig.pacer.native_bit_s["a", "up"] = ALL_BIT_S
    delivered(rig, 2)
    with pytest.raises(WireError, match="behind an offer"):
        offered(rig, ahead, task)


def test_a_broken_session_ends_the_allowance_and_the_rest_is_credited() -> None:
    rig = native()
    rig.pacer.native_bit_s["a", "up"] = ALL_BIT_S
    delivered(rig, 2)
    outgoing = offered(rig, ALL)
    rig.upload(outgoing, 0, 20_000)
    rig.breaks("a")
    rig.joins("a", tasks=[2])
    began = len(rig.pays())
    with pytest.raises(WireError, match="up to 20000 were credited"):
        rig.upload(outgoing, 20_000, ALL)
    rig.says("a", outgoing.offer(0))
    rig.grant(Grant("a", 2), 20 * MS)
    rig.until(30 * MS)
    assert [(first, end) for _, first, end in rig.pays()[began:]] == [(20_000, ALL)]
    rig.upload(outgoing, 20_000, ALL)
    assert rig.heard(Whole)[-1].now == 30 * MS
    rig.joins("a", tasks=[3])
    with pytest.raises(WireError, match="behind an offer"):
        offered(rig, 10, task=3)


def test_a_task_that_has_started_counts_as_delivered_if_its_arrival_was_lost() -> None:
    rig = Rig(rate=None, stamped=False)
    down = rig.carry(number=2)
    rig.until(10 * MS)
    rig.breaks("a")
    rig.joins("a", tasks=[2])
    assert rig.heard(Heard) == [Heard(10 * MS, "a", Started(2))] and not rig.exchange.flows
    assert [each.completion.transfer.number for each in rig.heard(Carried)] == [down.number]


# ------------------------------------------------------------------ the edge's end
def offers_push(edge: EdgeTransfers, number: int, version: int) -> None:
    offer = Outgoing(number, Pushed(2, version, {"weights": np.zeros(0, np.float32)})).offer(0)
    assert edge.offered(offer, 0) == Arrived(number, [[0, 0]])


@pytest.mark.parametrize(("number", "version", "new"), [(4, 1, False), (4, 2, True), (5, 1, True)])
def test_an_edge_takes_a_push_once(number: int, version: int, new: bool) -> None:
    """A coordinator that was killed just after a delivery sends the push again."""
    edge = EdgeTransfers(1 << 20)
    offers_push(edge, 4, 1)
    assert edge.delivered(4) is not None
    offers_push(edge, number, version)
    assert (edge.delivered(number) is not None) == new and edge.downloads == {}


def test_an_edge_forgets_a_push_that_was_dropped() -> None:
    edge = EdgeTransfers(1 << 20)
    offers_push(edge, 5, 1)
    edge.dropped(5)
    assert edge.held == [] and edge.delivered(5) is None


def edge_with(ahead: int, renewed: bool = False) -> EdgeTransfers:
    """An edge's transfers after task 5 has started. ``renewed``: in a new session."""
    transfers = EdgeTransfers(MOST)
    model = Outgoing(9, Assignment(5, 3, {"weights": np.arange(100, dtype=np.float32)}))
    transfers.offered(model.offer(6, ahead, starts=True), 10)
    assert transfers.started(9) is None
    if renewed:
        transfers.new_session()
    transfers.piece(Piece(9, 0), model.piece(0, 400), 20)
    started = transfers.started(9)
    assert started is not None and (started[0].number, started[1]) == (5, 6)
    assert transfers.started(9) is None and transfers.held == []
    return transfers


def update(number: int = 5) -> Update:
    return Update(number, 3, {"weights": np.arange(100, dtype=np.float32)})


def test_an_edge_sends_its_first_bytes_behind_the_offer_once() -> None:
    transfers = edge_with(ahead=300)
    first = transfers.new(update(), 7)
    offer, ((piece, view),) = transfers.offer(first, 7)
    assert (offer.ahead, piece, bytes(view)) == (300, Piece(1, 0), bytes(first.piece(0, 300)))
    sent = [(each.offset, len(part)) for each, part in transfers.credit(Credit(1, 300, 400))]
    assert sent == [(300, 100)]
    again = transfers.new(dataclasses.replace(update()), 8)
    assert transfers.offer(again, 8) == (again.offer(8), [])


@pytest.mark.parametrize(("number", "renewed"), [(6, None), (5, "before"), (5, "after")])
def test_an_edge_sends_nothing_ahead_for_another_task_or_in_another_session(
    number: int, renewed: str | None
) -> None:
    transfers = edge_with(ahead=300, renewed=renewed == "before")
    if renewed == "after":
        transfers.new_session()
    outgoing = transfers.new(update(number), 7)
    assert transfers.offer(outgoing, 7) == (outgoing.offer(7), [])
    assert next(iter(transfers.credit(Credit(outgoing.number, 0, 400))))[0].offset == 0


# ------------------------------------------------------------------ stretches
@pytest.mark.parametrize(
    ("stamps", "found"),
    [
        # what came by the first stamp has no known beginning
        ([(100, 0), (700, 60 * MS)], [(0, 60 * MS, 600)]),
        # 40 ms is too short for a stretch, and so is a rest of 40 ms
        (
            [(0, 0), (10, 40 * MS), (20, 100 * MS), (40, 200 * MS), (50, 240 * MS)],
            [(0, 100 * MS, 20), (100 * MS, 240 * MS, 30)],
        ),
        ([(0, 5), (10, 5)], []),  # no time passed
        ([(0, 9), (5, 4), (10, 20)], []),  # a clock that went back
    ],
)
def test_stamps_become_stretches(
    stamps: list[tuple[int, int]], found: list[tuple[int, int, int]]
) -> None:
    assert stretches(stamps) == found


def test_a_long_transfer_has_a_limited_number_of_stretches_and_all_its_bytes() -> None:
    stamps = [(1000 * second, second * NS_PER_S) for second in range(1001)]
    found = stretches(stamps)
    assert len(found) <= MOST_STRETCHES and sum(size for *_, size in found) == 1_000_000
    assert all(end - begin >= LEAST_NS for begin, end, _ in found)


# ------------------------------------------------------------------ transfers
def test_a_native_download_is_measured_on_the_edges_clock() -> None:
    rig = Rig(rate=None)
    down = rig.carry()
    rig.until(400 * MS)
    stamps = [(0, 20 * MS), (1024, 21 * MS), (17_408, 150 * MS), (40_000, 330 * MS)]
    rig.says("a", Arrived(down.number, [[size, at + AHEAD_NS] for size, at in stamps]))
    (carried,) = rig.heard(Carried)
    assert carried.completion.transfer.number == down.number
    assert carried.stretches == [(20 * MS, 150 * MS, 17_408), (150 * MS, 330 * MS, 22_592)]


def test_a_transfer_whose_session_broke_is_not_measured() -> None:
    """Its time has the outage, and the bytes that came before it are gone."""
    rig = Rig(rate=None)
    down = rig.carry()
    rig.until(10 * MS)
    rig.breaks("a")
    rig.joins("a", tasks=[1], held=[[down.number, 1024]])
    rig.until(500 * MS)
    rig.says("a", Arrived(down.number, [[0, AHEAD_NS], [40_000, AHEAD_NS + 400 * MS]]))
    assert rig.heard(Carried)[0].stretches == [] and not rig.exchange.flows


# ------------------------------------------------------------------ pings and training
def test_heartbeats_of_a_native_link_are_measured() -> None:
    rig = Rig(rate=None)
    rig.transport.answered(Answered("b", 5 * MS, 7 * MS))
    assert rig.heard(Measured) == [Measured("ping", "b", None, [(5 * MS, 12 * MS, 0)])]


def test_training_on_a_native_device_is_measured_and_on_an_emulated_one_not() -> None:
    emulated, native = Rig(), Rig(stamped=False)
    for rig in (emulated, native):
        rig.until(50 * MS)
        rig.says("a", Trained(1, 320, 20 * MS))
        rig.says("a", Trained(1, 320, 60 * MS))  # longer than the run: no honest edge says this
    assert emulated.heard(Measured) == []
    assert native.heard(Measured) == [Measured("training", "a", 1, [(30 * MS, 50 * MS, 320)])]


# ------------------------------------------------------------------ training times
DUE_NS = 2 * NS_PER_S


@pytest.fixture
def times() -> TrainingTimes:
    """Edge a has an emulated device and trains task 1 from 1 s to 2 s; b has a native device."""
    times = TrainingTimes(Fidelity(), stamped="a")
    for edge in "ab":
        times.begins(edge, 1, NS_PER_S)
        times.working[edge] = Working(1, DUE_NS)
    return times


def counted(times: TrainingTimes) -> tuple[int, int]:
    return times.fidelity.tasks, times.fidelity.overruns


@pytest.mark.parametrize(("now", "late"), [(DUE_NS, (0, 0)), (3 * NS_PER_S, (1, 1))])
def test_work_that_is_not_done_at_the_end_is_late_after_its_moment(
    times: TrainingTimes, now: int, late: tuple[int, int]
) -> None:
    times.overdue("a", now)
    assert counted(times) == late and "a" not in times.working
    times.overdue("a", now)
    assert counted(times) == late


def test_work_that_was_late_when_the_edge_was_lost_is_late_once(rig: Rig) -> None:
    task = rig.carry()
    rig.until(NS_PER_S)
    rig.arrived("a", task)
    rig.says("a", Working(1, DUE_NS))
    rig.until(3 * NS_PER_S)
    rig.transport.training.overdue("a", 3 * NS_PER_S)
    rig.breaks("a"), rig.joins("a", tasks=[1])
    rig.offer(due_ns=DUE_NS)
    assert (rig.fidelity.tasks, rig.fidelity.overruns) == (1, 1)


def test_a_request_that_a_new_session_repeats_is_one_part_of_a_training(rig: Rig) -> None:
    task = rig.carry()
    rig.until(NS_PER_S)
    rig.arrived("a", task)
    rig.until(DUE_NS)
    asked = Stamped(DUE_NS, encode_note(FreshRequest(1, 0, 2)))
    rig.says("a", asked)
    rig.until(3 * NS_PER_S)
    rig.breaks("a"), rig.joins("a", tasks=[1])
    rig.says("a", asked)
    rig.until(5 * NS_PER_S)
    rig.offer(due_ns=4 * NS_PER_S)  # the second part is late
    assert (rig.fidelity.tasks, rig.fidelity.overruns) == (2, 1)


# ------------------------------------------------------------------ paced by the kernel
class PacedPeer:
    """A connection that the kernel paces, and what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def spread(self, more: int, within_ns: int) -> None:
        self.asked.append((more, within_ns))

    def limit(self, bytes_s: int | None) -> None:
        self.asked.append(bytes_s)

    def burst(self) -> Burst:
        return Burst(4_000, 0)


class PacingKernel:
    def __init__(self, segment: int = 500) -> None:
        self.segment = segment
        self.paced = {b"a": PacedPeer()} if segment else {}

    def pace(self, routing: bytes) -> int:
        return self.segment if routing == b"a" else 0


def paced_rig(segment: int = 500, of_edge: int = 500, rate: int = RATE) -> tuple[Rig, PacingKernel]:
    kernel = PacingKernel(segment)
    rig = Rig(rate, kernel=kernel)
    rig.pacer.pace = PiecePlan(50 * MS, 15 * MS, far_ns=200 * MS)
    join = Join("c", "l", "d", 1, [], [], segment=of_edge)
    rig.transport.entered(rig.sessions["a"], join)
    return rig, kernel


def test_a_download_is_spread_by_the_kernel_and_its_end_lifts_the_rate() -> None:
    rig, kernel = paced_rig()
    peer = kernel.paced[b"a"]
    assert peer.asked == [2 * RATE // 8]  # the probe
    outgoing = rig.carry(elements=250_000)
    rig.until(4_100 * MS)
    first, *others = peer.asked[1:]
    pieces = [size for _, message, size in rig.sent["a"] if isinstance(message, Piece)]
    spread = [more for more, _ in [first, *others]]
    assert sum(spread) == sum(pieces) == outgoing.body
    assert len(spread) < 6 and len(pieces) < 10  # 250 without the kernel
    # transfers of one model have the same messages, so the socket copies them once
    assert set(pieces[:-1]) == {SPACED_BYTES}
    rig.arrived("a", outgoing)
    rig.until(5_000 * MS)
    assert peer.asked[-1] is None
    assert rig.transport.paced == {"kernel": 1, "process": 0}


@pytest.mark.parametrize("rate", [9_600, 100_000, RATE])
def test_pings_wait_behind_the_probe_of_a_slow_link_for_a_second(rate: int) -> None:
    _, kernel = paced_rig(rate=rate)
    assert kernel.paced[b"a"].asked == [max(2 * rate // 8, PROBE_BYTES)]


def test_a_cancelled_download_does_not_delay_what_follows() -> None:
    rig, kernel = paced_rig()
    rig.carry(elements=250_000)
    rig.until(300 * MS)
    rig.transport.end("a", CancelTask(1), rig.clock.ns)
    assert kernel.paced[b"a"].asked[-1] is None


def test_an_edge_learns_with_its_credit_when_the_bytes_leave() -> None:
    rig, _ = paced_rig()
    rig.transport.probes.system = SimpleNamespace(monotonic_ns=lambda: rig.clock.ns)
    outgoing = Outgoing(5, Update(1, 0, {"weights": np.zeros(250_000, np.float32)}))
    rig.says("a", replace(outgoing.offer(0), burst=4_000))
    rig.grant(Grant("a", 1), 0)
    rig.answers(outgoing, 5_000 * MS)
    credits = [(at, m) for at, m, _ in rig.sent["a"] if isinstance(m, Credit)]
    assert len(credits) < 30 and credits[-1][1].limit == outgoing.body
    for at, credit in credits:
        due_ns = take(len(outgoing.meta) + credit.limit)
        assert at < credit.leave_ns - AHEAD_NS <= due_ns


@pytest.mark.parametrize(("segment", "of_edge"), [(0, 500), (500, 0)])
def test_without_a_kernel_at_both_ends_this_process_paces(segment: int, of_edge: int) -> None:
    rig, _ = paced_rig(segment, of_edge)
    rig.carry(elements=250_000)
    outgoing = rig.offer(elements=10_000)
    rig.grant(Grant("a", 1), 0)
    rig.answers(outgoing, 5_000 * MS)
    assert rig.transport.paced == {"kernel": 0, "process": 2}
    assert rig.transport.without_kernel == {"a", "b"}
    assert not any(m.leave_ns for _, m, _ in rig.sent["a"] if isinstance(m, Credit))


def test_notes_do_not_wait_behind_a_push_in_the_kernel() -> None:
    rig, _ = paced_rig()
    rig.carry(kind=Pushed, elements=250_000)
    assert rig.transport.paced == {"kernel": 0, "process": 1}


def test_edges_on_native_links_need_no_kernel() -> None:
    rig = Rig(rate=None, kernel=PacingKernel(segment=0))
    rig.transport.entered(rig.sessions["a"], Join("c", "l", "d", 1, [], []))
    assert not rig.transport.without_kernel


@pytest.mark.parametrize("rtt_ms", [None, 1])
def test_an_upload_that_goes_on_in_a_new_session_waits_for_no_foreign_clock(
    rtt_ms: int | None,
) -> None:
    """Its Credit must not name a moment before the clocks of both machines are compared."""
    rig, _ = paced_rig()
    rig.transport.probes.system = SimpleNamespace(
        monotonic_ns=lambda: rig.clock.ns, monotonic_s=lambda: rig.clock.ns / NS_PER_S
    )
    outgoing = Outgoing(5, Update(1, 0, {"weights": np.zeros(250_000, np.float32)}))
    offer = replace(outgoing.offer(0), burst=4_000)
    rig.says("a", offer)
    rig.grant(Grant("a", 1), 0)
    rig.until(300 * MS)
    rig.breaks("a")
    rig.sent.clear()
    rig.sessions["a"] = session = Session(b"a", "a", 2, 0, joined=True)
    if rtt_ms is not None:
        session.answered(0, rtt_ms * MS, AHEAD_NS)
    rig.transport.entered(session, Join("c", "l", "d", 1, [1], [], segment=500))
    rig.says("a", offer)
    rig.until(1_000 * MS)
    credits = [m for _, m, _ in rig.sent["a"] if isinstance(m, Credit)]
    assert credits and {m.leave_ns > 0 for m in credits} == {rtt_ms is not None}


def test_a_download_that_goes_on_is_paced_here_if_the_new_connection_cannot_be() -> None:
    rig, kernel = paced_rig()
    outgoing = rig.carry(elements=250_000)
    rig.until(300 * MS)
    rig.breaks("a")
    kernel.segment = 0
    rig.sent.clear()
    rig.sessions["a"] = session = Session(b"a", "a", 2, 0, joined=True)
    had = [[outgoing.number, 0]]
    rig.transport.entered(session, Join("c", "l", "d", 1, [1], had, segment=500))
    rig.until(600 * MS)
    sizes = [size for _, message, size in rig.sent["a"] if isinstance(message, Piece)]
    assert len(sizes) > 10 and sum(sizes[:-1]) <= RATE // 8
