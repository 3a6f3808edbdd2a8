"""The pacing thread on its own: what a late wake-up must not change, and which edges it reports as
missing.
"""

from __future__ import annotations

import math
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from session_story import EXPECTED

from edgefl.clocks.ipc import Channel
from edgefl.clocks.wall.coordinator.pacing import FEW_MESSAGES, Bundles, Pacing, Pauses
from edgefl.clocks.wall.coordinator.process import WallFaults
from edgefl.clocks.wall.coordinator.sessions import (
    REPLACED,
    SILENT,
    UNKNOWN_RTT,
    Entered,
    Session,
    SessionEnded,
    Sessions,
)
from edgefl.clocks.wall.coordinator.thread_messages import Heard, Noticed, Rang, Scored, WakeAt
from edgefl.clocks.wall.coordinator.workers import Evaluator, serve_evaluations
from edgefl.clocks.wall.system import OWN_SYSTEM, Mailbox, System
from edgefl.exchange.machine import FaultLives
from edgefl.jobs import Evaluate
from edgefl.protocol.messages import Join, Joined, Ready
from edgefl.strategies.base.events_and_decisions import Finish
from emulator.clock import Agenda, WallClock
from emulator.faults import Fault, Schedule
from emulator.fidelity import Fidelity
from emulator.units import NS_PER_S


class Completions:
    """Replaces transport, pacer and network: completions at given moments."""

    has_pieces = True

    def __init__(self, told: list[Any], *moments: int) -> None:
        self.told, self.agenda = told, Agenda()
        self.pacer = self.exchange = self
        for at in moments:
            self.agenda.add(at, f"completion {at}")

    def next_due(self) -> int:
        return self.agenda.next_due()

    def release(self, now: int) -> None:
        self.told.append("pieces")

    def complete(self, now: int) -> None:
        self.told += [item for _, item in self.agenda.pop_due(now)]


def paced(
    told: list[Any],
    links: Any,
    router: Any = None,
    sessions: Any = None,
    clock: Any = None,
    system: System = OWN_SYSTEM,
    reports: bool = False,
) -> Pacing:
    """A pacing thread without a logic. ``links`` replace the transport."""
    bundles, logic = Bundles(router, sessions), None
    return Pacing(
        *(router, sessions, clock, Mailbox(), bundles, Agenda(), links, told, logic),
        *(1.0, False, reports, system),
    )


def test_a_late_wake_tells_completions_and_alarms_in_the_order_of_their_moments() -> None:
    told: list[Any] = []
    pacing = paced(told, Completions(told, 10, 30, 40))
    pacing.said.put(WakeAt(30))
    pacing.obey(pacing.said.take(True))
    pacing._move(50)
    assert told == ["pieces", "completion 10", "completion 30", Rang(30), "completion 40"]


def test_an_alarm_that_is_asked_for_replaces_the_one_before() -> None:
    """The logic has one next alarm. Without this, alarms of closed tasks gather for a whole run."""
    told: list[Any] = []
    pacing = paced(told, Completions(told))
    for at in (20, *range(10_000, 20_000), 30):
        pacing.obey([WakeAt(at)])
    assert len(pacing.alarms) == 1
    pacing._move(50)
    pacing.obey([WakeAt(60)])
    pacing._move(70)
    assert told == ["pieces", Rang(30), "pieces", Rang(60)]


def test_pieces_that_become_due_leave_between_messages_and_wishes() -> None:
    """A turn of many messages must not make pieces late."""
    told: list[Any] = []
    messages = [(b"r", None, [SimpleNamespace(buffer=b"header")])] * (2 * FEW_MESSAGES + 1)
    router: Any = SimpleNamespace(receive=lambda most: iter(messages))
    sessions: Any = SimpleNamespace(
        faults=[], receive=lambda *frame: told.append("message") or [], finish=lambda *_, **__: []
    )
    clock: Any = SimpleNamespace(now=lambda: 50)
    links = Completions(told)
    pacing = paced(told, links, router, sessions, clock)
    links.is_due, pacing.started = lambda now: now >= 50, True
    assert pacing._hear()
    some = ["message"] * FEW_MESSAGES
    assert told == [*some, "pieces", *some, "pieces", "message"]
    told.clear()
    pacing.said.put(*[WakeAt(20)] * FEW_MESSAGES)
    pacing.obey(pacing.said.take(True))
    assert told == ["pieces"]
    links.is_due = lambda now: now > 50
    pacing._hear()
    assert told == ["pieces", *some, *some, "message"]


