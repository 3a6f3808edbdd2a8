"""Edges that come back to a coordinator that was resumed: it knows them as connected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import Desk, S, experiment, make, vector

from edgefl.actor import Send
from edgefl.coordinator.coordinator import Coordinator
from edgefl.coordinator.tasks import Tasks
from edgefl.protocol.messages import Assignment, Joined, Ready, Started, UrgeTask
from edgefl.strategies.base import events_and_decisions as do
from edgefl.strategies.base import events_and_decisions as ev
from edgefl.strategies.base.events_and_decisions import EdgeLost, Grant
from edgefl.strategies.base.strategy import Strategy
from edgefl.strategies.fedavg import FedAvg

ACK = "<- Acknowledged"


@pytest.fixture
def rounds(tmp_path: Path) -> Desk:
    """FedAvg's first round: tasks 0, 1 and 2 belong to a, b and c. All three edges train."""
    desk = Desk(tmp_path, make(FedAvg, clients_per_round=3))
    desk.start("a", "b", "c")
    for number, edge in enumerate("abc"):
        desk.hear(edge, Started(number), now=S)
    return desk


def test_an_edge_that_kept_its_task_goes_on(rounds: Desk) -> None:
    before = rounds.events()
    assert rounds.hear("a", Joined(1, [0]), now=2 * S) == []
    assert rounds.events() == before, "the strategy learns nothing"
    assert rounds.update("a", 0, 3, 0, 0, now=3 * S) == [f"a {ACK} 0"]


def test_an_edge_without_its_task_gets_the_same_task_again(rounds: Desk) -> None:
    assert rounds.hear("b", Joined(1, []), now=2 * S) == ["b <- task 1 v0 (0 0 0)"]
    assert rounds.hear("b", Joined(1, []), now=3 * S) == ["b <- task 1 v0 (0 0 0)"]
    rounds.hear("b", Started(1), now=4 * S)
    assert rounds.update("b", 1, 3, 0, 0, now=5 * S) == [f"b {ACK} 1"]
    assert rounds.counters.updates_accepted == 1
    assert not [row for row in rounds.events() if row.get("event") == "task_closed"]


def test_a_task_that_was_delivered_is_acknowledged_again(rounds: Desk) -> None:
    """A cancellation would make the edge forget what it has learned in this task."""
    rounds.update("a", 0, 3, 0, 0)
    assert rounds.hear("a", Joined(1, [0]), now=2 * S) == [f"a {ACK} 0"]
    assert rounds.ready("a", 0) == [f"a {ACK} 0"]
    assert [fact["task"] for fact in rounds.facts("duplicate")] == [0]


def test_an_offer_after_the_resumption_gets_the_same_grant(rounds: Desk) -> None:
    assert rounds.ready("a", 0) == ["grant a 0"]
    rounds.hear("a", Joined(1, [0]), now=2 * S)
    assert rounds.ready("a", 0) == ["grant a 0"]
    assert len(rounds.facts("update_ready")) == 1
    assert rounds.update("a", 0, 3, 0, 0) == [f"a {ACK} 0"]


def test_an_edge_that_lost_an_offered_update_trains_again_under_the_same_grant(
    rounds: Desk,
) -> None:
    rounds.ready("a", 0)
    assert rounds.hear("a", Joined(1, []), now=2 * S) == ["a <- task 0 v0 (0 0 0)"]
    rounds.hear("a", Started(0), now=3 * S)
    assert rounds.ready("a", 0) == ["grant a 0"]


def test_an_offer_after_a_broken_session_of_the_resumed_run_is_a_new_one(rounds: Desk) -> None:
    """As in any run: the transfer was forgotten, so the strategy schedules it again."""
    rounds.ready("a", 0)
    rounds.hear("a", Joined(1, [0]), now=2 * S)
    rounds.ready("a", 0)
    rounds.hear("a", EdgeLost("a"), now=3 * S)
    rounds.hear("a", Joined(1, [0]), now=3 * S)
    assert rounds.ready("a", 0) == ["grant a 0"]
    assert len(rounds.facts("update_ready")) == 2


