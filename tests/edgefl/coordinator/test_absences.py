"""The coordinator and edges that are away: what the strategy sees, and what happens to tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from builders import Desk, S, make

from edgefl.coordinator.coordinator import Coordinator
from edgefl.protocol.messages import Joined, Ready, Started
from edgefl.strategies.base.catalog import load
from edgefl.strategies.base.events_and_decisions import EdgeLost
from emulator.faults import Fault, InOrder


def desk(folder: Path, on_leave: str, *away: tuple[str, float, float]) -> Desk:
    """fedasync with the edges a and b, of which some are away from one second to another."""
    availability: dict[str, Any] = {"kind": "day_night", "on_leave": on_leave}
    edges = {"names": ["a", "b"], "availability": availability}
    strategy = make(load("fedasync"), concurrency=2)
    made = Desk(folder, strategy, edges=edges, network={"grace_s": 3.0}, stop={"emulated_s": 100})
    times = {
        edge: InOrder(
            [
                Fault(round(begin * S), who, "freeze", round((end - begin) * S))
                for who, begin, end in away
                if who == edge
            ]
        )
        for edge in "ab"
    }
    given = made.coordinator.experiment
    made.coordinator = Coordinator(strategy, given, made.record, absent=times)
    return made


def told(made: Desk) -> list[tuple[Any, ...]]:
    """The strategy's events about edges, with their moments."""
    return [
        (event["t"], event["event"], event["edge"])
        for event in made.events()
        if event.get("event") in ("edge_joined", "edge_lost", "task_closed")
    ]


def test_keep_pauses_a_task_and_goes_on(tmp_path: Path) -> None:
    made = desk(tmp_path, "keep", ("a", 1, 3))
    made.start("a", "b")
    made.hear("a", Started(0), S // 2)
    assert made.wake(1 * S) == []
    assert made.hear("a", Ready(0), 2 * S) == [], "nothing is heard of an edge that is away"
    assert made.wake(3 * S) == ["grant a 0"]
    assert told(made) == [
        (0, "edge_joined", "a"),
        (0, "edge_joined", "b"),
        (1, "edge_lost", "a"),
        (3, "edge_joined", "a"),
    ]
    out = made.update("a", 0, 1, 1, 1, now=4 * S)
    assert out[0] == "a <- Acknowledged 0" and out[-1].startswith("a <- task 2")


def test_keep_closes_a_task_after_the_grace_time(tmp_path: Path) -> None:
    made = desk(tmp_path, "keep", ("a", 1, 9))
    made.start("a", "b")
    made.wake(1 * S)
    assert made.wake(4 * S) == ["a <- CancelTask 0"]
    assert told(made)[2:] == [(1, "edge_lost", "a"), (4, "task_closed", "a")]
    (assigned,) = made.wake(9 * S)
    assert assigned.startswith("a <- task 2"), "it is free when it is back"


def test_lose_closes_a_task_at_once(tmp_path: Path) -> None:
    made = desk(tmp_path, "lose", ("a", 1, 3))
    made.start("a", "b")
    assert made.wake(1 * S) == ["a <- CancelTask 0"]
    assert told(made)[2:] == [(1, "edge_lost", "a"), (1, "task_closed", "a")]
    closed = [event for event in made.events() if event.get("event") == "task_closed"]
    assert [event["reason"] for event in closed] == ["edge left"]
    late = made.update("a", 0, 1, 1, 1, now=2 * S)
    assert late == [], "it was on its way; it is held"
    held, assigned = made.wake(3 * S)
    assert sorted((held, assigned))[0] == "a <- Acknowledged 0"
    assert [fact["reason"] for fact in made.facts("discarded")] == ["task closed"]


def test_an_edge_that_is_away_at_the_start_joins_when_it_comes(tmp_path: Path) -> None:
    made = desk(tmp_path, "keep", ("a", 0, 5), ("a", 7, 8))
    assert [line.split(" (")[0] for line in made.start("a", "b")][1:] == ["b <- task 0 v0"]
    assert made.wake(5 * S)[0].startswith("a <- task 1")
    made.wake(7 * S)
    assert told(made) == [
        (0, "edge_joined", "b"),
        (5, "edge_joined", "a"),
        (7, "edge_lost", "a"),
    ]


def test_a_connection_that_breaks_while_the_edge_is_away(tmp_path: Path) -> None:
    made = desk(tmp_path, "keep", ("a", 1, 3), ("a", 6, 7))
    made.start("a", "b")
    made.wake(1 * S)
    assert made.hear("a", EdgeLost("a"), 2 * S) == []
    assert made.wake(3 * S) == [], "it is back, but not connected"
    assert made.hear("a", Joined(1, [0]), 7 * S // 2) == []
    assert told(made)[2:] == [(1, "edge_lost", "a"), (3.5, "edge_joined", "a")]
    made.hear("a", EdgeLost("a"), 4 * S)
    made.wake(6 * S)
    out = made.hear("a", Joined(1, []), 13 * S // 2)
    assert out == [], "the task is closed, but the edge joins only when it is back"
    assert told(made)[4:] == [(4, "edge_lost", "a"), (6.5, "task_closed", "a")]
    assert made.wake(7 * S)[0].startswith("a <- task 2")
