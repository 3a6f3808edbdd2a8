"""Uplink transfers: offered, granted, credited and received; and violations that end an edge's
session.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from transport_rig import MOST, MS, RATE, Rig, take

from edgefl.hosts.wall.coordinator.flow import NATIVE_PIECE_BYTES, NATIVE_WINDOW
from edgefl.hosts.wall.coordinator.thread_messages import Heard, Whole
from edgefl.hosts.wall.coordinator.uplink import MOST_OFFERS
from edgefl.protocol.errors import WireError
from edgefl.protocol.messages import Acknowledged, Credit, Piece, Ready, Update
from edgefl.protocol.transfers import Outgoing
from edgefl.strategies.base.events_and_decisions import Grant
from emulator.units import FOREVER, NS_PER_S


@pytest.fixture
def rig() -> Rig:
    return Rig()


# ------------------------------------------------------------------ uplink
def test_an_update_waits_for_its_due_moment_and_comes_up_by_credits(rig: Rig) -> None:
    outgoing = rig.offer(due_ns=200 * MS)
    rig.until(200 * MS - 1)
    assert rig.told == []
    rig.until(200 * MS)
    assert rig.told == [Heard(200 * MS, "a", Ready(1))] and rig.pays() == []
    rig.grant(Grant("a", 1), 200 * MS)
    due = 200 * MS + take(outgoing.size)
    rig.answers(outgoing, due - 1)
    assert rig.pays()[0] == (200 * MS, 0, 7500) and rig.pays()[-1][2] == 40_000
    assert rig.heard(Whole) == []
    rig.until(due)
    carried, whole = rig.told[1:]
    assert carried.finished_ns == due and (whole.now, whole.edge) == (due, "a")
    assert np.array_equal(whole.incoming.message().vectors["weights"], np.zeros(10_000, np.float32))
    assert rig.fidelity.verdict == "faithful" and not rig.uplink.waiting["a"] and not rig.uploads


def test_another_offer_of_a_task_takes_the_first_one_s_place(rig: Rig) -> None:
    """An urged edge replaces its offer for a later moment: only the new moment counts."""
    rig.offer(due_ns=300 * MS, number=5, value=1.0)
    rig.until(100 * MS)
    outgoing = rig.offer(due_ns=200 * MS, number=6, value=2.0)
    assert list(rig.uplink.waiting["a"]) == [6]
    rig.until(200 * MS)
    rig.grant(Grant("a", 1), 200 * MS)
    rig.answers(outgoing, NS_PER_S)
    assert rig.heard(Heard) == [Heard(200 * MS, "a", Ready(1))]
    assert rig.heard(Whole)[0].incoming.message().vectors["weights"][0] == 2.0


def test_training_again_may_be_late_too(rig: Rig) -> None:
    rig.transport.training.began["a"] = (1, 0)
    rig.offer(due_ns=300 * MS, number=5)
    rig.until(100 * MS)
    assert rig.fidelity.summary()["compute_overruns"] == 0
    rig.offer(due_ns=20 * MS, number=6)
    assert rig.fidelity.summary()["compute_overruns"] == 1


def test_one_that_comes_late_stops_the_first_one_s_transfer(rig: Rig) -> None:
    rig.granted()
    outgoing = rig.offer(due_ns=0, number=6, value=2.0)
    rig.until(0)
    rig.grant(Grant("a", 1), 0)
    rig.answers(outgoing, NS_PER_S)
    assert len(rig.heard(Whole)) == 1 and not rig.pacer.flows and not rig.uploads


def test_credits_keep_to_the_curve(rig: Rig) -> None:
    outgoing = rig.granted()
    rig.until(NS_PER_S)
    quarter = outgoing.size // 4
    for at, _, limit in rig.pays():
        served = at * RATE // (8 * NS_PER_S)
        assert served <= len(outgoing.meta) + limit <= served + quarter or limit == 40_000


def test_an_update_whose_last_byte_is_late_counts_from_that_byte(rig: Rig) -> None:
    outgoing = rig.granted()
    rig.until(NS_PER_S)
    rig.upload(outgoing, 0, 40_000)
    assert rig.heard(Whole)[0].now == NS_PER_S and rig.fidelity.transfers_late == 1


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
    assert rig.told[-1] == Heard(4 * NS_PER_S, "a", Ready(1))
    assert (rig.fidelity.tasks, rig.fidelity.overruns) == (1, 1)
    rig.breaks("a"), rig.joins("a")
    rig.offer(due_ns=3 * NS_PER_S, number=6)  # a repeated offer is no second overrun
    assert (rig.fidelity.tasks, rig.fidelity.overruns) == (1, 1)


@pytest.mark.parametrize(("stamped", "counted"), [(True, 1), (False, 0)])
def test_an_offer_in_time_is_a_task_without_overrun_and_real_hardware_is_not_judged(
    stamped: bool, counted: int
) -> None:
    rig = Rig(stamped=stamped)
    task = rig.carry()
    rig.until(NS_PER_S)
    rig.arrived("a", task)
    rig.offer(due_ns=3 * NS_PER_S)
    assert (rig.fidelity.tasks, rig.fidelity.overruns) == (counted, 0)


def test_bytes_beyond_the_credit_end_the_session(rig: Rig) -> None:
    outgoing = rig.granted()
    rig.until(0)
    rig.upload(outgoing, 0, 7500)
    with pytest.raises(
        WireError, match="bytes up to 7501 of transfer 5 came, up to 7500 were credited"
    ):
        rig.upload(outgoing, 7500, 7501)


def test_bytes_without_any_credit_end_the_session(rig: Rig) -> None:
    outgoing = rig.offer()
    with pytest.raises(WireError, match="up to 0 were credited"):
        rig.upload(outgoing, 0, 1)


def test_a_piece_out_of_order_ends_the_session(rig: Rig) -> None:
    outgoing = rig.granted()
    rig.until(100 * MS)
    rig.upload(outgoing, 0, 100)
    with pytest.raises(WireError, match="expected from 100"):
        rig.upload(outgoing, 200, 300)


def test_pieces_of_what_nobody_knows_are_passed_over(rig: Rig) -> None:
    rig.says("a", Piece(99, 0), b"x")
    assert rig.told == []


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
    assert not rig.uplink.waiting["a"]


def test_an_edge_has_only_so_many_offers(rig: Rig) -> None:
    for number in range(MOST_OFFERS):
        rig.offer(number=number, task=number, elements=1)
    with pytest.raises(WireError, match=f"{MOST_OFFERS} waiting"):
        rig.offer(number=99, elements=1)
    rig.offer(number=3, task=3, elements=1)  # a repeated offer does not count
    rig.transport.end("a", Acknowledged(0), 0)
    rig.offer(number=99, elements=1)


def test_what_is_on_record_is_forgotten_and_frees_its_link(rig: Rig) -> None:
    first, second = rig.granted(1), rig.offer(task=2, number=6)
    rig.grant(Grant("a", 2), 0)
    rig.until(40 * MS)
    rig.transport.end("a", Acknowledged(1), 40 * MS)
    assert rig.uploads == {2: 6}
    rig.upload(first, 0, 100)  # was in transit
    rig.until(40 * MS + take(second.size))
    assert rig.heard(Whole) == [] and rig.sent["a"][-1][1] == Credit(6, 0, 40_000)


def test_a_grant_for_nothing_does_nothing(rig: Rig) -> None:
    rig.grant(Grant("a", 1), 0)
    rig.offer(due_ns=50)
    rig.grant(Grant("a", 2), 0)
    rig.grant(Grant("b", 1), 0)
    assert not rig.pacer.flows


# ------------------------------------------------------------------ injected faults
class Faults:
    """Each fault affects the next piece or the next update."""

    def __init__(self, corrupt: bool = False, duplicate: bool = False) -> None:
        self.corrupt, self.duplicate = corrupt, duplicate

    def damaged(self, edge: str, body: Any) -> Any:
        struck, self.corrupt = self.corrupt, False
        return bytes(byte ^ 0xFF for byte in body) if struck else body

    def repeats(self, edge: str) -> bool:
        struck, self.duplicate = self.duplicate, False
        return struck


def test_a_damaged_piece_is_found_out_by_the_digest(rig: Rig) -> None:
    rig.uplink.faults = Faults(corrupt=True)
    rig.answers(rig.granted(), NS_PER_S)
    (whole,) = rig.heard(Whole)
    with pytest.raises(WireError, match="does not match its digest"):
        whole.incoming.message()


def test_an_update_that_comes_twice_has_its_own_bytes_each_time(rig: Rig) -> None:
    rig.uplink.faults = Faults(duplicate=True)
    rig.answers(rig.granted(), NS_PER_S)
    first, second = rig.heard(Whole)
    assert (first.now, first.edge) == (second.now, second.edge)
    first.incoming.body = None  # as the logic thread does
    assert second.incoming.message().number == 1 and not rig.uplink.waiting["a"]
