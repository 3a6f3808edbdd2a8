"""Every strategy of the catalog continues after a task is closed because it takes too long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import small_run

from edgefl.results.tail import read_events
from edgefl.strategies.base.catalog import load, strategy_names

SMALL = {
    "clients_per_round": 3,
    "concurrency": 3,
    "clients_per_trigger": 3,
    "buffer_size": 2,
    "least_updates": 2,
    "slot_s": 1.0,
    "period_s": 1.0,
    "per_round": 2,
}
# Edge c takes 100 times as long as the others, whose tasks take about 0.7 s.
RUN: dict[str, Any] = {
    "task": "../support/own_task.py:build",
    "stop": {"versions": 20, "emulated_s": 120.0},
    "training": {"batch_size": 16},
    "groups": [
        {"name": "fast", "count": 2, "devices": {"samples_per_s": 100.0}},
        {"name": "slow", "count": 1, "devices": {"samples_per_s": 1.0}},
    ],
    "network": {"task_timeout_s": 5.0},
}


def sections(name: str) -> dict[str, Any]:
    found = load(name)
    options = {key: value for key, value in SMALL.items() if key in found.Options.model_fields}
    entry = {"strategy": name, **options}
    medium = {"kind": "tdma", "slot_ms": 100.0, "guard_ms": 10.0, "rate_mbit_s": 1.0}
    return (
        RUN
        | {"strategies": [entry]}
        | ({"medium": medium} if found.schedules_slots else {})
        | ({"unlabelled": {"size": 50}} if found.needs_unlabelled else {})
    )


@pytest.mark.parametrize("name", strategy_names())
def test_a_strategy_goes_on_after_a_task_that_timed_out(tmp_path: Path, name: str) -> None:
    summary, directory = small_run(tmp_path, **sections(name))
    events = read_events(directory / "events.jsonl")
    closed = [row for row in events if row.get("event") == "task_closed"]
    assert {(row["edge"], row["reason"].partition(",")[0]) for row in closed} == {
        ("c", "timed out: network.task_timeout_s = 5")
    }
    later = [
        row for row in events if row.get("event") == "update_arrived" and row["t"] > closed[0]["t"]
    ]
    assert later and {row["edge"] for row in later} <= {"a", "b"}
    assert summary["versions"] > closed[0]["version"]
    assert summary["tasks_timed_out"] == {"c": len(closed)}
