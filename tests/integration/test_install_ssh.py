"""`edgefl hosts install` on hosts with real ssh servers, of which two cannot be installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ssh_hosts
from paths import ROOT
from ssh_hosts import Rig
from tiny_wheels import python_with_torch, write_wheel

pytestmark = [
    pytest.mark.rest,
    pytest.mark.processes,
    pytest.mark.skipif(bool(ssh_hosts.refusal()), reason=ssh_hosts.refusal() or "it can be done"),
]
SMALL_DISK, OTHER_PROCESSOR = 2, 3  # indices of hosts


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    disks, machines = {SMALL_DISK: 1 << 19}, {OTHER_PROCESSOR: "i686"}
    with ssh_hosts.ssh_hosts(4, disk_bytes=disks, machines=machines) as made:
        yield made


def install(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "edgefl.cli", "hosts", "install", "lab.toml", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def test_hosts_are_installed_next_to_others_that_cannot_be(rig: Rig, tmp_path: Path) -> None:
    python = python_with_torch(tmp_path / "base")
    write_wheel(tmp_path / "house", "spare")
    names = {index: {"names": [f"edge-{index}"]} for index in range(4)}
    (tmp_path / "lab.toml").write_text(rig.inventory(python=python, by_host=names))
    (tmp_path / "small.toml").write_text((ROOT / "configs" / "quickstart.toml").read_text())
    first = install(tmp_path, "small.toml", "--wheels", "house")
    assert first.returncode == 1, first.stderr
    rows = dict(line.split(maxsplit=1) for line in first.stdout.splitlines())
    addresses = [host.address for host in rig.hosts]
    assert list(rows) == addresses
    for address in addresses[:2]:
        assert rows[address].startswith("edgefl ") and "shares sent (" in rows[address]
    assert "free on its disk, expected" in rows[addresses[SMALL_DISK]]
    assert "there is no torch for i686" in rows[addresses[OTHER_PROCESSOR]]
    for index, host in enumerate(rig.hosts):
        found = sorted(path.name for path in host.home.rglob("*.safetensors"))
        assert found == ([f"edge-{index}.safetensors"] if index < 2 else [])
    made = rig.hosts[0].home / ".edgefl" / "venv" / "lib"
    assert list(made.rglob("edgefl/cli.py")) and not list(made.rglob("torch/__init__.py"))
    again = install(tmp_path, "small.toml", "--wheels", "house")
    assert again.stdout.count("unchanged: ~/.edgefl/venv/bin/python; shares are there\n") == 2
    assert again.returncode == 1
    assert not any(host.processes("python") for host in rig.hosts)
