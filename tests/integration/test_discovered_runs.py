"""Edges that find their coordinator by mDNS, on loopback and between two network namespaces."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from namespace_pair import FIRST, inside, namespace_pair, refusal
from paths import ROOT
from processes import happened, start
from terminals import end
from typer.testing import CliRunner

from edgefl.cli import app
from edgefl_testbed import install_command

pytestmark = [pytest.mark.processes, pytest.mark.alone]

RUN = """
name = "found"
model = {name = "mlp", hidden = [16]}
edges = {names = ["one", "two"]}
devices = {samples_per_s = 2000.0}
links = {up_mbit_s = 1.0, down_mbit_s = 2.0}
stop = {versions = 4}
strategies = [{strategy = "fedavg"}, {strategy = "fedasync"}]
"""


def start_in(
    started: list[subprocess.Popen[str]], namespace: str, *words: str
) -> subprocess.Popen[str]:
    """Start `edgefl WORDS` in a namespace."""
    started.append(
        subprocess.Popen(
            inside(namespace, sys.executable, "-m", "edgefl.cli", *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
    )
    return started[-1]


@pytest.mark.skipif(bool(refusal()), reason=refusal())
def test_edges_on_another_machine_find_a_coordinator_with_keys(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    (folder / "found.toml").write_text(RUN)
    made = CliRunner().invoke(app, ["keys", "new", "keys", "--ids", "one,two"])
    assert made.exit_code == 0
    with namespace_pair() as (first, second):
        join = ("edge", "--keys", "keys", "--discover")
        # these two wait until there is a coordinator
        one = start_in(started, second, *join, "found", "--id", "one")
        two = start_in(started, second, *join, "--id", "two", "--forever")
        coordinator = start_in(
            started,
            first,
            *("coordinator", "found.toml", "--announce", "--keys", "keys", "network.host=0.0.0.0"),
        )
        status, _, err = end(coordinator)
        assert (status, err) == (0, "")
        status, out, err = end(one)
        assert (status, err) == (0, "")
        assert f"one: joining tcp://{FIRST}:" in out and out.count("the run is over") == 2
        two.send_signal(signal.SIGTERM)
        status, out, err = end(two)
        assert (status, err) == (0, "") and out.count("the run is over") == 2
    for strategy in ("fedavg", "fedasync"):
        log = Path("runs/found") / strategy
        assert {row["edge"] for row in happened(log, event="edge_joined")} == {"one", "two"}


@pytest.mark.skipif(bool(refusal()), reason=refusal())
def test_without_keys_an_edge_joins_no_coordinator_elsewhere(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    (folder / "found.toml").write_text(RUN)
    with namespace_pair() as (first, second):
        coordinator = start_in(
            started,
            first,
            *("coordinator", "found.toml", "--announce", "--insecure", "network.host=0.0.0.0"),
        )
        status, _, err = end(start_in(started, second, "edge", "--discover", "--id", "one"))
        assert status == 2 and err.count("\n") == 1
        assert f"'{FIRST}' is not loopback and there are no keys" in err
        coordinator.send_signal(signal.SIGINT)
        end(coordinator)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--discover", "--connect", "tcp://127.0.0.1:1"], "expected --connect tcp://HOST:PORT or"),
        ([], "or --discover, found neither"),
        (["name", "--connect", "tcp://127.0.0.1:1"], "'name': a name is for --discover"),
    ],
)
def test_a_mistake_about_the_coordinators_place_is_one_line(
    folder: Path, started: list[subprocess.Popen[str]], words: list[str], line: str
) -> None:
    status, out, err = end(start(started, "edge", "--id", "one", *words))
    assert (status, out, err.count("\n")) == (2, "", 1) and line in err


def test_what_needs_zeroconf_says_so_before_anything_starts(folder: Path) -> None:
    (folder / "found.toml").write_text(RUN)
    hidden = "import sys; sys.modules['zeroconf'] = None; from edgefl.cli import main; main()"
    for words in (
        ["edge", "--discover", "--id", "one"],
        ["coordinator", "found.toml", "--announce"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", hidden, *words],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            f"edgefl: {words[-1] if words[0] == 'coordinator' else '--discover'} needs the package"
            f" 'zeroconf', which is not installed: {install_command('discover')}\n"
        )
    assert not Path("runs").exists()
