"""The rules of the exchange that both hosts follow, in small hand-made cases."""

from __future__ import annotations

import numpy as np
import pytest

from edgefl.clocks.exchange import (
    Answers,
    ends,
    heard_ns,
    offer_broadcast,
    pays_latency,
    play_moment,
)
from edgefl.clocks.setup.network import ALL
from edgefl.protocol.messages import (
    FRESH,
    TASK,
    UPDATE,
    Acknowledged,
    CancelTask,
    FreshRequest,
    NothingNewer,
    Ready,
    Started,
    ToCoordinator,
    ToEdge,
    TooLate,
    Update,
    UrgeTask,
)
from emulator.delay import Latency
from emulator.links.network import Network
from emulator.tdma.channel import Channel, Grid

MS = 1_000_000
KINDS = (TASK, FRESH, UPDATE)


# ------------------------------------------------------------------ the order of one moment
def test_all_that_is_due_happens_before_the_alarms_of_its_moment() -> None:
    """Also its effects at the same moment. What is due later waits."""
    due, told = [3, 5, 5, 9], []

    def happen(at_ns: int) -> None:
        told.append(f"due {due.pop(0)}")
        if len(told) == 2:
            due.insert(0, at_ns)

    play_moment(5, lambda: due[0], happen, lambda at_ns: told.append(f"alarm {at_ns}"))
    assert told == ["due 3", "due 5", "due 5", "due 5", "alarm 5"]


# ------------------------------------------------------------------ notes
@pytest.mark.parametrize("note", [FreshRequest(1, 2, 3), NothingNewer(1), UrgeTask(1)])
def test_notes_of_an_algorithm_pay_latency(note: ToEdge | ToCoordinator) -> None:
    assert pays_latency(note)


@pytest.mark.parametrize(
    "note", [Acknowledged(1), CancelTask(1), TooLate(1), Ready(1), Started(1), Update(1, 0, {})]
)
def test_notes_of_the_testbed_are_free_and_an_update_pays_by_its_transfer(
    note: ToEdge | ToCoordinator,
) -> None:
    assert not pays_latency(note)


@pytest.mark.parametrize(
    ("note", "ended"),
    [
        (CancelTask(1), KINDS),
        (Acknowledged(1), (UPDATE,)),
        (TooLate(1), (FRESH,)),
        (UrgeTask(1), ()),
        (NothingNewer(1), ()),
    ],
)
def test_what_a_note_ends_of_its_task_and_of_no_other(note: ToEdge, ended: tuple[str, ...]) -> None:
    assert tuple(kind for kind in KINDS if ends(note, kind, 1)) == ended
    assert not any(ends(note, kind, 2) for kind in KINDS)


# ------------------------------------------------------------------ answers


def test_an_answer_to_a_closed_request_is_too_late() -> None:
    answers = Answers()
    assert not answers.too_late("a", FRESH, 1)
    assert answers.close("a", 1) == TooLate(1)
    assert answers.too_late("a", FRESH, 1)
    assert not answers.too_late("b", FRESH, 1)


# ------------------------------------------------------------------ broadcasts
def channel(latency_ns: int) -> Network:
    network, shared = Network(), Channel(Grid(20 * MS, 2 * MS), 2_000_000)
    for edge in ("a", ALL):
        network.add_link(edge, "down", shared.link(Latency(latency_ns)))
    return network


@pytest.mark.parametrize(
    ("latency_ns", "sent_ns", "heard"),
    [
        (0, 20 * MS, 20 * MS),
        (0, 20 * MS + 1, 40 * MS),
        (MS, 20 * MS, 40 * MS),
        (MS, 39 * MS, 40 * MS),
        (MS, 39 * MS + 1, 60 * MS),
    ],
)
def test_a_broadcast_counts_from_the_next_slot_on(
    latency_ns: int, sent_ns: int, heard: int
) -> None:
    assert heard_ns(channel(latency_ns), "a", sent_ns) == heard


def test_a_broadcast_is_one_transfer_of_the_largest_size_in_its_slots() -> None:
    network = channel(0)
    transfer = offer_broadcast(network, 7, [100, 102, 101], (3,), 0)
    assert (transfer.number, transfer.edge, transfer.size, transfer.kind) == (7, ALL, 102, TASK)
    (done,) = network.pop_due(80 * MS)
    assert done.due_ns == 60 * MS + int(np.ceil(102 * 8 * 500))
