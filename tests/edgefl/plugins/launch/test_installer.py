"""Installing on a host: into its own environment, only what changed, and after an interruption.

Also what is decided about a Python on a host from what it tells.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs
from tiny_wheels import write_wheel

from edgefl.plugins.launch.connections import HostError, LocalConnection
from edgefl.plugins.launch.installer import (
    STAMP,
    Installed,
    Installer,
    PythonFacts,
    fingerprint,
    interpreter,
    kept,
    refusal,
    without_piwheels,
)
from edgefl.plugins.launch.inventory import Host
from edgefl.plugins.launch.wheels import OwnWheel, Target, constraints, opened, pins

pytestmark = pytest.mark.processes

FAKE_EDGEFL = {
    "edgefl/__init__.py": "__version__ = '0.1.0'",
    "edgefl/clocks/wall/edge/host.py": "",
    "edgefl/plugins/launch/__init__.py": "",
}
FAKE_TORCH = "__version__ = '2.9.1'\ndef ones(*size): return Ones()\nclass Ones:\n"
FAKE_TORCH += "    def __matmul__(self, other): return self\n"


@dataclass
class Log:
    """What a host's installation told."""

    stages: list[str] = field(default_factory=list)
    bytes_sent: int = 0

    def stage(self, text: str, detail: str = "") -> None:
        self.stages.append(text)

    def sending(self, total_bytes: int) -> None:
        self.bytes_expected = total_bytes

    def sent(self, size: int) -> None:
        self.bytes_sent += size


@pytest.fixture(autouse=True)
def only_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host does not see where these tests import edgefl from."""
    monkeypatch.delenv("PYTHONPATH", raising=False)


@pytest.fixture
def python(tmp_path: Path) -> str:
    """A Python without packages, as a host has it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "base"], check=True)
    return str(tmp_path / "base" / "bin" / "python")


def edgefl_wheel(folder: Path, code: str = "") -> OwnWheel:
    """A wheel of edgefl that needs torch and numpy."""
    path = write_wheel(
        folder,
        "edgefl_testbed",
        "0.1.0",
        needs=["torch>=2.4", "numpy"],
        files=FAKE_EDGEFL | {"edgefl/cli.py": code},
    )
    return opened(path)


def wheelhouse(folder: Path, torch: str = FAKE_TORCH) -> Path:
    """A wheelhouse for any machine, with the pinned versions of this one."""
    pinned = pins(Target("x86_64", (3, 11)).environment())
    write_wheel(folder, "torch", pinned["torch"], code=torch)
    write_wheel(folder, "numpy", pinned["numpy"])
    return folder


def install(host: Host, own: OwnWheel, wheels: Path | None, log: Log | None = None) -> Installed:
    return asyncio.run(Installer(LocalConnection(host), own, wheels, log or Log()).run())


def run(python: str, code: str) -> str:
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd="/", check=True)
    return done.stdout.strip()


def test_an_environment_from_a_wheelhouse_and_nothing_where_nothing_changed(
    python: str, tmp_path: Path
) -> None:
    host = Host("pi", folder=str(tmp_path / "pi"), python=python)
    own, house, log = edgefl_wheel(tmp_path / "own"), wheelhouse(tmp_path / "house"), Log()
    first = install(host, own, house, log)
    made = f"{host.folder}/venv/bin/python"
    assert first.changed and first.text == f"edgefl 0.1.0, torch 2.9.1 in {host.folder}/venv"
    assert log.stages[0] == "looking at its Python" and "copying" in log.stages
    assert log.bytes_sent == log.bytes_expected > 0
    assert run(made, "import edgefl; print(edgefl.__file__)").startswith(host.folder)
    assert asyncio.run(interpreter(LocalConnection(host))) == made
    assert not Path(host.folder, "wheels").exists(), "the copies are removed"
    log = Log()
    assert install(host, own, house, log) == Installed(False, f"unchanged: {made}")
    assert log.stages == ["looking at its Python"] and log.bytes_sent == 0
    # other code of the same version
    changed = edgefl_wheel(tmp_path / "changed", "print('new')")
    assert install(host, changed, house).changed
    assert run(made, "import edgefl.cli") == "new"


def test_the_packages_of_a_named_python_are_used_and_not_changed(
    python: str, tmp_path: Path
) -> None:
    site = Path(run(python, "import sysconfig; print(sysconfig.get_path('purelib'))"))
    house = wheelhouse(tmp_path / "house")
    for wheel in house.iterdir():
        words = ["install", "--quiet", "--no-index", "--no-deps", "--target", str(site)]
        subprocess.run([sys.executable, "-m", "pip", *words, str(wheel)], check=True)
    before = sorted(site.rglob("*.py"))
    empty = tmp_path / "empty"
    empty.mkdir()
    host = Host("pi", folder=str(tmp_path / "pi"), python=python)
    own = edgefl_wheel(tmp_path / "own")
    assert install(host, own, empty).changed, "nothing but edgefl itself is needed"
    made = f"{host.folder}/venv/bin/python"
    assert run(made, "import torch; print(torch.__file__)") == str(site / "torch/__init__.py")
    assert run(made, "import edgefl; print(edgefl.__file__)").startswith(host.folder)
    assert sorted(site.rglob("*.py")) == before
    assert not install(host, own, empty).changed
    # it has this edgefl itself: no environment is needed
    words = ["install", "--quiet", "--no-index", "--no-deps", "--target", str(site)]
    subprocess.run([sys.executable, "-m", "pip", *words, str(own.path)], check=True)
    other = replace(host, folder=str(tmp_path / "other"))
    assert install(other, own, empty).text == f"unchanged: {python} has this edgefl"
    assert asyncio.run(interpreter(LocalConnection(other))) == python


