"""A task that takes too long is closed; time in which it waits does not count."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from builders import Desk, S, make

from edgefl.protocol.messages import Assignment, FreshRequest, Joined, Ready, Started
from edgefl.strategies.base.events_and_decisions import EdgeLost
from edgefl.strategies.fedasync import FedAsync
from edgefl.strategies.fedavg import FedAvg
from emulator.units import FOREVER


@dataclass
class Limits:
    """Limits of every task: 1 s of download, 10 s of training, 2 s of upload."""

    total_ns: int | None = None
    training: int = 10 * S

    def download_ns(
        self, edge: str, size_bytes: int, slots: tuple[int, ...] | None, now: int
    ) -> int:
        return S

    def training_ns(self, edge: str, samples: int, task: Assignment, now: int) -> int:
        return self.training

    def upload_ns(self, edge: str, size_bytes: int, now: int) -> int:
        return 2 * S


def desk_of(folder: Path, limits: Limits | None) -> Desk:
    """FedAvg's first round: tasks 0, 1 and 2 belong to a, b and c."""
    desk = Desk(folder, make(FedAvg, clients_per_round=3), limits=limits)
    desk.start("a", "b", "c")
    for number, edge in enumerate("abc"):
        desk.hear(edge, Started(number), S // 2)
    return desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return desk_of(tmp_path, Limits())


def closed(desk: Desk) -> list[tuple[float, str, str]]:
    return [
        (row["t"], row["edge"], row["reason"])
        for row in desk.events()
        if row.get("event") == "task_closed"
    ]


TRAINING = "timed out: training took more than 10 s"


def test_the_round_goes_on_without_an_edge_that_never_delivers(desk: Desk) -> None:
    desk.update("a", 0, 1, 1, 1), desk.update("b", 1, 3, 3, 3)
    assert desk.coordinator.next_due() == 10 * S + S // 2
    lines = desk.wake(desk.coordinator.next_due())
    assert lines[0] == "c <- CancelTask 2" and "c <- task 5 v1 (2 2 2)" in lines
    assert closed(desk) == [(10.5, "c", TRAINING)]
    assert desk.summary()["warnings"] == [
        "1 task of 1 edge (c) timed out",
        "1 edge (c) contributed nothing: 1 of 1 task had no use, mostly because of: timed out",
    ]


def test_an_update_that_comes_late_is_discarded_with_its_reason(desk: Desk) -> None:
    desk.update("a", 0, 1, 1, 1), desk.update("b", 1, 3, 3, 3)
    desk.wake(11 * S)
    assert desk.hear("c", Ready(2), 12 * S) == ["c <- Acknowledged 2"]
    assert desk.facts("discarded")[0]["reason"] == "task timed out"
    assert desk.update("c", 5, 5, 5, 5, version=1, now=13 * S)[0] == "c <- Acknowledged 5"


def test_every_phase_has_a_limit_of_its_own(tmp_path: Path) -> None:
    desk = Desk(tmp_path, make(FedAsync, concurrency=3), limits=Limits())
    desk.start("a", "b", "c")
    desk.hear("b", Started(1), S // 2), desk.hear("c", Started(2), S // 2)
    desk.hear("c", Ready(2, 100), 9 * S)
    for at_s in (1, 10.5, 11):
        assert desk.coordinator.next_due() <= at_s * S
        desk.wake(int(at_s * S))
    assert (1.0, "a", "timed out: download took more than 1 s") in closed(desk)
    assert (10.5, "b", TRAINING) in closed(desk)
    assert (11.0, "c", "timed out: upload took more than 2 s") in closed(desk)


def test_a_limit_of_all_together_counts_no_waiting(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, Limits(total_ns=12 * S))
    desk.hear("a", Ready(0), 9 * S)
    desk.hear("b", FreshRequest(1, 0, 2), 6 * S)  # nothing newer: answered at once
    assert desk.coordinator.next_due() == 12 * S
    desk.wake(12 * S)
    assert {reason for _, _, reason in closed(desk)} == {
        "timed out: network.task_timeout_s = 12, in upload",
        "timed out: network.task_timeout_s = 12, in training",
    }


def test_the_time_of_a_lost_edge_does_not_count(desk: Desk) -> None:
    desk.hear("c", EdgeLost("c"), 4 * S)
    desk.hear("c", Joined(1, [2]), 13 * S)
    for edge, number in (("a", 0), ("b", 1)):
        desk.update(edge, number, 1, 1, 1, now=13 * S)
    assert desk.coordinator.alarms.at["deadline 2"][0] == 13 * S + S // 2 + 6 * S
    desk.hear("c", EdgeLost("c"), 14 * S)
    desk.wake(24 * S)
    assert closed(desk) == [(24.0, "c", "edge lost")], "the grace time is the limit then"


def test_an_upload_granted_to_a_lost_edge_has_its_time_when_the_edge_is_back(desk: Desk) -> None:
    """The update was announced before the connection broke, and is ready while it is broken."""
    desk.hear("c", EdgeLost("c"), 4 * S)
    desk.hear("c", Ready(2), 5 * S)
    assert "deadline 2" not in desk.coordinator.alarms.at
    desk.hear("c", Joined(1, [2]), 9 * S)
    assert desk.coordinator.alarms.at["deadline 2"][0] == 11 * S


def test_a_wait_for_the_uplink_goes_on_when_its_edge_comes_back(tmp_path: Path) -> None:
    """A deadline that was stopped before does not begin to run."""
    desk = desk_of(tmp_path, Limits())
    task = desk.coordinator.tasks.open[2]
    desk.coordinator.deadlines.stop(task, 2 * S)
    desk.hear("c", EdgeLost("c"), 4 * S), desk.hear("c", Joined(1, [2]), 5 * S)
    assert "deadline 2" not in desk.coordinator.alarms.at


@pytest.mark.parametrize("limits", [None, Limits(training=FOREVER)])
def test_without_a_limit_a_task_may_take_as_long_as_it_likes(
    tmp_path: Path, limits: Limits | None
) -> None:
    assert desk_of(tmp_path, limits).coordinator.next_due() == FOREVER
