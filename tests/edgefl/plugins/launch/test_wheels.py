"""The wheels that a host gets: for its markers and tags, and that of the code that runs here."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from paths import ROOT
from tiny_wheels import write_wheel

from edgefl.errors import UserError
from edgefl.plugins.launch import wheels as wheel_file
from edgefl.plugins.launch.wheels import (
    Target,
    _packed,
    fetched,
    fitting,
    opened,
    pins,
    ranges,
    torch_index,
    unpacked_bytes,
)
from edgefl.plugins.launch.wheels import (
    own_wheel as edgefl_wheel,
)

pytestmark = pytest.mark.processes
INTEL, ARM = Target("x86_64", (3, 11)), Target("aarch64", (3, 13), (2, 36))
ON_INTEL = 'platform_machine == "x86_64"'


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def own_wheel(folder: Path, *needs: str) -> Path:
    return write_wheel(folder / "own", "own", needs=needs)


def test_a_machine_gets_the_wheels_that_fit_it_and_not_what_it_has(tmp_path: Path) -> None:
    own = own_wheel(tmp_path, "a>=1", f"b; {ON_INTEL}", "x; extra == 'lab'")
    house = tmp_path / "house"
    for tag in (
        "cp311-cp311-manylinux_2_17_x86_64",
        "cp311-cp311-manylinux_2_28_x86_64",
        "cp313-cp313-manylinux_2_28_aarch64",
        "cp313-cp313-manylinux_2_39_aarch64",  # needs a newer C library
        "cp310-abi3-manylinux_2_17_x86_64",
    ):
        write_wheel(house, "a", tag=tag)
    write_wheel(house, "b")
    for_intel = ["a-1.0-cp311-cp311-manylinux_2_28_x86_64.whl", "b-1.0-py3-none-any.whl"]
    assert sorted(names(fitting(own, INTEL, house, {}))) == for_intel
    assert names(fitting(own, ARM, house, {})) == ["a-1.0-cp313-cp313-manylinux_2_28_aarch64.whl"]
    assert names(fitting(own, ARM, house, {"a": "1.5"})) == []
    assert ranges(own, ARM) == {"a": ">=1"}


def test_a_pin_takes_any_local_version_and_no_other_version(tmp_path: Path) -> None:
    pinned, house = pins(INTEL.environment()), tmp_path / "house"
    write_wheel(house, "torch", f"{pinned['torch']}+cpu", tag="cp311-cp311-manylinux_2_28_x86_64")
    write_wheel(house, "numpy", "99.0")
    assert len(fitting(own_wheel(tmp_path, "torch>=2.4"), INTEL, house, {})) == 1
    with pytest.raises(UserError, match="no wheel of numpy"):
        fitting(own_wheel(tmp_path, "numpy"), INTEL, house, {})


def test_what_a_wheelhouse_lacks_is_named_with_the_command(tmp_path: Path) -> None:
    house = tmp_path / "house"
    write_wheel(house, "a", tag="cp311-cp311-manylinux_2_28_x86_64")
    with pytest.raises(UserError) as caught:
        fitting(own_wheel(tmp_path, "a"), ARM, house, {})
    assert str(caught.value) == (
        f"{house}: no wheel of a for aarch64 with Python 3.13 (it has wheels for x86_64):"
        f" `edgefl hosts wheels {house} --platform aarch64 --python 3.13` gets what is missing"
    )


def test_pip_downloads_for_the_markers_of_the_other_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, house = tmp_path / "source", tmp_path / "house"
    own = own_wheel(tmp_path, "a", "b")
    newer = 'python_version >= "3.12"'
    needs = [f"c; {ON_INTEL}", f"d; {newer}"]
    write_wheel(source, "a", needs=needs, tag="cp313-cp313-manylinux_2_34_aarch64")
    for name in "cd":
        write_wheel(source, name)
    write_wheel(house, "b", tag="cp311-abi3-manylinux2014_aarch64")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(source))
    target = Target("aarch64", (3, 13), (2, 34))
    wheels = names(fetched(own, target, house, lambda text: None))
    assert [name.partition("-")[0] for name in wheels] == ["a", "b", "d"]
    with pytest.raises(UserError, match=r"^no wheel of a for x86_64 with Python 3.11$"):
        fetched(own, INTEL, house, lambda text: None)


def test_a_build_of_torch_for_gpus_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, house, version = (
        tmp_path / "source",
        tmp_path / "house",
        pins(ARM.environment())["torch"],
    )
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(source))
    on, own = 'platform_system == "Linux"', own_wheel(tmp_path, "torch")
    write_wheel(source, "torch", version, needs=[f"nvidia-cublas; {on}"])
    write_wheel(source, "nvidia_cublas", "1.0")
    house.mkdir()
    with pytest.raises(UserError, match=r"torch-.* is a build for GPUs \(it needs nvidia-c"):
        fetched(own, ARM, house, lambda text: None)
    assert not list(house.iterdir()), "nothing of it was downloaded"
    write_wheel(source, "torch", version, needs=[f"nvidia-cublas; {on} and {ON_INTEL}"])
    assert len(fetched(own, ARM, house, lambda text: None)) == 1


def test_damaged_wheels_are_named(tmp_path: Path) -> None:
    damaged = tmp_path / "a-1.0-py3-none-any.whl"
    damaged.write_bytes(b"PK")
    with pytest.raises(UserError, match=r"a-1.0-py3-none-any.whl"):
        fetched(own_wheel(tmp_path, "a"), INTEL, tmp_path, lambda text: None)
    with pytest.raises(UserError, match=r"a-1.0-py3-none-any.whl: damaged"):
        unpacked_bytes(damaged)


def test_the_pins_are_those_of_the_machine() -> None:
    arm, intel = pins(ARM.environment()), pins(INTEL.environment())
    assert {name for name in intel if intel[name] != arm.get(name)} == {"torch"}
    assert intel["torch"] != arm["torch"] and "numpy" in arm


@pytest.mark.parametrize(
    ("machine", "settings", "own"),
    [
        ("x86_64", "", True),
        ("x86_64", "global.index-url='https://mirror/simple'", False),
        ("aarch64", "", False),
    ],
)
def test_torch_comes_from_its_cpu_index_unless_pip_has_settings(
    machine: str, settings: str, own: bool
) -> None:
    assert (torch_index(machine, settings) is not None) is own


# ---------------------------------------------------------------- the wheel of this edgefl
@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> wheel_file.OwnWheel:
    return edgefl_wheel(tmp_path_factory.mktemp("built") / "new")


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
    assert edgefl_wheel(tmp_path / "again").digest() == built.digest()
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
    (installed,) = (Distribution.at(path) for path in site.glob("edgefl_testbed-*.dist-info"))
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
    assert done.stdout.strip() == str(
        other_site / "edgefl" / "plugins" / "launch" / "constraints.txt"
    )


@pytest.mark.parametrize("checkout", [False, True])
def test_where_no_wheel_can_be_made(
    checkout: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel_file, "ROOT", tmp_path)
    monkeypatch.setattr(wheel_file, "NAME", "edgefl-of-nobody")
    reason = f"{tmp_path} has no pyproject.toml, and edgefl-of-nobody is not"
    if checkout:
        (tmp_path / "pyproject.toml").write_text("[project]\nname = 1\n")
        reason = "the wheel cannot be built"
    with pytest.raises(UserError, match=reason):
        edgefl_wheel(tmp_path / "new")
