"""The logic in the pacing thread: what waits is handled at the end of a turn."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from builders import experiment, layout, vector
from processes import happened

from edgefl.errors import UserError
from edgefl.hosts.setup.rundir import OpenRun
from edgefl.hosts.wall.coordinator.logic import FLUSH_S, SLOW_NS, STOPPED, Logic
from edgefl.hosts.wall.coordinator.one_thread import QUIET_NS, TURN_NS, OneThread
from edgefl.hosts.wall.coordinator.run_logic import RunLogic
from edgefl.hosts.wall.coordinator.thread_messages import (
    Begin,
    Carry,
    Interrupt,
    Noticed,
    WakeAt,
)
from edgefl.hosts.wall.mailbox import Mailbox, TurnOutbox
from edgefl.hosts.wall.system import System
from edgefl.strategies.base.events_and_decisions import Finish
from emulator.fidelity import Fidelity
from emulator.units import FOREVER, NS_PER_S


class OwnInbox:
    """A queue on which a reader waits for no real time."""

    def __init__(self, system: OwnTime) -> None:
        self.system, self.items = system, deque[Any]()

    def put(self, item: Any) -> None:
        self.items.append(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not self.items:
            self.system.now_ns += round((timeout or 0.0) * NS_PER_S) if block else 0
            raise queue.Empty
        return self.items.popleft()


@dataclass
class OwnTime(System):
    """A machine whose time passes only in waits, and in what a test says."""

    now_ns: int = NS_PER_S
    worked_ns: int = 0
    who: int = 1
    slept_s: list[float] = field(default_factory=list)
    started: list[Any] = field(default_factory=list)

    def monotonic_ns(self) -> int:  # type: ignore[override]  # the real one is a static method
        return self.now_ns

    def thread_ns(self) -> int:  # type: ignore[override]  # the real one is a static method
        return self.worked_ns

    def work(self, ns: int) -> None:
        self.now_ns += ns
        self.worked_ns += ns

    def inbox(self) -> OwnInbox:
        return OwnInbox(self)

    def sleep(self, pause_s: float) -> None:
        self.slept_s.append(pause_s)

    def thread(self) -> int:
        return self.who

    def start(self, thread: Any) -> None:
        self.started.append(thread)


@dataclass
class PacingStub:
    """Only what the logic needs of the pacing thread."""

    system: OwnTime
    said: Mailbox = field(default_factory=Mailbox)
    rouse_ns: int = FOREVER
    turn_ends: Any = None
    done: list[Any] = field(default_factory=list)
    turns_s: list[float] = field(default_factory=list)
    obeys: Any = None

    def obey(self, wishes: list[Any]) -> None:
        self.done += wishes
        if self.obeys is not None:
            self.obeys()

    def turn(self, most_s: float) -> None:
        assert self.rouse_ns == FOREVER, "it would turn without a pause"
        self.turns_s.append(most_s)
        self.system.now_ns += NS_PER_S // 5
        self.turn_ends()


@dataclass
class Coordinator:
    """A coordinator's process with one thread, without sockets."""

    logic: Logic
    pacing: PacingStub
    tell: TurnOutbox
    one: OneThread
    system: OwnTime


@pytest.fixture
def made(tmp_path: Path) -> Coordinator:
    given = experiment(stop={"emulated_s": 25.0}, network={"task_timeout_s": 0.0})
    run = OpenRun(given, 0, tmp_path, None, vector(0, 0, 0), layout())
    system = OwnTime()
    pacing = PacingStub(system)
    core = RunLogic(run.coordinator, run.record, False, None)
    logic = Logic(core, pacing.said, Fidelity(), system=system)
    tell = TurnOutbox(logic.inbox.put)
    pacing.turn_ends = tell.send
    return Coordinator(logic, pacing, tell, OneThread(logic, pacing, tell.send, system), system)


def test_what_a_turn_tells_is_handled_and_carried_out_at_its_end(made: Coordinator) -> None:
    made.tell(Begin({"a": 10}))
    assert not made.pacing.done
    made.pacing.turn_ends()
    assert [type(each) for each in made.pacing.done][:1] == [Carry]
    assert made.pacing.said.take(woken=True) == [], "nothing goes through the mailbox"
    assert made.pacing.rouse_ns == made.system.now_ns + round(FLUSH_S * NS_PER_S)
    assert not made.system.started


def test_what_carrying_out_tells_is_handled_in_the_same_turn(made: Coordinator) -> None:
    notices = [Noticed(0, "edges_missing", {"edges": ["b"]})]
    made.pacing.obeys = lambda: made.tell(notices.pop()) if notices else None
    made.tell(Begin({"a": 10}))
    made.pacing.turn_ends()
    made.logic.record.flush()
    assert happened(made.logic.record.directory, fact="edges_missing")