def test_after_an_interrupted_copy_only_the_rest_is_sent(
    python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host("pi", folder=str(tmp_path / "pi"), python=python)
    own, house = edgefl_wheel(tmp_path / "own"), wheelhouse(tmp_path / "house")
    put, sent = LocalConnection.put, []

    async def one_only(self: Any, source: Any, target: str, *more: Any, **words: Any) -> None:
        if len(sent) == 1:
            raise HostError("pi", "the connection was lost")
        sent.extend([target] if target.endswith(".whl") else [])
        await put(self, source, target, *more, **words)

    with monkeypatch.context() as broken:
        broken.setattr(LocalConnection, "put", one_only)
        with pytest.raises(HostError, match="connection was lost"):
            install(host, own, house)
    log = Log()
    assert install(host, own, house, log).changed
    total = own.path.stat().st_size + sum(path.stat().st_size for path in house.iterdir())
    assert log.bytes_sent == total - Path(house, Path(sent[0]).name).stat().st_size


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "Illegal instruction"),
    ],
)
def test_a_build_that_does_not_load_is_told_and_not_taken_for_done(
    code: str, reason: str, python: str, tmp_path: Path
) -> None:
    host = Host("pi", folder=str(tmp_path / "pi"), python=python)
    with pytest.raises(HostError, match=f"venv was installed, but fails: {reason}"):
        install(host, edgefl_wheel(tmp_path / "own"), wheelhouse(tmp_path / "house", code))
    assert not Path(host.folder, "venv", STAMP).exists()


def test_an_environment_that_was_being_made_when_the_host_failed_is_made_again(
    python: str, tmp_path: Path
) -> None:
    host = Host("pi", folder=str(tmp_path / "pi"), python=python)
    for name in ("bin/python", ".edgefl-made"):
        path = Path(host.folder, "venv", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    assert install(host, edgefl_wheel(tmp_path / "own"), wheelhouse(tmp_path / "house")).changed


def test_an_environment_of_someone_else_is_not_cleared(python: str, tmp_path: Path) -> None:
    venv = tmp_path / "theirs" / "bin" / "python"
    venv.parent.mkdir(parents=True)
    venv.write_text("#!/bin/sh\nexit 1\n")
    venv.chmod(0o755)
    host = Host("pi", folder=str(tmp_path / "pi"), venv=str(tmp_path / "theirs"))
    with pytest.raises(HostError, match="did not make: remove it, or name another one"):
        install(host, edgefl_wheel(tmp_path / "own"), wheelhouse(tmp_path / "house"))
    assert venv.read_text().startswith("#!/bin/sh")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda host, path: replace(host, python="/nowhere/python"), "/nowhere/python: No such"),
        (lambda host, path: replace(host, python="/bin/false"), "does not work as a Python"),
        (lambda host, path: replace(host, folder=f"{path}/base/bin/python/x"), "Not a directory"),
    ],
)
def test_a_host_that_cannot_be_installed_is_one_line(
    change: Callable[[Host, Path], Host], reason: str, python: str, tmp_path: Path
) -> None:
    host = change(Host("pi", folder=str(tmp_path / "pi"), python=python), tmp_path)
    with pytest.raises(HostError, match=reason):
        install(host, edgefl_wheel(tmp_path / "own"), wheelhouse(tmp_path / "house"))


