"""`edgefl run`, `coordinator` and `edge` as a user calls them.

The tests use separate processes, keys, bad input, Ctrl-C and kill -9.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from processes import SMALL, happened, start, wait_for
from terminals import Terminals, end, family, gone

from edgefl import cli
from edgefl.clocks.setup.rundir import replay_run
from edgefl.exit_status import REFUSED

pytestmark = pytest.mark.alone

TWO = (
    SMALL.replace("count = 3", "count = 2")
    .replace("concurrency = 3", "concurrency = 2")
    .replace("versions = 8", "versions = 3")
    .replace("samples_per_s = 2000.0", "samples_per_s = 4000.0")
)
HOG = "import sys\nsys.stdin.read()\nwhile True: pass"  # from when its input is closed
LONG = ("stop.versions=1000000", "stop.emulated_s=100000")


def summary(directory: Path) -> dict[str, Any]:
    return orjson.loads((directory / "summary.json").read_bytes())


# ------------------------------------------------------------------ bad input
@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("rnu small.toml", "No such command 'rnu'. Did you mean 'run'?"),
        ("run smal.toml", "smal.toml: no such file (nearest: 'small.toml')"),
        (
            "run small.toml --clock virtual --out small.toml",
            "small.toml/small: cannot be made (Not a directory)",
        ),
        ("run small.toml network.host=0.0.0.0", "network.host: edgefl run uses only this machine"),
        (
            "coordinator small.toml network.host=0.0.0.0",
            "network.host: '0.0.0.0' is not loopback and there are no keys: expected --keys DIR",
        ),
        ("coordinator small.toml --keys keys", "keys/coordinator.key_secret: no such key file"),
        (
            "edge --connect localhost:5555 --id e000",
            "--connect 'localhost:5555': expected tcp://HOST:PORT",
        ),
        (
            "edge --connect tcp://192.0.2.1:5555 --id e000",
            "--connect: '192.0.2.1' is not loopback and there are no keys",
        ),
        ("replay small", "small: no such directory"),
        ("run small.toml stop.emulated_s=1e300", "stop.emulated_s: expected less than or equal to"),
        (
            "run small.toml strategies.0.period_s=1e-12",
            "strategies[0].period_s: expected greater than or equal to 0.000000001",
        ),
        (
            'run small.toml strategies=[{strategy="fadas",epsilon=1e-40}]',
            "strategies[0].epsilon: expected greater than or equal to 1e-37, found 1e-40",
        ),
        (
            "data plot small.toml --out labels.jpg",
            "--out labels.jpg: expected a file that ends in .png",
        ),
    ],
)
@pytest.mark.processes
def test_bad_input_is_one_line_and_status_2(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    line: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["edgefl", *words.split()])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert line in err and err.startswith("edgefl: ") and err.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == ["small.toml"]


@pytest.mark.parametrize("words", ["run small.toml", "coordinator small.toml --keys keys"])
def test_a_port_in_use_is_refused(
    folder: Path, started: list[subprocess.Popen[str]], words: str
) -> None:
    end(start(started, "keys", "new", "keys"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, _, err = end(start(started, *words.split(), f"network.port={port}"))
    assert (
        status == 2
        and err.startswith(f"edgefl: cannot listen on 127.0.0.1:{port}")
        and err.count("\n") == 1
    )
    assert {path.name for path in folder.iterdir()} == {"small.toml", "keys"}


def test_a_run_that_nobody_joins_leaves_nothing_but_what_was_there(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    (folder / "runs").mkdir()
    process = start(
        started,
        "coordinator",
        "small.toml",
        "network.join_timeout_s=0.5",
        "record.payloads=true",
        "evaluation.by_label=true",
    )
    assert end(process)[::2] == (
        2,
        "edgefl: no edge has joined within 0.5 s (network.join_timeout_s)\n",
    )
    assert not list((folder / "runs").iterdir())


# ------------------------------------------------------------------ more than the host can do
# a few updates end each run, however long they take: a run without an update fails, and so would
# one in which each task is closed because it takes too long
BUSY = (
    "run",
    "small.toml",
    "training.epochs=20",
    "training.engine=torch",
    "model.hidden=[256]",
    "links.up_mbit_s=20",
    "links.down_mbit_s=20",
    "network.task_timeout_s=0",
    "stop.versions=2",
)


def test_a_run_that_cannot_keep_up_is_refused_or_strained(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    status, _, err = end(start(started, *BUSY, "devices.samples_per_s=100000000"))
    asked = re.search(r"this host (\d+): set speed=(\S+) or speed=auto", err)
    assert status == 2 and asked and err.count("\n") == 1 and not (folder / "runs").exists()

    slowed = start(
        started,
        *BUSY,
        f"devices.samples_per_s={4 * int(asked[1])}",
        "speed=auto",
        "--out",
        "auto",
    )
    status, out, err = end(slowed)
    found = summary(folder / "auto" / "small" / "fedasync")
    assert (status, err, found["speed_auto"]) == (0, "", True) and found["speed"] < 0.2
    first = out.splitlines()[0]
    assert first.endswith(f", speed {found['speed']:g} (auto), results in auto/small"), first

    too_fast = start(
        started,
        *BUSY,
        "devices.samples_per_s=100000000",
        "--force",
        "--out",
        "forced",
    )
    status, out, _ = end(too_fast)
    found = summary(folder / "forced" / "small" / "fedasync")["fidelity"]
    assert (
        status == 0
        and "continuing because of --force" in out
        and found["verdict"] == "strained"
        and found["compute_overruns"] > 0
    )


@pytest.mark.rest
def test_a_run_beside_busy_processes_is_strained(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    status, _, err = end(start(started, *BUSY, "devices.samples_per_s=100000000"))
    asked = re.search(r"this host (\d+): set", err)
    assert status == 2 and asked
    # three devices, the slowest half as fast: together they need three quarters of this host
    fitting = f"devices.samples_per_s={0.35 * int(asked[1]):.1f}"
    hogs = [
        subprocess.Popen([sys.executable, "-c", HOG], stdin=subprocess.PIPE)
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    # in the same session as the processes that use the CPU: Linux may share the processor evenly
    # between sessions, whatever the number of their processes
    beside_hogs = start(
        started, *BUSY, fitting, "stop.versions=4", "--force", "--out", "hogs", cold=True
    )
    try:
        # begin once the host was measured; two updates can end before this is seen, so four
        wait_for(lambda: happened(folder / "hogs" / "small" / "fedasync", event="run_started"))
        for hog in hogs:
            assert hog.stdin is not None
            hog.stdin.close()
        wait_for(lambda: happened(folder / "hogs" / "small" / "fedasync", fact="finished"))
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert end(beside_hogs)[0] == 0
    found = summary(folder / "hogs" / "small" / "fedasync")["fidelity"]
    assert found["verdict"] == "strained", found


# ------------------------------------------------------------------ the end, asked for or not
def test_ctrl_c_ends_a_wall_run_in_order(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    process = start(started, "run", "small.toml", *LONG)
    directory = folder / "runs" / "small" / "fedasync"
    wait_for(lambda: happened(directory, event="update_arrived"))
    others = family(process)
    assert len(others) == 1 + 2 + 1 + 3  # launcher; warm parent and coordinator; evaluator; edges
    os.killpg(process.pid, signal.SIGINT)
    status, out, err = end(process)
    assert (status, err) == (130, "") and "next: edgefl run --resume runs/small" in out
    assert (
        summary(directory)["finished"] == "interrupted"
        and summary(directory)["updates_applied"] > 0
    )
    assert (folder / "runs" / "small" / "figures" / "accuracy.png").exists() and gone(others)


def test_ctrl_c_ends_a_virtual_run_in_order(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    process = start(
        started, "run", "small.toml", *LONG, "--clock", "virtual", "record.payloads=true"
    )
    directory = folder / "runs" / "small" / "fedasync"
    wait_for(lambda: happened(directory, event="update_arrived"))
    os.killpg(process.pid, signal.SIGINT)
    status, out, err = end(process)
    assert status == 130 and "Traceback" not in err
    assert "next: edgefl run --resume runs/small" in out
    assert summary(directory)["finished"] == "interrupted"
    assert (
        replay_run(directory).version == summary(directory)["versions"] > 0
    )  # no event was recorded only in part


def test_kill_9_of_the_launcher_leaves_no_process(
    folder: Path,
    started: list[subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (folder / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(folder / "scratch"))
    process = start(started, "run", "small.toml", *LONG)
    directory = folder / "runs" / "small" / "fedasync"
    wait_for(lambda: happened(directory, event="update_arrived"))
    others = family(process)
    process.kill()
    process.wait()
    assert gone(others) and not list((folder / "scratch").iterdir())
    assert summary(directory)["finished"] == "launcher gone" and summary(directory)["versions"] > 0


# ------------------------------------------------------------------ separate terminals


def test_two_strategies_with_the_same_remote_edges_and_keys(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    both = TWO.replace(
        "strategies = [", 'strategies = [{strategy = "fedasync", label = "first", alpha = 0.3}, '
    )
    (folder / "two.toml").write_text(both)
    (folder / "other.toml").write_text(both.replace("seed = 3", "seed = 4"))
    end(start(started, "keys", "new", "keys", "--edges", "3"))
    keys = ("--keys", "keys")
    terminals = Terminals(started, "two.toml", *keys)
    first = terminals.edge("e000", *keys)
    turned_away = {
        "it requires keys (--keys DIR)": terminals.edge("e000"),
        "edge id: 'e002' is not one of this experiment's edges (edges.count, edges.names)": (
            terminals.edge("e002", *keys)
        ),
        "config and data differ from the coordinator's": terminals.edge(
            "e001", *keys, "--config", "other.toml"
        ),
    }
    for reason, edge in turned_away.items():
        status, _, err = end(edge)
        assert (status, err.partition(f"127.0.0.1:{terminals.port}: ")[2]) == (
            REFUSED,
            f"{reason}\n",
        )
    edges = [first, terminals.edge("e001", *keys, "--config", "two.toml")]
    status, out, err = end(terminals.coordinator)
    assert (status, err) == (0, "") and "next: edgefl compare" in out
    for edge in edges:
        status, out, err = end(edge)
        assert (status, err) == (0, "") and out.count("the run is over (versions)") == 2
    found = [summary(folder / "runs" / "small" / name) for name in ("first", "fedasync")]
    assert [each["versions"] for each in found] == [3, 3]
    refused = {"refused (e001)": 1, "refused (e002)": 1}  # by the edge to which the key belongs
    assert [each["fidelity"]["wire"] for each in found] == [refused, {}]
    strangers = found[0]["fidelity"]["strangers"]
    # the edge without keys; either end may see it first
    assert strangers.get("wrong handshake", 0) + strangers.get("broken off in the handshake", 0)


def test_an_edge_leaves_and_comes_back_without_keys(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    (folder / "two.toml").write_text(TWO)
    terminals = Terminals(
        started,
        "two.toml",
        *LONG,
        "network.heartbeat_s=0.3",
        "network.liveness_s=1",
        "network.grace_s=0.5",
    )
    directory = folder / "runs" / "small" / "fedasync"
    edges = [terminals.edge("e000"), terminals.edge("e001")]
    wait_for(lambda: happened(directory, event="update_arrived", edge="e001"))
    edges[1].send_signal(signal.SIGINT)
    status, out, _ = end(edges[1])
    assert status == 0 and "e001: leaving" in out
    wait_for(lambda: happened(directory, event="task_closed", edge="e001"))
    before = len(happened(directory, event="update_arrived", edge="e001"))
    edges[1] = terminals.edge("e001", cold=True)
    wait_for(lambda: len(happened(directory, event="update_arrived", edge="e001")) > before)
    os.killpg(terminals.coordinator.pid, signal.SIGINT)
    assert end(terminals.coordinator)[0] == 130 and summary(directory)["finished"] == "interrupted"
    for edge in edges:
        status, out, err = end(edge)
        assert (status, err) == (0, "") and "the run is over (interrupted)" in out
