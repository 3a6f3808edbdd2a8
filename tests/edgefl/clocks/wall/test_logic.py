"""The logic thread: when an event belongs to the run, when outputs leave, and who handles items."""

from __future__ import annotations

import errno
import queue
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from builders import experiment, layout, vector
from host_reports import FACTS, REPORT
from msgspec.structs import replace
from processes import happened

from edgefl.clocks.setup.rundir import OpenRun
from edgefl.clocks.wall.coordinator.logic import (
    DISK_FULL,
    FLUSH_S,
    QUIET_NS,
    SLOW_NS,
    TURN_NS,
    Committer,
    Logic,
)
from edgefl.clocks.wall.coordinator.run_logic import RunLogic
from edgefl.clocks.wall.coordinator.thread_messages import (
    Begin,
    Carry,
    EarlyUpdate,
    Heard,
    HostSaid,
    Interrupt,
    Note,
    Noticed,
    Rang,
    UpdateTaken,
    WakeAt,
)
from edgefl.clocks.wall.system import Mailbox, System
from edgefl.disk import DiskFile, OwnDisk
from edgefl.errors import UserError
from edgefl.protocol.codec import Incoming, Outgoing
from edgefl.protocol.messages import Acknowledged, Joined, Ready, Started, Update
from edgefl.record.journal import Journal
from edgefl.results import energy
from edgefl.results.read import read_csv
from edgefl.strategies.base.events_and_decisions import EdgeLost, Finish
from emulator.fidelity import Fidelity
from emulator.units import FOREVER, NS_PER_S
from emulator.units import NS_PER_S as S

STOP_NS = 25 * S


def ended(directory: Path, *items: Any) -> Logic:
    """A run of 25 emulated seconds whose logic thread has handled these items."""
    given = experiment(stop={"emulated_s": 25.0}, network={"task_timeout_s": 0.0})
    run = OpenRun(given, 0, directory, None, vector(0, 0, 0), layout())
    core = RunLogic(run.coordinator, run.record, False, None)
    logic = Logic(core, Mailbox(), Fidelity())
    for item in (Begin({"a": 10, "b": 10, "c": 10}), *items):
        logic.inbox.put(item)
    logic.run()  # in this thread
    assert logic.error is None
    run.record.flush()
    return logic


def test_what_is_due_after_the_stop_does_not_happen(tmp_path: Path) -> None:
    """A host without CPU time handles everything at once, 159 s late.

    First it handles what arrives at its sockets now, then what was due before.
    """
    logic = ended(
        tmp_path,
        Noticed(184 * S, "session_ended", {"edge": "a"}),
        Heard(184 * S, "a", EdgeLost("a")),
        Heard(20 * S, "b", Started(1)),
        Heard(STOP_NS, "c", Started(2)),
        Rang(STOP_NS),
        Heard(26 * S, "c", EdgeLost("c")),
    )
    assert (logic.core.coordinator.finished, logic.core.now) == ("emulated_s", STOP_NS)
    assert [line["t"] for line in happened(tmp_path)][-3:] == [20.0, 25.0, 25.0]
    assert len(happened(tmp_path, fact="task_started")) == 2
    assert not happened(tmp_path, event="edge_lost")
    assert not happened(tmp_path, fact="session_ended")


@pytest.mark.parametrize("late_s", [24, 26])
def test_an_interruption_ends_the_run_at_a_moment_of_it(tmp_path: Path, late_s: int) -> None:
    logic = ended(tmp_path, Heard(late_s * S, "a", Joined(10, [])), Interrupt("no edge left"))
    assert logic.core.coordinator.finished == "no edge left"
    assert logic.core.now == (24 * S if late_s == 24 else 0)


def test_a_run_that_has_waited_for_room_on_its_disk_is_strained(tmp_path: Path) -> None:
    waited = {"file": "events.jsonl", "waited_s": 12.25}
    logic = ended(tmp_path, Noticed(7 * S, DISK_FULL, waited), Interrupt("interrupted"))
    (row,) = happened(tmp_path, fact="disk_full")
    assert (row["t"], row["waited_s"]) == (7.0, 12.25)
    assert logic.fidelity.verdict == "strained"
    assert logic.fidelity.reasons() == ["the coordinator waited 12.2 s for room on its disk"]


