"""scripts/install_pi.sh on machines that only pretend to be a Raspberry Pi."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from fake_machine import PYTHON, FakeMachine

pytestmark = [pytest.mark.rest, pytest.mark.processes]

# `python3 -m venv DIR` puts the fake interpreter into DIR.
OUTSIDE = f"""#!/bin/bash
case "$*" in
    "-m venv --clear "*) mkdir -p "$4/bin" && cp "$(dirname "$0")/inside" "$4/bin/python" ;;
    "-c import ensurepip, venv") [ -z "$FAKE_NO_VENV" ] ;;
    "-c import sys; sys.exit(sys.maxsize"*) [ -z "$FAKE_32_BIT" ] ;;
    "-c import sys; sys.exit(sys.version_info"*) [ -z "$FAKE_OLD" ] ;;
    *) exec {sys.executable} -I -S "$@" ;;
esac
"""
WHEEL = "edgefl_testbed-0.1.0-py3-none-any.whl"
NOTE_WHEEL = f"""    "-m pip wheel "*) touch "${{0%/bin/*}}/tmp/{WHEEL}" ;;
    "-m pip "*)"""


class FakePi(FakeMachine):
    """A 64-bit Raspberry Pi OS with a checkout, on which nothing is installed."""

    def __init__(self, folder: Path, machine: str = "aarch64", **settings: str) -> None:
        nothing = dict.fromkeys(("FAKE_NO_VENV", "FAKE_32_BIT", "FAKE_OLD"), "")
        super().__init__(folder, machine, **(nothing | {"FAKE_PAGES": "1000000"} | settings))
        self.program(self.bin / "python3", OUTSIDE)
        self.program(self.bin / "inside", PYTHON.replace('    "-m pip "*)', NOTE_WHEEL, 1))
        pages = '#!/bin/bash\n[ "$1" = PAGE_SIZE ] && echo 4096 || echo "$FAKE_PAGES"\n'
        self.program(self.bin / "getconf", pages)
        self.venv = folder / ".edgefl" / "venv"
        for name in ("edgefl", "emulator", "configs"):
            (self.root / name).mkdir()
            (self.root / name / "some.py").write_text("a = 1\n")
        (self.root / "edgefl_testbed.py").touch()
        for name in ("README.md", "LICENSE"):
            (self.root / name).touch()


def test_a_checkout_is_built_and_installed_with_the_pins(tmp_path: Path) -> None:
    pi = FakePi(tmp_path)
    done = pi.run("install_pi.sh")
    assert done.returncode == 0, done.stderr
    built, uninstalled, installed = pi.pip_calls
    assert built.endswith(" setuptools") and "uninstall" in uninstalled
    constraints = pi.root / "scripts" / "constraints.txt"
    wheel = pi.venv / "tmp" / WHEEL
    assert installed == f"- -m pip install --quiet --constraint {constraints} {wheel}"
    assert not wheel.parent.exists()


def test_a_second_call_installs_only_what_has_changed(tmp_path: Path) -> None:
    pi = FakePi(tmp_path)
    assert pi.run("install_pi.sh").returncode == 0
    before = pi.pip_calls
    again = pi.run("install_pi.sh")
    assert again.returncode == 0 and "up to date" in again.stdout
    assert pi.pip_calls == before
    (pi.root / "edgefl" / "some.py").write_text("a = 2\n")
    assert pi.run("install_pi.sh").returncode == 0
    assert len(pi.pip_calls) > len(before)


def test_what_a_failed_call_has_installed_is_replaced(tmp_path: Path) -> None:
    pi = FakePi(tmp_path)
    code = pi.root / "edgefl" / "some.py"
    assert pi.run("install_pi.sh").returncode == 0
    code.write_text("a = 2\n")
    pi.env["FAKE_TORCH_FAILS"] = "yes"
    assert pi.run("install_pi.sh").returncode == 1
    code.write_text("a = 1\n")
    pi.env["FAKE_TORCH_FAILS"] = ""
    again = pi.run("install_pi.sh")
    assert again.returncode == 0 and "up to date" not in again.stdout


def test_a_wheelhouse_is_all_that_pip_uses(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / WHEEL).touch()
    pi = FakePi(tmp_path)
    assert pi.run("install_pi.sh", "--wheels", str(wheels), "--extras", "discover").returncode == 0
    installed = pi.pip_calls[-1]
    assert f"--no-index --find-links {wheels} " in installed
    assert installed.endswith(f"{WHEEL}[discover]")


def test_a_wheel_next_to_the_script_is_installed(tmp_path: Path) -> None:
    pi = FakePi(tmp_path)
    (pi.root / "pyproject.toml").unlink()
    (pi.root / "scripts" / WHEEL).touch()
    assert pi.run("install_pi.sh").returncode == 0
    assert pi.pip_calls[-1].endswith(f"scripts/{WHEEL}")
    assert "setuptools" not in "".join(pi.pip_calls)


def test_a_torch_that_does_not_import_is_an_error_each_time(tmp_path: Path) -> None:
    pi = FakePi(tmp_path, FAKE_TORCH_FAILS="yes")
    for _ in range(2):
        done = pi.run("install_pi.sh")
        assert done.returncode == 1
        assert done.stderr.startswith("install_pi: the installed torch does not import (libcublas")
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("settings", "words", "expected"),
    [
        ({"FAKE_32_BIT": "yes"}, [], "use the 64-bit Raspberry Pi OS"),
        ({"FAKE_OLD": "yes"}, [], "is too old: expected 3.11 or newer"),
        ({"FAKE_PAGES": "100000"}, [], "409 MB of memory: expected"),
        ({"FAKE_NO_VENV": "yes"}, ["--no-apt"], "sudo apt install python3-venv"),
        ({"SUDO_USER": "pi"}, [], "run this without sudo"),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else None,
)
def test_a_machine_that_does_not_fit_is_one_line(
    settings: dict[str, str], words: list[str], expected: str, tmp_path: Path
) -> None:
    pi = FakePi(tmp_path, **settings)
    done = pi.run("install_pi.sh", *words)
    assert done.returncode == 1 and pi.pip_calls == [] and not pi.venv.exists()
    assert len(done.stderr.splitlines()) == 1 and expected in done.stderr


def test_x86_is_refused(tmp_path: Path) -> None:
    done = FakePi(tmp_path, "x86_64").run("install_pi.sh")
    assert done.returncode == 1 and "this is Linux x86_64: expected 64-bit ARM" in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--wheel", "x"], "--wheel: no such option"),
        (["--venv"], "--venv: expected a value"),
        (["--venv", "--check"], "--venv: expected a value"),
        (["--wheels", "nowhere"], "--wheels nowhere: no such folder"),
        (["--wheels", "scripts"], "scripts: no file edgefl_testbed-*.whl there"),
        (["--keys", "scripts"], "--keys scripts: no coordinator.key there"),
        (["--extras", "a b"], "--extras a b: expected names"),
    ],
)
def test_wrong_words_are_one_line(words: list[str], expected: str, tmp_path: Path) -> None:
    done = FakePi(tmp_path).run("install_pi.sh", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 and expected in done.stderr


def test_check_changes_nothing_and_help_names_every_option(tmp_path: Path) -> None:
    pi = FakePi(tmp_path)
    checked = pi.run("install_pi.sh", "--check")
    assert checked.returncode == 0 and str(pi.root) in checked.stdout
    assert not pi.venv.exists() and pi.pip_calls == []
    told = pi.run("install_pi.sh", "--help")
    assert told.returncode == 0 and "set -euo" not in told.stdout
    text = (pi.root / "scripts" / "install_pi.sh").read_text()
    named = set(re.findall(r"--[a-z-]+", text.partition("read_words() {")[2].partition("\n}")[0]))
    assert "--wheels" in named and all(word in told.stdout for word in named - {"--help"})


@pytest.mark.parametrize("venv", ["there", "not/yet"])
def test_the_environment_may_be_elsewhere(venv: str, tmp_path: Path) -> None:
    pi = FakePi(tmp_path)
    done = pi.run("install_pi.sh", "--check", "--venv", venv)
    assert done.returncode == 0 and f"into {pi.root / venv}\n" in done.stdout


def test_keys_are_readable_for_their_owner_only(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    (keys / "edges").mkdir(parents=True)
    secret = keys / "edges" / "pi-1.key_secret"
    for path in (keys / "coordinator.key", secret):
        path.touch(mode=0o644)
    assert FakePi(tmp_path).run("install_pi.sh", "--keys", str(keys)).returncode == 0
    assert keys.stat().st_mode & 0o777 == 0o700 and secret.stat().st_mode & 0o777 == 0o600


SUDO = """#!/bin/bash
echo "$*" >>"$HOME/sudo.log"
case "$1" in
    tee) cat >"$HOME/edge.env" ;;
    install) [ "$2" != -d ] || [[ "$*" != */opt/* ]] || mkdir -p "$HOME/opt" ;;
esac
"""
ID = '#!/bin/bash\ncase "$1" in -u) echo 1000 ;; -un) echo pi ;; *) exit 1 ;; esac\n'


class ServicePi(FakePi):
    """A Pi with keys and a shard for edge pi-1, where sudo only notes what it should do."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.home = folder
        self.program(self.bin / "sudo", SUDO)
        self.program(self.bin / "id", ID)
        (folder / "keys" / "edges").mkdir(parents=True)
        (folder / "shards").mkdir()
        for name in ("keys/coordinator.key", "keys/edges/pi-1.key_secret"):
            (folder / name).touch()
        (folder / "shards" / "pi-1.safetensors").touch()
        (self.root / "scripts" / "edgefl-edge@.service").touch()
        # /opt is not ours in a test.
        script = self.root / "scripts" / "install_pi.sh"
        script.write_text(script.read_text().replace("/opt/", f"{folder}/opt/"))

    def set_up(self, *words: str) -> list[str]:
        """Install the service of pi-1; return what was run as root."""
        keys = ["--service", "pi-1", "--keys", f"{self.home}/keys"]
        done = self.run("install_pi.sh", *keys, *words)
        assert done.returncode == 0, done.stderr
        return (self.home / "sudo.log").read_text().splitlines()


def test_a_service_has_its_own_user_and_copies_of_its_files(tmp_path: Path) -> None:
    pi = ServicePi(tmp_path)
    done = pi.set_up("--connect", "tcp://192.0.2.10:7700", "--shards", f"{tmp_path}/shards")
    assert any(line.startswith("useradd --system") and line.endswith(" edgefl") for line in done)
    private = "install -o edgefl -g edgefl -m 600"
    secret, target = f"{tmp_path}/keys/edges/pi-1.key_secret", "/var/lib/edgefl/keys/edges"
    assert f"{private} {secret} {target}/pi-1.key_secret" in done
    shard = f"{tmp_path}/shards/pi-1.safetensors"
    assert f"{private} {shard} /var/lib/edgefl/shards/pi-1.safetensors" in done
    assert "tee /etc/edgefl/pi-1.env" in done
    assert (tmp_path / "edge.env").read_text() == (
        'EDGEFL_EDGE="--connect tcp://192.0.2.10:7700 --keys /var/lib/edgefl/keys'
        ' --shards /var/lib/edgefl/shards"\n'
    )
    unit = pi.root / "scripts" / "edgefl-edge@.service"
    assert f"install -m 644 {unit} /etc/systemd/system/" in done


def test_discovery_of_a_service_brings_its_extra(tmp_path: Path) -> None:
    pi = ServicePi(tmp_path)
    pi.set_up("--discover")
    assert pi.pip_calls[-1].endswith("[discover]")
    options = '"--discover --keys /var/lib/edgefl/keys"'
    assert (tmp_path / "edge.env").read_text() == f"EDGEFL_EDGE={options}\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--connect", "tcp://a:1"], "belong to --service ID"),
        (["--service", "a/b", "--discover"], "--service a/b: expected an edge id"),
        (["--service", "pi-1"], "expected --connect ADDRESS or --discover"),
        (["--service", "pi-1", "--discover"], "expected --keys DIR"),
        (["--service", "pi-1", "--connect", "a:1"], "--connect a:1: expected tcp://HOST:PORT"),
        (["--service", "pi-1", "--discover", "--connect", "tcp://a:1"], "expected one of them"),
        (["--service", "pi-2", "--discover", "--keys", "../keys"], "no edges/pi-2.key_secret"),
        (
            ["--service", "pi-1", "--discover", "--keys", "../keys", "--shards", "../keys"],
            "no pi-1.safetensors",
        ),
        (
            ["--service", "pi-1", "--discover", "--keys", "../keys", "--venv", "x"],
            "the environment of a service is",
        ),
    ],
)
def test_wrong_words_of_a_service_are_one_line(
    words: list[str], expected: str, tmp_path: Path
) -> None:
    done = ServicePi(tmp_path).run("install_pi.sh", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 and expected in done.stderr
