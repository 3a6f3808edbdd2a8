"""Training that raises on an edge: its task is closed with the reason; if most edges fail, the run
ends.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Desk, S, make

from edgefl.coordinator.coordinator import MOST_TRACES, Failures
from edgefl.protocol.messages import TaskFailed
from edgefl.strategies.fedavg import FedAvg

REASON = "step 3 of 3, batch of 1 sample: ValueError: too small"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Tasks 0, 1 and 2 belong to a, b and c."""
    found = Desk(tmp_path, make(FedAvg, clients_per_round=3))
    found.start("a", "b", "c")
    return found


def failed(task: int, reason: str = REASON) -> TaskFailed:
    return TaskFailed(task, reason, "Traceback:\n  line 1\x1b[31m")


def test_the_round_goes_on_without_an_edge_that_fails(desk: Desk) -> None:
    assert desk.hear("c", failed(2), S) == ["c <- Acknowledged 2"]
    desk.update("a", 0, 1, 1, 1)
    lines = desk.update("b", 1, 3, 3, 3)
    assert lines[1].startswith("evaluate v1") and "c <- task 5 v1 (2 2 2)" in lines
    assert desk.facts("training_failed") == [
        {
            "t": 1.0,
            "fact": "training_failed",
            "edge": "c",
            "task": 2,
            "reason": REASON,
            "trace": "Traceback:\n  line 1\\x1b[31m",
        }
    ]
    closed = [event for event in desk.events() if event.get("event") == "task_closed"]
    assert [event["reason"] for event in closed] == [f"training failed: edge c, {REASON}"]
    assert desk.summary()["training_failed"] == {"c": 1}


def test_with_most_edges_failing_the_run_ends_and_names_the_cause(desk: Desk) -> None:
    desk.hear("c", failed(2))
    lines = desk.hear("a", failed(0), S)
    assert lines[-1] == f"finish: training fails on most edges: edge a, {REASON}"
    first, second = desk.facts("training_failed")
    assert "trace" in first and "trace" not in second, "the same reason needs no second traceback"
    assert desk.summary()["warnings"] == [
        f"training failed in 2 tasks of 2 edges (a, c), first: {REASON}"
    ]


def test_an_edge_that_delivers_again_fails_no_more(desk: Desk) -> None:
    desk.hear("c", failed(2))
    desk.update("a", 0, 1, 1, 1), desk.update("b", 1, 1, 1, 1)
    desk.update("c", 5, 1, 1, 1, version=1)
    lines = desk.hear("a", failed(3))
    assert lines == ["a <- Acknowledged 3"] and desk.coordinator.finished is None


def test_tracebacks_are_kept_of_few_reasons_only() -> None:
    """A peer may send any number of reasons."""
    failures = Failures()
    kept = [failures.add("a", f"reason {number}", "x")[1] for number in range(2 * MOST_TRACES)]
    assert kept == [{"trace": "x"}] * MOST_TRACES + [{}] * MOST_TRACES
