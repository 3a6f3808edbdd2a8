"""`edgefl hosts check`, `hosts install --wheels` and `launch` as commands, on real ssh servers.

Four hosts, each a network namespace. The first has nothing but Debian's Python and gets everything
from a wheelhouse; the others name the environment of these tests, which has torch.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import ssh_hosts
from paths import BENCHMARKS, CONFIGS, ROOT
from processes import PATIENCE_S, happened, wait_for
from ssh_hosts import Rig, SSHHost

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.virtual.run import run_virtual
from edgefl.loading.file import load
from edgefl.results.read import read_csv

pytestmark = [
    pytest.mark.processes,
    pytest.mark.alone,
    pytest.mark.skipif(bool(ssh_hosts.refusal()), reason=ssh_hosts.refusal() or "it can be done"),
]
HOSTS, FASTER = 4, 10
SERVER_PATH = "/usr/local/bin:/usr/bin:/bin"  # where a command over ssh finds its programs
INSTALL_S = 600.0  # far more than needed
NO_WAITING = {
    "PIP_RETRIES": "1",
    "PIP_DEFAULT_TIMEOUT": "15",
}  # for an index that cannot be reached
CAN_MAKE = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
AGREEMENT = CONFIGS / "agreement.toml"
SHORT = ["stop.emulated_s=8"]


def edgefl(folder: Path, *words: object) -> subprocess.Popen[str]:
    """Start a command as a user does, without a terminal."""
    return subprocess.Popen(
        [sys.executable, "-m", "edgefl.cli", *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=os.environ | NO_WAITING | {"PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str], within_s: float = PATIENCE_S) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=within_s)
    finally:
        process.kill()
    return process.returncode, out, err


@dataclass(frozen=True)
class Machines:
    """The hosts, and the folder with their inventory. What check and install printed at first."""

    rig: Rig
    folder: Path
    checked: tuple[int, str, str]
    installed: tuple[int, str, str]

    def edges(self, host: SSHHost) -> list[str]:
        at = self.rig.hosts.index(host)
        return [f"e{number:03d}" for number in (2 * at, 2 * at + 1)]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A wheelhouse for the hosts' own Python; it has 200 MB, so it is removed afterwards."""
    python = shutil.which("python3", path=SERVER_PATH)
    found = subprocess.run([python or "false", "-c", CAN_MAKE], capture_output=True, text=True)
    version = found.stdout.strip()
    if found.returncode or int(version.partition(".")[2]) < 11:
        pytest.skip(f"{python}: no Python 3.11 that can make environments (Debian: python3-venv)")
    folder = tmp_path_factory.mktemp("wheels")
    try:
        status, _, err = ended(edgefl(folder, "hosts", "wheels", "house", "--python", version), 300)
        if status:
            assert "Traceback" not in err and "ERROR" in err
            pytest.skip(f"pip cannot download the packages here: {err.strip()}")
        yield folder / "house"
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def machines(house: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    folder = tmp_path_factory.mktemp("machines")
    with ssh_hosts.ssh_hosts(HOSTS) as rig:
        own = {
            index: {"names": [f"e{2 * index:03d}", f"e{2 * index + 1:03d}"]}
            for index in range(HOSTS)
        }
        for index in range(1, HOSTS):
            own[index]["python"] = sys.executable
        (folder / "lab.toml").write_text(rig.inventory(by_host=own))
        checked = ended(edgefl(folder, "hosts", "check", "lab.toml", AGREEMENT, "--json"))
        installed = ended(
            edgefl(folder, "hosts", "install", "lab.toml", "--wheels", house), INSTALL_S
        )
        emulated = load(AGREEMENT).links
        for host in rig.hosts:
            host.limit(FASTER * max(emulated.up_mbit_s, emulated.down_mbit_s))
        yield Machines(rig, folder, checked, installed)


@pytest.fixture
def lab(machines: Machines) -> Iterator[Machines]:
    """The hosts; afterwards, nothing of a run may be left on them."""
    yield machines
    for host in machines.rig.hosts:
        wait_for(lambda host=host: not host.processes("python"))
        there = {path.name for path in host.home.glob(".edgefl/*")}
        assert there <= {"venv", "shards", "launched"}
        assert not list(host.home.glob(".edgefl/launched/*"))
    shutil.rmtree(machines.folder / "runs", ignore_errors=True)


@pytest.fixture
def agreement(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark that compares two clocks."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("agreement")


def secrets(host: SSHHost) -> list[str]:
    """The files with keys on a host."""
    return sorted(path.name for path in host.home.glob(".edgefl/launched/*/keys/**/*.key*"))


def test_hosts_are_checked_installed_and_fit(lab: Machines) -> None:
    status, out, err = lab.checked
    assert status == 3, err
    bare, *others = json.loads(out)
    assert bare["problems"] == ["no edgefl: `edgefl hosts install`"]
    assert all(each["fits"] for each in others), others
    status, out, err = lab.installed
    assert status == 0, err
    first, *rows = out.splitlines()
    assert first.startswith(f"{lab.rig.hosts[0].address}  edgefl ")
    assert first.endswith(" in ~/.edgefl/venv")
    assert "MB to send" in err and len(rows) == HOSTS
    home = lab.rig.hosts[0].home / ".edgefl"
    packages = {path.name for path in home.glob("venv/lib/*/site-packages/*")}
    assert {"torch", "edgefl", "zmq"} <= packages
    assert not packages & {"matplotlib", "sklearn", "asyncssh"}
    assert not (home / "wheels").exists()
    again, out, _ = ended(edgefl(lab.folder, "hosts", "check", "lab.toml", AGREEMENT, "--json"))
    assert again == 0 and all(each["fits"] for each in json.loads(out))


def test_a_second_installation_does_nothing(lab: Machines, house: Path) -> None:
    status, out, err = ended(edgefl(lab.folder, "hosts", "install", "lab.toml", "--wheels", house))
    assert status == 0, err
    assert out.count("  unchanged: ") == HOSTS and "to send" not in err


@pytest.mark.rest
def test_a_launch_decides_as_one_machine_does(
    lab: Machines, agreement: ModuleType, tmp_path: Path
) -> None:
    process = edgefl(lab.folder, "launch", "lab.toml", AGREEMENT, *SHORT)
    results = lab.folder / "runs" / "agreement"
    wait_for(
        lambda: process.poll() is not None or happened(results / "fedavg", event="run_started")
    )
    for host in lab.rig.hosts:
        own = [f"{edge}.key_secret" for edge in lab.edges(host)]
        assert secrets(host) == ["coordinator.key", *own]
    status, out, err = ended(process)
    assert status == 0, err
    assert f"{HOSTS} hosts are ready" in out
    experiment = load(AGREEMENT, SHORT)
    learned = learning(experiment, CONFIGS)
    for index, entry in enumerate(experiment.strategies):
        run_virtual(learned, index, tmp_path / entry.name)
        launched, virtual = (agreement.trace(each / entry.name) for each in (results, tmp_path))
        assert launched.selections == virtual.selections and len(virtual.selections) > 2
        assert launched.updates == virtual.updates and len(virtual.updates) >= 10
        assert launched.published_s.keys() == virtual.published_s.keys()
        reported = {row["host"] for row in read_csv(results / entry.name / "hosts.csv")}
        assert reported == {host.address for host in lab.rig.hosts}
    for host in lab.rig.hosts:
        log = (results / "hosts" / f"{host.address}.log").read_text()
        for edge in lab.edges(host):
            assert f" {edge}: fedasync: the run is over (emulated_s)" in log


def test_ctrl_c_ends_a_launch_in_order(lab: Machines) -> None:
    process = edgefl(lab.folder, "launch", "lab.toml", AGREEMENT)
    fedavg = lab.folder / "runs" / "agreement" / "fedavg"
    wait_for(lambda: process.poll() is not None or happened(fedavg, event="update_arrived"))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    status, out, err = ended(process)
    assert status == 130, err
    assert "Traceback" not in out + err and "killed" not in out
    summary = json.loads((fedavg / "summary.json").read_bytes())
    assert summary["finished"] == "interrupted"
    assert not (fedavg.parent / "fedasync").exists()
    for host in lab.rig.hosts:
        log = (fedavg.parent / "hosts" / f"{host.address}.log").read_text()
        for edge in lab.edges(host):
            assert f" {edge}: fedavg: the run is over (interrupted)\n" in log
            # the agent ends edges that have not ended by themselves when the launcher does
            assert f" {edge}: the run is over\n" in log or f" {edge}: stopped\n" in log
