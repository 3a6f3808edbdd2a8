"""Runtime classes in whole runs: on both hosts a task takes the time drawn for its edge's class."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import SUPPORT

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.setup.network import devices
from edgefl.clocks.virtual.run import run_virtual
from edgefl.clocks.wall.launcher import LaunchOptions, WallRun
from edgefl.config.file import load
from edgefl.results.read import read_events

CONFIG = f"""
name = "classes"
seed = 3
speed = 50.0
task = "{SUPPORT / "own_task.py"}:build"
edges = {{count = 6}}
partition = {{name = "dirichlet", alpha = 0.3}}
training = {{batch_size = 16, epochs = 2}}
devices = {{spread = "classes", long = "mild"}}
links = {{up_mbit_s = 10.0, down_mbit_s = 10.0, latency_ms = 5.0}}
stop = {{updates = 10}}
strategies = [{{strategy = "fedac", concurrency = 6, buffer_size = 2}}]
"""


def taken_s(directory: Path) -> dict[tuple[str, int], tuple[float, float]]:
    """(edge, task) -> (when the task began, how long it took)."""
    events = read_events(directory / "events.jsonl")
    started = {event["task"]: event["t"] for event in events if event.get("fact") == "task_started"}
    return {
        (event["edge"], event["task"]): (
            started[event["task"]],
            event["t"] - started[event["task"]],
        )
        for event in events
        if event.get("fact") == "update_ready"
    }


@pytest.mark.alone
@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("host", ["wall", "virtual"])
def test_tasks_take_what_is_drawn_for_the_edge_s_class(host: str, tmp_path: Path) -> None:
    (tmp_path / "classes.toml").write_text(CONFIG)
    given = load(tmp_path / "classes.toml", [])
    learned = learning(given, tmp_path)
    if host == "wall":
        WallRun(given, LaunchOptions(tmp_path, tmp_path), print).run(lambda *_: None)
    else:
        run_virtual(learned, 0, tmp_path / "fedac")
    drawn = devices(given, learned.samples)
    took = taken_s(tmp_path / "fedac")
    assert len(took) >= 10 and {device.runtime.name for device in drawn.values()} == {
        "short",
        "medium",
    }
    for (edge, _), (start_s, length_s) in took.items():
        low_s, high_s = drawn[edge].runtime.low_ns / 1e9, drawn[edge].runtime.high_ns / 1e9
        assert low_s <= length_s <= high_s + (2.0 if host == "wall" else 0.0), (
            "2 emulated seconds are 40 ms"
        )
        expected_s = drawn[edge].duration_ns(2 * learned.samples[edge], round(start_s * 1e9)) / 1e9
        assert host == "wall" or length_s == pytest.approx(expected_s, abs=1e-6)
