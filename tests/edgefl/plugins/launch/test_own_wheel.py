"""The wheel for other machines: the code that runs here, from a checkout or an installed edgefl."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from paths import ROOT

from edgefl.errors import UserError
from edgefl.plugins.launch import wheels as wheel_file
from edgefl.plugins.launch.wheels import _packed, opened, own_wheel

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> wheel_file.OwnWheel:
    return own_wheel(tmp_path_factory.mktemp("built") / "new")


def test_the_wheel_has_the_code_of_the_checkout(built: wheel_file.OwnWheel) -> None:
    for name in (
        "edgefl/plugins/launch/agent.py",
        "emulator/units.py",
        "edgefl/configs/quickstart.toml",
    ):
        assert name in built.files
    with zipfile.ZipFile(built.path) as archive:
        pins = archive.read("edgefl/plugins/launch/constraints.txt")
    assert pins == (ROOT / "scripts" / "constraints.txt").read_bytes()
    assert [path.name for path in built.path.parent.iterdir()] == [built.path.name]


def test_the_digest_is_that_of_the_code_and_not_of_dates(
    built: wheel_file.OwnWheel, tmp_path: Path
) -> None:
    assert own_wheel(tmp_path / "again").digest() == built.digest()
    changed = tmp_path / built.path.name
    with zipfile.ZipFile(built.path) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name) + (b"#" if name == "edgefl/cli.py" else b""))
    assert opened(changed).digest() != built.digest()


def test_an_installed_edgefl_is_packed_into_the_same_wheel(
    built: wheel_file.OwnWheel, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    words = ["install", "--quiet", "--no-deps", "--no-index", "--compile", "--target", str(site)]
    subprocess.run([sys.executable, "-m", "pip", *words, str(built.path)], check=True)
    (installed,) = (Distribution.at(path) for path in site.glob("edgefl-*.dist-info"))
    again = opened(_packed(installed, tmp_path / "again"))
    assert again.digest() == built.digest() and again.path.name == built.path.name
    with zipfile.ZipFile(built.path) as one, zipfile.ZipFile(again.path) as other:
        assert set(one.namelist()) == set(other.namelist())
        assert all(
            one.read(name) == other.read(name) for name in one.namelist() if "RECORD" not in name
        )
    other_site = tmp_path / "other"
    words[-1] = str(other_site)
    subprocess.run([sys.executable, "-m", "pip", *words, str(again.path)], check=True)
    where = "import edgefl.plugins.launch.wheels as p; print(p.PINS)"
    done = subprocess.run(
        [sys.executable, "-c", where],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(other_site)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(other_site / "edgefl" / "launch" / "constraints.txt")


def test_neither_a_checkout_nor_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel_file, "ROOT", tmp_path)
    monkeypatch.setattr(wheel_file, "NAME", "edgefl-of-nobody")
    with pytest.raises(UserError, match=f"{tmp_path} has no pyproject.toml, and edgefl is not"):
        own_wheel(tmp_path / "new")


def test_a_checkout_that_cannot_be_built_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text("[build-system]\nrequires = []\n[project]\nname = 1\n")
    monkeypatch.setattr(wheel_file, "ROOT", tmp_path)
    with pytest.raises(UserError, match="the wheel cannot be built"):
        own_wheel(tmp_path / "new")
