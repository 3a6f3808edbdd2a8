"""The first bytes of an update follow its Offer without a Credit where nothing is emulated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from transport_rig import MOST, MS, Rig

from edgefl.hosts.wall.coordinator.flow import ONE_PIECE_NS
from edgefl.hosts.wall.coordinator.thread_messages import (
    CameAhead,
    Carried,
    Granted,
    Heard,
    Whole,
)
from edgefl.hosts.wall.edge.transfers import EdgeTransfers
from edgefl.protocol.errors import WireError
from edgefl.protocol.messages import (
    UPDATE,
    Assignment,
    Credit,
    Delivered,
    Piece,
    Ready,
    Started,
    Update,
)
from edgefl.protocol.transfers import Outgoing
from edgefl.strategies.base.events_and_decisions import Grant
from emulator.links.network import Completion, Transfer

ALL = 40_000
ALL_BIT_S = ALL * 8 * 5  # the update takes as long as one piece may


def native(stamped: bool = False, gives_ahead: bool = True) -> Rig:
    """A rig whose edge a has sent an update in 20 ms over its native uplink, at 8 Mbit/s."""
    rig = Rig(rate=None, stamped=stamped)
    rig.uplink.gives_ahead = gives_ahead
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
    assert len(rig.pays()) == began and not rig.pacer.flows
    (came,) = rig.heard(CameAhead)
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
    rig.uplink.taken("a", outgoing.number)
    assert not rig.uplink.waiting["a"]


def test_an_update_that_came_ahead_waits_for_a_later_grant() -> None:
    rig = native()
    rig.pacer.native_bit_s["a", "up"] = ALL_BIT_S
    delivered(rig, 2)
    outgoing = offered(rig, ALL)
    rig.until(23 * MS)
    rig.upload(outgoing, 0, ALL)
    rig.until(24 * MS)
    rig.grant(Grant("a", 2), 24 * MS)
    rig.until(25 * MS)
    assert rig.heard(Whole)[-1].now == 24 * MS and not rig.pacer.flows
    carried = rig.heard(Carried)[-1]
    assert (carried.completion.offered_ns, carried.finished_ns) == (24 * MS, 24 * MS)
    assert carried.stretches == [(20 * MS, 23 * MS, ALL)]
    rig.uplink.taken("a", outgoing.number)  # of another update, or too late


def test_an_update_is_not_ready_before_its_moment() -> None:
    rig = native()
    rig.pacer.native_bit_s["a", "up"] = ALL_BIT_S
    delivered(rig, 2)
    outgoing = Outgoing(7, Update(2, 0, {"weights": np.ones(10_000, np.float32)}))
    rig.says("a", outgoing.offer(500 * MS, ALL))
    rig.upload(outgoing, 0, ALL)
    began = len(rig.told)
    rig.until(500 * MS)
    assert rig.told[began:] == []
    rig.until(500 * MS + ONE_PIECE_NS)
    assert rig.told[began:] == [Heard(500 * MS, "a", Ready(2, outgoing.size))]


def test_a_slow_update_is_ready_before_its_bytes_have_come() -> None:
    rig = native()
    rig.pacer.native_bit_s["a", "up"] = ALL_BIT_S
    delivered(rig, 2)
    outgoing = offered(rig, ALL)
    rig.until(20 * MS + ONE_PIECE_NS)
    assert rig.heard(Heard)[-1] == Heard(20 * MS, "a", Ready(2, outgoing.size))
    rig.upload(outgoing, 0, ALL)
    assert not rig.heard(CameAhead)
    rig.grant(Grant("a", 2), 220 * MS)
    rig.until(220 * MS)
    assert rig.heard(Whole)[-1].now == 220 * MS


def test_what_does_not_come_ahead_is_credited() -> None:
    rig = native()
    rig.pacer.native_bit_s["a", "up"] = ALL_BIT_S
    delivered(rig, 2)
    began, outgoing = len(rig.pays()), offered(rig, 30_000)
    rig.upload(outgoing, 0, 30_000)
    rig.grant(Grant("a", 2), 20 * MS)
    rig.until(30 * MS)
    assert [(first, end) for _, first, end in rig.pays()[began:]] == [(30_000, ALL)]
    rig.upload(outgoing, 30_000, ALL)
    assert rig.heard(Whole)[-1].now == 30 * MS


@pytest.mark.parametrize(("stamped", "gives"), [(True, True), (False, False)])
def test_nothing_comes_ahead_of_an_emulated_training_or_of_a_scheduled_upload(
    stamped: bool, gives: bool
) -> None:
    rig = native(stamped, gives)
    rig.pacer.native_bit_s["a", "up"] = ALL_BIT_S
    assert delivered(rig, 2) == 0


def test_nothing_comes_ahead_before_the_path_was_measured_or_on_an_emulated_link() -> None:
    for rate in (None, 2_000_000):
        rig = Rig(rate=rate, stamped=False)
        rig.uplink.gives_ahead = True
        assert rig.uplink.allow_ahead("a", 2) == 0


@pytest.mark.parametrize(("ahead", "task"), [(ALL + 1, 2), (30_000, 3)])
def test_more_than_allowed_is_an_error(ahead: int, task: int) -> None:
    rig = native()
    rig.pacer.native_bit_s["a", "up"] = ALL_BIT_S
    delivered(rig, 2)
    with pytest.raises(WireError, match="behind an offer"):
        offered(rig, ahead, task)


def test_bytes_ahead_are_allowed_once_and_end_where_the_offer_says() -> None:
    rig = native()
    rig.pacer.native_bit_s["a", "up"] = ALL_BIT_S
    delivered(rig, 2)
    outgoing = offered(rig, 30_000)
    with pytest.raises(WireError, match="up to 30000 were credited"):
        rig.upload(outgoing, 0, ALL)
    with pytest.raises(WireError, match="behind an offer"):
        offered(rig, 30_000)


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


def test_an_update_does_not_start() -> None:
    rig = native()
    with pytest.raises(WireError, match="an update that starts"):
        rig.says("a", replace(Outgoing(7, Update(2, 0, {})).offer(0), starts=True))


def test_a_task_that_has_started_counts_as_delivered_if_its_arrival_was_lost() -> None:
    rig = Rig(rate=None, stamped=False)
    down = rig.carry(number=2)
    rig.until(10 * MS)
    rig.breaks("a")
    rig.joins("a", tasks=[2])
    assert rig.heard(Heard) == [Heard(10 * MS, "a", Started(2))] and not rig.pacer.flows
    assert [each.completion.transfer.number for each in rig.heard(Carried)] == [down.number]


# ------------------------------------------------------------------ the edge's end
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
    again = transfers.new(replace(update()), 8)
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
