"""Counters are the same from the lines of a file as from a run."""

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


def test_an_update_is_applied_unless_it_was_discarded() -> None:
    stale = {"do": "discard", "task": 2, "reason": "too stale"}
    found = counted(
        arrived(0, 0),
        arrived(1, 3, {"do": "publish", "version": 6}),
        arrived(2, 4, stale, {"do": "discard", "task": 2, "reason": "and late"}),
        {"fact": "discarded", "edge": "b", "task": 3, "reason": "not finite"},
        arrived(4, 3),
    )
    assert found.of_updates() == {
        "updates_applied": 3,
        "updates_discarded": {"not finite": 1, "too stale": 1},
    }
    assert found.versions == 6 and found.of_run()["staleness"] == {"0": 1, "3": 2}


def test_bytes_count_by_direction() -> None:
    found = Counters()
    for direction, size in (("up", 3), ("down", 5), ("up", 4)):
        found.link(direction, size)
    assert found.of_run() == {"bytes_up": 7, "bytes_down": 5, "staleness": {}}


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


def test_marks_are_the_kinds_of_events_and_the_names_of_reported_numbers() -> None:
    report = {"do": "report", "values": {"end_slot": 4.0, "lost": 0.0}}
    found = counted(arrived(0, 0, report), {"fact": "finished", "reason": "versions"})
    assert found.marks == {"update_arrived", "end_slot", "lost"}
