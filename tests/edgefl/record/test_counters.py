"""Counters give the same values from the lines of a file as during a run."""

from __future__ import annotations

from typing import Any

from edgefl.record.counters import Counters


def arrived(task: int, gap: int, *decisions: dict[str, Any]) -> dict[str, Any]:
    return {
        "event": "update_arrived",
        "version": 5,
        "base_version": 5 - gap,
        "edge": "a",
        "task": task,
        "decisions": list(decisions),
    }


def counted(*rows: dict[str, Any]) -> Counters:
    counters = Counters()
    for row in rows:
        counters.take(row)
    return counters


PUBLISH = {"do": "publish", "version": 7}


def of_updates(*rows: dict[str, Any]) -> tuple[int, int, dict[str, int]]:
    """Return received, applied, and discarded by reason."""
    found = counted(*rows).of_updates()
    return found["updates_received"], found["updates_applied"], found["updates_discarded"]


def test_an_update_is_applied_once_a_model_is_made_of_it() -> None:
    """Updates in a buffer that is not full at the end are received, not applied."""
    assert of_updates(arrived(0, 0), arrived(1, 0)) == (2, 0, {})
    assert of_updates(arrived(0, 0), arrived(1, 0, PUBLISH), arrived(2, 0)) == (3, 2, {})
    late = {"event": "job_done", "version": 6, "name": "x", "decisions": [PUBLISH]}
    assert of_updates(arrived(0, 0), arrived(1, 0), late, late) == (2, 2, {})


def test_a_strategy_may_say_what_a_model_is_made_of() -> None:
    """FedEcho's second buffer fills while the server distils into the first."""
    first = {"event": "job_done", "version": 6, "name": "x"}
    of_first = first | {"decisions": [PUBLISH | {"made_of": [0, 1]}]}
    rows = arrived(0, 0), arrived(1, 0), arrived(2, 0), of_first
    assert of_updates(*rows) == (3, 2, {})
    assert of_updates(*rows, of_first) == (3, 2, {})
    assert of_updates(*rows, first | {"decisions": [PUBLISH | {"made_of": [2]}]}) == (3, 3, {})


def test_discarded_updates_count_once_with_their_first_reason() -> None:
    stale = {"do": "discard", "task": 2, "reason": "too stale"}
    found = counted(
        arrived(0, 0),
        arrived(1, 3, {"do": "publish", "version": 6}),
        arrived(2, 4, stale, {"do": "discard", "task": 2, "reason": "and late"}),
        {"fact": "discarded", "edge": "b", "task": 3, "reason": "not finite"},
        arrived(4, 3),
    )
    assert found.of_updates() == {
        "updates_received": 5,
        "updates_applied": 2,  # the last one waits
        "updates_discarded": {"not finite": 1, "too stale": 1},
    }
    assert found.versions == 6 and found.of_run()["staleness"] == {"0": 1, "3": 2}


def test_what_is_rare_is_told_where_it_happened() -> None:
    found = counted(
        {"fact": "edges_missing", "edges": ["c"]},
        {"event": "edge_joined", "version": 0, "edge": "b", "decisions": []},
        {"event": "edge_lost", "version": 0, "edge": "b", "decisions": []},
        {"event": "edge_lost", "version": 0, "edge": "a", "decisions": []},
        {"event": "edge_joined", "version": 0, "edge": "a", "decisions": []},
        {"event": "job_failed", "version": 0, "name": "x", "reason": "died", "decisions": []},
        {"fact": "diverged", "version": 4},
    )
    assert found.of_run() == {
        "bytes_up": 0,
        "bytes_down": 0,
        "staleness": {},
        "diverged_at_version": 4,
        "jobs_failed": {"died": 1},
        "edges_missing": ["c"],
        "edges_lost": ["b"],
    }


def test_edges_most_of_whose_tasks_had_no_use_are_counted() -> None:
    """A time-out and the late update of the same task count once."""
    discard = {"do": "discard", "task": 3, "reason": "too stale"}
    rows = [
        arrived(0, 0, PUBLISH),
        {"fact": "task_timed_out", "edge": "b", "task": 1},
        {"fact": "discarded", "edge": "b", "task": 1, "reason": "too late"},
        {"fact": "training_failed", "edge": "b", "task": 2, "reason": "step 1"},
        arrived(3, 0, discard),
        arrived(4, 0) | {"edge": "c"},  # the strategy holds it at the end
    ]
    assert counted(*rows).of_run()["edges_unused"] == {
        "b": {"tasks": 2, "unused": 2, "reason": "timed out"}
    }
    assert "edges_unused" not in counted(*rows[:1]).of_run()