class StoppedClock(System):
    """A fast machine: nothing takes time."""

    def monotonic_ns(self) -> int:
        return 0


def test_what_waiting_items_cause_leaves_together_once_all_are_durable(tmp_path: Path) -> None:
    given = experiment(
        stop={"emulated_s": 25.0}, record={"durability": "process"}, network={"task_timeout_s": 0.0}
    )
    run = OpenRun(given, 0, tmp_path, None, vector(0, 0, 0), layout(), inputs=True)
    journal, order = run.record.journal, list[Any]()
    assert journal is not None
    said: Any = SimpleNamespace(put=lambda *wishes: order.append(wishes))
    core = RunLogic(run.coordinator, run.record, False, None)
    logic = Logic(core, said, Fidelity(), system=StoppedClock())
    flush = journal.flush
    journal.flush = lambda: (flush(), order.append("flushed"))[0]  # type: ignore[method-assign]  # to see the order
    logic.inbox.put(Begin({"a": 10, "b": 10}))
    logic.inbox.put(Heard(1, "a", Started(1)))
    logic.inbox.put(Heard(2, "a", Ready(1)))
    logic.inbox.put(Heard(2, "b", Ready(2)))
    logic._next()
    flushed, wishes = order
    assert flushed == "flushed" and logic.fidelity.handle_time.count == 4
    assert [type(wish) for wish in wishes][:3] == [Carry, Carry, WakeAt]
    assert [getattr(wish, "now", None) for wish in wishes][3:] == [2, 2]  # answers to the last two


# ------------------------------------------------------------------ reports about hosts
def test_reports_about_hosts_are_recorded_and_move_no_event(tmp_path: Path) -> None:
    colder = replace(REPORT, cpu_permille=None, temperature_mk=263_150, throttled=5, ran_us=None)
    logic = ended(
        tmp_path,
        HostSaid(0, "a", FACTS),
        HostSaid(2 * S, "a", REPORT),
        HostSaid(4 * S, "a", colder),
        Heard(3 * S, "a", Started(1)),
        Interrupt("interrupted"),
        HostSaid(5 * S, "a", REPORT),
    )
    assert logic.core.now == 3 * S
    (told,) = happened(tmp_path, fact="edge_host")
    assert (told["edge"], told["host"], told["cores"]) == ("a", "pi-3", 4)
    rows = read_csv(tmp_path / "hosts.csv")
    assert [",".join(row.values()) for row in rows] == [
        "2.000000000,a,pi-3,0123456789abcdef,42.2,64.2,no,1000,2000,87.3,350000000,0.000000,0.000000",
        "4.000000000,a,pi-3,0123456789abcdef,,-10.0,under-voltage+throttled,1000,2000,87.3,350000000,,0.000000",
    ]
    assert logic.core.hosts.section()[0]["throttled"] == {"under-voltage": 1, "throttled": 1}
    assert [line["t"] for line in happened(tmp_path, fact="task_started")] == [3.0]


def test_what_a_meter_has_counted_is_recorded(tmp_path: Path) -> None:
    reports = [replace(REPORT, energy_uj=joules * 1_000_000) for joules in (3, 7, 12)]
    logic = ended(
        tmp_path,
        HostSaid(0, "a", FACTS),
        *(HostSaid(number * 2 * S, "a", each) for number, each in enumerate(reports)),
        Interrupt("interrupted"),
    )
    assert [",".join(row.values()) for row in read_csv(tmp_path / "energy.csv")] == [
        "a,measured,0.000000000,2.000000000,4.0,",
        "a,measured,2.000000000,4.000000000,5.0,",
    ]
    assert logic.core.hosts.section()[0]["joules"] == 9.0
    assert energy.joules(tmp_path) is None, "it was not modelled"


