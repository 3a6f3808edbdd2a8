"""Tasks that take too long are closed at the same moments for the same reasons on both hosts.

Also an edge that sends heartbeats but never delivers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from paths import SUPPORT

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.virtual.run import run_virtual
from edgefl.clocks.wall.launcher import LaunchOptions, WallRun
from edgefl.loading.file import load
from edgefl.results.read import read_events

pytestmark = pytest.mark.processes

HEAD = f"""
name = "timeouts"
task = "{SUPPORT / "own_task.py"}:build"
edges = {{names = ["a", "b", "c"]}}
training = {{batch_size = 16}}
"""
SLOW = f"""{HEAD}
network = {{task_timeout_s = 1.0}}
stop = {{versions = 2}}
[[groups]]
name = "fast"
count = 2
devices = {{samples_per_s = 2000.0}}
[[groups]]
name = "slow"
count = 1
devices = {{samples_per_s = 1.0}}
[[strategies]]
strategy = "fedavg"
"""
HANGS = f"""{HEAD}
devices = {{samples_per_s = 2000.0}}
network = {{heartbeat_s = 0.5, liveness_s = 1.5}}
stop = {{versions = 2, emulated_s = 15.0}}
[[strategies]]
strategy = "{SUPPORT / "own_strategies.py"}:Hanging"
"""


def wall(folder: Path, text: str) -> WallRun:
    (folder / "timeouts.toml").write_text(text)
    loaded = load(folder / "timeouts.toml", [])
    run = WallRun(loaded, LaunchOptions(folder / "runs", folder, force=True), print)
    run.run(lambda *_: None)
    return run


def of_kind(directory: Path, kind: str) -> list[dict[str, Any]]:
    return [row for row in read_events(directory / "events.jsonl") if row.get("event") == kind]


def test_both_hosts_close_the_same_tasks(warm_python: None, tmp_path: Path) -> None:
    run = wall(tmp_path, SLOW)
    run_virtual(learning(run.experiment, tmp_path), 0, tmp_path / "virtual")
    reason = "timed out: network.task_timeout_s = 1, in training"
    for directory in (run.directory(0), tmp_path / "virtual"):
        closed = of_kind(directory, "task_closed")
        assert [(row["t"], row["edge"], row["task"], row["reason"]) for row in closed] == [
            (1.0, "c", 2, reason),
            (2.0, "c", 5, reason),
        ]
        assert read_events(directory / "events.jsonl")[-1]["reason"] == "versions"


def test_an_edge_that_never_delivers_holds_up_no_round(warm_python: None, tmp_path: Path) -> None:
    """The edge's process lives, but its training hangs."""
    run = wall(tmp_path, HANGS)
    directory = run.directory(0)
    assert read_events(directory / "events.jsonl")[-1]["reason"] == "versions"
    closed = of_kind(directory, "task_closed")
    assert {row["task"] for row in closed} >= {2}
    assert all(row["reason"].startswith("timed out: training took more than") for row in closed)
    assert not of_kind(directory, "edge_lost")
