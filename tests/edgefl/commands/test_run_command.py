"""``edgefl run`` and ``coordinator``: --require, --live, Ctrl-C on both clocks, and resumption."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import orjson
import pytest
from broken_off import begin_run
from compared_runs import evaluated_run
from paths import CONFIGS, SUPPORT
from typer.testing import CliRunner

from edgefl.cli import app, with_value
from edgefl.clocks import processes
from edgefl.clocks.wall import launcher
from edgefl.commands.run import port_of, requirements, unmet
from edgefl.commands.running import ProgressLines
from edgefl.config.experiment import Experiment
from edgefl.errors import UserError
from edgefl.results.compare import load_run

RUN = [
    "run",
    str(CONFIGS / "quickstart.toml"),
    "--clock",
    "virtual",
    "stop.emulated_s=8",
    "edges.count=3",
]


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--require", "faithful", "--require", "accuracy=0"], 0),
        (["--require", "faithful", "--require", "accuracy=1"], 3),
    ],
)
@pytest.mark.slow
def test_the_exit_status(words: list[str], status: int, tmp_path: Path) -> None:
    told = CliRunner().invoke(app, [*RUN, "--out", str(tmp_path), *words])
    assert told.exit_code == status, told.output
    missed = [line for line in told.output.splitlines() if line.startswith("edgefl: --require")]
    assert len(missed) == (3 if status else 0)  # a line for each strategy
    assert all("--require accuracy=1: fed" in line for line in missed)


@pytest.mark.parametrize(("versions", "status"), [(0, 1), (2, 0)])
def test_a_coordinator_without_a_table_says_that_a_run_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, versions: int, status: int
) -> None:
    def ran(task: Any, *rest: Any, **more: Any) -> bool:
        evaluated_run(task.folder / "fedavg", 1, [0.1, 0.5, 0.9], versions=versions)
        return True

    monkeypatch.setattr("edgefl.commands.running.run_seeds", ran)
    words = ["coordinator", str(CONFIGS / "quickstart.toml"), "--out", str(tmp_path), "--no-table"]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == status, told.output


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("faithfull", r"expected faithful or accuracy=0.9 \(nearest: 'faithful'\)"),
        ("accuracy=90", "expected a share such as accuracy=0.9"),
        ("accuracy=nan", "expected a share such as accuracy=0.9"),
    ],
)
def test_another_word_is_one_line(word: str, line: str) -> None:
    with pytest.raises(UserError, match=f"--require {word}: {line}"):
        requirements([word])


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({}, []),  # the virtual clock computes its times
        ({"clock": "wall"}, []),
        ({"versions": 0}, ["--require faithful: x, seed 1 is failed"]),
        ({"diverged_at_version": 2}, ["--require faithful: x, seed 1 is diverged"]),
    ],
)
def test_a_faithful_run_is_one_that_did_not_fail(
    facts: dict[str, Any], told: list[str], tmp_path: Path
) -> None:
    run = evaluated_run(tmp_path / "x", 1, [0.1, 0.5, 0.9], **facts)
    assert unmet(requirements(["faithful"]), [load_run(run, "x")]) == told


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["--live", "x.toml"], ["--live=", "x.toml"]),
        (["--live", "8050", "x.toml"], ["--live", "8050", "x.toml"]),
        (["x.toml", "--live", "--force"], ["x.toml", "--live=", "--force"]),
    ],
)
def test_live_may_stand_without_a_port(given: list[str], read: list[str]) -> None:
    assert list(with_value(given)) == read


@pytest.mark.parametrize("text", ["65536", "-1", "abc", "80.5", "٣", "1" * 20])
def test_a_port_is_a_number_up_to_65535(text: str) -> None:
    assert [port_of(each, "--live") for each in ("", "0", "65535")] == [None, 0, 65535]
    with pytest.raises(UserError, match=r"^--port .*: expected a port, 0 to 65535 \(0: any free"):
        port_of(text, "--port")


@pytest.mark.processes
def test_a_port_that_is_none_ends_before_anything_is_written(tmp_path: Path) -> None:
    words = ["run", "configs/quickstart.toml", "--live=x", "--out", str(tmp_path / "out")]
    told = CliRunner().invoke(app, words)
    assert "--live x: expected a port, 0 to 65535" in str(told.exception)
    assert not (tmp_path / "out").exists()


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
    monkeypatch.setattr(processes, "RunProcesses", nullcontext)
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


SHORT = ["stop={versions=20}", "seeds=[1, 2]"]
NOT_EQUAL = ("config.toml", "summary.json", "metrics.csv")  # wall seconds, facts about the host


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
    assert run("cut.toml", *SHORT, "--clock", "virtual", "--out", "whole")[0] == 0
    monkeypatch.setattr(ProgressLines, "ticker", interrupted_at(40))
    status, said = run("cut.toml", *SHORT, "--clock", "virtual")
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
    assert run("cut.toml", *SHORT, "--clock", "virtual")[0] == 130
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
