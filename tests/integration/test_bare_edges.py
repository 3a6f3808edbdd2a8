"""Edges on machines with less: another system than Linux, or only the base environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bare_edge import LAB, LIBRARY_CALLS, NOT_EVERYWHERE, POSIX_MODULES
from idx_files import write_set
from paths import ROOT
from processes import happened, start
from terminals import Terminals, end

pytestmark = pytest.mark.processes

BARE_EDGE = ROOT / "tests" / "support" / "bare_edge.py"
SHARDS = """
name = "bare"
model = {name = "mlp", hidden = [16]}
edges = {names = ["laptop", "pi"]}
devices = {samples_per_s = 2000.0}
links = {up_mbit_s = 1.0, down_mbit_s = 2.0}
stop = {versions = 6}
strategies = [{strategy = "fedavg"}]
"""
PICTURES = SHARDS + 'data = {name = "mnist", dir = "data"}\npartition = {name = "iid"}\n'


def bare(
    started: list[subprocess.Popen[str]], system: str, report: Path, *words: str, **env: str
) -> subprocess.Popen[str]:
    """Start `edgefl WORDS` in a new Python without what ``system`` lacks."""
    started.append(
        subprocess.Popen(
            [sys.executable, str(BARE_EDGE), str(report), system, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | env,
        )
    )
    return started[-1]


def applied(edge: str) -> int:
    """How many updates of the edge the run has applied."""
    return len(happened(Path("runs/bare/fedavg"), event="update_arrived", edge=edge))


def test_an_edge_without_the_calls_of_linux_trains_to_the_end_of_the_run(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    """It also parses a data set into the cache, which needs a lock between processes."""
    (folder / "bare.toml").write_text(PICTURES)
    write_set(folder / "data" / "mnist", zipped=False)
    run = Terminals(started, "bare.toml")
    cache = folder / "its own cache"  # locked in another way than by a process with fcntl
    report = folder / "modules.json"
    laptop = bare(
        started,
        "posix",
        report,
        *("edge", "--connect", f"tcp://127.0.0.1:{run.port}", "--id", "laptop"),
        EDGEFL_CACHE=str(cache),
        PYTHONWARNINGS="ignore:only soft file lock",
    )
    pi = run.edge("pi")
    for process in (laptop, pi, run.coordinator):
        status, out, err = end(process)
        assert (status, err) == (0, ""), out
    assert applied("laptop") >= 6
    assert list(cache.glob("mnist-*/about.json"))
    assert not set(json.loads(report.read_text())["modules"]) & set(POSIX_MODULES)


def test_an_edge_with_a_shard_of_the_digits_needs_the_base_packages_alone(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    (folder / "bare.toml").write_text(SHARDS)
    assert end(start(started, "data", "shard", "bare.toml", "--out", "shards"))[0] == 0
    run = Terminals(started, "bare.toml", "data.source=shard", "data.dir=shards")
    report = folder / "modules.json"
    join = ("edge", "--connect", f"tcp://127.0.0.1:{run.port}", "--data", "shards", "--id")
    pi = bare(started, "base", report, *join, "pi")
    # nothing is hidden from this one: it could import what it does not need
    plain = bare(started, "all", folder / "all.json", *join, "laptop")
    for process in (pi, plain, run.coordinator):
        status, out, err = end(process)
        assert (status, err) == (0, ""), out
    assert applied("pi") >= 6
    for path in (report, folder / "all.json"):
        modules = json.loads(path.read_text())["modules"]
        imported = {name.partition(".")[0] for name in modules}
        assert not imported & {*LAB, "sympy", "zeroconf", "filelock"}
        assert {"pydantic", "zmq"} <= imported
        assert "torch" not in imported, "its steps are compiled"
        assert not [name for name in modules if name.startswith(COORDINATORS)]


# what only the coordinator's machine needs
COORDINATORS = (
    "torch._dynamo",
    "edgefl.clocks.wall.coordinator",
    "edgefl.clocks.wall.fleet",
    "edgefl.clocks.wall.launcher",
    "edgefl.clocks.virtual",
)


def test_what_is_hidden_is_missing(tmp_path: Path) -> None:
    """The tests above would prove nothing if a call was only renamed or still reachable."""
    calls = [
        f"{module.__name__}.{name}" for module in NOT_EVERYWHERE for name in NOT_EVERYWHERE[module]
    ]
    code = f"""
import bare_edge, ctypes, os, select, signal, socket
bare_edge.hide_linux()
for name in {POSIX_MODULES!r}:
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    raise SystemExit(name)
for call in {calls!r}:
    module, name = call.split(".")
    assert not hasattr(globals()[module], name), call
library = ctypes.CDLL(None)
assert not any(hasattr(library, name) for name in {LIBRARY_CALLS!r})
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests" / "support")},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