def test_an_item_of_another_thread_wakes_the_pacing_thread(made: Coordinator) -> None:
    made.tell(Begin({"a": 10}))
    made.pacing.turn_ends()
    made.logic.put(Interrupt("interrupted"))
    assert made.pacing.said._signalled and made.logic.core.coordinator.finished is None
    made.pacing.turn_ends()
    assert made.logic.core.coordinator.finished == "interrupted"
    assert isinstance(made.pacing.done[-1], Finish)


def test_a_turn_looks_at_the_sockets_again_after_a_while(
    made: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []

    def takes_long(item: Any) -> None:
        taken.append(item)
        made.system.now_ns += TURN_NS - 1

    monkeypatch.setattr(made.logic, "_take", takes_long)
    for number in range(5):
        made.tell(number)
    made.pacing.turn_ends()
    assert taken == [0, 1] and made.pacing.rouse_ns == made.system.now_ns
    made.pacing.turn_ends()
    assert taken == [0, 1, 2, 3]


def start(
    made: Coordinator, monkeypatch: pytest.MonkeyPatch, happens: Callable[[Any], None]
) -> None:
    """Begin; ``happens(item)`` is called with each item that is handled."""
    made.tell(Begin({"a": 10}))
    handle = made.logic._handle

    def handled(item: Any) -> Any:
        happens(item)
        return handle(item)

    monkeypatch.setattr(made.logic, "_handle", handled)
    made.pacing.turn_ends()
    assert made.one.thread is None, "reading models and data at the start may take long"


def notice(made: Coordinator) -> None:
    """An item comes from the sockets."""
    made.tell(Noticed(0, "edges_missing", {"edges": ["b"]}))
    made.pacing.turn_ends()


def test_a_slow_strategy_gets_a_thread_of_its_own(
    made: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(made, monkeypatch, lambda item: made.system.work(SLOW_NS + 1))
    notice(made)
    assert made.system.started == [made.one.thread] and made.one.thread is not None
    assert made.pacing.rouse_ns == FOREVER
    done = len(made.pacing.done)
    made.tell(Interrupt("interrupted"))
    made.pacing.turn_ends()
    assert made.logic.core.coordinator.finished is None, "it waits for the other thread"
    made.one.thread.run()
    assert made.logic.core.coordinator.finished == "interrupted"
    assert len(made.pacing.done) == done, "the pacing thread does what it is asked for"
    made.pacing.turn_ends()
    assert isinstance(made.pacing.done[-1], Finish)


def test_a_strategy_that_was_pre_empted_stays_in_the_pacing_thread(
    made: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pre_empted(item: Any) -> None:
        made.system.work(SLOW_NS)
        made.system.now_ns += 100 * SLOW_NS  # another process has the processor

    start(made, monkeypatch, pre_empted)
    for _ in range(5):
        notice(made)
    assert made.one.thread is None and not made.system.started


@pytest.mark.parametrize(("waits", "splits"), [([1], False), ([1, 0, 1], False), ([1, 1], True)])
def test_a_slow_disk_gives_the_logic_a_thread_of_its_own(
    made: Coordinator, monkeypatch: pytest.MonkeyPatch, waits: list[int], splits: bool
) -> None:
    """One long wait may be a pre-emption; two in a row are the disk's."""
    start(made, monkeypatch, lambda item: None)
    commit, left = made.logic.committer.commit, list(waits)

    def slow(then: Any) -> None:
        made.system.now_ns += left.pop(0) * (SLOW_NS + 1)
        commit(then)

    monkeypatch.setattr(made.logic.committer, "commit", slow)
    for _ in waits:
        assert made.one.thread is None
        monkeypatch.setattr(made.logic.core, "handle", lambda item: [WakeAt(FOREVER)])
        notice(made)
        assert made.pacing.done[-1] == WakeAt(FOREVER), "what the item has caused was carried out"
    assert (made.one.thread is not None) == splits == bool(made.system.started)


def test_no_thread_starts_for_a_run_that_has_ended(
    made: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(made, monkeypatch, lambda item: made.system.work(SLOW_NS + 1))
    made.tell(Interrupt("interrupted"))
    made.pacing.turn_ends()
    assert made.logic.ended and made.one.thread is None and not made.system.started


def test_the_logic_comes_back_when_it_is_quick_again_and_keeps_the_order(
    made: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbered items from the sockets (tell) and from other threads (put), before, during and
    after the time with two threads: each is handled once, and what it causes is done in order.
    """
    handled: list[int] = []
    start(made, monkeypatch, lambda item: None)
    made.pacing.done.clear()

    def numbered(item: Noticed) -> list[Any]:
        handled.append(item.now)
        made.system.work(SLOW_NS + 1 if item.now == 1 else 1)
        return [WakeAt(item.now)]

    monkeypatch.setattr(made.logic.core, "handle", numbered)
    for number in range(3):
        made.tell(Noticed(number, "stranger", {}))
    made.pacing.turn_ends()
    thread = made.one.thread
    assert thread is not None and made.pacing.done == [WakeAt(0), WakeAt(1)]
    made.tell(Noticed(3, "stranger", {}))
    made.pacing.turn_ends()
    made.logic.put(Noticed(4, "stranger", {}))
    assert handled == [0, 1], "the others wait for the other thread"
    before_ns = made.system.now_ns
    thread.run()
    assert handled == [0, 1, 2, 3, 4] and len(made.pacing.done) == 2
    assert made.system.now_ns - before_ns >= QUIET_NS - 2 * SLOW_NS, "it has waited for quiet"
    assert made.pacing.said._signalled, "the pacing thread is woken to go on with the logic"
    made.logic.put(Noticed(5, "stranger", {}))
    made.tell(Noticed(6, "stranger", {}))
    made.pacing.turn_ends()
    assert made.one.thread is None and handled == [0, 1, 2, 3, 4, 5, 6]
    assert made.pacing.done == [WakeAt(number) for number in handled]
    assert made.pacing.rouse_ns < FOREVER
    made.logic.put(Noticed(7, "stranger", {}))
    assert made.pacing.said._signalled, "an item of another thread wakes the pacing thread again"
    made.pacing.turn_ends()
    assert made.pacing.done == [WakeAt(number) for number in range(8)]


def test_each_further_thread_waits_twice_as_long(
    made: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(made, monkeypatch, lambda item: made.system.work(SLOW_NS + 1))
    for count in range(4):
        notice(made)
        assert made.one.thread is not None and len(made.system.started) == count + 1
        before_ns = made.system.now_ns
        made.one.thread.run()
        assert made.system.now_ns - before_ns == pytest.approx(QUIET_NS * 2**count, rel=0.05)
        made.pacing.turn_ends()
        assert made.one.thread is None


def test_an_error_in_the_own_thread_ends_the_run(
    made: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(made, monkeypatch, lambda item: made.system.work(SLOW_NS + 1))
    notice(made)
    thread = made.one.thread
    assert thread is not None

    def wrong(item: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(made.logic, "_handle", wrong)
    notice(made)
    thread.run()
    made.pacing.turn_ends()
    assert isinstance(made.logic.error, ZeroDivisionError)
    assert made.pacing.done[-1] == Finish("internal error")
    notice(made)
    assert made.pacing.done[-1] == Finish("internal error"), "nothing is handled any more"
    assert len(made.system.started) == 1


def test_a_quick_strategy_stays_in_the_pacing_thread(
    made: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(made, monkeypatch, lambda item: made.system.work(SLOW_NS))
    for _ in range(5):
        notice(made)
    assert made.one.thread is None and not made.system.started


def test_sessions_go_on_while_an_item_waits_for_room_on_the_disk(
    made: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waits(item: Any) -> None:
        taken.append(item)
        if item != "first":
            return
        made.tell("heard meanwhile")
        made.one.sleep(0.5)
        assert taken == ["first"], "one item after the other"
        made.system.who = 2  # a checkpoint's thread waits for room, too
        made.one.sleep(0.75)
        made.system.who = 1

    taken: list[Any] = []
    monkeypatch.setattr(made.logic, "_take", waits)
    made.tell("first")
    made.pacing.turn_ends()
    assert taken == ["first", "heard meanwhile"]
    assert made.pacing.turns_s == pytest.approx([0.5, 0.3, 0.1])
    made.one.sleep(0.25)
    assert made.system.slept_s == [0.75, 0.25], "outside of an item it is the system's"


def test_a_bug_of_a_strategy_ends_the_run(
    made: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(item: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(made.logic, "_handle", wrong)
    made.tell(Begin({"a": 10}))
    made.pacing.turn_ends()
    assert isinstance(made.logic.error, ZeroDivisionError)
    assert made.pacing.done == [Finish("internal error")]
    made.tell(Noticed(0, "stranger", {}))
    made.pacing.turn_ends()
    assert len(made.pacing.done) == 1, "nothing is handled any more"


def test_a_record_that_cannot_be_written_ends_the_run(
    made: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses() -> None:
        raise UserError("events.jsonl: no permission")

    made.tell(Begin({"a": 10}))
    made.pacing.turn_ends()
    monkeypatch.setattr(made.logic.record, "flush", refuses)
    made.system.now_ns += round(2 * FLUSH_S * NS_PER_S)
    made.pacing.turn_ends()
    assert isinstance(made.logic.error, UserError)
    assert made.pacing.done[-1] == Finish(STOPPED), "edges are told"
