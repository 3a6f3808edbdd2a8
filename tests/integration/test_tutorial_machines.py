"""The tutorial "Two Pis and a laptop", walked through with the commands and files of its page.

The Pis are namespaces with ssh servers; their Python has torch, so that nothing is downloaded.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import ssh_hosts
from pages import WALKED, blocks, command_lines
from paths import ROOT
from processes import happened, wait_for
from ssh_hosts import Rig
from tiny_wheels import python_with_torch, write_wheel

pytestmark = [
    pytest.mark.rest,
    pytest.mark.alone,
    pytest.mark.processes,
    pytest.mark.skipif(bool(ssh_hosts.refusal()), reason=ssh_hosts.refusal() or "it can be done"),
]
NAMED = 'mount --bind "$1" /etc/hosts; shift; exec "$@"'  # $1: a file for /etc/hosts


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with ssh_hosts.ssh_hosts(2, user="pi", rate_mbit_s=50) as made:
        yield made


@pytest.fixture
def laptop(rig: Rig, tmp_path: Path) -> Path:
    """The newcomer's folder, with the files of the page; ssh works as after ssh-copy-id."""
    login, folder = tmp_path / "home" / ".ssh", tmp_path / "home" / "pis"
    login.mkdir(parents=True)
    folder.mkdir()
    shutil.copy(rig.identity, login / "id_ed25519")
    names = {f"pi-{index + 1}": host for index, host in enumerate(rig.hosts)}
    (tmp_path / "hosts").write_text(
        "".join(f"{host.address} {name}\n" for name, host in names.items())
    )
    known = rig.known_hosts.read_text()
    for name, host in names.items():
        known = known.replace(f"{host.address} ", f"{name} ")
    (login / "known_hosts").write_text(known)
    for text in blocks("toml", [WALKED]):
        name = re.findall(r"\A# (\S+\.toml)$", text, flags=re.MULTILINE)[0]
        (folder / name).write_text(text)
    write_wheel(folder / "wheels", "spare")
    # in the rig's folder, because the user pi may not read that of the tests
    python = python_with_torch(rig.folder / "base")
    inventory = (folder / "pis.toml").read_text()
    assert inventory.count("[defaults]") == 1
    prepared = re.sub(r"(\[defaults\].*)", rf'\1\npython = "{python}"', inventory)
    (folder / "pis.toml").write_text(prepared)
    return folder


def start(laptop: Path, words: list[str]) -> subprocess.Popen[str]:
    home = laptop.parent
    inside = ["unshare", "--mount", "sh", "-euc", NAMED, "sh", str(home.parent / "hosts")]
    return subprocess.Popen(
        [*inside, sys.executable, "-m", "edgefl.cli", *words],
        cwd=laptop,
        env=os.environ | {"HOME": str(home), "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_tutorial_word_for_word(rig: Rig, laptop: Path) -> None:
    said: dict[str, str] = {}
    every = command_lines("edgefl", [WALKED])
    lines = [words for words in every if words[:2] != ["hosts", "wheels"]]  # it downloads
    for words in lines:
        here = " ".join(words)
        if words == ["hosts", "install", "pis.toml"]:
            continue  # with internet on the hosts; the next line is the way without
        process = start(laptop, words)
        if "name=stopped" in words:
            run = laptop / "runs" / "stopped" / "fedavg"
            wait_for(partial(happened, run, event="update_arrived"))
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        unready = here == "hosts check pis.toml"
        expected = 130 if "name=stopped" in words else 3 if unready else 0
        assert process.returncode == expected, f"{here}\n{out}\n{err}"
        said[here] = out
    assert "next: edgefl hosts install pis.toml" in said["hosts check pis.toml"]
    assert said["hosts check pis.toml first.toml"].count(" yes") == 3
    installed = said["hosts install pis.toml --wheels wheels"]
    assert installed.count("in ~/.edgefl/venv") == 2
    assert "edgefl profile runs/first/fedavg" in said["launch pis.toml first.toml"]
    assert {path.name for path in (laptop / "runs" / "first" / "hosts").iterdir()} == {
        "laptop.log",
        "pi-1.log",
        "pi-2.log",
    }
    assert len(said) == len(lines) - 1
    for host in rig.hosts:
        assert not host.processes("edgefl.plugins.launch.agent")
        assert list(host.home.glob(".edgefl/launched/*")) == []