# ------------------------------------------------------------------ a part of the run was lost
def test_an_update_of_an_unknown_task_is_discarded_with_its_reason(rounds: Desk) -> None:
    """The journal's last entries were lost: the edge knows more than this run."""
    assert rounds.hear("a", Joined(1, [0, 7]), now=2 * S) == ["a <- CancelTask 7"]
    assert rounds.ready("a", 7) == [f"a {ACK} 7"]
    assert rounds.ready("a", 7) == [f"a {ACK} 7"]
    assert [(fact["task"], fact["reason"]) for fact in rounds.facts("discarded")] == [
        (7, "unknown task")
    ]
    assert [fact["task"] for fact in rounds.facts("duplicate")] == [7]


def test_a_number_that_an_edge_knows_from_the_lost_part_is_not_given_to_it_again() -> None:
    tasks = Tasks()
    assert tasks.add("a", 0, vector(0, 0, 0)).number == 0
    tasks.knows("b", [1, 2, 5])
    assert tasks.add("a", 0, vector(0, 0, 0)).number == 1
    assert [tasks.add("b", 0, vector(0, 0, 0)).number for _ in range(3)] == [3, 4, 6]
    tasks.knows("b", [6])
    assert tasks.foreign == {}


# ------------------------------------------------------------------ a strategy that schedules
class Scheduling(Strategy):
    """Assigns to each edge; grants the uplink and urges when the test's alarms ring."""

    schedules_uplink = True
    asked = 0

    def handle(self, event: ev.Event, now: int) -> list[do.Decision]:
        match event:
            case ev.EdgeJoined():
                return [do.Assign((event.edge,), {"weights": self.weights})]
            case ev.UpdateReady():
                self.asked += 1
            case ev.AlarmRang("grant"):
                return [Grant("a", 0, (3, 4))]
            case ev.AlarmRang("urge"):
                return [do.Urge("a")]
            case ev.RunStarted():
                return [do.SetAlarm("urge", S), do.SetAlarm("grant", 2 * S)]
        return []


class Silent:
    """A recorder that writes nothing."""

    def event(self, *arguments: Any) -> None: ...

    fact = joined = link = snapshot = metrics = event


@pytest.fixture
def scheduling() -> Coordinator:
    coordinator = Coordinator(make(Scheduling), experiment(), Silent())
    coordinator.start({"a": 1}, 0)
    return coordinator


def test_an_offer_that_waits_for_its_grant_goes_on_waiting(scheduling: Coordinator) -> None:
    assert scheduling.receive("a", Ready(0, 8), S // 2) == []
    assert scheduling.receive("a", Joined(1, [0]), S // 2) == []
    assert scheduling.receive("a", Ready(0, 8), S // 2) == []
    assert scheduling.strategy.asked == 1
    assert scheduling.wake(2 * S)[-1:] == [Grant("a", 0, (3, 4))]
    scheduling.receive("a", Joined(1, [0]), 2 * S)
    assert scheduling.receive("a", Ready(0, 8), 2 * S) == [Grant("a", 0, (3, 4))]


def test_an_urged_edge_is_urged_again_if_it_still_trains(scheduling: Coordinator) -> None:
    assert scheduling.receive("a", Joined(1, [0]), 0) == []
    scheduling.wake(S)
    assert scheduling.receive("a", Joined(1, [0]), S) == [Send("a", UrgeTask(0))]
    scheduling.receive("a", Ready(0, 8), S)
    assert scheduling.receive("a", Joined(1, [0]), S) == []
    (again,) = scheduling.receive("a", Joined(1, []), S)
    assert isinstance(again.message, Assignment)


def test_a_task_that_now_belongs_to_another_edge_is_cancelled(rounds: Desk) -> None:
    """The edge has a number from the lost part, which this run has given to another edge since."""
    assert rounds.hear("b", Joined(1, [0, 1]), now=2 * S) == ["b <- CancelTask 0"]
    assert rounds.update("a", 0, 3, 0, 0, now=3 * S) == [f"a {ACK} 0"]
