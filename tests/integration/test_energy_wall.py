"""Energy on the wall clock: the same joules as by hand, a stop, and a run that was broken off."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest
from processes import happened, start, wait_for
from terminals import end, family, gone

from edgefl.record.files import ENERGY
from edgefl.results import energy
from edgefl.results.read import read_csv
from emulator.energy.account import STATES

pytestmark = [pytest.mark.processes, pytest.mark.alone]

# A round: 1.2 s down at most, 3 s of training, 2.4 s up; a second of wall time is two emulated ones
CONFIG = """
name = "joules"
speed = 2
model = {name = "mlp", hidden = [16]}
edges = {names = ["a", "b", "c"]}
training = {trainer = "none"}
stop = {versions = 2}
network = {realtime = "off"}
strategies = [{strategy = "fedavg"}]
[links]
up_mbit_s = 0.05
down_mbit_s = 0.1
latency_ms = 20.0
[links.radio]
idle_w = 0.5
send_w = 8.5
receive_w = 4.5
[devices]
samples_per_s = 160.0
[devices.energy]
idle_w = 2.0
compute_w = 12.0
"""
IDLE_W, COMPUTE_W, SEND_W, RECEIVE_W = 2.5, 10.0, 8.0, 4.0  # above idle power but for the first


def summary_of(run: Path) -> dict[str, Any]:
    return orjson.loads((run / "summary.json").read_bytes())


@pytest.fixture
def run(folder: Path) -> Path:
    (folder / "joules.toml").write_text(CONFIG)
    return folder / "runs" / "joules" / "fedavg"


def test_three_edges_by_hand_to_the_joule(run: Path, started: list[subprocess.Popen[str]]) -> None:
    status, _, err = end(start(started, "run", "joules.toml", "--force"))
    assert status == 0, err
    summary, links = summary_of(run), read_csv(run / "links.csv")
    seconds = {"up": 8 / 50_000, "down": 8 / 100_000}  # per byte
    by_hand = 0.0
    for edge, found in summary["energy"]["by_edge"].items():
        busy = {
            way: sum(
                int(row["bytes"]) * each
                for row in links
                if row["edge"] == edge and row["direction"] == way
            )
            for way, each in seconds.items()
        }
        computed_s = 2 * {"a": 480, "b": 479, "c": 479}.get(edge, 0) / 160.0
        expected = (
            IDLE_W * summary["emulated_s"]
            + COMPUTE_W * computed_s
            + SEND_W * busy["up"]
            + RECEIVE_W * busy["down"]
        )
        assert found["joules"] == pytest.approx(expected, abs=0.5), edge
        by_hand += expected
    assert summary["energy"]["joules"] == pytest.approx(by_hand, abs=1.0) and by_hand > 200


def test_a_resumed_run_counts_each_joule_once(
    run: Path, started: list[subprocess.Popen[str]]
) -> None:
    process = start(started, "run", "joules.toml", "--force", "stop.versions=4")
    wait_for(lambda: len(happened(run, event="update_arrived")) >= 4)
    processes = family(process)
    coordinator = next(
        child
        for child in psutil.Process(process.pid).children()
        if any(each.path.endswith("events.jsonl") for each in child.open_files())
    )
    coordinator.kill()
    process.communicate(timeout=60)
    assert gone(processes)
    so_far = energy.whole_joules(run)
    status, _, err = end(start(started, "run", "--resume", "runs/joules"))
    assert status == 0, err
    summary, rows = summary_of(run), read_csv(run / ENERGY)
    assert summary["finished"] == "versions" and len(summary["resumed"]) == 1
    assert so_far is not None and so_far < summary["energy"]["joules"]
    once = {(row["edge"], row["state"], row["began_s"]) for row in rows}
    assert len(once) == len(rows)
    for edge, found in summary["energy"]["by_edge"].items():
        own = [row for row in rows if row["edge"] == edge]
        assert found["idle_j"] == pytest.approx(IDLE_W * summary["emulated_s"], abs=0.1)
        for state in STATES[1:]:
            of_rows = sum(float(row["joules"]) for row in own if row["state"] == state)
            assert found[f"{state}_j"] == pytest.approx(of_rows, abs=1e-6), (edge, state)
