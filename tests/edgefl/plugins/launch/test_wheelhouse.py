"""The wheels that a host gets: found by pip for the host's markers and tags."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_wheels import write_wheel

from edgefl.errors import UserError
from edgefl.plugins.launch.wheels import (
    Target,
    chosen,
    fetched,
    pins,
    ranges,
    torch_index,
    unpacked_bytes,
)

pytestmark = pytest.mark.processes
INTEL, ARM = Target("x86_64", (3, 11)), Target("aarch64", (3, 13), (2, 36))
ON_INTEL = 'platform_machine == "x86_64"'


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def own_wheel(folder: Path, *needs: str) -> Path:
    return write_wheel(folder / "own", "own", needs=needs)


def test_dependencies_are_those_of_the_host_and_not_of_this_machine(tmp_path: Path) -> None:
    own = own_wheel(tmp_path, "a>=1", f"b; {ON_INTEL}", "x; extra == 'lab'")
    house = tmp_path / "house"
    write_wheel(house, "a", needs=[f"c; {ON_INTEL}", 'd; python_version >= "3.12"', "a"])
    for name in "bcd":
        write_wheel(house, name, needs=["a"])
    for target, expected in ((INTEL, "abc"), (ARM, "ad")):
        found = chosen(own, target, house)
        assert sorted(path.name[0] for path in found) == list(expected)
        assert all(path.parent == house for path in found)
    assert ranges(own, ARM) == {"a": ">=1"}


def test_what_the_machine_has_is_not_searched(tmp_path: Path) -> None:
    own = own_wheel(tmp_path, "a>=1", "tomli-w", "x_y")
    write_wheel(tmp_path / "house", "spare")
    below = {"a": "1.5", "tomli-w": "1.0", "x-y": "2.0+cu12"}
    assert chosen(own, INTEL, tmp_path / "house", below) == []


def test_the_wheel_that_fits_best_is_chosen(tmp_path: Path) -> None:
    house, own = tmp_path / "house", own_wheel(tmp_path, "a>=0.5")
    for tag in (
        "py3-none-any",
        "cp311-cp311-manylinux_2_17_x86_64",
        "cp311-cp311-manylinux_2_28_x86_64",
        "cp313-cp313-manylinux_2_28_aarch64",
        "cp310-abi3-manylinux_2_17_x86_64",
    ):
        write_wheel(house, "a", tag=tag)
    write_wheel(house, "a", "9.0", tag="cp312-cp312-manylinux_2_28_x86_64")
    write_wheel(house, "a", "9.0", tag="cp313-cp313-manylinux_2_39_aarch64")

    def best(target: Target) -> str:
        (path,) = chosen(own, target, house)
        return path.stem.partition("-")[2]

    assert best(INTEL) == "1.0-cp311-cp311-manylinux_2_28_x86_64"
    assert best(Target("x86_64", (3, 14))) == "1.0-cp310-abi3-manylinux_2_17_x86_64"
    assert best(ARM) == "1.0-cp313-cp313-manylinux_2_28_aarch64", "2.39 needs a newer C library"


def test_a_pin_takes_any_local_version_and_no_other_version(tmp_path: Path) -> None:
    pinned, house = pins(INTEL.environment()), tmp_path / "house"
    write_wheel(house, "torch", f"{pinned['torch']}+cpu", tag="cp311-cp311-manylinux_2_28_x86_64")
    write_wheel(house, "numpy", "99.0")
    assert len(chosen(own_wheel(tmp_path, "torch>=2.4"), INTEL, house)) == 1
    with pytest.raises(UserError, match="no wheel of numpy"):
        chosen(own_wheel(tmp_path, "numpy"), INTEL, house)


def test_what_a_wheelhouse_lacks_is_named_with_the_command(tmp_path: Path) -> None:
    house = tmp_path / "house"
    write_wheel(house, "a", tag="cp311-cp311-manylinux_2_28_x86_64")
    with pytest.raises(UserError) as caught:
        chosen(own_wheel(tmp_path, "a"), ARM, house)
    assert str(caught.value) == (
        f"{house}: no wheel of a for aarch64 with Python 3.13 (it has wheels for x86_64):"
        f" `edgefl hosts wheels {house} --platform aarch64 --python 3.13` gets what is missing"
    )


def test_only_what_is_missing_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, house = tmp_path / "source", tmp_path / "house"
    own = own_wheel(tmp_path, "a", "b")
    write_wheel(source, "a", needs=[f"c; {ON_INTEL}"], tag="cp313-cp313-manylinux_2_34_aarch64")
    write_wheel(source, "b", tag="cp311-abi3-manylinux2014_aarch64")
    write_wheel(house, "b", tag="cp311-abi3-manylinux2014_aarch64")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(source))
    said: list[str] = []
    target = Target("aarch64", (3, 13), (2, 34))
    assert sorted(names(fetched(own, target, house, said.append))) == [
        "a-1.0-cp313-cp313-manylinux_2_34_aarch64.whl",
        "b-1.0-cp311-abi3-manylinux2014_aarch64.whl",
    ]
    assert said == ["aarch64 with Python 3.13: a==1.0"]
    with pytest.raises(UserError, match=r"^no wheel of a for x86_64 with Python 3.11$"):
        fetched(own, INTEL, house, said.append)


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
        chosen(own_wheel(tmp_path, "a"), INTEL, tmp_path)
    with pytest.raises(UserError, match=r"a-1.0-py3-none-any.whl: damaged"):
        unpacked_bytes(damaged)


def test_sizes_are_those_of_the_files(tmp_path: Path) -> None:
    small, large = (
        unpacked_bytes(write_wheel(tmp_path / str(size), "a", code="#" * size)) for size in (0, 999)
    )
    assert large - small == 999


def test_the_pins_are_those_of_the_machine() -> None:
    arm, intel = pins(ARM.environment()), pins(INTEL.environment())
    assert {name for name in intel if intel[name] != arm.get(name)} == {"torch"}
    assert intel["torch"] != arm["torch"] and "numpy" in arm


@pytest.mark.parametrize(
    ("machine", "settings", "own"),
    [
        ("x86_64", "", True),
        ("x86_64", "global.timeout='60'", True),
        ("x86_64", "global.index-url='https://mirror/simple'", False),
        ("x86_64", ":env:.find-links='/wheels'", False),
        ("aarch64", "", False),
    ],
)
def test_torch_comes_from_its_cpu_index_unless_pip_has_settings(
    machine: str, settings: str, own: bool
) -> None:
    assert (torch_index(machine, settings) is not None) is own
