"""`edgefl launch` on hosts with real ssh servers, each in a network namespace of its own."""

from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ssh_hosts
from launches import ended, launch
from paths import ROOT
from processes import happened, wait_for
from ssh_hosts import Rig

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(bool(ssh_hosts.refusal()), reason=ssh_hosts.refusal() or "it can be done"),
]
LONG = ("stop.versions=1000000", "stop.emulated_s=100000")
TWO = ("stop.versions=4", "strategies.0.concurrency=2")  # for two edges
Started = list[subprocess.Popen[str]]


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """Three hosts; the last one has room for two small files."""
    with ssh_hosts.ssh_hosts(3, disk_bytes={2: 2 << 12}) as made:
        yield made


@pytest.fixture
def lab(rig: Rig, folder: Path) -> Iterator[Path]:
    """A folder with an inventory of two hosts with two edges each; afterwards nothing is left."""
    write(folder, rig, [0, 1])
    yield folder
    wait_for(lambda: not any(host.processes("edgefl.plugins.launch.agent") for host in rig.hosts))
    assert [path for host in rig.hosts for path in host.home.glob(".edgefl/launched/*")] == []


def write(folder: Path, rig: Rig, indices: list[int]) -> None:
    """Write lab.toml, with these hosts of the rig."""
    few = Rig(rig.number, rig.folder, [rig.hosts[index] for index in indices])
    names = {
        at: {"names": [f"pi-{index + 1}-{letter}" for letter in "ab"]}
        for at, index in enumerate(indices)
    }
    env = {"PYTHONPATH": str(ROOT)}
    text = few.inventory(python=sys.executable, env=env, by_host=names)
    (folder / "lab.toml").write_text(text)


def keys_on(rig: Rig, index: int) -> list[Path]:
    found = rig.hosts[index].home.glob(".edgefl/launched/*/keys/**/*")
    return sorted(path for path in found if path.is_file())


def test_each_host_has_its_own_secrets_and_nothing_is_left(
    lab: Path, rig: Rig, started: Started
) -> None:
    process = launch(started, *LONG)
    directory = lab / "runs" / "small" / "fedasync"
    wait_for(lambda: len(happened(directory, event="update_arrived")) >= 4)
    for index in (0, 1):
        there = keys_on(rig, index)
        assert [path.name for path in there] == [
            "coordinator.key",
            f"pi-{index + 1}-a.key_secret",
            f"pi-{index + 1}-b.key_secret",
        ]
        assert {stat.S_IMODE(path.stat().st_mode) for path in there} == {0o600}
    joined = happened(directory, event="edge_joined")
    assert {row["edge"] for row in joined} == {"pi-1-a", "pi-1-b", "pi-2-a", "pi-2-b"}
    # edges go on while their ssh server is away
    log = lab / "runs" / "small" / "hosts" / f"{rig.hosts[1].address}.log"
    rig.hosts[1].stop(connections=True)
    wait_for(lambda: "lost the connection" in log.read_text())
    before = len(happened(directory, event="update_arrived", edge="pi-2-a"))
    wait_for(lambda: len(happened(directory, event="update_arrived", edge="pi-2-a")) > before + 2)
    rig.hosts[1].start()
    wait_for(lambda: "reached again; 2 edges run" in log.read_text())
    process.terminate()
    status, out, _ = ended(process)
    assert status == 130 and f"{rig.hosts[1].address}: reached again; 2 edges run" in out
    assert not happened(directory, event="edge_lost")
    assert {path.name for path in (lab / "runs" / "small" / "hosts").iterdir()} == {
        f"{host.address}.log" for host in rig.hosts[:2]
    }


def test_hosts_that_cannot_take_part_are_named_and_nothing_is_started(
    lab: Path, rig: Rig, started: Started
) -> None:
    write(lab, rig, [0, 1, 2])
    keys = rig.hosts[1].folder / "authorized_keys"
    allowed = keys.read_text()
    keys.write_text("")
    try:
        status, _, err = ended(launch(started))
        assert status == 2 and not (lab / "runs").exists()
        first, last = err.splitlines()
        assert first.startswith(f"edgefl: {rig.hosts[1].address}: the host refused the key")
        assert last == (
            "edgefl: lab.toml: 1 of 3 hosts cannot take part, so nothing was started (--partial:"
            " start without them)"
        )
        process = launch(started, *TWO, "network.join_timeout_s=5", "--partial")
        status, out, err = ended(process)
    finally:
        keys.write_text(allowed)
    assert status == 0 and "1 hosts are ready" in out
    assert "No space left on device" in err
    joined = happened(lab / "runs" / "small" / "fedasync", event="edge_joined")
    assert {row["edge"] for row in joined} == {"pi-1-a", "pi-1-b"}


@pytest.mark.parametrize("via", ["netns", "ssh"])
def test_a_coordinator_on_another_host(lab: Path, rig: Rig, started: Started, via: str) -> None:
    if via == "netns":  # whose home is that of this machine
        server = {"via": via, "host": rig.hosts[1].name, "folder": str(lab / "work")}
        keys = "\n".join(f'{key} = "{value}"' for key, value in server.items())
        defaults = f'via = "netns"\npython = "{sys.executable}"\nfolder = "{lab / "work"}"\n'
        hosts = f'[[hosts]]\nhost = "{rig.hosts[0].name}"\nnames = ["a", "b"]\n'
        text = f"[coordinator]\n{keys}\n[defaults]\n{defaults}{hosts}"
    else:
        server = {"via": via, "host": rig.hosts[1].address, "python": sys.executable}
        server |= {"user": "root", "identity": str(rig.identity)}
        server["known_hosts"] = str(rig.known_hosts)
        env = {"PYTHONPATH": str(ROOT)}
        few = Rig(rig.number, rig.folder, rig.hosts[:1])
        text = few.inventory(server, {0: {"names": ["a", "b"]}}, python=sys.executable, env=env)
    (lab / "lab.toml").write_text(text)
    status, out, err = ended(launch(started, *TWO))
    assert (status, err) == (0, "")
    directory = lab / "runs" / "small" / "fedasync"
    assert len(happened(directory, event="edge_joined")) == 2
    assert (directory / "summary.json").is_file() and out.count("verdict") == 1
    shared = (lab / "work" / rig.hosts[1].name, lab / "work" / rig.hosts[0].name / "launched")
    for work in (*shared, *(host.home / ".edgefl" / "results" for host in rig.hosts)):
        assert not [path for path in work.rglob("*") if path.is_file()]