@pytest.mark.parametrize(("end", "reports"), [("launcher gone", 1), ("emulated_s", 0)])
def test_what_the_verdict_is_made_of_is_told_when_a_run_is_broken_off(
    end: str, reports: int
) -> None:
    told: list[Any] = []
    sessions: Any = SimpleNamespace(
        faults=[], counts={}, quarantined=SimpleNamespace(edges={}), finish=lambda reason, more: []
    )
    clock: Any = SimpleNamespace(now=lambda: 7)
    transport: Any = SimpleNamespace(
        overdue=lambda now: None, behind_s=lambda: 0.0, pacer=SimpleNamespace(fidelity=Fidelity())
    )
    pacing = paced(told, transport, None, sessions, clock, reports=True)
    pacing.started = True
    pacing.said.put(Finish(end))
    pacing.obey(pacing.said.take(True))
    assert pacing.over and [item.now for item in told] == [7] * reports


def test_alarms_ring_behind_everything_else_of_their_moment() -> None:
    """A strategy that has set an alarm decides with everything that has arrived by then.

    This includes the effects at the same moment, in any order of planning.
    """
    told: list[Any] = []
    pacing = paced(told, Completions(told, 20))
    pacing.said.put(WakeAt(20))
    pacing.obey(pacing.said.take(True))
    pacing.agenda.add(20, ("a", Ready(1)))
    pacing.agenda.add(20, lambda at: pacing.agenda.add(at, ("b", Ready(2))))
    pacing._move(20)
    heard = [Heard(20, "a", Ready(1)), Heard(20, "b", Ready(2))]
    assert told == ["pieces", "completion 20", *heard, Rang(20)]


@pytest.mark.parametrize("scores", [(None, 0.5, 0.25), (math.nan, math.inf, 0.1)])
def test_a_diverged_model_has_scores_that_are_no_numbers(
    tmp_path: Path, scores: tuple[float | None, float, float]
) -> None:
    ours, theirs = Channel.pair()
    told: list[Any] = []
    server = Thread(target=serve_evaluations, args=(theirs, lambda job: scores))
    server.start()
    evaluator = Evaluator(ours, tmp_path)
    heard = Mailbox()
    evaluator.listen(lambda item: (told.append(item), heard.put(item)))
    evaluator.submit(Evaluate(3, 7, np.ones(4, np.float32), 0, 0))
    for _ in range(500):
        if told:
            break
        server.join(0.01)
    (item,) = told
    assert isinstance(item, Scored) and item.version == 3
    np.testing.assert_equal(np.array(item.result, dtype=float), np.array(scores, dtype=float))
    assert evaluator.snapshot((3, False)) is not None  # a resumed run may need it
    evaluator.handled((3, False))
    assert list(tmp_path.iterdir()) == [] and evaluator.snapshot((3, False)) is None
    ours.end.shutdown(2)
    server.join(5)


class Asleep(System):
    """A router and a machine: each wait takes the time that the test sets."""

    def __init__(self, *waits_s: float) -> None:
        self.waits_s, self.asked_s = list(waits_s), []
        self.now_s, self.asleep_s = 1_000.0, 0.0

    def monotonic_ns(self) -> int:
        return round(self.now_s * 1e9)

    def passed_ns(self) -> int:
        return round((self.now_s + self.asleep_s) * 1e9)

    def sleep(self, pause_s: float) -> None:
        return None

    def wait(self, other_fd: int, timeout_s: float) -> bool:
        self.asked_s.append(timeout_s)
        self.now_s += self.waits_s.pop(0)
        return False


def slept(*waits_s: float) -> tuple[Fidelity, list[float]]:
    """A pacing thread with only heartbeats, each half second, in the fourth second of its run."""
    host = Asleep(*waits_s)
    sessions = Sessions(replace(EXPECTED, heartbeat_ns=500_000_000), 1)
    clock = WallClock(2.0, host.monotonic_ns)
    links = Completions([])
    links.shaped_flows, links.fidelity = 0, Fidelity()
    pacing = paced([], links, host, sessions, clock, host)
    host.now_s -= 3.0
    pacing.clock.start()
    host.now_s += 3.0
    pacing.started = True
    for _ in waits_s:
        sessions.tick(host.monotonic_ns())
        pacing.pauses.sleep(pacing._timeout_s, pacing._grain_s())
    return links.fidelity, host.asked_s


def test_a_pacing_thread_that_sleeps_as_intended_is_faithful() -> None:
    fidelity, asked_s = slept(0.5, 0.5, 0.1, 0.9)
    assert fidelity.verdict == "faithful" and asked_s == pytest.approx([0.5, 0.5, 0.5, 0.4])


