"""`--resume` as a user calls it: after kill -9 of all processes of a run, and after Ctrl-C."""

from __future__ import annotations

import random
import shlex
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest
from exactly_once import check_run
from launches import agents, inventory, launch, nothing_left
from processes import happened, start, wait_for
from terminals import end, family, gone

from edgefl.clocks.wall import keys

pytestmark = pytest.mark.alone
SEED = 11
TWO = 'strategies=[{strategy="fedasync",concurrency=3},{strategy="fedavg"}]'
RUNS = ("fedasync/seed1", "fedavg/seed1", "fedasync/seed2", "fedavg/seed2")
Started = list[subprocess.Popen[str]]


def killed(process: subprocess.Popen[str]) -> None:
    """Kill all processes of a command at once: none of them ends in order."""
    others = family(process)
    for each in others:
        each.kill()
    assert gone(others)
    process.communicate()


def ended(folder: Path) -> dict[str, int]:
    """When the summary of each finished run was written (ns)."""
    found = {run: folder / "runs" / "small" / run / "summary.json" for run in RUNS}
    return {
        run: path.stat().st_mtime_ns
        for run, path in found.items()
        if path.exists() and orjson.loads(path.read_bytes())["finished"] == "versions"
    }


def test_killed_twice_finished_runs_are_kept_and_broken_ones_go_on(
    folder: Path, started: Started
) -> None:
    """All processes are killed at random moments, in the first run and in the third."""
    choose = random.Random(SEED)
    words: tuple[str, ...] = ("small.toml", "seed=1", "seeds=[1,2]", "stop.versions=8", TWO)
    kept: dict[str, int] = {}
    for broken in (RUNS[0], RUNS[2]):
        directory, versions = folder / "runs" / "small" / broken, choose.randint(1, 3)
        process = start(started, "run", *words)
        wait_for_version(directory, versions)
        killed(process)
        assert kept.items() <= ended(folder).items()
        kept, words = ended(folder), ("--resume", f"runs/small/{broken}")
    assert set(kept) == {*RUNS[:2]}
    status, out, err = end(start(started, "run", *words))
    assert (status, err) == (0, "")
    assert "going on with fedasync seed 2; finished before: fedasync seed 1, fedavg seed 1" in out
    assert kept.items() <= ended(folder).items(), "a finished run was run again"
    assert set(ended(folder)) == {*RUNS}
    for run in RUNS:
        found = check_run(folder / "runs" / "small" / run)
        assert (found.faults, found.version) == ([], 8), run
        resumed = happened(folder / "runs" / "small" / run, fact="resumed")
        assert len(resumed) == (run in (RUNS[0], RUNS[2])), run
        assert all(row["outage_s"] > 0 for row in resumed)
    assert "fedasync seed 1: resumed once, after" in out and "which are no emulated time" in out
    status, out, err = end(start(started, "run", *words))
    assert (status, out) == (2, "") and "nothing to resume: its runs are finished" in err


def wait_for_version(directory: Path, version: int) -> None:
    wait_for(lambda: any(row.get("version", 0) >= version for row in happened(directory)))


def test_ctrl_c_and_a_dead_coordinator_say_how_to_go_on(folder: Path, started: Started) -> None:
    directory = folder / "runs" / "small" / "fedasync"
    first = start(started, "run", "small.toml", "stop.versions=20", "--force")
    wait_for_version(directory, 2)
    first.send_signal(signal.SIGINT)
    status, out, _ = end(first)
    command = "edgefl run --resume runs/small --force"
    assert status == 130 and out.splitlines()[-1] == f"next: {command}"
    again = start(started, *shlex.split(command)[1:])
    wait_for_version(directory, 8)
    listening(again)[0].kill()
    status, _, err = end(again)
    assert status == 1 and err.splitlines()[-1] == f"edgefl: to go on with it: {command}"
    assert end(start(started, *shlex.split(command)[1:]))[0] == 0
    assert len(summary(directory)["resumed"]) == 2
    assert check_run(directory).faults == []


def summary(directory: Path) -> Any:
    return orjson.loads((directory / "summary.json").read_bytes())


def test_a_coordinator_takes_keys_and_port_of_before(folder: Path, started: Started) -> None:
    """Its edges in other terminals wait for it, and go on with their tasks."""
    ids = ("e000", "e001", "e002")
    keys.complete(folder / "keys", ids)
    first = start(started, "coordinator", "small.toml", "--keys", "keys", "stop.versions=12")
    _, port = wait_for(lambda: listening(first))
    address = ("--connect", f"tcp://127.0.0.1:{port}", "--keys", "keys")
    edges = [start(started, "edge", "--id", name, *address) for name in ids]
    directory = folder / "runs" / "small" / "fedasync"
    wait_for_version(directory, 3)
    killed(first)
    status, out, err = end(start(started, "coordinator", "--resume", "runs/small", "--no-table"))
    assert (status, err) == (0, ""), (out, err)
    assert [end(edge)[0] for edge in edges] == [0, 0, 0]
    assert len(summary(directory)["resumed"]) == 1
    assert check_run(directory).faults == []


def listening(process: subprocess.Popen[str]) -> tuple[psutil.Process, int] | tuple[()]:
    """The coordinator's process and its port; () if it does not listen yet."""
    for each in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a child may end between two questions
            for connection in each.net_connections(kind="tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    return each, connection.laddr.port
    return ()


def test_a_killed_launch_goes_on_and_ends_edges_that_it_had_left(
    folder: Path, started: Started
) -> None:
    inventory(folder)
    directory = folder / "runs" / "small" / "fedasync"
    first = launch(started, "stop.versions=12")
    wait_for_version(directory, 3)
    before = {each.pid for each in agents(folder)}
    here = [psutil.Process(first.pid), *coordinator_of(first)]
    for each in here:
        each.kill()
    assert gone(here)
    first.communicate()
    assert before & {each.pid for each in agents(folder)}, "they look for the coordinator"
    with nothing_left(folder):
        again = start(started, "launch", "lab.toml", "--resume", "runs/small")
        wait_for(lambda: happened(directory, fact="resumed"))
        assert not before & {each.pid for each in agents(folder)}
        status, out, err = end(again)
    assert (status, err) == (0, ""), out
    assert "resuming runs/small: going on with fedasync" in out
    assert (check_run(directory).faults, summary(directory)["versions"]) == ([], 12)
    logs = (folder / "runs" / "small" / "hosts" / "box-2.log").read_text()
    assert logs.count("box-2: started (process") == 2, "the log goes on, too"


def coordinator_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes of a launch on this machine, except for its agents."""
    return [
        each
        for each in psutil.Process(process.pid).children(recursive=True)
        if "edgefl.plugins.launch.agent" not in each.cmdline()
    ]
