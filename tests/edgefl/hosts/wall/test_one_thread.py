"""The logic in the pacing thread: what waits is handled at the end of a turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from builders import experiment, layout, vector
from processes import happened

from edgefl.errors import UserError
from edgefl.hosts.setup.rundir import OpenRun
from edgefl.hosts.wall.coordinator.logic import FLUSH_S, STOPPED, Logic
from edgefl.hosts.wall.coordinator.one_thread import SLOW_NS, TURN_NS, OneThread
from edgefl.hosts.wall.coordinator.run_logic import RunLogic
from edgefl.hosts.wall.coordinator.thread_messages import Begin, Carry, Interrupt, Noticed
from edgefl.hosts.wall.mailbox import Mailbox, TurnOutbox
from edgefl.hosts.wall.system import System
from edgefl.strategies.base.decisions import Finish
from emulator.fidelity import Fidelity
from emulator.units import FOREVER, NS_PER_S


@dataclass
class OwnTime(System):
    """A machine whose time passes only in ``sleep``, and in what a test says."""

    now_ns: int = NS_PER_S
    who: int = 1
    slept_s: list[float] = field(default_factory=list)
    started: list[Any] = field(default_factory=list)

    def monotonic_ns(self) -> int:  # type: ignore[override]  # the real one is a static method
        return self.now_ns

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


def slow_start(made: Coordinator, monkeypatch: pytest.MonkeyPatch, taken_ns: int) -> None:
    """Begin; then the strategy takes ``taken_ns`` for an item."""
    made.tell(Begin({"a": 10}))
    handle = made.logic._handle

    def slow(item: Any) -> Any:
        made.system.now_ns += taken_ns
        return handle(item)

    monkeypatch.setattr(made.logic, "_handle", slow)
    made.pacing.turn_ends()
    assert not made.one.split, "reading models and data at the start may take long"
    made.tell(Noticed(0, "edges_missing", {"edges": ["b"]}))
    made.pacing.turn_ends()


def test_a_slow_strategy_gets_a_thread_of_its_own(
    made: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_start(made, monkeypatch, SLOW_NS + 1)
    assert made.one.split and made.system.started == [made.logic]
    assert made.pacing.rouse_ns == FOREVER
    done = len(made.pacing.done)
    made.tell(Interrupt("interrupted"))
    made.pacing.turn_ends()
    assert made.logic.core.coordinator.finished is None, "it waits for the other thread"
    made.logic.run()
    assert made.logic.core.coordinator.finished == "interrupted"
    said = made.pacing.said.take(woken=True)
    assert isinstance(said[-1], Finish) and len(made.pacing.done) == done


def test_a_slow_disk_gives_the_logic_a_thread_of_its_own(
    made: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = made.logic.committer.commit

    def slow(then: Any) -> None:
        made.system.now_ns += SLOW_NS + 1
        commit(then)

    monkeypatch.setattr(made.logic.committer, "commit", slow)
    made.tell(Begin({"a": 10}))
    made.pacing.turn_ends()
    assert made.one.split and made.system.started == [made.logic]
    assert made.pacing.done, "what the item has caused was carried out before"


def test_no_thread_starts_for_a_run_that_has_ended(
    made: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last item waited for room on the disk."""
    slow_start(made, monkeypatch, SLOW_NS)
    monkeypatch.setattr(made.logic, "longest_ns", SLOW_NS + 1)
    made.tell(Interrupt("interrupted"))
    made.pacing.turn_ends()
    assert made.logic.ended and not made.one.split and not made.system.started


def test_a_quick_strategy_stays_in_the_pacing_thread(
    made: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_start(made, monkeypatch, SLOW_NS)
    assert not made.one.split and not made.system.started


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
