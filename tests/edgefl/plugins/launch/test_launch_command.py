"""`edgefl launch`: its bad input, and what --dry-run prints."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edgefl import cli
from edgefl.clocks.wall import keys

CONFIG = """
name = "small"
model = {name = "mlp", hidden = [4]}
links = {up_mbit_s = 1.0, down_mbit_s = 4.0}
stop = {emulated_s = 8.0}
strategies = [{strategy = "fedavg", clients_per_round = 3}]
"""
INVENTORY = """
[defaults]
folder = "~/fl"
[[hosts]]
host = "pi-[1-2]"
user = "me"
[[hosts]]
host = "server"
python = "~/venv/bin/python"
data = "/data"
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "small.toml").write_text(CONFIG)
    (tmp_path / "lab.toml").write_text(INVENTORY)
    return tmp_path


def said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str, str]:
    """The exit status and the output of `edgefl launch WORDS`."""
    monkeypatch.setattr(sys, "argv", ["edgefl", "launch", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


def test_dry_run_prints_all_and_changes_nothing(
    lab: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(lab.rglob("*"))
    status, out, err = said(monkeypatch, capsys, "lab.toml", "small.toml", "--dry-run")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[:3] == [
        "coordinator: here, port any free one, at the address that is found for each host",
        "keys: 3 edges would get new ones, in lab.keys",
        "pi-1 (ssh, me@pi-1):",
    ]
    folder = "~/fl/launched/small-TOKEN"
    assert f"  copy lab.keys/edges/pi-1.key_secret -> {folder}/keys/edges/pi-1.key_secret" in lines
    assert f"  run ~/fl/venv/bin/python -m edgefl.plugins.launch.agent {folder}" in lines
    assert f"  run ~/venv/bin/python -m edgefl.plugins.launch.agent {folder}" in lines
    assert [line for line in lines if line.startswith("  edges:")] == [
        "  edges: pi-1",
        "  edges: pi-2",
        "  edges: server",
    ]
    assert sum("key_secret" in line for line in lines) == 3
    # a third of 1438 samples, of 64 bytes and a label of 8
    assert "  data: its own in /data; if that differs, the shares of its edges, 0.0345 MB" in lines
    assert any(line.startswith("duration: at most 0:00:08 for each of 1 runs") for line in lines)
    assert any(line.startswith("fedavg ") for line in lines), "the estimate"
    assert lines[-1] == "next: edgefl launch lab.toml small.toml"
    assert sorted(lab.rglob("*")) == before


def test_dry_run_with_keys_native_links_and_a_coordinator_elsewhere(
    lab: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys.new(lab / "mine", ["pi-1", "pi-2"])
    place = '[coordinator]\nvia = "ssh"\nhost = "hub"\nfolder = "~/fl"\naddress = "192.0.2.1"\n'
    (lab / "lab.toml").write_text(place + INVENTORY)
    words = ("--dry-run", "--no-sync", "--keys", "mine", "links.kind=native")
    status, out, _ = said(monkeypatch, capsys, "lab.toml", "small.toml", *words)
    assert status == 0
    assert "coordinator: on hub (ssh), port 7700, at 192.0.2.1" in out
    assert "keys: those in mine; new for server" in out
    secret = "~/fl/launched/small-TOKEN-coordinator/keys/coordinator.key_secret"
    assert f"  copy mine/coordinator.key_secret -> {secret}" in out
    assert "none is sent (--no-sync)" in out
    assert "no estimate: the times of native devices and links are not known" in out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("lab.toml", "no.toml"), "no.toml: no such file"),
        (("lab.toml", "small.toml", "stop.emulated=3"), "unknown key (nearest: 'emulated_s')"),
        (
            ("lab.toml", "small.toml", 'edges.names=["pi-1","pi-2"]'),
            "host 'server' is not needed",
        ),
        (
            ("lab.toml", "small.toml", "model.name=own.py:build"),
            "which is your own code: set allow_code = true for pi-1, pi-2, server",
        ),
        (("lab.toml", "small.toml", "--keys", "small.toml"), "small.toml: exists already"),
    ],
)
def test_bad_input_is_one_line_before_anything_starts(
    words: tuple[str, ...],
    line: str,
    lab: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (lab / "own.py").write_text("def build(options, shape, classes): ...\n")
    status, out, err = said(monkeypatch, capsys, *words)
    assert (status, out) == (2, "") and line in err and err.count("\n") == 1
    assert not (lab / "runs").exists() and not (lab / "lab.keys").exists()


def test_a_coordinator_elsewhere_kills_no_edges(
    lab: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (lab / "lab.toml").write_text(f'[coordinator]\nvia = "ssh"\nhost = "hub"\n{INVENTORY}')
    words = ("lab.toml", "small.toml", 'faults=[{kind="kill",at_s=1.0}]')
    status, _, err = said(monkeypatch, capsys, *words)
    assert status == 2 and "need a coordinator on this machine" in err
