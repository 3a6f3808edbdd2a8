"""The wheels that a host gets: followed by its own markers, chosen by its own tags."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_wheels import write_wheel

from edgefl.errors import UserError
from edgefl.launch.pins import pins, torch_index
from edgefl.launch.wheelhouse import (
    Target,
    Wanted,
    chosen,
    closure,
    fetched,
    ranges,
    refuse_cuda,
    unpacked_bytes,
)

INTEL, ARM = Target("x86_64", (3, 11)), Target("aarch64", (3, 13), (2, 36))
ON_INTEL = 'platform_machine == "x86_64"'


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def test_dependencies_are_those_of_the_host_and_not_of_this_machine(tmp_path: Path) -> None:
    own = write_wheel(
        tmp_path / "own", "own", needs=["a>=1", f"b; {ON_INTEL}", "x; extra == 'lab'"]
    )
    house = tmp_path / "house"
    write_wheel(house, "a", needs=[f"c; {ON_INTEL}", 'd; python_version >= "3.12"', "a"])
    for name in "bcd":
        write_wheel(house, name, needs=["a"])
    for target, expected in ((INTEL, "abc"), (ARM, "ad")):
        found = closure(own, target, chosen(house, target))
        assert sorted(path.name[0] for path in found) == list(expected)
    assert closure(own, INTEL, chosen(house, INTEL), have=["a", "b"]) == []
    assert ranges(own, ARM) == {"a": ">=1"}


def test_the_wheel_that_fits_best_is_chosen(tmp_path: Path) -> None:
    for tag in (
        "py3-none-any",
        "cp311-cp311-manylinux_2_17_x86_64",
        "cp311-cp311-manylinux_2_28_x86_64",
        "cp313-cp313-manylinux_2_28_aarch64",
        "cp310-abi3-manylinux_2_17_x86_64",
    ):
        write_wheel(tmp_path, "a", tag=tag)
    write_wheel(tmp_path, "a", "0.9", tag="cp311-cp311-manylinux_2_28_x86_64")
    write_wheel(tmp_path, "a", "9.0", tag="cp312-cp312-manylinux_2_28_x86_64")
    write_wheel(tmp_path, "a", "9.0", tag="cp313-cp313-manylinux_2_39_aarch64")
    (tmp_path / "no-wheel.whl").write_bytes(b"")

    def best(target: Target, pinned: str | None = None) -> str:
        (path,) = chosen(tmp_path, target)([Wanted("a", ">=0.5", pinned)])
        return path.stem.partition("-")[2]

    assert best(INTEL) == "1.0-cp311-cp311-manylinux_2_28_x86_64"
    assert best(INTEL, "0.9") == "0.9-cp311-cp311-manylinux_2_28_x86_64"
    assert best(Target("x86_64", (3, 11), (2, 20))) == "1.0-cp311-cp311-manylinux_2_17_x86_64"
    assert best(Target("x86_64", (3, 14))) == "1.0-cp310-abi3-manylinux_2_17_x86_64"
    assert best(ARM) == "1.0-cp313-cp313-manylinux_2_28_aarch64", "2.39 needs a newer C library"
    assert best(Target("aarch64", (3, 11))) == "1.0-py3-none-any"


def test_a_pin_takes_any_local_version(tmp_path: Path) -> None:
    write_wheel(tmp_path, "torch", "2.13.0+cpu", tag="cp311-cp311-manylinux_2_28_x86_64")
    assert len(chosen(tmp_path, INTEL)([Wanted("torch", ">=2.4", "2.13.0")])) == 1


def test_what_a_wheelhouse_lacks_is_named_with_the_command(tmp_path: Path) -> None:
    write_wheel(tmp_path, "a", tag="cp311-cp311-manylinux_2_28_x86_64")
    wanted = [Wanted(name, "", None) for name in "abcde"]
    with pytest.raises(UserError) as caught:
        chosen(tmp_path, ARM)(wanted)
    assert str(caught.value) == (
        f"{tmp_path}: no wheel of a, b, c and 2 more for aarch64 with Python 3.13 (it has wheels"
        f" for x86_64): `edgefl hosts wheels {tmp_path} --platform aarch64 --python 3.13` gets what"
        " is missing"
    )


@pytest.mark.processes
def test_only_what_is_missing_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, house = tmp_path / "source", tmp_path / "house"
    own = write_wheel(tmp_path / "own", "own", needs=["a", "b"])
    write_wheel(source, "a", needs=[f"c; {ON_INTEL}"], tag="cp313-cp313-manylinux_2_34_aarch64")
    write_wheel(source, "a", tag="cp313-cp313-manylinux_2_28_aarch64")
    write_wheel(source, "b", tag="cp311-abi3-manylinux2014_aarch64")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(source))
    house.mkdir()
    said: list[str] = []
    target = Target("aarch64", (3, 13))
    for _ in range(2):
        assert names(closure(own, target, fetched(house, target, said.append))) == [
            "a-1.0-cp313-cp313-manylinux_2_28_aarch64.whl",
            "b-1.0-cp311-abi3-manylinux2014_aarch64.whl",
        ]
    assert said == ["aarch64 with Python 3.13: a, b"]
    with pytest.raises(UserError, match=r"^a, b for x86_64 with Python 3.11: ERROR: No matching"):
        closure(own, INTEL, fetched(house, INTEL, said.append))


def test_a_build_of_torch_for_gpus_is_refused(tmp_path: Path) -> None:
    on = 'platform_system == "Linux"'
    gpu = write_wheel(tmp_path, "torch", "2.13.0", needs=[f"nvidia-cublas==1; {on}"])
    with pytest.raises(UserError, match=r"torch-2.13.0-.* is a build for GPUs \(it needs nvidia-c"):
        refuse_cuda(gpu, ARM)
    assert not gpu.exists(), "the next call must not find it"
    cpu = write_wheel(tmp_path, "torch", "2.9.1", needs=[f"nvidia-cublas==1; {on} and {ON_INTEL}"])
    refuse_cuda(cpu, ARM)
    assert cpu.exists()


def test_damaged_wheels_are_named(tmp_path: Path) -> None:
    (tmp_path / "a-1.0-py3-none-any.whl").write_bytes(b"PK")
    with pytest.raises(UserError, match=r"a-1.0-py3-none-any.whl: damaged"):
        closure(tmp_path / "a-1.0-py3-none-any.whl", INTEL, chosen(tmp_path, INTEL))


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