@pytest.mark.parametrize("open_task", [True, False])
def test_an_update_that_came_ahead_is_taken_once_it_is_granted(
    tmp_path: Path, open_task: bool
) -> None:
    run = OpenRun(
        experiment(stop={"emulated_s": 25.0}, network={"task_timeout_s": 0.0}),
        *(0, tmp_path, None, vector(0, 0, 0), layout()),
    )
    core, said = RunLogic(run.coordinator, run.record, False, None), Mailbox()
    logic = Logic(core, said, Fidelity())
    logic.inbox.put(Begin({"a": 10}))
    logic._next()
    (carry, _) = said.take()
    task = carry.outgoing.task if open_task else carry.outgoing.task + 9
    update = Outgoing(7, Update(task, 0, {"weights": vector(1, 2, 3)}, {"samples": 10.0}))
    incoming = Incoming(update.offer(0), 1000)
    incoming.add(0, update.piece(0, 12))
    ready = Ready(task, update.size)
    logic.inbox.put(Heard(1 * S, "a", Started(task)))
    logic.inbox.put(EarlyUpdate(2 * S, "a", ready, incoming, 3 * S, [(2 * S, 3 * S, 12)]))
    logic._next()
    taken, *others = said.take()
    run.record.flush()
    if not open_task:
        assert taken == Note(2 * S, "a", Acknowledged(task)) and incoming.body is not None
        return
    assert taken == UpdateTaken("a", 7) and others[0] == Note(3 * S, "a", Acknowledged(task))
    (row,) = [row for row in read_csv(tmp_path / "links.csv") if row["direction"] == "up"]
    assert (float(row["offered_s"]), float(row["finished_s"])) == (2.0, 3.0)
    assert len(happened(tmp_path, event="update_arrived")) == 1


# ------------------------------------------------------------------ between two turns
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

    def thread(self) -> int:
        return self.who

    def start(self, thread: Any) -> None:
        self.started.append(thread)


class Pacing:
    """Only what the logic needs of the pacing thread."""

    def __init__(self, folder: Path) -> None:
        given = experiment(stop={"emulated_s": 25.0}, network={"task_timeout_s": 0.0})
        run = OpenRun(given, 0, folder, None, vector(0, 0, 0), layout())
        self.system, self.said = OwnTime(), Mailbox()
        core = RunLogic(run.coordinator, run.record, False, None)
        self.logic = Logic(core, self.said, Fidelity(), between_turns=True, system=self.system)
        self.told: list[Any] = []
        self.done: list[Any] = []  # what it was asked for
        self.rouse_ns = FOREVER
        self.obeys: Callable[[], None] = lambda: None

    def turn(self, *told: Any) -> None:
        self.told += told
        self.rouse_ns = self.logic.turn_ends(self.told, self.obey)
        self.obey(self.said.take())

    def obey(self, requests: list[Any]) -> None:
        self.done += requests
        self.obeys()

    def begin(self, monkeypatch: pytest.MonkeyPatch, happens: Callable[[Any], None]) -> None:
        """Begin the run; ``happens(item)`` is called with each item that is handled."""
        handle = self.logic.core.handle

        def handled(item: Any) -> Any:
            happens(item)
            return handle(item)

        monkeypatch.setattr(self.logic.core, "handle", handled)
        self.turn(Begin({"a": 10}))
        assert not self.system.started, "reading models and data at the start may take long"


@pytest.fixture
def pacing(tmp_path: Path) -> Pacing:
    return Pacing(tmp_path)


NOTICE = Noticed(0, "edges_missing", {"edges": ["b"]})


def test_what_a_turn_tells_is_handled_and_carried_out_at_its_end(pacing: Pacing) -> None:
    notices: list[Any] = [NOTICE]
    pacing.obeys = lambda: pacing.told.append(notices.pop()) if notices else None
    pacing.turn(Begin({"a": 10}))
    assert [type(each) for each in pacing.done][:1] == [Carry]
    assert pacing.rouse_ns == pacing.system.now_ns + round(FLUSH_S * NS_PER_S)
    pacing.logic.record.flush()
    assert happened(pacing.logic.record.directory, fact="edges_missing"), "in the same turn"
    pacing.logic.put(Interrupt("interrupted"))
    assert pacing.said._signalled, "an item of another thread wakes the pacing thread"
    pacing.turn()
    assert isinstance(pacing.done[-1], Finish) and not pacing.system.started


