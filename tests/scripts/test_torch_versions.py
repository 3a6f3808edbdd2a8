"""Which torch the set-up takes on which machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_machine import FakeMachine
from packaging.requirements import Requirement
from paths import ROOT

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PIWHEELS = "global.extra-index-url='https://www.piwheels.org/simple'"


def pinned(machine: str) -> list[str]:
    """Return the versions of torch that pip takes from constraints.txt on ``machine``."""
    lines = (ROOT / "scripts" / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    environment = {"platform_machine": machine}
    return [
        str(pin.specifier).removeprefix("==")
        for pin in pins
        if pin.name == "torch" and (pin.marker is None or pin.marker.evaluate(environment))
    ]


def test_each_machine_has_one_version() -> None:
    assert pinned("aarch64") == ["2.9.1"]  # PyPI's last one that is a CPU build and runs on a Pi 4
    assert len(pinned("x86_64")) == 1 and pinned("x86_64") == pinned("arm64")


@pytest.mark.processes
@pytest.mark.parametrize("settings", ["", PIWHEELS])
def test_setup_env_takes_the_pinned_one_from_pips_own_index_on_arm(
    tmp_path: Path, settings: str
) -> None:
    machine = FakeMachine(tmp_path, "aarch64", FAKE_PIP_SETTINGS=settings)
    machine.python(machine.root / ".venv" / "bin" / "python")
    done = machine.run("setup_env.sh")
    assert done.returncode == 0, done.stderr
    assert "torch 2.9.1" in done.stdout
    assert [call for call in machine.pip_calls if "torch==" in call] == []
    assert all(call.startswith("- ") for call in machine.pip_calls)
    installing = [call for call in machine.pip_calls if " uninstall " not in call]
    assert installing and all("--constraint" in call for call in installing)


@pytest.mark.processes
def test_setup_env_takes_an_index_that_is_named(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "aarch64", EDGEFL_TORCH_INDEX=CPU_INDEX)
    machine.python(machine.root / ".venv" / "bin" / "python")
    assert machine.run("setup_env.sh").returncode == 0
    (call,) = [call for call in machine.pip_calls if "torch==" in call]
    assert call.startswith(f"{CPU_INDEX} ") and call.endswith("--no-deps torch==2.9.1")


@pytest.mark.processes
def test_setup_env_takes_the_cpu_builds_on_x86(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "x86_64")
    machine.python(machine.root / ".venv" / "bin" / "python")
    assert machine.run("setup_env.sh").returncode == 0
    (call,) = [call for call in machine.pip_calls if "torch==" in call]
    assert call.startswith(f"{CPU_INDEX} ") and call.endswith(f"torch=={pinned('x86_64')[0]}")


@pytest.mark.processes
def test_setup_env_ends_if_torch_does_not_import(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "aarch64", FAKE_TORCH_FAILS="yes")
    machine.python(machine.root / ".venv" / "bin" / "python")
    done = machine.run("setup_env.sh")
    assert done.returncode == 1
    assert "setup: the installed torch does not import" in done.stderr.splitlines()[-1]
    assert not (machine.root / ".venv" / ".edgefl-setup").exists()  # so the next call tries again


@pytest.mark.processes
def test_setup_env_installs_what_is_asked_for_and_keeps_what_was(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "aarch64")
    machine.python(machine.root / ".venv" / "bin" / "python")

    def installed(*words: str) -> str:
        before = len(machine.pip_calls)
        done = machine.run("setup_env.sh", *words)
        assert done.returncode == 0, done.stderr
        found = [call.rpartition("[")[2] for call in machine.pip_calls[before:] if "[" in call]
        return " ".join(found)

    assert installed("lab,live") == "lab,live]"
    assert installed("live") == "", "all of it is there"
    assert installed() == "lab,launch,dev,live]"
    assert installed("lab,live") == installed() == ""
    refused = machine.run("setup_env.sh", "--dev")
    assert refused.returncode == 2 and "--dev: expected extras" in refused.stderr
    unknown = machine.run("setup_env.sh", "lab,lunch")
    assert (unknown.returncode, unknown.stderr) == (
        2,
        "setup: lunch: no such extra in pyproject.toml\n",
    )
