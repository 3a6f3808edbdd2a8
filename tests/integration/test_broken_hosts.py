"""Launches some of whose hosts break: what is said, the edges of the others, and what is left.

Each host is a network namespace with a real ssh server. scripts/benchmarks/broken_hosts.py tries
more faults, for longer, on more hosts.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ssh_hosts
from broken_launch import LONG_S, BrokenLaunch, agent, eventually, foreign_program, traces_of_rig
from paths import ROOT
from ssh_hosts import Rig

from edgefl import __version__

pytestmark = [
    pytest.mark.alone,
    pytest.mark.usefixtures("warm_python"),
    pytest.mark.skipif(bool(ssh_hosts.refusal()), reason=ssh_hosts.refusal() or "it can be done"),
]
CUT_S = 5.0
INTERRUPTED = 130


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with ssh_hosts.ssh_hosts(4) as made:
        yield made
    assert traces_of_rig(made) == []


@pytest.fixture
def launches(rig: Rig) -> Iterator[list[BrokenLaunch]]:
    """Collects the launches of a test; after it, nothing is left of them."""
    made: list[BrokenLaunch] = []
    try:
        yield made
        for each in made:
            assert each.left_in_the_end() == []
    finally:
        for each in made:
            each.process.kill()
            each.process.wait()
        for host in rig.hosts:
            host.restore()


def says(launch: BrokenLaunch, text: str) -> None:
    eventually(lambda: text in launch.out, f"it does not say {text!r} but {launch.out}")


def test_hosts_that_break_one_after_the_other_harm_no_other(
    rig: Rig, tmp_path: Path, launches: list[BrokenLaunch]
) -> None:
    _, cut, served, dead = rig.hosts
    launch = BrokenLaunch(rig, tmp_path, 2)
    launches.append(launch)
    launch.start()
    launch.runs(launch.others())
    began_s = time.monotonic()
    cut.cut()
    eventually(lambda: set(launch.lost(launch.ids(cut))) == launch.ids(cut), "no edge is lost")
    launch.runs(launch.others(cut), len(launch.rows()))
    time.sleep(max(began_s + CUT_S - time.monotonic(), 0.0))
    cut.restore()
    served.stop(connections=True)
    says(launch, f"{served.address}: lost the connection")
    says(launch, f"{served.address}: not reached again: cannot be reached at port 22")
    launch.runs(launch.others(), len(launch.rows()))  # those of both hosts too
    os.kill(agent(dead), signal.SIGKILL)
    says(launch, f"{dead.address}: its agent died with exit status 137, and its edges with it")
    launch.runs(launch.others(dead), len(launch.rows()))
    version = launch.version()
    eventually(lambda: launch.version() > version + 2, "no more versions")
    assert launch.end(number=signal.SIGINT) == INTERRUPTED
    assert f"{served.address}: not reached at the end: its edges end by themselves" in launch.out
    assert re.search(
        r"strained: .*no message from edge \S+ for [\d.]+ s, then it came back", launch.out
    )
    assert launch.lost(launch.others(cut, dead)) == []
    served.start()


def test_a_synchronous_strategy_goes_on_without_a_host(
    rig: Rig, tmp_path: Path, launches: list[BrokenLaunch]
) -> None:
    gone = rig.hosts[1]
    launch = BrokenLaunch(rig, tmp_path, 1, "fedavg")
    launches.append(launch)
    launch.start("network.grace_s=2")
    launch.runs(launch.others())
    gone.cut()
    eventually(lambda: launch.lost(launch.ids(gone)), "no edge is lost")
    version = launch.version()
    eventually(lambda: launch.version() >= version + 3, "no more rounds")
    gone.restore()
    launch.runs(launch.ids(gone), len(launch.rows()))
    assert launch.end(number=signal.SIGINT, presses=2) == INTERRUPTED
    assert launch.lost(launch.others(gone)) == []


def test_a_host_that_is_lost_before_the_run_ends_the_launch(
    rig: Rig, tmp_path: Path, launches: list[BrokenLaunch]
) -> None:
    lost = rig.hosts[2]
    launch = BrokenLaunch(rig, tmp_path, 1)
    launches.append(launch)
    launch.start()
    eventually(lambda: lost.processes("edgefl.launch.agent"), "no agent")
    lost.stop(connections=True)
    assert launch.process.wait(LONG_S) == 2
    assert f"edgefl: {lost.address}: lost the connection" in launch.out
    assert "1 of 4 hosts cannot take part, so nothing was started" in launch.out
    assert not (tmp_path / "runs").exists()
    lost.start()


def test_a_coordinator_whose_host_is_lost_does_not_hold_the_launch(
    rig: Rig, tmp_path: Path, launches: list[BrokenLaunch]
) -> None:
    _, *others, host = rig.hosts
    login = {"user": "root", "identity": str(rig.identity), "known_hosts": str(rig.known_hosts)}
    place = {"via": "ssh", "host": host.address, "python": sys.executable, **login}
    few = Rig(rig.number, rig.folder, others)
    launch = BrokenLaunch(few, tmp_path, 1, coordinator=place)
    launches.append(launch)
    launch.start("stop.emulated_s=15")
    says(launch, "s emulated")  # what the coordinator prints
    host.stop(connections=True)
    says(launch, f"{host.address}: lost the connection")
    assert launch.end(number=signal.SIGINT) == 1
    assert f"{host.address}: not reached, so the coordinator there goes on" in launch.out
    # it ends by itself, and keeps its results
    eventually(lambda: not host.processes("edgefl"), "the coordinator goes on")
    assert list(host.home.glob(".edgefl/results/*/broken/fedasync/summary.json"))
    assert not list(host.home.glob(".edgefl/launched/*"))
    shutil.rmtree(host.home / ".edgefl" / "results")  # the next test looks for what is left
    host.start()


def another_version(folder: Path) -> Path:
    """Copy the packages, as version 0.0.9."""
    for package in ("edgefl", "emulator"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("*.pyc"))
    file = folder / "edgefl" / "__init__.py"
    file.write_text(file.read_text().replace(__version__, "0.0.9"))
    return folder


def test_each_host_whose_edges_cannot_start_is_one_line(
    rig: Rig, tmp_path: Path, launches: list[BrokenLaunch]
) -> None:
    foreign, other = foreign_program(tmp_path / "foreign"), another_version(tmp_path / "other")
    by_host = {
        0: {"python": "/no/such/python"},
        1: {"python": str(foreign)},
        2: {"python": "/usr/bin/false"},
        3: {"env": {"PYTHONPATH": str(other)}},
    }
    launch = BrokenLaunch(rig, tmp_path / "launch", 1, by_host=by_host)
    launches.append(launch)
    launch.start()
    assert launch.process.wait(LONG_S) == 2
    inventory = "name one with `python` or `venv` in the inventory"
    for host, reason in zip(
        rig.hosts,
        [
            rf"no Python \(.*/no/such/python: not found\): {inventory}",
            rf"no Python \(.*{foreign}: Exec format error\): {inventory}",
            "its agent did not start: edgefl hosts install puts edgefl there",
            f"it has edgefl 0.0.9, expected {__version__}: edgefl hosts install",
        ],
    ):
        assert re.search(f"edgefl: {host.address}: {reason}", launch.out), launch.out
    assert launch.out.endswith("no host can take part; nothing was started")


def test_hosts_that_cannot_be_reached_are_one_line_each(
    rig: Rig, tmp_path: Path, launches: list[BrokenLaunch]
) -> None:
    _, stopped, changed, closed = rig.hosts
    allowed = closed.folder / "authorized_keys"
    text = allowed.read_text()
    try:
        stopped.stop()
        changed.stop()
        changed.new_host_key()
        changed.start()
        allowed.write_text("")
        launch = BrokenLaunch(rig, tmp_path, 1)
        launches.append(launch)
        launch.start()
        assert launch.process.wait(LONG_S) == 2
    finally:
        allowed.write_text(text)
        stopped.start()
        rig.trust()
    for host, reason in (
        (stopped, "cannot be reached at port 22 (Connection refused)"),
        (changed, "the host key has changed (now ED25519, fingerprint SHA256:"),
        (closed, f"the host refused the key {rig.identity} for user 'root': add the public key"),
    ):
        assert f"edgefl: {host.address}: {reason}" in launch.out
    assert launch.out.endswith("so nothing was started (--partial: start without them)")
    assert not (tmp_path / "lab.keys").exists() and not (tmp_path / "runs").exists()
