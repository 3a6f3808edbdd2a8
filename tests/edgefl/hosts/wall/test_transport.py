"""Downlink transfers at the coordinator's end: what is sent when, and what counts as delivered
when.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
from host_reports import FACTS, REPORT
from transport_rig import AHEAD_NS, MS, Rig, take

from edgefl.hosts.wall.coordinator.session import Session
from edgefl.hosts.wall.coordinator.thread_messages import Carried, Heard, HostSaid, Whole
from edgefl.hosts.wall.coordinator.transport import MOST_BEHIND_S, SPARE
from edgefl.protocol.codec import encode, encode_note
from edgefl.protocol.errors import LimitExceeded, WireError
from edgefl.protocol.messages import (
    DROPPED,
    Acknowledged,
    Arrived,
    Assignment,
    CancelTask,
    Credit,
    Delivered,
    Fresh,
    FreshRequest,
    Offer,
    Piece,
    Pong,
    Stamped,
    Started,
    TaskFailed,
    TooLate,
    Welcome,
)
from edgefl.protocol.transfers import Outgoing
from emulator.units import NS_PER_S


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
    assert rig.fidelity.verdict == "faithful" and not rig.pacer.flows


def test_a_download_whose_last_byte_is_late_counts_from_that_byte(rig: Rig) -> None:
    outgoing = rig.carry()
    due = take(outgoing.size)
    rig.until(due + 40 * MS)
    assert rig.heard(Heard) == []
    rig.arrived("a", outgoing, due + 30 * MS)  # by the edge's clock; the report took 10 ms
    assert rig.sent["a"][-1] == (due + 40 * MS, Delivered(outgoing.number, due + 30 * MS), 0)
    assert (
        rig.heard(Heard) == [Heard(due + 30 * MS, "a", Started(1))]
        and rig.fidelity.transfers_late == 1
    )


def test_an_arrival_cannot_lie_in_the_future(rig: Rig) -> None:
    outgoing = rig.carry()
    rig.until(NS_PER_S)
    rig.arrived("a", outgoing, 5 * NS_PER_S)
    assert rig.heard(Heard) == [Heard(NS_PER_S, "a", Started(1))]


def test_without_a_ping_the_edges_clock_is_not_believed(rig: Rig) -> None:
    rig.sessions["a"] = Session(b"a", "a", 1, 0, joined=True)
    outgoing = rig.carry()
    rig.until(NS_PER_S)
    rig.says("a", Arrived(outgoing.number, [[40_000, 3]]))
    assert (
        rig.heard(Heard) == [Heard(NS_PER_S, "a", Started(1))] and rig.fidelity.ahead_of_curve == 0
    )


def test_arrivals_ahead_of_what_was_sent_strain_the_run(rig: Rig) -> None:
    outgoing = rig.carry()
    rig.until(NS_PER_S // 8)
    flow = rig.pacer.flows[outgoing.number]
    early = {30_000: 75 * MS}  # a quarter is 40 ms, a piece 15 ms
    curve = [
        [size, due + AHEAD_NS - early.get(size, 0)]
        for size, due in flow.due_at.items()
        if size < 40_000
    ]
    rig.until(take(outgoing.size))
    rig.says("a", Arrived(outgoing.number, [*curve, [40_000, rig.clock.ns + AHEAD_NS]]))
    assert rig.fidelity.ahead_of_curve == 1 and rig.fidelity.verdict == "strained"


def test_the_round_trip_excuses_a_stamp_in_emulated_time(rig: Rig) -> None:
    rig.clock.speed = 10.0
    rig.sessions["a"].pings.clear()
    rig.sessions["a"].measured(3 * MS, AHEAD_NS)
    outgoing = rig.carry()
    rig.until(take(outgoing.size))
    last = rig.pacer.flows.get(outgoing.number)
    assert last is not None
    rig.says("a", Arrived(outgoing.number, [[40_000, last.due_at[40_000] + AHEAD_NS - 94 * MS]]))
    assert rig.fidelity.ahead_of_curve == 0


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


def test_a_fresh_model_is_delivered_but_starts_no_task(rig: Rig) -> None:
    outgoing = rig.carry(kind=Fresh)
    rig.until(NS_PER_S)
    rig.arrived("a", outgoing)
    assert (
        rig.heard(Heard) == []
        and len(rig.heard(Carried)) == 1
        and isinstance(rig.sent["a"][-1][1], Delivered)
    )


def test_a_piece_never_holds_bytes_of_two_vectors(rig: Rig) -> None:
    outgoing = Outgoing(
        0, Assignment(1, 0, {"a": np.zeros(1000, np.float32), "b": np.zeros(5000, np.float32)})
    )
    rig.downlink.carry("a", outgoing, 0)
    rig.until(NS_PER_S)
    pieces = [(message.offset, size) for _, message, size in rig.sent["a"][1:]]
    assert (
        pieces[:4] == [(0, 3750), (3750, 250), (4000, 3500), (7500, 3750)]
        and sum(size for _, size in pieces) == 24_000
    )


def test_calling_a_task_off_stops_its_download_and_lets_the_next_one_go(rig: Rig) -> None:
    rig.carry(number=1), rig.carry(number=1, kind=Fresh)
    other = rig.carry(number=2)
    rig.until(40 * MS)
    before = len(rig.sent["a"])
    rig.transport.end("a", Acknowledged(1), 40 * MS)
    assert len(rig.pacer.flows) == 3
    rig.transport.end("a", CancelTask(1), 40 * MS)
    rig.until(40 * MS + take(other.size))
    assert {message.transfer for _, message, _ in rig.sent["a"][before:]} == {
        other.number
    } and rig.sent["a"][before][0] == 40 * MS
    assert rig.downloads == {other.number: 2}


def test_a_request_closes_at_its_very_nanosecond_and_what_has_come_by_then_counts(rig: Rig) -> None:
    rig.says("a", Stamped(0, encode_note(FreshRequest(1, 0, 3, until_ns=50 * MS))))
    rig.carry(kind=Fresh), rig.carry("b", kind=Fresh)
    rig.until(50 * MS - 1)
    assert len(rig.pacer.flows) == 2 and not rig.heard(Carried)
    rig.until(50 * MS)
    (carried,) = rig.heard(Carried)
    brought = carried.completion.transfer
    assert (carried.finished_ns, brought.edge, brought.kind) == (50 * MS, "a", DROPPED)
    assert brought.size == 12_500 and list(rig.downloads.values()) == [1]
    assert rig.sent["a"][-1][:2] == (50 * MS, Stamped(50 * MS, encode_note(TooLate(1))))
    rig.carry(kind=Fresh)
    assert len(rig.pacer.flows) == 1
    rig.carry(kind=Fresh, number=2), rig.carry()
    assert len(rig.pacer.flows) == 3


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


@pytest.mark.parametrize(
    ("at_ns", "heard_ns"), [(100 * MS, 120 * MS), (85 * MS, 105 * MS), (10 * MS, 90 * MS)]
)
def test_a_request_takes_the_links_latency_from_its_stamp(at_ns: int, heard_ns: int) -> None:
    rig = Rig(latency_ns=20 * MS)
    rig.until(90 * MS)
    rig.says("a", Stamped(at_ns, encode_note(FreshRequest(1, 2, 3))))
    rig.until(NS_PER_S)
    assert rig.told == [Heard(heard_ns, "a", FreshRequest(1, 2, 3))]


@pytest.mark.parametrize(("at_ns", "heard_ns"), [(100 * MS, 100 * MS), (10 * MS, 90 * MS)])
def test_a_failure_is_heard_at_its_moment(at_ns: int, heard_ns: int) -> None:
    """Like an offer, it is a note of the testbed's own protocol and takes no latency."""
    rig = Rig(latency_ns=20 * MS)
    rig.until(90 * MS)
    failed = TaskFailed(1, "step 1 of 2: ValueError", "Traceback")
    rig.says("a", Stamped(at_ns, encode_note(failed)))
    rig.until(NS_PER_S)
    assert rig.told == [Heard(heard_ns, "a", failed)]


