"""``edgefl hosts``: against real ssh servers, and on this machine."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import CONFIGS, ROOT
from ssh_hosts import Rig, refusal, ssh_hosts
from typer.testing import CliRunner

from edgefl.cli import app
from edgefl.plugins.launch import host_probe
from edgefl.plugins.launch.hosts_command import print_tables
from edgefl.plugins.launch.installer import MachineFacts, hosts_progress
from edgefl.plugins.launch.survey import ClockOffset, Goodput, Survey

pytestmark = pytest.mark.processes
HERE = {"python": sys.executable, "env": {"PYTHONPATH": str(ROOT)}}


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    if refusal():
        pytest.skip(refusal())
    with ssh_hosts(
        4, rate_mbit_s=50, disk_bytes={1: 20_000_000, 2: 20_000_000}, machines={2: "i686"}
    ) as made:
        yield made


def edgefl(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does, without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "edgefl.cli", *map(str, words)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def written(folder: Path, text: str) -> Path:
    path = folder / "hosts.toml"
    path.write_text(text)
    return path


def test_hosts_that_fit_and_hosts_that_do_not(rig: Rig, tmp_path: Path) -> None:
    # the third has no edgefl; the fourth refuses the key
    by_host = {0: HERE, 1: HERE, 3: HERE}
    inventory = written(tmp_path, rig.inventory(by_host=by_host))
    keys = rig.hosts[3].folder / "authorized_keys"
    allowed = keys.read_text()
    keys.write_text("")
    try:
        done = edgefl("hosts", "check", inventory, CONFIGS / "quickstart.toml", "--json")
    finally:
        keys.write_text(allowed)
    assert done.returncode == 3, done.stderr
    good, full, wrong, refused = json.loads(done.stdout)
    assert good["fits"] and good["problems"] == [] and good["samples_per_s"] > 0
    assert good["machine"]["edgefl"] and good["machine"]["executable"] == sys.executable
    # the same clock, read by two processes: apart by no more than the uncertainty
    assert abs(good["clock"]["offset_ns"]) <= good["clock"]["uncertainty_ns"]
    assert good["clock"]["uncertainty_ns"] <= good["clock"]["rtt_ns"]
    # the cable carries 50 Mbit/s, its headers included
    assert good["goodput"]["over"] == "tcp"
    assert 0 < good["goodput"]["up_bit_s"] < 60e6 and 0 < good["goodput"]["down_bit_s"] < 60e6
    assert full["problems"] == ["20.0 MB free on its disk, expected 100.0 MB"]
    assert wrong["problems"] == [
        f"there is no torch for i686 with a {wrong['machine']['bits']}-bit Python; expected 64 bits"
        " and x86_64 or aarch64",
        "20.0 MB free on its disk, expected 1.5 GB",
    ]
    assert not refused["reachable"] and "refused the key" in refused["problems"][0]


def test_a_coordinator_that_a_host_cannot_reach(rig: Rig, tmp_path: Path) -> None:
    # the broadcast address of a network that no machine has
    inventory = written(
        tmp_path,
        rig.inventory({"address": "10.83.255.255"}, only=[])
        + f'[[hosts]]\nhost = "{rig.hosts[0].name}"\nvia = "netns"\n',
    )
    (found,) = json.loads(edgefl("hosts", "check", inventory, "--json").stdout)
    assert found["problems"][0].startswith("cannot reach this machine at 10.83.255.255:")
    assert found["goodput"]["over"] == "connection" and found["goodput"]["up_bit_s"] > 0


def pythons() -> list[Path]:
    """Python 3 of any age on this machine, each version once."""
    places = [
        *Path.home().glob(".pyenv/versions/3.*/bin"),
        Path("/usr/bin"),
        Path("/usr/local/bin"),
    ]
    return [place / "python3" for place in places if (place / "python3").exists()]


@pytest.mark.parametrize("python", [Path(sys.executable), *pythons()], ids=str)
def test_the_probe_runs_on_the_python_that_a_host_has(python: Path, tmp_path: Path) -> None:
    asked = json.dumps({"folder": f"{tmp_path}/a/b", "data": str(tmp_path)})
    commands = f"facts {asked}\nclock\ntake 5\nhellogive 3\n".encode()
    source = inspect.getsource(host_probe)
    done = subprocess.run([python, "-c", source], input=commands, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    facts, clock, took, *rest = done.stdout.split(b"\n")
    found = json.loads(facts)
    assert found["python"][0] == 3 and found["cores"] >= 1 and found["has_data"]
    assert found["memory_bytes"] > 0 and found["free_bytes"] > 0
    moments = json.loads(clock)
    assert moments["came_ns"] <= moments["goes_ns"]
    assert json.loads(took) == {} and rest == [bytes(3)]


def test_the_next_command_installs_what_a_host_lacks(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    text = f'[[hosts]]\nhost = "a"\nvia = "local"\npython = "{bare}/bin/python"\n'
    inventory = written(tmp_path, text + f'folder = "{tmp_path}"\nenv.PYTHONPATH = ""\n')
    done = edgefl("hosts", "check", inventory)
    assert done.returncode == 3 and "a: no edgefl: `edgefl hosts install`\n" in done.stdout
    assert done.stdout.splitlines()[-1] == f"next: edgefl hosts install {inventory}"


def test_what_is_no_python_is_told(tmp_path: Path) -> None:
    text = '[[hosts]]\nhost = "{}"\nvia = "local"\npython = "{}"\n'
    inventory = written(tmp_path, text.format("a", "/bin/cat") + text.format("b", "/no/python"))
    first, second = json.loads(edgefl("hosts", "check", inventory, "--json").stdout)
    assert "/bin/cat does not work as a Python 3" in first["problems"][0]
    assert first["reachable"] and "no Python /no/python" in second["problems"]


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_the_table_fits_a_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    board = "Raspberry Pi 4 Model B Rev 1.4"
    machine = MachineFacts(
        *("Linux", "BCM2835", board, "aarch64", 64, "glibc", 4, 3_900_000_000, 3_000_000_000),
        *(25_300_000_000, (3, 11, 2), "cpython", "/usr/bin/python3", "0.1.0", "2.9.1+cpu", False),
    )
    clock, path = ClockOffset(-12_000, 450_000, 900_000), Goodput("tcp", 94.1e6, 94.2e6)
    found = [
        Survey("pi-1", True, machine, clock, path, 1800.0),
        Survey("pi-2", problems=["cannot be reached at port 22"]),
    ]
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes this for a terminal
    print_tables(found)
    out = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    tables = out.partition("clock: ")[0]
    assert max(map(len, tables.splitlines())) <= columns and "…" not in tables
    assert all(text in tables for text in ("aarch64", "94.1 Mbit/s", "2.9.1+cpu", "1800"))
    assert tables.count("pi-2") == (1 if columns == 200 else 2)


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


def test_without_a_terminal_each_step_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with hosts_progress(["a", "b"]) as rows:
        watcher = rows["a"]
        watcher.stage("copying")
        watcher.sending(2_000_000)
        watcher.sent(10)
        for package in ("numpy", "torch"):
            watcher.stage("installing", package)
        watcher.end("done")
    assert capsys.readouterr().err.splitlines() == [
        "a: copying",
        "a: 2.0 MB to send",
        "a: installing",
        "a: done",
    ]
