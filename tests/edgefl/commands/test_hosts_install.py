"""`edgefl hosts install` and `edgefl hosts wheels`, as a user sees them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT
from tiny_wheels import write_wheel
from typer.testing import CliRunner

from edgefl.cli import app
from edgefl.commands.hosts_progress import HostsProgress

pytestmark = pytest.mark.processes

INVENTORY = """
[defaults]
via = "local"
folder = "{folder}"
python = "{python}"
[[hosts]]
host = "pi-[1-2]"
[[hosts]]
host = "other"
python = "/nowhere/python"
"""


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    text = INVENTORY.format(folder=tmp_path / "hosts", python=sys.executable)
    (tmp_path / "inventory.toml").write_text(text)
    return tmp_path / "inventory.toml"


def test_hosts_that_have_this_edgefl_get_their_shares_and_a_bad_one_is_named(
    inventory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    words = ["hosts", "install", str(inventory), "configs/quickstart.toml"]
    first, again = (CliRunner().invoke(app, words) for _ in range(2))
    assert first.exit_code == again.exit_code == 1, first.output
    one, two, other = first.stdout.splitlines()
    assert one.startswith(f"pi-1   unchanged: {sys.executable} has this edgefl; shares sent (")
    assert two.startswith("pi-2   unchanged") and "shares sent" in two
    assert other == "other  failed: /nowhere/python: No such file or directory"
    assert again.stdout.count("; shares are there\n") == 2
    assert [path.name for path in (tmp_path / "hosts" / "pi-1").rglob("*.safetensors")] == [
        "pi-1.safetensors"
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["install", "INVENTORY", "--wheels", "empty"], "--wheels empty: no wheels in it"),
        (["install", "nowhere.toml"], "nowhere.toml: no such file"),
        (["install", "INVENTORY", "nowhere.toml"], "nowhere.toml: no such file"),
        (["wheels", "house", "--python", "3.9"], "--python 3.9: expected 3.11 or newer"),
        (["wheels", "house", "--platform", "armv7l"], "armv7l"),
        (["wheels", "FILE"], "cannot be made"),
    ],
)
def test_wrong_input_is_one_line_before_anything_is_done(
    words: list[str], said: str, inventory: Path, tmp_path: Path
) -> None:
    given = {"INVENTORY": str(inventory), "FILE": str(inventory / "house")}
    done = subprocess.run(
        [sys.executable, "-m", "edgefl.cli", "hosts", *(given.get(each, each) for each in words)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )
    assert done.returncode == 2 and done.stdout == ""
    assert said in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "hosts").exists()


def test_a_wheelhouse_lacks_nothing_the_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    own = write_wheel(tmp_path / "own", "edgefl", needs=["a", "b"])
    for name in "ab":
        write_wheel(source, name)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(source))
    monkeypatch.setattr("edgefl.launch.wheels._built", lambda checkout, folder: own)
    words = ["hosts", "wheels", str(tmp_path / "house"), "--platform", "aarch64"]
    words += ["--platform", "x86_64", "--python", "3.13"]
    first, again = (CliRunner().invoke(app, words) for _ in range(2))
    assert first.exit_code == again.exit_code == 0, first.output
    assert "aarch64 with Python 3.13: a==1.0, b==1.0" in first.stdout
    assert "aarch64 with Python 3.13: a" not in again.stdout
    assert again.stdout.count(" 2 wheels for ") == 2
    assert sorted(path.name[0] for path in (tmp_path / "house").iterdir()) == ["a", "b", "e"]
    assert again.stdout.endswith(f"next: edgefl hosts install INVENTORY --wheels {words[2]}\n")


def test_without_a_terminal_each_step_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with HostsProgress(["a", "b"]) as progress:
        watcher = progress.watcher("a")
        watcher.stage("copying")
        watcher.sending(2_000_000)
        watcher.sent(10)
        for package in ("numpy", "torch"):
            watcher.stage("installing", package)
        progress.end("a", "done")
    assert capsys.readouterr().err.splitlines() == [
        "a: copying",
        "a: 2.0 MB to send",
        "a: installing",
        "a: done",
    ]
