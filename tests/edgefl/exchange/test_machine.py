"""The state machine of transfers, and the rules of notes, in small hand-made cases."""

from __future__ import annotations

import pytest

from edgefl.exchange.machine import (
    MOST_PUSHES,
    REMEMBERED,
    Deliveries,
    Exchange,
    Flow,
    Phase,
    broadcast_transfer,
    closes_ns,
    ends,
    heard_ns,
    play_moment,
)
from edgefl.protocol.messages import (
    DROPPED,
    DROPPED_PUSH,
    FRESH,
    PUSH,
    TASK,
    UPDATE,
    Acknowledged,
    CancelTask,
    FreshRequest,
    NothingNewer,
    Ready,
    Started,
    TaskFailed,
    ToCoordinator,
    ToEdge,
    TooLate,
    Update,
    UrgeTask,
)
from edgefl.record.files import ALL_EDGES
from emulator.capacity.rates import Constant
from emulator.delay import Latency
from emulator.links.link import Link
from emulator.links.network import Network, Transfer
from emulator.tdma.channel import Channel, Grid
from emulator.units import FOREVER

MS = 1_000_000
KINDS = (TASK, FRESH, PUSH, UPDATE)


# ------------------------------------------------------------------ the order of one moment
def test_all_that_is_due_happens_before_the_alarms_of_its_moment() -> None:
    """Also its effects at the same moment. What is due later waits."""
    due, seen = [3, 5, 5, 9], []

    def happen(at_ns: int) -> None:
        seen.append(f"due {due.pop(0)}")
        if len(seen) == 2:
            due.insert(0, at_ns)

    play_moment(5, lambda: due[0], happen, lambda at_ns: seen.append(f"alarm {at_ns}"))
    assert seen == ["due 3", "due 5", "due 5", "due 5", "alarm 5"]


# ------------------------------------------------------------------ one transfer
def exchange() -> Exchange[Flow]:
    """Edges a and b; 100 bytes take 100 ms, and a note 7 ms."""
    network = Network()
    for edge in "ab":
        for way in ("up", "down"):
            network.add_link(edge, way, Link(Constant(8_000), Latency(0)))
    return Exchange(network, {"a": 7 * MS, "b": 7 * MS})


def download(number: int, kind: str = TASK, task: int = 1, real: bool = False) -> Flow:
    return Flow(Transfer(number, "a", "down", 100, kind), task, None, awaits_bytes=real)


def upload(offer: int, task: int = 1) -> Flow:
    return Flow(Transfer(-1, "a", "up", 100, UPDATE), task, None, offer=offer)


def test_an_upload_waits_for_its_grant_and_is_delivered_when_its_link_has_carried_it() -> None:
    machine, flow = exchange(), upload(offer=5)
    machine.offer(flow)
    assert flow.phase is Phase.OFFERED and machine.network.next_due() == FOREVER
    assert machine.offered("a", 1) is flow and machine.offered("a", 2) is None
    flow.transfer = Transfer(1, "a", "up", 100, UPDATE)
    machine.begin(flow, 10 * MS)
    assert flow.phase is Phase.MOVING and machine.offered("a", 1) is None
    assert machine.carried(110 * MS - 1) == [] and machine.carried(110 * MS) == [flow]
    assert flow.phase is Phase.DELIVERED and flow.last_byte_ns == 110 * MS
    assert not machine.flows and machine.under_way("a") == []


@pytest.mark.parametrize("first", [Phase.CARRIED, Phase.ARRIVED])
def test_real_bytes_and_their_link_both_have_to_end(first: Phase) -> None:
    machine, flow = exchange(), download(1, real=True)
    machine.begin(flow, 0)
    if first is Phase.CARRIED:
        assert machine.carried(100 * MS) == [] and flow.phase is first
        assert machine.arrived(flow, 130 * MS)
    else:
        assert not machine.arrived(flow, 90 * MS) and flow.phase is first
        assert machine.carried(100 * MS) == [flow]
    assert flow.phase is Phase.DELIVERED and not machine.flows


# ------------------------------------------------------------------ what a note ends
@pytest.mark.parametrize(
    ("note", "ended"),
    [
        (CancelTask(1), KINDS),
        (Acknowledged(1), (PUSH, UPDATE)),
        (TooLate(1), (FRESH,)),
        (UrgeTask(1), ()),
    ],
)
def test_what_a_note_ends_of_its_task_and_of_no_other(note: ToEdge, ended: tuple[str, ...]) -> None:
    assert tuple(kind for kind in KINDS if ends(note, kind, 1)) == ended
    assert not any(ends(note, kind, 2) for kind in KINDS)


def test_a_cancelled_transfer_leaves_its_link_to_the_next_one() -> None:
    machine = exchange()
    first, second, offered = download(1), download(2, task=2), upload(offer=5)
    for flow in (first, second):
        machine.begin(flow, 0)
    machine.offer(offered)
    assert machine.end("a", CancelTask(1), 30 * MS) == [offered, first]
    assert machine.end("b", CancelTask(2), 30 * MS) == []
    assert machine.carried(130 * MS) == [second] and machine.offered("a", 1) is None