def test_a_wheelhouse_for_other_machines_and_a_full_disk(
    python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host("pi", folder=str(tmp_path / "pi"), python=python)
    own = edgefl_wheel(tmp_path / "own")
    write_wheel(tmp_path / "house", "torch", "2.13.0", tag="cp311-cp311-manylinux_2_28_s390x")
    with pytest.raises(HostError, match=r"no wheel of (torch|numpy)==\S+ for .* with Python"):
        install(host, own, tmp_path / "house")
    house = wheelhouse(tmp_path / "large")
    monkeypatch.setattr("edgefl.plugins.launch.installer.unpacked_bytes", lambda path: 1 << 60)
    with pytest.raises(HostError, match=r"free on its disk, expected \d\.\d EB"):
        install(host, own, house)
    assert not Path(host.folder).exists(), "nothing was begun"


def test_piwheels_is_hidden_from_pip_and_other_indexes_are_not() -> None:
    pi = "global.extra-index-url='https://www.piwheels.org/simple'"
    assert without_piwheels(pi) == {"PIP_EXTRA_INDEX_URL": "https://pypi.org/simple"}
    both = "global.extra-index-url='https://own/simple https://www.piwheels.org/simple'"
    assert without_piwheels(both) == {"PIP_EXTRA_INDEX_URL": "https://own/simple"}
    assert without_piwheels("global.extra-index-url='https://own/simple'") == {}
    assert without_piwheels("global.timeout='9'") == {}


# ------------------------------------------------ what is decided about a Python on a host
PI = PythonFacts(
    *("Linux", "Debian GNU/Linux 12", "Raspberry Pi 4", "aarch64", 64, "glibc", 4, None, None),
    *(10**9, (3, 11, 2), "cpython", "/usr/bin/python3", "", "", False, "2.36"),
    can_make_environments=True,
)
OWN = OwnWheel(Path("edgefl.whl"), {"edgefl/cli.py": "00"})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"python": (3, 9, 2)},
            "/usr/bin/python3 is cpython 3.9.2, expected CPython 3.11 or newer",
        ),
        ({"system": "Darwin"}, "the system is Darwin, expected Linux"),
        ({"machine": "armv7l", "bits": 32}, "there is no torch for armv7l with a 32-bit Python"),
        ({"machine": "i686"}, "expected 64 bits and x86_64 or aarch64"),
        ({"can_make_environments": False}, "sudo apt install python3.11-venv"),
        ({"libc": "musl"}, "there is no torch for musl, only for glibc"),
    ],
)
def test_a_python_that_cannot_have_edges_is_refused_with_what_to_do(
    change: dict[str, object], reason: str
) -> None:
    assert reason in (refusal(structs.replace(PI, **change)) or "")
    there = structs.replace(PI, exists=True, can_make_environments=False)
    assert refusal(PI) is None and refusal(there) is None


def test_the_fingerprint_changes_with_all_that_the_environment_is_made_from() -> None:
    host, named = Host("pi"), Host("pi", python="/opt/torch/bin/python")
    torch = structs.replace(PI, packages={"torch": "2.9.1"})
    found = [
        fingerprint(OWN, PI, host),
        fingerprint(OwnWheel(Path(), {"edgefl/cli.py": "01"}), PI, host),
        fingerprint(OWN, structs.replace(PI, python=(3, 11, 3)), host),
        fingerprint(OWN, structs.replace(PI, machine="x86_64"), host),
        fingerprint(OWN, structs.replace(PI, executable="/usr/local/bin/python3"), host),
        fingerprint(OWN, torch, named),
    ]
    assert len(set(found)) == len(found)
    assert fingerprint(OWN, torch, host) == fingerprint(OWN, PI, host), "these are not used"
    assert fingerprint(OWN, structs.replace(PI, free_bytes=9, stamp="x"), host) == fingerprint(
        OWN, PI, host
    )


def test_of_a_named_python_the_tested_versions_are_used_and_its_torch() -> None:
    pins = {"numpy": "2.4.6", "torch": "2.13.0", "rich": "15.0.0"}
    needed = {"torch": ">=2.4", "numpy": ">=1.26"}
    there = {"numpy": "2.4.6", "torch": "2.9.1+cu12", "rich": "14.0.0", "flask": "3.0"}
    below = kept(structs.replace(PI, packages=there), pins, needed)
    assert below == {"numpy": "2.4.6", "torch": "2.9.1+cu12"}
    assert constraints(pins, below) == "numpy==2.4.6\nrich==15.0.0\ntorch==2.9.1+cu12\n"
    old = structs.replace(PI, packages={"torch": "1.13.1"})
    assert kept(old, pins, needed) == {}, "older than edgefl needs"
    for version in ("2.5.1+x/y", "2.5.1+x\n--pre", "2.5.1+" + "x" * 300, "2.5.1+\0"):
        made_up = structs.replace(PI, packages={"anyio": version})
        assert kept(made_up, {"anyio": "2.5.1"}, needed) == {}, "it would name a file here"


@pytest.mark.parametrize(
    "change",
    [
        *({"other": 1}, {"machine": 5}, {"python": [3]}, {"python": [3, 10**9, 1]}),
        *({"free_bytes": -1}, {"memory_bytes": 10**400}, {"packages": ["torch"]}),
    ],
)
def test_only_a_probes_answer_is_accepted(change: dict[str, object]) -> None:
    values = structs.asdict(PI)
    assert msgspec.json.decode(json.dumps(values), type=PythonFacts) == PI
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(json.dumps(values | change), type=PythonFacts)


def test_a_made_up_version_of_the_c_library_fills_no_memory() -> None:
    assert PI.target == Target("aarch64", (3, 11), (2, 36))
    # a list of all versions up to this one would
    assert structs.replace(PI, libc_version="2.999999999").target.glibc == (2, 28)
