"""``edgefl doctor``: each finding says what is wrong and what to do."""

from __future__ import annotations

import json
import os
import resource
import tomllib
from importlib import metadata
from pathlib import Path

import psutil
import pytest
from paths import ROOT
from typer.testing import CliRunner

from edgefl.cli import app
from edgefl.commands import doctor

STATUSES = {"ok", "limited", "missing"}


def named(name: str) -> doctor.Finding:
    return next(each for each in doctor.examined() if each.name == name)


@pytest.mark.slow
def test_it_says_something_of_everything_and_ends_with_0() -> None:
    told = CliRunner().invoke(app, ["doctor", "--json"])
    assert told.exit_code == 0
    found = {each["name"]: each for each in json.loads(told.stdout)}
    assert {"python", "cores", "memory", "timers", "priority", "open files", "torch", "gpu"} <= {
        *found
    }
    assert {"data", "cache", "runs", "extra lab"} <= {*found}
    for each in found.values():
        assert each["status"] in STATUSES and each["found"]
        assert bool(each["advice"]) == (each["status"] != "ok"), each
    told = CliRunner().invoke(app, ["doctor"])
    assert told.exit_code == 0 and told.stdout.splitlines()[-1].startswith("next: ")
    assert all(name in told.stdout for name in found)


def test_it_names_each_extra_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {*doctor.USES} == {*project["optional-dependencies"]} - {"dev", "docs"}


def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEFL_DATA", "none")
    assert "edgefl data get" in named("data").advice
    (tmp_path / "none" / "mnist").mkdir(parents=True)
    assert named("data").status == "ok" and "none: mnist" in named("data").found

    memory = psutil.virtual_memory()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory._replace(available=10**8))
    assert named("memory").status == "limited"

    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 256))
    assert "up to 192 edges" in named("open files").found and named("open files").advice

    monkeypatch.setattr(doctor, "real_time_priority", lambda: "normal")
    assert "rtprio" in named("priority").advice

    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 0.0, 0.0))
    assert "other programs" in named("cores").advice

    def version(package: str) -> str:
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "version", version)
    found = named("extra ray")
    assert found.status == "missing" and "--engine ray" in found.found and "install" in found.advice


@pytest.mark.parametrize(
    ("words", "prefix", "status"),
    [
        ("'--enable-optimizations'", "/home/me/.pyenv", "ok"),
        ("'--enable-shared'", "/home/me/.pyenv", "limited"),
        ("'--enable-shared'", "/usr", "ok"),  # Debian optimizes in another way
    ],
)
def test_a_python_that_was_built_without_optimizations_is_told(
    words: str, prefix: str, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor.sysconfig, "get_config_var", lambda name: words)
    monkeypatch.setattr(doctor.sys, "base_prefix", prefix)
    assert named("python").status == status


def test_a_folder_that_cannot_be_written_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert named("runs").status == "missing" and "--out" in named("runs").advice
    assert "EDGEFL_CACHE" in named("cache").advice


def test_the_extras_of_a_copy_that_is_not_a_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor.edgefl, "__file__", str(tmp_path / "edgefl" / "__init__.py"))
    needs = ['ray>=2.40; extra == "ray"', "numpy>=1.26", "zeroconf; extra == 'discover'"]
    monkeypatch.setattr(metadata, "requires", lambda name: needs)
    assert doctor._packages() == {"ray": ["ray"], "discover": ["zeroconf"]}

    def requires(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", requires)
    assert "not installed" in named("extras").found


def test_late_timers_and_a_slow_clock_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    moments = iter(range(10**6))
    monkeypatch.setattr(doctor.time, "sleep", lambda s: None)
    monkeypatch.setattr(doctor.time, "perf_counter", lambda: next(moments) * 0.1)
    assert "may be strained" in named("timers").advice
    source = tmp_path / "clock"
    source.write_text("hpet\n")
    monkeypatch.setattr(doctor, "CLOCK", source)
    assert named("clock source").status == "limited" and named("clock source").found == "hpet"