@pytest.mark.parametrize(
    ("native", "tasks", "reasons"),
    [
        ([False, False], [7], ["no message from edge a for 6.5 s, then it came back"]),
        ([True, False], [7], ["no message from edge a for 6.5 s, then it came back"]),
        ([True, True], [7], []),  # the real network is what is measured
        ([False, False], [], []),  # it was started again
    ],
)
def test_an_edge_that_was_silent_strains_a_run_on_emulated_links(
    native: list[bool], tasks: list[int], reasons: list[str]
) -> None:
    host, pacing, fidelity = faithful(native)
    pacing.started = True
    pacing._gone(SessionEnded("a", SILENT))  # its last message came 4 s before
    host.now_s += 2.5
    pacing._entered(entered(tasks))
    assert fidelity.reasons() == reasons


def faithful(native: list[bool]) -> tuple[Asleep, Pacing, Fidelity]:
    """A machine with a pacing thread, whose edges have such links, and its verdict."""
    host = Asleep()
    sessions = Sessions(replace(EXPECTED, liveness_ns=4_000_000_000), 1)
    clock = WallClock(1.0, host.monotonic_ns)
    links = Completions([])
    pacing = paced([], links, SimpleNamespace(joined=lambda routing: None), sessions, clock, host)
    links.fidelity, links.training, links.native = Fidelity(), links, lambda edge: native
    links.overdue = links.gone = links.behind_s = lambda *_: 0.0
    links.entered, links.working = lambda session, join: join.tasks, {}
    pacing.clock.start()
    return host, pacing, links.fidelity


def entered(tasks: list[int]) -> Any:
    join = Join("", "", "", 10, tasks, [])
    return Entered(SimpleNamespace(edge="a", routing=b"r"), join)


def test_a_silence_before_the_start_is_over_when_the_edge_is_back() -> None:
    host, pacing, fidelity = faithful([False, False])
    pacing._gone(SessionEnded("a", SILENT))
    pacing._entered(entered([]))
    pacing.started = True
    host.now_s += 300.0
    pacing._gone(SessionEnded("a", REPLACED))
    pacing._entered(entered([7]))
    assert fidelity.reasons() == []


SILENT_4_S = "no message from edge a for 4.0 s, then it came back"


@pytest.mark.parametrize(
    ("faults", "reasons"),
    [([], []), (["restart"], [SILENT_4_S]), (["kill", "restart"], [SILENT_4_S])],
)
def test_a_frozen_edge_is_excused_until_its_process_ends(
    faults: list[str], reasons: list[str]
) -> None:
    _, pacing, fidelity = faithful([False, False])
    pacing.started = True
    of_process = [Fault(at, "a", kind) for at, kind in enumerate(faults, 2)]
    planned = Schedule([Fault(1, "a", "freeze", NS_PER_S), *of_process])
    WallFaults(pacing, planned, FaultLives("a", revives=True), Channel.pair()[0])
    for _ in range(1 + len(faults)):
        ((at_ns, strike),) = pacing.agenda.pop_due(9)
        strike(at_ns)
    pacing._gone(SessionEnded("a", SILENT))
    pacing._entered(entered([7]))
    assert fidelity.reasons() == reasons


def test_the_core_hears_of_the_tasks_that_an_edge_really_has() -> None:
    """The transport gives up the transfer that begins task 8, so the edge has lost this task."""
    host, heard = Asleep(), []
    clock = WallClock(1.0, host.monotonic_ns)
    links, router = Completions([]), SimpleNamespace(joined=lambda routing: None)
    pacing = paced([], links, router, Sessions(EXPECTED, 1), clock, host)
    links.native, links.entered = lambda edge: [True, True], lambda session, join: [7]
    pacing.started, pacing.tell = True, heard.append
    pacing.clock.start()
    join = Join("", "", "", 10, [7, 8], [[3, 100]], begins=[[3, 8]])
    pacing._entered(Entered(SimpleNamespace(edge="a", routing=b"r"), join))
    assert [each.message for each in heard] == [Joined(10, [7])]


def test_a_pacing_thread_that_was_stopped_is_strained() -> None:
    fidelity, _ = slept(0.5, 8.8, 0.5)
    assert fidelity.reasons() == ["the coordinator stalled for 8.3 s, from emulated 8.0 s on"]


