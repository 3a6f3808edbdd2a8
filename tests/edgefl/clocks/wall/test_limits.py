"""A peer that exceeds a limit gets one refusal, is recorded, disconnected and excluded.

The other edges are not affected. The messages of an admitted edge take a limited memory, whatever
it sends and however often.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from session_story import HELLO, JOIN, RUN, S, Story, told
from transport_rig import GIVEN, MS, READY, Rig

from edgefl.clocks.wall.coordinator import sessions as limits
from edgefl.clocks.wall.coordinator import transfers
from edgefl.clocks.wall.coordinator.sessions import (
    MOST_CLAIMS,
    MOST_FRAMES,
    MOST_HELLOS,
    MOST_JOINS,
    MOST_REPORTS,
    MOST_STRAYS,
    MOST_USELESS,
    NAMED_USELESS,
    Cut,
    Entered,
    Passed,
    Reply,
    ReportAllowance,
    SessionEnded,
)
from edgefl.clocks.wall.coordinator.thread_messages import Heard, Measured
from edgefl.protocol.codec import CODES, encode_note
from edgefl.protocol.messages import (
    Acknowledged,
    Arrived,
    CancelTask,
    FreshRequest,
    LimitExceeded,
    Piece,
    Ping,
    Pong,
    Refuse,
    Setup,
    Stamped,
    TaskFailed,
    ToEdge,
    Trained,
    WireError,
)
from emulator.units import NS_PER_S

BOMB = bytes([0x95, CODES[Arrived], 1, 1]) + b"\x91" * 17_000  # 17 KB of lists in lists
OTHER = replace(HELLO, edge="pi-2")


def shut_out(reason: str) -> Refuse:
    return Refuse(f"quarantined: {reason}", final=True)


def test_a_bomb_costs_its_edge_its_place_and_the_reason_is_on_record() -> None:
    story = Story()
    story.joins("a")
    story.joins("bb", "pi-2")
    refused, gone = story.raw("a", BOMB)
    reason = "Arrived is nested too deep"
    assert refused == told("a", shut_out(reason))
    assert gone == SessionEnded("pi-1", f"quarantined: {reason}")
    assert story.sessions.faults == [("quarantined", "pi-1", reason)]
    assert story.count("quarantined", "pi-1") == 1 and list(story.sessions.by_edge) == ["pi-2"]
    # it may not come back, on this connection or another one
    assert story.says("a", HELLO, incarnation=0) == []
    for who in ("ccc", "dddd"):
        assert story.says(who, HELLO, incarnation=0) == [told(who, shut_out(reason))]
        assert story.says(who, HELLO, incarnation=0) == []
    assert isinstance(story.says("bb", Piece(1, 0), b"x")[0], Passed)


@pytest.mark.slow
def test_a_quarantined_connection_is_not_read_or_answered_and_is_cut_once() -> None:
    story = Story()
    story.joins("a")
    story.raw("a", BOMB)
    decoded = story.count("wire error", "pi-1")
    for _ in range(100):
        assert story.raw("a", BOMB) == [] and story.says("a", Pong(0, 0)) == []
    assert story.count("muted frame") == 200 and story.count("wire error", "pi-1") == decoded
    assert b"a" in story.sessions.peers()
    assert [each for each in story.after(2) if isinstance(each, Cut)] == [Cut(b"a")]
    assert story.after(2) == []
    story.after(20)
    assert not story.sessions.peers()


def test_a_stranger_who_exceeds_a_limit_loses_its_connection_only() -> None:
    """Without keys, a session that has not joined proves no edge."""
    story = Story()
    story.joins("a")
    story.says("bb", HELLO, incarnation=0)
    (refused,) = story.raw("bb", BOMB)
    assert isinstance(refused, Reply) and refused.message.final
    (ended,) = story.raw("ccc", BOMB)  # without a session it is not decoded
    assert ended == told("ccc", Refuse("this session has ended", final=False), number=1)
    assert story.raw("dddd", BOMB * 10) == []
    assert list(story.sessions.by_edge) == ["pi-1"] and not story.sessions.quarantined.edges
    assert story.count("quarantined") == 2
    assert story.says("eeeee", HELLO, incarnation=0) == [
        told("eeeee", Setup('{"seed": 1}', "fedavg"))
    ]


def test_with_keys_the_key_says_whose_bomb_it_is() -> None:
    story = Story(keyed=True)
    story.joins("a", user="pi-1")
    story.says("bb", HELLO, user="pi-1", incarnation=0)
    outcomes = story.raw("bb", BOMB, user="pi-1")
    assert SessionEnded("pi-1", "quarantined: Arrived is nested too deep") in outcomes
    assert not story.sessions.by_routing and list(story.sessions.quarantined.edges) == ["pi-1"]


def test_a_flood_of_frames_is_no_edges_work() -> None:
    story = Story()
    story.joins("a")
    outcomes = [story.says("a", Piece(1, 0)) for _ in range(MOST_FRAMES)]
    gone = next(each for some in outcomes for each in some if isinstance(each, SessionEnded))
    assert gone.reason == f"quarantined: more than {MOST_FRAMES} frames in a second"


def test_an_edge_with_many_useless_messages_is_counted_named_and_excluded() -> None:
    story = Story()
    story.joins("a")
    for _ in range(MOST_USELESS):
        story.sessions.useless("pi-1", "this")
    assert story.sessions.counts["useless message", "pi-1"] == MOST_USELESS
    ((fact, values),) = story.sessions.take_faults()
    assert (fact, values["edge"]) == ("useless_messages", "pi-1")
    assert f"{NAMED_USELESS} messages that change nothing in one second" in values["reason"]
    with pytest.raises(LimitExceeded, match=f"more than {MOST_USELESS} useless messages"):
        story.sessions.useless("pi-1", "this")


def test_hellos_and_garbage_of_one_connection_are_limited() -> None:
    story = Story(max_sessions=1000)
    replies = [story.says("a", HELLO, incarnation=0) for _ in range(5 * MOST_HELLOS)]
    assert sum(isinstance(each, Reply) for some in replies for each in some) == MOST_HELLOS + 1
    for _ in range(5 * MOST_STRAYS):
        assert story.raw("bb", b"\xc1") == []
    assert story.count("wire error") == MOST_STRAYS + 1
    assert story.count("quarantined") == 2
    assert [each for each in story.after(2) if isinstance(each, Cut)] == [Cut(b"a"), Cut(b"bb")]


def test_a_storm_of_sessions_is_named() -> None:
    story = Story()
    for number in range(MOST_JOINS + 1):
        outcomes = story.joins("x" * (number + 1))
        story.now += 10_000_000
    reason = f"more than {MOST_JOINS} sessions in 5 s"
    assert SessionEnded("pi-1", f"quarantined: {reason}") in outcomes
    assert story.sessions.quarantined.edges == {"pi-1": reason}
    assert not story.sessions.by_routing


def test_an_edge_behind_a_bad_path_may_come_back_all_day() -> None:
    story = Story()
    for number in range(5 * MOST_JOINS):
        entered = story.joins("x" * (number + 1))[-1]
        assert isinstance(entered, Entered)
        story.now += 150_000_000


def test_stale_frames_are_answered_once_a_second_and_counted() -> None:
    story = Story()
    answers = 0
    for _ in range(3000):
        answers += len(story.says("a", Piece(1, 0), b"x", incarnation=RUN))
        story.now += 1_000_000
    assert answers in (3, 4) and story.count("stale frame") == 3000


def test_a_connection_without_a_session_is_cut_a_moment_later() -> None:
    """Otherwise an edge that never reads would keep its queues, one per session."""
    story = Story()
    story.joins("a")
    story.joins("bb")
    assert Cut(b"a") not in story.after(0.5)
    assert Cut(b"a") in story.after(1)
    story.says("ccc", replace(OTHER, edge="pi-9"), incarnation=0)
    assert Cut(b"ccc") in story.after(2)
    assert list(story.sessions.by_routing) == [b"bb"]


def test_a_connection_that_begins_another_session_is_not_cut() -> None:
    story = Story()
    story.joins("a")
    story.says("a", HELLO, incarnation=0, number=9)
    story.says("a", JOIN, number=9)
    assert not [each for each in story.after(3) if isinstance(each, Cut)]


def test_a_flood_keeps_no_heartbeat_back_and_is_cut_while_it_lasts() -> None:
    """If received frames are unread, no edge counts as silent; but pings and cuts continue."""
    story = Story()
    story.joins("a")
    for _ in range(MOST_STRAYS + 1):
        story.raw("flood", b"\xc1")
    story.now += 20 * S
    outcomes = story.sessions.tick(story.now, drained=False)
    assert outcomes == [Cut(b"flood"), told("a", Ping(story.now))]
    story.now += S
    assert SessionEnded("pi-1", "silent") in story.sessions.tick(story.now)


def test_a_key_that_greets_as_another_edge_again_and_again_is_shut_out() -> None:
    """Once is a mistake: the edge is refused finally, and ends.

    The claimed edge is not affected, and the edge to which the key belongs does not come back.
    """
    story = Story(keyed=True)
    story.joins("a", user="pi-1")
    story.joins("bb", "pi-2", user="pi-2")
    for number in range(MOST_CLAIMS):
        (refused,) = story.says(f"try {number:>50}", HELLO, user="pi-2", incarnation=0)
        assert "it belongs to edge 'pi-2'" in refused.message.reason
    assert "pi-2" in story.sessions.by_edge
    reason = f"more than {MOST_CLAIMS} Hellos as another edge in 5 s"
    outcomes = story.says("one more", HELLO, user="pi-2", incarnation=0)
    assert SessionEnded("pi-2", f"quarantined: {reason}") in outcomes
    assert story.sessions.faults[-1] == ("quarantined", "pi-2", reason)
    assert list(story.sessions.by_edge) == ["pi-1"] and story.count("refused", "pi-1") == 0
    assert isinstance(story.says("a", Piece(1, 0), b"x", user="pi-1")[0], Passed)


# ------------------------------------------------------------------ allowances
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
    assert said == limits.MOST_OF_TASK["offers"]
    assert (len(rig.agenda), len(rig.exchange.uploads["a"])) == (1, 1)


def test_offers_of_many_tasks_are_bounded(rig: Rig) -> None:
    said = until_too_many(lambda n: rig.offer(task=n % GIVEN, number=n, due_ns=FAR_NS))
    assert said == transfers.MOST_OFFERS == len(rig.agenda)


def test_endless_requests_leave_two_moments(rig: Rig) -> None:
    """One when the request is delivered, and one when an answer is too late."""
    said = until_too_many(lambda step: ask(rig, step=step, until_ns=2 * FAR_NS))
    assert said == limits.MOST_OF_TASK["notes"] and len(rig.agenda) == 2
    for task in range(GIVEN):
        if task != 1:
            ask(rig, task, until_ns=2 * FAR_NS)
    assert len(rig.agenda) == 2


def test_reports_of_a_training_are_bounded(rig: Rig) -> None:
    rig = Rig(stamped=False)
    rig.until(MS)
    said = until_too_many(lambda n: rig.says("a", Trained(1, 10, 1)))
    assert said == limits.MOST_OF_TASK["reports"] == len(rig.heard(Measured))
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


def test_moments_of_another_age_are_refused(rig: Rig) -> None:
    too_far_ns = (limits.MOST_AHEAD_S + 1) * NS_PER_S
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
