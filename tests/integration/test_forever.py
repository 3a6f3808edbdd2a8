"""`edgefl edge --forever`: one edge in the runs of several coordinators, one after the other."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from processes import happened, start, wait_for
from terminals import end

pytestmark = pytest.mark.alone

EDGES = """
name = "stays"
model = {name = "mlp", hidden = [16]}
devices = {samples_per_s = 2000.0}
links = {up_mbit_s = 1.0, down_mbit_s = 2.0}
stop = {versions = 4}
strategies = [{strategy = "fedavg"}]
"""


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def files_of(process: subprocess.Popen[str]) -> list[str]:
    """What it has open. While it joins or runs, that includes ZeroMQ's polls."""
    fds, targets = Path(f"/proc/{process.pid}/fd"), []
    for fd in fds.iterdir():
        with suppress(OSError):  # closed meanwhile
            targets.append(fd.readlink().name)
    return targets


def is_between_runs(process: subprocess.Popen[str]) -> bool:
    return not any("eventpoll" in target for target in files_of(process))


def test_it_joins_run_after_run_survives_a_refusal_and_ends_by_a_signal(
    folder: Path, started: list[subprocess.Popen[str]], port: int
) -> None:
    (folder / "stays.toml").write_text(EDGES)
    address = f"tcp://127.0.0.1:{port}"

    def run(*edges: str) -> None:
        """A whole run with these edges; all but `stays` end with it."""
        shutil.rmtree("runs", ignore_errors=True)
        names = f"edges={{names={list(edges)}}}"
        coordinator = start(started, "coordinator", "stays.toml", names, f"network.port={port}")
        if "stays" not in edges:
            log = Path("runs/stays/fedavg")
            wait_for(lambda: happened(log, fact="refused"))
        others = [
            start(started, "edge", "--connect", address, "--id", edge)
            for edge in edges
            if edge != "stays"
        ]
        for process in (coordinator, *others):
            status, _, err = end(process)
            assert (status, err) == (0, "")
        joined = {row["edge"] for row in happened(Path("runs/stays/fedavg"), event="edge_joined")}
        assert joined == set(edges)

    stays = start(started, "edge", "--connect", address, "--id", "stays", "--forever")
    run("stays", "other")
    wait_for(lambda: is_between_runs(stays))
    open_files = len(files_of(stays))
    run("third", "other")  # `stays` is no edge of this run
    run("stays", "other")
    run("stays", "third")
    assert wait_for(lambda: len(files_of(stays)) <= open_files)
    assert stays.poll() is None
    stays.send_signal(signal.SIGTERM)
    status, out, err = end(stays)
    lines = out.splitlines()
    assert (status, err) == (0, "")
    assert lines[0] == f"stays: joining {address}" and lines[-2] == "stays: leaving"
    assert lines.count("stays: fedavg: the run is over (versions)") == 3
    assert out.count(f"stays: refused by {address}: edge id: 'stays' is not one of") == 1


@pytest.mark.parametrize("wrong", ["address", "keys", "data and shards", "config", "edge"])
def test_a_mistake_on_the_command_line_is_one_line_at_once(
    folder: Path, started: list[subprocess.Popen[str]], wrong: str
) -> None:
    (folder / "stays.toml").write_text(EDGES)
    words, line = {
        "address": (
            ["--connect", "127.0.0.1:1"],
            "--connect '127.0.0.1:1': expected tcp://HOST:PORT",
        ),
        "keys": (["--keys", "nowhere"], "nowhere/edges/stays.key_secret: no such key file"),
        "data and shards": (["--data", ".", "--shards", "."], "expected --data or --shards"),
        "config": (["--config", "none.toml"], "none.toml"),
        "edge": (["--config", "stays.toml"], "stays.toml: edges: no edge 'stays'"),
    }[wrong]
    if wrong != "address":
        words = ["--connect", "tcp://127.0.0.1:1", *words]
    status, out, err = end(start(started, "edge", "--forever", "--id", "stays", *words))
    assert (status, out, err.count("\n")) == (2, "", 1) and line in err