def test_a_host_that_slept_keeps_its_sessions_and_strains_the_run() -> None:
    host, told = Asleep(), []
    sessions = Sessions(EXPECTED, 1)
    clock = WallClock(1.0, host.monotonic_ns)
    links = Completions([])
    pacing = paced(told, links, host, sessions, clock, host)
    links.fidelity, pacing.started = Fidelity(), True
    session = Session(b"r", "a", 5, host.monotonic_ns(), joined=True, rtt_ns=9, offset_ns=3)
    sessions.by_routing[b"r"] = sessions.by_edge["a"] = session
    pacing.clock.start()
    pacing.pauses.look_for_sleep()
    host.now_s += 1.0
    pacing.pauses.look_for_sleep()
    assert told == [] and links.fidelity.verdict == "faithful"
    host.asleep_s += 732.0
    pacing.pauses.look_for_sleep()
    assert told == [Noticed(1_000_000_000, "host_slept", {"s": 732.0})]
    assert links.fidelity.reasons() == ["the coordinator's host slept for 732 s"]
    assert (sessions.by_edge, session.rtt_ns) == ({"a": session}, UNKNOWN_RTT)
    assert session.heard_ns == host.monotonic_ns()
    pacing.pauses.look_for_sleep()
    assert len(told) == 1


# ------------------------------------------------------------------ the sleep between two turns
MS, GRAIN_S = 1_000_000, 0.004


class Machine(System):
    """A socket and a clock. A message is ready at ``message_ns``; nothing else takes time."""

    def __init__(self) -> None:
        self.now = self.message_ns = 1_000 * MS
        self.slept: list[tuple[str, float]] = []
        self.late_ns = 0  # how late each sleep ends
        self.gaps: list[tuple[int, int]] = []
        heartbeat = SimpleNamespace(heartbeat_ns=5 * MS)
        sessions: Any = SimpleNamespace(expected=heartbeat, host_stood_still=lambda *_: None)
        clock: Any = SimpleNamespace(at_monotonic=lambda ns: ns, now=lambda: 0)
        fidelity: Any = SimpleNamespace(stall=lambda *gap: self.gaps.append(gap))
        said, tell = Mailbox(), lambda item: None
        self.pauses = Pauses(self, said, sessions, clock, self, tell, lambda: fidelity)

    def monotonic_ns(self) -> int:
        return self.now

    def sleep(self, pause_s: float) -> None:
        self.slept.append(("sleep", round(1000 * pause_s, 6)))
        self.now += round(pause_s * 1e9) + self.late_ns

    def wait(self, other_fd: int, timeout_s: float) -> bool:
        self.slept.append(("wait", round(1000 * timeout_s, 6)))
        until_ns = min(self.now + round(timeout_s * 1e9), max(self.message_ns, self.now))
        self.now = until_ns + self.late_ns
        return False

    def turn(self, due_ns: int, grain_s: float = GRAIN_S) -> list[tuple[str, float]]:
        self.slept = []
        self.pauses.sleep(lambda: max(due_ns - self.now, 0) / 1e9, grain_s)
        return self.slept


def test_messages_of_a_grain_are_waited_for_in_one_sleep() -> None:
    machine = Machine()
    machine.turn(due_ns=machine.now)  # begins a turn
    machine.now += MS  # of work
    assert machine.turn(due_ns=machine.now + 20 * MS) == [("sleep", 3.0), ("wait", 17.0)]
    assert machine.now == 1_004 * MS  # the message had come, so the wait took no time
    assert machine.turn(due_ns=machine.now + MS) == [("sleep", 1.0), ("wait", 0.0)], "it is due"
    machine.now += 5 * MS
    assert machine.turn(due_ns=machine.now + 2 * MS) == [("wait", 2.0)]
    assert machine.turn(due_ns=machine.now + 2 * MS, grain_s=0.0) == [("wait", 2.0)]


def test_a_late_end_of_either_sleep_is_a_gap_and_the_sleep_itself_is_none() -> None:
    machine = Machine()
    machine.message_ns = 2_000 * MS
    machine.turn(due_ns=machine.now + 100 * MS, grain_s=0.05)
    assert machine.gaps == []
    machine.late_ns = 6 * MS
    machine.turn(due_ns=machine.now + 100 * MS, grain_s=0.05)
    assert machine.gaps == [(1_150 * MS, 6 * MS), (1_200 * MS, 6 * MS)]


@pytest.mark.parametrize(("works_ns", "gaps"), [(5 * MS, 0), (5 * MS + 1, 1)])
def test_a_turn_that_takes_longer_than_a_heartbeat_is_a_gap(works_ns: int, gaps: int) -> None:
    machine = Machine()
    machine.turn(due_ns=machine.now)
    machine.now += works_ns
    machine.turn(due_ns=machine.now - MS)  # a moment that has passed counts from now
    machine.turn(due_ns=machine.now)
    assert machine.gaps == [(1_000 * MS, works_ns)] * gaps
