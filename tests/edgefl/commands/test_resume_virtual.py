"""Resumed comparisons under the virtual clock: the bytes of an unbroken one, nothing run twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paths import SUPPORT
from typer.testing import CliRunner

from edgefl.cli import app
from edgefl.commands.progress import ProgressLines

CONFIG = f"""
name = "cut"
task = "{SUPPORT / "own_task.py"}:build"
stop = {{ versions = 20 }}
seeds = [1, 2]
edges = {{ count = 2 }}
[[strategies]]
strategy = "fedavg"
[[strategies]]
strategy = "fedasync"
"""
NOT_EQUAL = ("config.toml", "summary.json", "metrics.csv")  # wall seconds, facts about the host


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cut.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def interrupted_at(steps: int) -> Callable[..., Any]:
    """A ticker that sends SIGINT at this step of all runs together."""
    count = 0

    def ticker(*_: Any) -> Any:
        def tick(now_ns: int, run: Any) -> None:
            nonlocal count
            count += 1
            if count == steps:
                os.kill(os.getpid(), signal.SIGINT)

        return tick

    return ticker


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["run", *words])
    return result.exit_code, result.output


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.glob("*/seed*/*")
        if path.is_file() and path.name not in NOT_EQUAL
    }


def without_wall(folder: Path) -> list[list[str]]:
    """The rows of all metrics.csv without the column of wall seconds."""
    lines = [
        line.split(",")
        for path in sorted(folder.glob("*/seed*/metrics.csv"))
        for line in path.read_text().splitlines()
    ]
    return [[*fields[:2], *fields[3:]] for fields in lines]


@pytest.mark.processes
def test_a_comparison_interrupted_three_times_has_the_bytes_of_an_unbroken_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("cut.toml", "--clock", "virtual", "--out", "whole")[0] == 0
    monkeypatch.setattr(ProgressLines, "ticker", interrupted_at(40))
    status, said = run("cut.toml", "--clock", "virtual")
    assert status == 130 and said.splitlines()[-1] == "next: edgefl run --resume runs/cut"
    kept: dict[Path, int] = {}
    for _ in range(2):
        monkeypatch.setattr(ProgressLines, "ticker", interrupted_at(40))
        assert run("--resume", "runs/cut")[0] == 130
        ended = finished(folder)
        assert kept.items() <= ended.items(), "a finished run was written again"
        kept = ended
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    status, said = run("--resume", "runs/cut/fedasync/seed2")
    assert status == 0 and kept.items() <= finished(folder).items()
    assert "resuming runs/cut: going on with" in said and "finished before: fedavg seed 1" in said
    assert bytes_of(folder / "runs/cut") == bytes_of(folder / "whole/cut")
    assert without_wall(folder / "runs/cut") == without_wall(folder / "whole/cut")
    nothing = CliRunner().invoke(app, ["run", "--resume", "runs/cut"])
    assert "nothing to resume" in str(nothing.exception)


def finished(folder: Path) -> dict[Path, int]:
    """When the summary of each finished run was written (ns)."""
    return {
        path: path.stat().st_mtime_ns
        for path in folder.glob("runs/cut/*/*/summary.json")
        if '"interrupted"' not in path.read_text()
    }


@pytest.mark.processes
def test_other_data_end_a_resumption_before_anything_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProgressLines, "ticker", interrupted_at(5))
    assert run("cut.toml", "--clock", "virtual")[0] == 130
    config = folder / "runs/cut/fedavg/seed1/config.toml"
    text = config.read_text()
    (digest,) = (line for line in text.splitlines() if line.startswith("data_digest"))
    config.write_text(text.replace(digest, 'data_digest = "1234"'))
    before = bytes_of(folder / "runs/cut")
    result = CliRunner().invoke(app, ["run", "--resume", "runs/cut"])
    assert "runs/cut/fedavg/seed1: the data have changed since the run began" in str(
        result.exception
    )
    assert bytes_of(folder / "runs/cut") == before