def test_a_turn_looks_at_the_sockets_again_after_a_while(
    pacing: Pacing, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []

    def takes_long(item: Any) -> list[Any]:
        taken.append(item.now)
        pacing.system.now_ns += TURN_NS - 1
        return []

    monkeypatch.setattr(pacing.logic.core, "handle", takes_long)
    pacing.turn(*(Noticed(number, "stranger", {}) for number in range(5)))
    assert taken == [0, 1] and pacing.rouse_ns == pacing.system.now_ns
    pacing.turn()
    assert taken == [0, 1, 2, 3]


def test_a_slow_strategy_gets_a_thread_of_its_own(
    pacing: Pacing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From then on, items of the sockets and of other threads are handled there, in order."""
    handled: list[int] = []

    def happens(item: Any) -> None:
        handled.append(getattr(item, "now", -1))
        pacing.system.work(SLOW_NS + 1)

    pacing.begin(monkeypatch, happens)
    pacing.turn(Noticed(1, "stranger", {}))
    (thread,) = pacing.system.started
    assert pacing.rouse_ns == FOREVER
    pacing.turn(Noticed(2, "stranger", {}))
    pacing.logic.put(Noticed(3, "stranger", {}))
    pacing.logic.put(Interrupt("interrupted"))
    assert handled == [-1, 1], "the others wait for the other thread"
    done = len(pacing.done)
    thread.run()
    assert handled == [-1, 1, 2, 3, -1]
    assert len(pacing.done) == done, "the pacing thread does what it is asked for"
    pacing.turn()
    assert isinstance(pacing.done[-1], Finish)


def test_the_logic_comes_back_when_it_is_quick_again_and_keeps_the_order(
    pacing: Pacing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbered items of the sockets and of other threads, before, during and after the time with
    two threads: each is handled once, and what it causes is done in order.
    """
    pacing.begin(monkeypatch, lambda item: None)
    pacing.done.clear()
    handled: list[int] = []

    def numbered(item: Noticed) -> list[Any]:
        handled.append(item.now)
        pacing.system.work(SLOW_NS + 1 if item.now == 1 else 1)
        return [WakeAt(item.now)]

    monkeypatch.setattr(pacing.logic.core, "handle", numbered)
    pacing.turn(*(Noticed(number, "stranger", {}) for number in range(3)))
    (thread,) = pacing.system.started
    pacing.turn(Noticed(3, "stranger", {}))
    pacing.logic.put(Noticed(4, "stranger", {}))
    assert handled == [0, 1], "the others wait for the other thread"
    before_ns = pacing.system.now_ns
    thread.run()
    assert handled == [0, 1, 2, 3, 4] and pacing.done == [WakeAt(0), WakeAt(1)]
    assert pacing.system.now_ns - before_ns >= QUIET_NS - 2 * SLOW_NS, "it has waited for quiet"
    pacing.logic.put(Noticed(5, "stranger", {}))
    pacing.turn(Noticed(6, "stranger", {}))
    assert handled == [0, 1, 2, 3, 4, 5, 6] and len(pacing.system.started) == 1
    assert pacing.done == [WakeAt(number) for number in handled]


@pytest.mark.parametrize(("waits", "splits"), [([1, 0, 1], False), ([1, 1], True)])
def test_a_slow_disk_gives_the_logic_a_thread_of_its_own(
    pacing: Pacing, monkeypatch: pytest.MonkeyPatch, waits: list[int], splits: bool
) -> None:
    """One long wait may be a pre-emption; two in a row are the disk's."""
    pacing.begin(monkeypatch, lambda item: None)
    monkeypatch.setattr(pacing.logic.core, "handle", lambda item: [WakeAt(FOREVER)])
    commit, left = pacing.logic.committer.commit, list(waits)

    def slow(then: Any) -> None:
        pacing.system.now_ns += left.pop(0) * (SLOW_NS + 1)
        commit(then)

    monkeypatch.setattr(pacing.logic.committer, "commit", slow)
    for _ in waits:
        assert not pacing.system.started
        pacing.turn(NOTICE)
        assert pacing.done[-1] == WakeAt(FOREVER), "what the item has caused was carried out"
    assert bool(pacing.system.started) == splits


def test_sessions_go_on_while_an_item_waits_for_room_on_the_disk(
    pacing: Pacing, monkeypatch: pytest.MonkeyPatch
) -> None:
    here: list[bool] = []

    def waits(item: Any) -> list[Any]:
        taken.append(item.now)
        if item.now == 1:
            here.append(pacing.logic.waits_here())
            pacing.turn(Noticed(2, "stranger", {}))  # heard meanwhile
            assert taken == [1] and pacing.rouse_ns == FOREVER, "one item after the other"
            pacing.system.who = 2  # a checkpoint's thread waits for room, too
            here.append(pacing.logic.waits_here())
            pacing.system.who = 1
        return []

    taken: list[int] = []
    monkeypatch.setattr(pacing.logic.core, "handle", waits)
    pacing.turn(Noticed(1, "stranger", {}))
    assert taken == [1, 2] and here == [True, False] and not pacing.logic.waits_here()


# ------------------------------------------------------------------ committer
class SlowDisk(OwnDisk):
    """A disk whose syncs wait for ``may_sync``; each asks ``error`` first."""

    def __init__(self) -> None:
        self.may_sync, self.syncing = Event(), Event()
        self.syncs = 0
        self.error: OSError | None = None

    def append(self, path: Path, keep_bytes: int = 0, private: bool = False) -> Any:
        return SlowFile(self, super().append(path, keep_bytes, private))


class SlowFile:
    def __init__(self, disk: SlowDisk, file: DiskFile) -> None:
        self.disk, self.path = disk, file.path
        self.write, self.truncate, self.close = file.write, file.truncate, file.close

    def sync(self) -> None:
        self.disk.syncing.set()
        assert self.disk.may_sync.wait(20)
        self.disk.syncs += 1
        if self.disk.error is not None:
            raise self.disk.error


def opened(folder: Path, power: bool) -> tuple[SlowDisk, Journal]:
    disk = SlowDisk()
    return disk, Journal(folder, disk, inputs=True, payloads=False, power=power)


def put(journal: Journal, number: int) -> None:
    journal.input({"of": number}, {}, 0.0)


def test_a_loss_of_power_is_waited_for_in_groups_and_in_order(tmp_path: Path) -> None:
    disk, journal = opened(tmp_path, power=True)
    committer, done = Committer(journal), list[tuple[int, int]]()
    committer.start()
    for number in range(6):
        put(journal, number)
        committer.commit(lambda number=number: done.append((number, disk.syncs)))
        if number == 0:
            assert disk.syncing.wait(20), "the thread syncs for the first; the others gather"
    assert not done
    disk.may_sync.set()
    committer.stop()
    journal.close()
    assert done == [(0, 2), *((number, 4) for number in range(1, 6))], "two files each time"


def test_what_the_disk_refuses_never_leaves(tmp_path: Path) -> None:
    disk, journal = opened(tmp_path, power=True)
    failed, done = list[BaseException](), list[int]()
    committer = Committer(journal, failed.append)
    committer.start()
    disk.error = OSError(errno.EIO, "Input/output error")
    disk.may_sync.set()
    put(journal, 1)
    committer.commit(lambda: done.append(1))
    committer.stop()
    assert not done and len(failed) == 1
    with pytest.raises(UserError, match=r"cannot be written \(Input/output error\)"):
        committer.commit(lambda: done.append(2))
    assert not done
    journal.close()