def test_a_request_is_closed_and_what_has_come_of_its_answer_counts() -> None:
    machine, answer = exchange(), download(1, FRESH)
    machine.begin(answer, 0)
    machine.begin(download(2, FRESH, task=2), 0)
    assert not machine.too_late("a", FRESH, 1)
    assert machine.close("a", 1, 30 * MS) == (TooLate(1), [answer])
    assert answer.completion is not None
    brought = answer.completion.transfer
    assert (brought.kind, brought.size, list(machine.flows)) == (DROPPED, 30, [2])
    assert machine.too_late("a", FRESH, 1) and not machine.too_late("a", TASK, 1)
    assert not machine.too_late("b", FRESH, 1)


def test_a_push_takes_the_place_of_those_of_its_task_that_wait() -> None:
    """The first one is on its way, and that of another task is not its business."""
    ex = exchange()
    pushes = [download(number, PUSH, task) for number, task in ((1, 1), (2, 1), (3, 2), (4, 1))]
    for push in pushes:
        ex.begin(push, 0)
    assert ex.make_room("a", 1, replaces=True, now=50 * MS) == [pushes[1], pushes[3]]
    assert sorted(ex.flows) == [1, 3]


def test_so_many_pushes_are_under_way_and_the_latest_that_waits_gives_way() -> None:
    ex = exchange()
    for number in range(MOST_PUSHES):
        assert ex.has_room("a") and ex.make_room("a", 1, replaces=False, now=0) == []
        ex.begin(download(number, PUSH), 0)
    assert not ex.has_room("a") and ex.has_room("b")
    assert [flow.transfer.number for flow in ex.make_room("a", 1, False, 0)] == [MOST_PUSHES - 1]
    assert ex.has_room("a")


def test_what_has_come_of_a_push_counts_when_its_task_ends() -> None:
    ex = exchange()
    for number in (1, 2):
        ex.begin(download(number, PUSH), 0)
    first, second = ex.end("a", Acknowledged(1), 40 * MS)
    assert first.completion is not None and second.completion is None
    assert first.completion.transfer == Transfer(1, "a", "down", 40, DROPPED_PUSH)


def test_an_answer_may_come_until_its_moment_or_for_ever() -> None:
    assert closes_ns(FreshRequest(1, 2, 3, until_ns=50)) == 50
    assert closes_ns(FreshRequest(1, 2, 3)) is None


# ------------------------------------------------------------------ notes
@pytest.mark.parametrize(
    ("note", "late_ns"),
    [
        (FreshRequest(1, 2, 3), 7 * MS),
        (NothingNewer(1), 7 * MS),
        (UrgeTask(1), 7 * MS),
        *((note, 0) for note in (Acknowledged(1), CancelTask(1), TooLate(1), Ready(1))),
        *((note, 0) for note in (Started(1), TaskFailed(1, "", ""), Update(1, 0, {}))),
    ],
)
def test_notes_of_an_algorithm_pay_latency_and_those_of_the_testbed_are_free(
    note: ToEdge | ToCoordinator, late_ns: int
) -> None:
    assert exchange().note_due_ns("a", note, 5) == 5 + late_ns


def test_the_latest_deliveries_are_remembered() -> None:
    deliveries = Deliveries()
    for number in range(REMEMBERED + 2):
        deliveries.add("a", number, 10 * number)
    assert list(deliveries.of_edge["a"].items()) == [(n, 10 * n) for n in range(2, REMEMBERED + 2)]


# ------------------------------------------------------------------ broadcasts
def channel(latency_ns: int) -> Network:
    network, shared = Network(), Channel(Grid(20 * MS, 2 * MS), 2_000_000)
    for edge in ("a", "b", ALL_EDGES):
        network.add_link(edge, "down", shared.link(Latency(latency_ns)))
    return network


@pytest.mark.parametrize(
    ("latency_ns", "sent_ns", "heard"),
    [(0, 20 * MS, 20 * MS), (0, 20 * MS + 1, 40 * MS), (MS, 39 * MS + 1, 60 * MS)],
)
def test_a_broadcast_counts_from_the_next_slot_on(
    latency_ns: int, sent_ns: int, heard: int
) -> None:
    assert heard_ns(channel(latency_ns), "a", sent_ns) == heard


def test_a_broadcast_is_one_transfer_of_the_largest_size_and_each_edge_gets_its_copy() -> None:
    """102 bytes in slot 3, from 60 ms on, at 2 Mbit/s; copies count from the next slot on."""
    machine: Exchange[Flow] = Exchange(channel(0), {})
    carrier = Flow(broadcast_transfer(7, [100, 102, 101]), 0, None)
    copies = [
        Flow(Transfer(number, edge, "down", 100, TASK), 1, None, awaits_bytes=True)
        for number, edge in ((8, "a"), (9, "b"))
    ]
    machine.broadcast(carrier, copies, (3,), 0)
    assert (carrier.transfer.edge, carrier.transfer.size) == (ALL_EDGES, 102)
    machine.end("b", CancelTask(1), 0)
    assert not machine.arrived(copies[0], 60 * MS)
    assert machine.carried(61 * MS) == [carrier] and machine.next_due() == 80 * MS
    assert machine.carried(80 * MS) == [copies[0]]
    assert carrier.completion is not None and copies[0].completion is not None
    assert carrier.completion.due_ns == 60 * MS + 102 * 8 * 500
    assert copies[0].completion.due_ns == 80 * MS and copies[1].completion is None
