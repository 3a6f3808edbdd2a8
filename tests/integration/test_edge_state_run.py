"""`edgefl edge --state DIR`: what a killed edge has not delivered arrives from its next process."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from exactly_once import check_run
from processes import happened, wait_for
from terminals import Terminals, end

pytestmark = [pytest.mark.processes, pytest.mark.alone]

ONE = """
name = "one"
seed = 3
model = {name = "mlp", hidden = [16]}
edges = {names = ["a"]}
training = {epochs = 1, batch_size = 32}
devices = {samples_per_s = 1000.0}
links = {up_mbit_s = 20.0, down_mbit_s = 20.0}
network = {liveness_s = 3.0, grace_s = 30.0}
stop = {versions = 6}
strategies = [{strategy = "fedasync"}]
"""


def test_an_update_of_a_killed_edge_is_offered_by_its_next_process(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    (folder / "one.toml").write_text(ONE)
    terminals = Terminals(started, "one.toml")
    first = terminals.edge("a", "--state", "state")
    directory = folder / "runs" / "one" / "fedasync"
    wait_for(lambda: happened(directory, fact="task_started", task=0))
    coordinator = next(
        child.pid
        for child in psutil.Process(terminals.coordinator.pid).children()
        if str(directory / "events.jsonl") in [each.path for each in child.open_files()]
    )
    # in training all updates before this one are acknowledged, and this one will not be
    wait_for(lambda: happened(directory, fact="task_started", task=1))
    os.kill(coordinator, signal.SIGSTOP)
    kept = wait_for(lambda: list((folder / "state" / "a").glob("update-*.safetensors")))
    first.kill()
    first.communicate()
    second = terminals.edge("a", "--state", "state")
    os.kill(coordinator, signal.SIGCONT)
    status, _, said = end(second)
    assert (status, end(terminals.coordinator)[0]) == (0, 0), said
    task = int(kept[0].name.removeprefix("update-").partition(".")[0])
    assert len(happened(directory, event="update_arrived", task=task)) == 1
    assert not check_run(directory, [("a", task)]).faults
    assert f"a: offering kept updates again: of task {task}" in said
    assert [each.name for each in (folder / "state" / "a").iterdir()] == ["in-use.lock"]
