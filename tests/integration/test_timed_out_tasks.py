"""An edge that sends heartbeats but never delivers holds up no round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from paths import SUPPORT

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


def test_an_edge_that_never_delivers_holds_up_no_round(warm_python: None, tmp_path: Path) -> None:
    """The edge's process lives, but its training hangs."""
    run = wall(tmp_path, HANGS)
    directory = run.directory(0)
    assert read_events(directory / "events.jsonl")[-1]["reason"] == "versions"
    closed = of_kind(directory, "task_closed")
    assert {row["task"] for row in closed} >= {2}
    assert all(row["reason"].startswith("timed out: training took more than") for row in closed)
    assert not of_kind(directory, "edge_lost")
