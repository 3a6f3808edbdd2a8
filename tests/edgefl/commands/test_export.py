"""Tests of ``edgefl export``: what it says, and its lines about bad input."""

from __future__ import annotations

import sys
from pathlib import Path

import orjson
import pytest
from builders import small_run
from typer.testing import CliRunner

from edgefl.cli import app
from edgefl.errors import UserError

RUNNER = CliRunner()
ASSIGN = {"do": "assign", "edges": ["a"], "tasks": [0]}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    _, directory = small_run(tmp_path_factory.mktemp("runs"), stop={"versions": 2})
    return directory


def refusal(*words: str) -> str:
    result = RUNNER.invoke(app, ["export", *words])
    assert isinstance(result.exception, UserError), result.output
    return str(result.exception)


def test_it_says_what_it_wrote_and_how_to_see_it(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = RUNNER.invoke(app, ["export", str(run), "--to", "perfetto"])
    assert result.exit_code == 0 and (tmp_path / "trace.json").is_file()
    lines = result.output.splitlines()
    assert lines[0] == "trace.json"
    assert lines[1].startswith("next: open trace.json at https://ui.perfetto.dev")


def test_without_a_format_it_lists_them(run: Path) -> None:
    result = RUNNER.invoke(app, ["export", str(run)])
    assert isinstance(result.exception, UserError)
    listed = [line.split()[0] for line in result.output.splitlines()]
    assert listed == ["mlflow", "parquet", "perfetto", "tensorboard"]


def test_bad_input_is_one_clear_line(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "unknown format 'perfeto' (nearest: 'perfetto')" in refusal(str(run), "--to", "perfeto")
    nothing = tmp_path / "nothing"
    assert f"{nothing}: no such directory" in refusal(str(nothing), "--to", "parquet")
    assert f"{tmp_path}: no run in it" in refusal(str(tmp_path), "--to", "parquet")
    place = str(tmp_path / "trace.txt")
    assert "expected a file that ends in .json" in refusal(
        str(run), "--to", "perfetto", "--out", place
    )
    for name, package, extra in (
        ("parquet", "pyarrow", "export"),
        ("tensorboard", "torch.utils.tensorboard.writer", "export"),
        ("mlflow", "mlflow.exceptions", "mlflow"),
    ):
        with monkeypatch.context() as hidden:
            hidden.setitem(sys.modules, package, None)
            line = refusal(str(run), "--to", name, "--out", str(tmp_path / "out"))
        assert line.endswith(f"which is not installed: pip install 'edgefl[{extra}]'"), line


@pytest.mark.parametrize("to", ["perfetto", "parquet", "tensorboard"])
def test_a_run_of_an_older_version(run: Path, tmp_path: Path, to: str) -> None:
    """Fewer columns, a number by its old name, an event that is not known any more."""
    old = tmp_path / "old"
    old.mkdir()
    numbers = {"slot": 2.0, "draw": 1.0}
    events = [
        {"t": 0.0, "event": "edge_joined", "version": 0, "edge": "a", "decisions": []},
        {
            "t": 0.0,
            "event": "run_started",
            "version": 0,
            "decisions": [ASSIGN | {"numbers": numbers}],
        },
        {"t": 1.0, "fact": "task_started", "edge": "a", "task": 0},
        {"t": 2.0, "event": "long_forgotten", "version": 0, "edge": "a"},
    ]
    (old / "events.jsonl").write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in events))
    (old / "metrics.csv").write_text("version,emulated_s,accuracy\n0,0.0,0.1\n1,1.5,0.6\n")
    out = tmp_path / ("out.json" if to == "perfetto" else "out")
    result = RUNNER.invoke(app, ["export", str(old), "--to", to, "--out", str(out)])
    assert result.exit_code == 0, result.exception
    if to == "parquet":
        decisions = pytest.importorskip("pyarrow.parquet").read_table(out / "decisions.parquet")
        assert decisions.column("numbers.refresh_point").to_pylist() == [2.0]
        assert decisions.column("edge").to_pylist() == ["a"]


@pytest.mark.parametrize("to", ["perfetto", "parquet", "tensorboard"])
def test_rows_that_make_no_sense_are_one_line(tmp_path: Path, to: str) -> None:
    row = {"t": 0.0, "event": "run_started", "version": 0, "decisions": [{"do": "assign"}]}
    (tmp_path / "events.jsonl").write_bytes(orjson.dumps(row) + b"\n")
    out = tmp_path / ("out.json" if to == "perfetto" else "out")
    line = refusal(str(tmp_path), "--to", to, "--out", str(out))
    assert line.startswith(f"{tmp_path}: is damaged (KeyError: "), line


def test_a_damaged_row_is_named(run: Path, tmp_path: Path) -> None:
    for name in ("events.jsonl", "links.csv"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    (tmp_path / "events.jsonl").write_bytes(b"{]\n" + (run / "events.jsonl").read_bytes())
    line = refusal(str(tmp_path), "--to", "perfetto", "--out", str(tmp_path / "t.json"))
    assert "events.jsonl: line 1 is no row of events; the file is damaged" in line
