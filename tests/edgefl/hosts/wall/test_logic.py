"""The logic thread on its own: an event's moment decides whether it belongs to the run, not when
the thread handles it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders import experiment, layout, vector
from host_reports import FACTS, REPORT
from processes import happened

from edgefl.hosts.setup.rundir import OpenRun
from edgefl.hosts.wall.coordinator.logic import DISK_FULL, Logic
from edgefl.hosts.wall.coordinator.run_logic import RunLogic
from edgefl.hosts.wall.coordinator.thread_messages import (
    Begin,
    CameAhead,
    Carry,
    Heard,
    HostSaid,
    Interrupt,
    Note,
    Noticed,
    Rang,
    Taken,
    WakeAt,
)
from edgefl.hosts.wall.mailbox import Mailbox
from edgefl.hosts.wall.system import System
from edgefl.protocol.messages import Acknowledged, Joined, Ready, Started, Update
from edgefl.protocol.transfers import Incoming, Outgoing
from edgefl.results import energy
from edgefl.results.tail import read_csv
from edgefl.strategies.base.events_and_decisions import EdgeLost
from emulator.fidelity import Fidelity
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


def test_the_thread_asks_for_its_priority_itself(tmp_path: Path) -> None:
    asked: list[int] = []
    run = OpenRun(experiment(), 0, tmp_path, None, vector(0, 0, 0), layout())
    core = RunLogic(run.coordinator, run.record, False, None)
    logic = Logic(core, Mailbox(), Fidelity(), at_start=lambda: asked.append(1))
    logic.inbox.put(Interrupt("interrupted"))
    logic.run()
    assert asked == [1]


def test_a_run_that_has_waited_for_room_on_its_disk_is_strained(tmp_path: Path) -> None:
    waited = {"file": "events.jsonl", "waited_s": 12.25}
    logic = ended(tmp_path, Noticed(7 * S, DISK_FULL, waited), Interrupt("interrupted"))
    (row,) = happened(tmp_path, fact="disk_full")
    assert (row["t"], row["waited_s"]) == (7.0, 12.25)
    assert logic.fidelity.verdict == "strained"
    assert logic.fidelity.reasons() == ["the coordinator waited 12.2 s for room on its disk"]


def test_a_resumed_run_ends_at_its_stop_though_nothing_else_is_due(tmp_path: Path) -> None:
    given = experiment(stop={"emulated_s": 25.0}, network={"task_timeout_s": 0.0})
    run = OpenRun(given, 0, tmp_path, None, vector(0, 0, 0), layout())
    core = RunLogic(run.coordinator, run.record, False, None)
    core.handle(Begin({"a": 10}))  # repeated from the journal: what it asks for does not leave
    said = Mailbox()
    Logic(core, said, Fidelity()).go_on()
    assert list(said.take(woken=True)) == [WakeAt(STOP_NS)]


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


def test_a_run_without_reports_has_no_such_file(tmp_path: Path) -> None:
    ended(tmp_path, Interrupt("interrupted"))
    assert not (tmp_path / "hosts.csv").exists()


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
    logic.inbox.put(CameAhead(2 * S, "a", ready, incoming, 3 * S, [(2 * S, 3 * S, 12)]))
    logic._next()
    taken, *others = said.take()
    run.record.flush()
    if not open_task:
        assert taken == Note(2 * S, "a", Acknowledged(task)) and incoming.body is not None
        return
    assert taken == Taken("a", 7) and others[0] == Note(3 * S, "a", Acknowledged(task))
    (row,) = [row for row in read_csv(tmp_path / "links.csv") if row["direction"] == "up"]
    assert (float(row["offered_s"]), float(row["finished_s"])) == (2.0, 3.0)
    assert len(happened(tmp_path, event="update_arrived")) == 1
