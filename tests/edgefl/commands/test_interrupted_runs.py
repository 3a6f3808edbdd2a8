"""Ctrl-C on both clocks: results are shown as interrupted, and the exit status says so."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import orjson
import pytest
from broken_off import begin_run
from paths import SUPPORT
from typer.testing import CliRunner

from edgefl.cli import app
from edgefl.commands.progress import ProgressLines
from edgefl.config.experiment import Experiment
from edgefl.errors import UserError
from edgefl.hosts.wall import launcher, run_processes

CONFIG = f"""
name = "cut"
task = "{SUPPORT / "own_task.py"}:build"
stop = {{ versions = 1000 }}
edges = {{ count = 2 }}
[[strategies]]
strategy = "fedavg"
[[strategies]]
strategy = "fedasync"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cut.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("seeds", [[], ["seeds=[1, 2]"]])
@pytest.mark.processes
def test_a_virtual_run(folder: Path, monkeypatch: pytest.MonkeyPatch, seeds: list[str]) -> None:
    def ticker(*_: Any) -> Any:
        def tick(now_ns: int, run: Any) -> None:
            if run.coordinator.version == 3:
                os.kill(os.getpid(), signal.SIGINT)

        return tick

    monkeypatch.setattr(ProgressLines, "ticker", ticker)
    result = CliRunner().invoke(app, ["run", "cut.toml", *seeds, "--clock", "virtual"])
    assert result.exit_code == 130
    runs = sorted(path.parent for path in folder.glob("runs/cut/**/summary.json"))
    assert [run.relative_to(folder / "runs/cut").parts[0] for run in runs] == ["fedavg"]
    assert orjson.loads((runs[0] / "summary.json").read_bytes())["finished"] == "interrupted"
    said = " ".join(result.output.split())
    assert "3 versions" in said and "accuracy 0.8750, interrupted" in said
    assert "fedavg: interrupted after" in said  # below the table

    shown = CliRunner().invoke(app, ["compare", "runs/cut"])
    assert shown.exit_code == 0 and "fedavg: interrupted after" in " ".join(shown.output.split())
    (line,) = (line for line in shown.output.splitlines() if line.startswith("fedavg "))
    assert line.split()[-1] == "interrupted"


@pytest.mark.parametrize("command", ["run", "coordinator"])
@pytest.mark.parametrize("ended", ["interrupted", "to its end"])
def test_a_wall_clock_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, ended: str
) -> None:
    class Run:
        """A stub for the processes."""

        port = 0

        def __init__(self, *_: Any) -> None: ...

        def run(self, watch: Any) -> None:
            if ended == "interrupted":
                raise launcher.Interrupted([])

    monkeypatch.setattr(launcher, "WallRun", Run)
    monkeypatch.setattr(run_processes, "RunProcesses", nullcontext)
    result = CliRunner().invoke(app, [command, "cut.toml"])
    assert result.exit_code == (130 if ended == "interrupted" else 0)


@pytest.mark.parametrize("begun", [True, False])
def test_an_error_of_a_run_that_has_begun_says_how_to_go_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    class Run:
        """A stub for the processes."""

        port = 0

        def __init__(self, given: Experiment, options: launcher.LaunchOptions, _: Any) -> None:
            self.experiment, self.options = given, options

        def run(self, watch: Any) -> None:
            if begun:
                self.options.folder.claim()
                self.options.folder.begin()
                begin_run(self.options.out, self.experiment)
            raise UserError("no edge has come back within 60 s")

    monkeypatch.setattr(launcher, "WallRun", Run)
    result = CliRunner().invoke(app, ["coordinator", "cut.toml"])
    assert isinstance(result.exception, UserError)
    assert str(result.exception) == "no edge has come back within 60 s" + (
        "; to go on with it: edgefl coordinator --resume runs/cut" if begun else ""
    )