@pytest.mark.parametrize(
    ("at_ns", "overruns"), [(85 * MS, 0), (60 * MS, 1)]
)  # due 20 ms later: at 105 and 80 ms
def test_a_request_is_late_once_its_way_is_over_too(at_ns: int, overruns: int) -> None:
    rig = Rig(latency_ns=20 * MS)
    rig.transport.training.began["a"] = (1, 85 * MS)
    rig.until(90 * MS)
    rig.says("a", Stamped(at_ns, encode_note(FreshRequest(1, 2, 3))))
    assert (rig.fidelity.tasks, rig.fidelity.overruns) == (1, overruns)


@pytest.mark.parametrize(
    "note",
    [
        encode_note(CancelTask(1)),
        encode_note(Acknowledged(1)),
        encode(Welcome(), 0, 0),
        b"",
        b"\xc1",
    ],
)
def test_an_edge_may_send_no_other_note(rig: Rig, note: bytes) -> None:
    with pytest.raises(WireError):
        rig.says("a", Stamped(0, note))


@pytest.mark.parametrize(
    "message",
    [
        Credit(1, 0, 9),
        Delivered(1, 5),
        Welcome(),
        Piece(1, 0),
        Pong(1, 2),
        CancelTask(1),
        FreshRequest(1, 2, 3),
    ],
)
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


def test_on_emulated_links_nothing_stands_before_the_last_messages() -> None:
    rig = Rig()
    rig.carry("a")
    rig.until(1 * MS)
    assert rig.sent["a"] and rig.transport.behind_s() == 0.0
