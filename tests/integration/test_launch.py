"""`edgefl launch` on hosts of this machine: results, logs, failures, and what is left."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from launches import agent, agents, ended, inventory, launch, nothing_left
from processes import happened, wait_for

from edgefl.clocks.wall import keys
from edgefl.results.read import read_csv, read_events

pytestmark = pytest.mark.alone
LONG = ("stop.versions=1000000", "stop.emulated_s=100000")
Started = list[subprocess.Popen[str]]


@pytest.fixture
def lab(folder: Path) -> Path:
    inventory(folder)
    return folder


def running(lab: Path, started: Started, *words: str) -> subprocess.Popen[str]:
    """A launch whose edges train."""
    process = launch(started, *LONG, *words)
    wait_for(lambda: Counter(edges(lab)).total() >= 6)
    return process


def edges(lab: Path) -> list[str]:
    """The edge of each update that has arrived."""
    directory = lab / "runs" / "small" / "fedasync"
    return [row["edge"] for row in happened(directory, event="update_arrived")]


def test_a_launch_runs_all_edges_and_leaves_results_and_logs(lab: Path, started: Started) -> None:
    strategies = 'strategies=[{strategy="fedavg"},{strategy="fedasync"}]'
    with nothing_left(lab):
        status, out, err = ended(
            launch(started, "stop.versions=2", "seed=1", "seeds=[3,4]", strategies)
        )
    assert (status, err) == (0, "")
    assert "2 hosts are ready" in out and "fedasync" in out
    names = {"box-1-1", "box-1-2", "box-2"}
    for run in ("fedavg/seed3", "fedavg/seed4", "fedasync/seed3", "fedasync/seed4"):
        directory = lab / "runs" / "small" / run
        joined, broken = (
            Counter(row["edge"] for row in happened(directory, **kind))
            for kind in ({"event": "edge_joined"}, {"fact": "session_ended"})
        )
        assert joined.keys() == names, run
        # a machine that stands still for seconds breaks sessions, and each begins again
        assert joined.total() <= 3 + broken.total(), (run, happened(directory))
    logs = {path.name: path.read_text() for path in (lab / "runs" / "small" / "hosts").iterdir()}
    assert set(logs) == {"box-1.log", "box-2.log"}
    assert "box-1-2: fedasync: the run is over" in logs["box-1.log"]
    assert set(keys.load_server(lab / "lab.keys").allowed.values()) == names
    assert (lab / "lab.keys" / ".gitignore").read_text() == "*\n"


def test_edges_report_about_their_hosts_and_one_that_is_killed_joins_again(
    lab: Path, started: Started
) -> None:
    """A host whose agent dies does not take the others down."""
    directory = lab / "runs" / "small" / "fedasync"
    with nothing_left(lab):
        process = running(lab, started)
        facts = wait_for(lambda: len(found := happened(directory, fact="edge_host")) == 3 and found)
        rows = wait_for(lambda: read_csv(directory / "hosts.csv"))
        (edge,) = agent(lab, "box-2").children()
        edge.kill()
        wait_for(lambda: len(happened(directory, event="edge_joined", edge="box-2")) == 2)
        agent(lab, "box-2").kill()
        wait_for(lambda: happened(directory, event="edge_lost", edge="box-2"))
        before = len(edges(lab))
        wait_for(lambda: len(edges(lab)) >= before + 4)
        process.send_signal(signal.SIGINT)
        status, out, _ = ended(process)
    assert status == 130
    hosts = {"box-1-1": "box-1", "box-1-2": "box-1", "box-2": "box-2"}
    assert {row["edge"]: row["host"] for row in facts} == hosts
    assert all(row["host"] == hosts[row["edge"]] for row in rows)
    machines = {row["host"]: row["machine"] for row in facts}
    assert machines["box-1"] != machines["box-2"], "two hosts of the inventory"
    assert "box-2: box-2: killed by signal 9; starts again in 1 s" in out
    assert "box-2: its agent died with exit status 137, and its edges with it" in out
    assert set(edges(lab)[before:]) == {"box-1-1", "box-1-2"}


def test_a_run_without_any_edge_left_ends(lab: Path, started: Started) -> None:
    with nothing_left(lab):
        process = running(lab, started, "--restarts", "0")
        for each in agents(lab):
            each.kill()
        status, _, _ = ended(process)
    summary = read_events(lab / "runs" / "small" / "fedasync" / "events.jsonl")[-1]
    assert summary["reason"] == "no edge left"
    assert status == 0


def test_a_second_ctrl_c_ends_everything_at_once(lab: Path, started: Started) -> None:
    with nothing_left(lab):
        process = running(lab, started)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        status, _, _ = ended(process)
    assert status == 130


def test_ctrl_c_before_the_start(lab: Path, started: Started) -> None:
    with nothing_left(lab):
        process = launch(started, *LONG)
        wait_for(lambda: agents(lab))
        process.send_signal(signal.SIGINT)
        status, _, err = ended(process)
    assert status == 130 and err == "edgefl: interrupted\n"
    assert not (lab / "runs").exists()


def test_kill_9_of_the_launch_leaves_nothing(lab: Path, started: Started) -> None:
    with nothing_left(lab):
        process = running(lab, started)
        process.kill()
        process.wait()


def test_the_users_code_and_faults_of_the_config_reach_the_hosts(
    lab: Path, started: Started
) -> None:
    (lab / "own").mkdir()
    (lab / "own" / "algo.py").write_text(
        "from edgefl.strategies.fedasync import FedAsync\nclass Mine(FedAsync):\n    pass\n"
    )
    own = 'strategies=[{strategy="own/algo.py:Mine",label="fedasync",concurrency=3}]'
    assert ended(launch(started, own))[2] == (
        "edgefl: lab.toml: the config names 'own/algo.py:Mine', which is your own code: set"
        " allow_code = true for box-1, box-2, if their edges may run it\n"
    )
    text = (lab / "lab.toml").read_text()
    (lab / "lab.toml").write_text(text.replace("[defaults]", "[defaults]\nallow_code = true"))
    fault = 'faults=[{kind="kill",edges=["box-2"],at_s=1.0,for_s=1.0}]'
    with nothing_left(lab):
        status, out, err = ended(launch(started, own, "stop.versions=40", fault))
    assert (status, err) == (0, "")
    directory = lab / "runs" / "small" / "fedasync"
    assert len(happened(directory, event="edge_joined", edge="box-2")) == 2
    assert "signal" not in out, "a fault of the config is no failure"


def test_the_next_run_begins_with_edges_that_a_fault_has_taken_away(
    lab: Path, started: Started
) -> None:
    """A kill without an end, and a freeze that would end long after the run."""
    faults = (
        'faults=[{kind="kill",edges=["box-2"],at_s=0.5},'
        '{kind="freeze",edges=["box-1-2"],at_s=0.5,for_s=1000.0}]'
    )
    with nothing_left(lab):
        status, _, err = ended(launch(started, "stop.versions=8", "seed=1", "seeds=[3,4]", faults))
    assert (status, err) == (0, "")
    for seed in ("seed3", "seed4"):
        directory = lab / "runs" / "small" / "fedasync" / seed
        joined = {row["edge"] for row in happened(directory, event="edge_joined")}
        assert joined == {"box-1-1", "box-1-2", "box-2"}, seed
        assert len(happened(directory, fact="fault")) == 2, seed
