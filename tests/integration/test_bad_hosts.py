"""Bad input to the commands for hosts: one line, exit status 2, and nothing was started or made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import SMALL

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("warm_python")]
LOCAL = 'via = "local"\n'
COMMANDS = {
    "launch": ["launch", "lab.toml", "small.toml"],
    "check": ["hosts", "check", "lab.toml", "small.toml"],
    "install": ["hosts", "install", "lab.toml", "small.toml"],
}
MISTAKES = {
    "duplicate host": (
        f"[[hosts]]\nhost = 'pi-[1-3]'\n{LOCAL}[[hosts]]\nhost = 'pi-2'\n{LOCAL}",
        "lab.toml: hosts: host 'pi-2' is given twice",
    ),
    "host that is not needed": (
        f"[[hosts]]\nhost = 'pi-[1-3]'\n{LOCAL}",
        "lab.toml: host 'pi-3' is not needed: the config's edges.names has no 'pi-3'",
    ),
    "missing identity": (
        "[[hosts]]\nhost = 'pi-1'\nidentity = 'keys/id_ed25519'\n",
        "lab.toml: hosts[0].identity: no file keys/id_ed25519",
    ),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    named = SMALL.replace("{count = 3}", "{names = ['pi-1', 'pi-2']}")
    (tmp_path / "small.toml").write_text(named.replace("concurrency = 3", "concurrency = 2"))
    return tmp_path


def said(place: Path, module: str, *words: str) -> tuple[int, str, str]:
    """The exit status and the output of a command, started as a user does."""
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=place,
        env=os.environ | {"HOME": str(place / "home"), "COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(("command", "mistake"), zip(COMMANDS, MISTAKES))
def test_a_mistake_in_the_inventory(command: str, mistake: str, place: Path) -> None:
    text, line = MISTAKES[mistake]
    (place / "lab.toml").write_text(text)
    status, out, err = said(place, "edgefl.cli", *COMMANDS[command])
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"edgefl: {line}")
    assert {path.name for path in place.iterdir()} == {"lab.toml", "small.toml"}


def test_a_host_without_a_server_and_one_that_does_not_exist(place: Path) -> None:
    hosts = "[[hosts]]\nhost = '127.0.0.1'\nport = 1\nnames = ['pi-1']\n"
    hosts += "[[hosts]]\nhost = 'no-host.invalid'\nnames = ['pi-2']\n"
    (place / "lab.toml").write_text(hosts)
    status, out, err = said(place, "edgefl.cli", *COMMANDS["launch"])
    assert (status, out) == (2, "lab.toml: connecting to 2 hosts\n")
    first, second, last = err.splitlines()
    assert first == "edgefl: 127.0.0.1: cannot be reached at port 1 (Connection refused)"
    assert second.startswith("edgefl: no-host.invalid: cannot be reached at port 22 (")
    assert last == "edgefl: lab.toml: no host can take part; nothing was started"
    assert {path.name for path in place.iterdir()} == {"lab.toml", "small.toml"}


@pytest.mark.parametrize(
    ("links", "line"),
    [
        ("a a", "link a-a: from and to are both a, a loop"),
        ("c1 c2, c2 c3, c3 c1", "bridges c1 - c2 - c3 - c1 form a loop"),
        ("a b, b a", "links a-b and b-a both join b and a: expected one"),
    ],
)
def test_a_topology_with_a_loop(links: str, line: str, place: Path) -> None:
    pairs = [each.split() for each in links.split(", ")]
    text = "[[hosts]]\nname = 'a'\n[[hosts]]\nname = 'b'\n"
    text += "".join(f"[[bridges]]\nname = 'c{at}'\n" for at in (1, 2, 3))
    text += "".join(f"[[links]]\nfrom = '{a}'\nto = '{b}'\n" for a, b in pairs)
    (place / "lab.toml").write_text(text)
    status, out, err = said(place, "emulator.cli", "lab", "run", "lab.toml", "--", "true")
    assert (status, out, err.count("\n")) == (2, "", 1)
    needs = "emulator: emulator lab needs root" if os.geteuid() else f"emulator: lab.toml: {line}"
    assert err.startswith(needs)
