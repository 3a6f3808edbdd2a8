"""The systemd unit of an edge: systemd accepts it, it is hardened, and its command line works."""

from __future__ import annotations

import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT
from processes import SMALL, start
from terminals import end

from edgefl.exit_status import BAD_INPUT, NO_ANSWER, REFUSED

pytestmark = [pytest.mark.rest, pytest.mark.processes, pytest.mark.alone]

UNIT = ROOT / "scripts" / "edgefl-edge@.service"
PROGRAM = "/opt/edgefl/venv/bin/edgefl"
ANALYZE = shutil.which("systemd-analyze")
MOST_EXPOSURE = 20  # tenths, of 100; systemd calls up to 2.0 "OK"


def values(key: str) -> list[str]:
    lines = UNIT.read_text().splitlines()
    return [line.partition("=")[2] for line in lines if line.startswith(f"{key}=")]


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that is there, because systemd checks that."""
    copy = tmp_path / UNIT.name
    text = UNIT.read_text()
    assert text.count(PROGRAM) == 1
    copy.write_text(text.replace(PROGRAM, sys.executable))
    return copy


def command_line(folder: Path) -> list[str]:
    """The words of the command for the instance pi-1, with ``folder`` in place of /var/lib."""
    words = shlex.split(values("ExecStart")[0])[1:-1]
    return [word.replace("%i", "pi-1").replace("/var/lib", str(folder)) for word in words]


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    if ANALYZE is None:
        pytest.skip("not installed: systemd-analyze (Debian: systemd)")
    return subprocess.run(
        [ANALYZE, "--no-pager", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


def test_systemd_accepts_the_unit(unit: Path) -> None:
    done = analyze("verify", str(unit))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    unit.write_text(unit.read_text().replace("RestartSec=5", "RestartSeconds=5"))
    assert "RestartSeconds" in analyze("verify", str(unit)).stderr


def test_the_unit_is_hardened(unit: Path) -> None:
    version = analyze("--version").stdout.split()[1].partition(".")[0]
    if int(version) < 250:
        pytest.skip(f"systemd {version} cannot judge a unit that is not loaded; 250 can")
    judge = ("security", "--offline=true", f"--threshold={MOST_EXPOSURE}")
    done = analyze(*judge, str(unit))
    assert done.returncode == 0, done.stdout
    unit.write_text(unit.read_text().replace("CapabilityBoundingSet=\n", ""))
    assert analyze(*judge, str(unit)).returncode != 0


def test_it_never_gives_up() -> None:
    found = [values(key) for key in ("Restart", "RestartSec", "StartLimitIntervalSec")]
    assert found == [["always"], ["5"], ["0"]]


def test_only_bad_input_ends_it_for_good(
    tmp_path: Path, started: list[subprocess.Popen[str]]
) -> None:
    assert (values("RestartPreventExitStatus"), values("SuccessExitStatus")) == (
        ["INVALIDARGUMENT"],
        ["TEMPFAIL"],
    )
    listed = analyze("exit-status", "INVALIDARGUMENT", "TEMPFAIL", "NOPERM").stdout
    known = {words[0]: int(words[1]) for words in map(str.split, listed.splitlines()[1:])}
    assert known == {"INVALIDARGUMENT": BAD_INPUT, "TEMPFAIL": NO_ANSWER, "NOPERM": REFUSED}
    words = command_line(tmp_path)
    address = ["--connect", "tcp://127.0.0.1:1"]
    status, _, err = end(start(started, *words, *address, "--keys", str(tmp_path / "none")))
    assert status == BAD_INPUT and "no such key file" in err


def test_its_command_line_joins_runs_until_systemd_stops_it(
    tmp_path: Path, started: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = shlex.split(values("ExecStart")[0])
    assert words[0] == PROGRAM and words[-1] == "$EDGEFL_EDGE"
    options = ["--connect", f"tcp://127.0.0.1:{port}"]  # as in /etc/edgefl/edge.env
    coordinator = start(
        started,
        *("coordinator", "small.toml", f"network.port={port}", 'edges.names=["pi-1"]'),
        "strategies=[{strategy='fedavg'}]",
    )
    edge = start(started, *command_line(tmp_path), *options)
    status, out, err = end(coordinator)
    assert (status, err) == (0, ""), out
    assert edge.poll() is None
    edge.send_signal(signal.SIGTERM)
    status, out, err = end(edge)
    assert (status, err) == (0, "") and "pi-1: fedavg: the run is over" in out
    assert [each.name for each in (tmp_path / "edgefl/state/pi-1").iterdir()] == ["in-use.lock"]
    # the default without a file in /etc/edgefl
    [default] = [value for value in values("Environment") if "EDGEFL_EDGE" in value]
    assert shlex.split(default)[0].partition("=")[2] == "--discover --keys /var/lib/edgefl/keys"
