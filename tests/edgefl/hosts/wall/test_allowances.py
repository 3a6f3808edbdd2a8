"""The messages of an admitted edge take a limited memory, whatever it sends and however often."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from transport_rig import GIVEN, MS, READY, Rig

from edgefl.hosts.wall.coordinator import allowances, uplink
from edgefl.hosts.wall.coordinator.allowances import MOST_REPORTS, ReportAllowance
from edgefl.hosts.wall.coordinator.thread_messages import Heard, Measured
from edgefl.protocol.codec import encode_note
from edgefl.protocol.errors import LimitExceeded, WireError
from edgefl.protocol.messages import (
    Acknowledged,
    CancelTask,
    FreshRequest,
    Stamped,
    TaskFailed,
    ToEdge,
    Trained,
)
from emulator.units import NS_PER_S

FAR_NS = 10**15  # eleven days
MANY = 1_000


@pytest.fixture
def rig() -> Rig:
    return Rig()


def until_too_many(say: Callable[[int], object]) -> int:
    """How often the edge may send it before it is quarantined."""
    for number in range(MANY):
        try:
            say(number)
        except LimitExceeded:
            return number
    return MANY


def ask(rig: Rig, task: int = 1, step: int = 1, at_ns: int = FAR_NS, until_ns: int = 0) -> None:
    rig.says("a", Stamped(at_ns, encode_note(FreshRequest(task, 0, step, until_ns))))


def test_endless_offers_of_a_task_leave_one_entry(rig: Rig) -> None:
    said = until_too_many(lambda number: rig.offer(number=number, due_ns=FAR_NS + number))
    assert said == allowances.MOST_OFFERS
    assert (len(rig.agenda), len(rig.uplink.waiting["a"])) == (1, 1)


def test_endless_offers_by_one_number_leave_one_entry(rig: Rig) -> None:
    said = until_too_many(lambda number: rig.offer(value=number, due_ns=FAR_NS))
    assert said == allowances.MOST_OFFERS
    assert (len(rig.agenda), len(rig.uplink.waiting["a"])) == (1, 1)


def test_offers_of_many_tasks_are_bounded(rig: Rig) -> None:
    said = until_too_many(lambda n: rig.offer(task=n % GIVEN, number=n, due_ns=FAR_NS))
    assert said == uplink.MOST_OFFERS == len(rig.agenda)


def test_endless_requests_leave_two_moments(rig: Rig) -> None:
    """One when the request is delivered, and one when an answer is too late."""
    said = until_too_many(lambda step: ask(rig, step=step, until_ns=2 * FAR_NS))
    assert said == allowances.MOST_NOTES and len(rig.agenda) == 2
    for task in range(GIVEN):
        if task != 1:
            ask(rig, task, until_ns=2 * FAR_NS)
    assert len(rig.agenda) == 2


def test_reports_of_a_training_are_bounded(rig: Rig) -> None:
    rig = Rig(stamped=False)
    rig.until(MS)
    said = until_too_many(lambda n: rig.says("a", Trained(1, 10, 1)))
    assert said == allowances.MOST_TRAINED == len(rig.heard(Measured))
    with pytest.raises(WireError, match="none of those"):
        rig.says("a", Trained(GIVEN + 1, 10, 1))


@pytest.mark.parametrize("end", [CancelTask(1), Acknowledged(1)])
def test_a_failure_that_comes_early_does_not_take_back_the_request_before_it(
    rig: Rig, end: ToEdge
) -> None:
    """Edges send reports before their emulated moment."""
    request, failed = FreshRequest(1, 0, 1, 20 * MS), TaskFailed(1, "no", "trace")
    rig.says("a", Stamped(10 * MS, encode_note(request)))
    rig.says("a", Stamped(15 * MS, encode_note(failed)))
    rig.until(15 * MS)
    assert rig.told == [Heard(10 * MS, "a", request), Heard(15 * MS, "a", failed)]
    rig.transport.end("a", end, 15 * MS)
    assert len(rig.agenda) == 0


def test_another_edges_offers_are_its_own(rig: Rig) -> None:
    until_too_many(lambda number: rig.offer(number=number))
    rig.offer("b")
    rig.until(MS)
    assert rig.told == [Heard(0, "a", READY), Heard(0, "b", READY)]


@pytest.mark.parametrize("note", [CancelTask(1), Acknowledged(1)])
def test_an_offer_that_ends_before_its_moment_leaves_nothing(rig: Rig, note: ToEdge) -> None:
    rig.offer(due_ns=FAR_NS)
    rig.transport.end("a", note, 0)
    assert len(rig.agenda) == 0 and not rig.uplink.waiting["a"]


def test_a_cancelled_tasks_request_leaves_nothing(rig: Rig) -> None:
    ask(rig, until_ns=2 * FAR_NS)
    rig.transport.end("a", CancelTask(2), 0)
    assert len(rig.agenda) == 2
    rig.transport.end("a", CancelTask(1), 0)
    assert len(rig.agenda) == 0


def test_a_restarted_edges_offers_and_requests_leave_nothing(rig: Rig) -> None:
    ask(rig, task=1, until_ns=2 * FAR_NS)
    rig.offer(task=2, due_ns=FAR_NS)
    rig.breaks("a")
    rig.joins("a", tasks=[1])  # a broken session: open notes stay
    assert len(rig.agenda) == 2
    rig.breaks("a")
    rig.joins("a")
    assert len(rig.agenda) == 0


def test_what_is_open_may_be_repeated_in_every_new_session(rig: Rig) -> None:
    outgoing = rig.offer(due_ns=FAR_NS)
    for _ in range(20):
        ask(rig, task=2)
        rig.breaks("a")
        rig.joins("a", tasks=[1, 2])
        rig.says("a", outgoing.offer(FAR_NS))
    assert len(rig.agenda) == 2
    rig.until(FAR_NS)
    assert [heard.message for heard in rig.heard(Heard)] == [READY, FreshRequest(2, 0, 1)]


def test_an_edge_speaks_of_its_own_tasks_only(rig: Rig) -> None:
    rig.carry("b", number=77)
    with pytest.raises(WireError, match="task 77 is none of those that the edge was given"):
        rig.offer("a", task=77)
    with pytest.raises(WireError, match="task 77 is none of those"):
        ask(rig, task=77)
    rig.offer("b", task=77)


def test_tasks_of_long_ago_are_forgotten(rig: Rig) -> None:
    for number in range(100, 100 + allowances.REMEMBERED):
        rig.transport.allowances.given("a", number)
    rig.offer(task=100)
    with pytest.raises(WireError, match="none of those"):
        rig.offer(task=GIVEN - 1, number=6)


def test_moments_of_another_age_are_refused(rig: Rig) -> None:
    too_far_ns = (allowances.MOST_AHEAD_S + 1) * NS_PER_S
    for say in (
        lambda: rig.offer(due_ns=too_far_ns),
        lambda: ask(rig, at_ns=too_far_ns),
        lambda: ask(rig, at_ns=0, until_ns=too_far_ns),
    ):
        with pytest.raises(WireError, match="s ahead, at most 31622400 s"):
            say()
        assert len(rig.agenda) == 0


# ------------------------------------------------------------------ reports about the host
def reports(allowance: ReportAllowance, *moments_s: float) -> int:
    """Send a report at each moment, and return how many were accepted before the first refusal."""
    for number, moment_s in enumerate(moments_s):
        try:
            allowance.report("a", round(moment_s * NS_PER_S))
        except LimitExceeded:
            return number
    return len(moments_s)


def test_an_honest_edge_may_report_for_ever_also_after_a_stall_of_its_connection() -> None:
    steadily = [2.0 * number for number in range(5000)]
    assert reports(ReportAllowance(2 * NS_PER_S, 4 * NS_PER_S), *steadily) == 5000
    stalled = [2.0 * number // 60 * 60 + 60 for number in range(5000)]  # 30 at a time
    assert reports(ReportAllowance(2 * NS_PER_S, 60 * NS_PER_S), *stalled) == 5000


def test_a_flood_of_reports_exceeds_the_limit() -> None:
    allowance = ReportAllowance(2 * NS_PER_S, 4 * NS_PER_S)
    assert reports(allowance, *[1.0] * 100) == MOST_REPORTS + 2
    allowance.new_session("a")
    assert reports(allowance, 1.0) == 0, "a new session does not help"
    assert reports(allowance, *[3.0] * 100) == 2
    allowance.report("b", NS_PER_S)


def test_facts_come_once_in_a_session() -> None:
    allowance = ReportAllowance(2 * NS_PER_S, 4 * NS_PER_S)
    allowance.facts("a")
    allowance.facts("b")
    with pytest.raises(LimitExceeded, match="facts about the host twice in one session"):
        allowance.facts("a")
    allowance.new_session("a")
    allowance.facts("a")


def test_what_was_not_asked_for_is_an_error() -> None:
    allowance = ReportAllowance(0, 4 * NS_PER_S)
    for say in (lambda: allowance.facts("a"), lambda: allowance.report("a", 0)):
        with pytest.raises(WireError, match="not asked for"):
            say()
