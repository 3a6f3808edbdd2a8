"""Edges in other terminals stay when their coordinator dies, and go on in the resumed run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from exactly_once import check_run
from processes import happened, start, wait_for
from terminals import Terminals, end, family, gone

pytestmark = [pytest.mark.processes, pytest.mark.alone]

TWO = """
name = "two"
seed = 3
model = {name = "mlp", hidden = [16]}
edges = {names = ["a", "b"]}
training = {epochs = 1, batch_size = 32}
devices = {samples_per_s = 1000.0}
links = {up_mbit_s = 2.0, down_mbit_s = 2.0}
network = {liveness_s = 2.0, heartbeat_s = 0.25, grace_s = 60.0}
stop = {versions = 24}
strategies = [{strategy = "fedasync"}]
"""
RUNS = Path("runs/two")
RUN = RUNS / "fedasync"


def begun(folder: Path, started: list[subprocess.Popen[str]], *edges: str) -> Terminals:
    (folder / "two.toml").write_text(TWO)
    terminals = Terminals(started, "two.toml")
    for name in ("a", "b"):
        terminals.edge(name, *edges)
    wait_for(lambda: len(happened(RUN, event="update_arrived")) >= 4)
    return terminals


def kill_while_an_edge_trains(process: subprocess.Popen[str]) -> Path:
    """Kill the coordinator; return the update that an edge has kept when its training ended."""

    def training() -> bool:
        rows = happened(RUN)
        latest = {
            row["edge"]: row.get("fact")
            for row in rows
            if row.get("fact") == "task_started" or row.get("event") == "update_arrived"
        }
        return "task_started" in latest.values()

    wait_for(training)
    kill(process)
    return wait_for(lambda: list(Path("state").glob("*/update-*.safetensors")))[0]


def kill(process: subprocess.Popen[str]) -> None:
    """End a command and its processes by SIGKILL, as a loss of power does."""
    processes = family(process)
    for each in processes:
        each.kill()
    process.communicate()
    assert gone(processes)


def test_both_ends_die_and_an_update_survives(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    terminals = begun(folder, started, "--state", "state")
    kept = kill_while_an_edge_trains(terminals.coordinator)
    name, task = kept.parent.name, int(kept.stem.removeprefix("update-"))
    for edge in started[1:3]:
        edge.kill()
        edge.communicate()
    again = [terminals.edge(each, "--state", "state") for each in ("a", "b")]
    resumed = start(started, "coordinator", "--resume", str(RUNS))
    status, _, err = end(resumed)
    assert status == 0, err
    said = {each: end(edge) for each, edge in zip(("a", "b"), again)}
    assert {status for status, _, _ in said.values()} == {0}, said
    assert f"offering kept updates again: of task {task}" in said[name][2]
    assert not (found := check_run(RUN, [(name, task)])).faults and found.version == 24
    assert len(happened(RUN, event="update_arrived", task=task)) == 1
