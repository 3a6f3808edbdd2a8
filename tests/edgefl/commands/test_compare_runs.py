"""``edgefl compare`` as a user types it: tables, files, and lines about bad input."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compared_runs import evaluated_run
from typer.testing import CliRunner, Result

from edgefl.cli import app, main
from edgefl.errors import UserError

SLOW, FAST = [0.1, 0.3, 0.5, 0.7, 0.8], [0.1, 0.5, 0.8, 0.85, 0.9]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three seeds of two schemes, in the current directory."""
    monkeypatch.chdir(tmp_path)
    for seed in (1, 2, 3):
        evaluated_run(tmp_path / "runs" / "x" / "fedavg" / f"seed{seed}", seed, SLOW, step_s=seed)
        evaluated_run(tmp_path / "runs" / "x" / "fedbuff" / f"seed{seed}", seed, FAST, step_s=seed)
    return tmp_path / "runs" / "x"


def compare(*words: str) -> Result:
    done = CliRunner().invoke(app, ["compare", *words], env={"COLUMNS": "80", "NO_COLOR": "1"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def read(path: str) -> list[dict[str, str]]:
    return list(csv.DictReader(Path(path).read_text().splitlines()))


def test_single_runs_have_the_first_table_only(folder: Path) -> None:
    shown = compare("runs/x/fedavg/seed1", "runs/x/fedbuff/seed1").stdout
    assert "Over seeds" not in shown and "interval" not in shown
    assert shown.splitlines()[-1] == "next: edgefl plot runs/x/fedavg/seed1 runs/x/fedbuff/seed1"


def test_seeds_have_intervals(folder: Path) -> None:
    lines = compare("runs/x").stdout.splitlines()
    at = lines.index(next(line for line in lines if line.startswith("Over seeds")))
    assert [line.split() for line in lines[at + 4 : at + 8]] == [
        ["fedavg", "3", "0.800", "±", "0.000", "8.00", "±", "4.00"],
        ["[0.800,", "0.800]", "[0.00,", "17.9]"],
        ["fedbuff", "3", "0.900", "±", "0.000", "4.00", "±", "2.00"],
        ["[0.900,", "0.900]", "[0.00,", "8.97]"],
    ]


def test_a_baseline_has_speed_ups_and_p(folder: Path) -> None:
    evaluated_run(folder / "other" / "seed1", 1, SLOW, config={"training": {"epochs": 2}})
    lines = compare("runs/x", "--baseline", "fedavg").stdout.splitlines()
    shown = "\n".join(line.rstrip() for line in lines)
    assert "Against fedavg" in shown and "2.00\u00d7" in shown and "p <0.001" in shown
    assert "other: 1 of 3 seeds in common with fedavg" in lines
    assert "p is adjusted for 2 comparisons (Holm)" in lines
    told = "* other differs: training.epochs = 2 instead of 1, seeds = [1] instead of [1, 2, 3]"
    assert told in lines
    assert all(len(line) <= 80 for line in lines if not line.startswith(("*", "95")))


@pytest.mark.parametrize("option", ["--markdown", "--latex"])
def test_a_table_for_a_paper_is_all_that_is_printed(folder: Path, option: str) -> None:
    shown = compare("runs/x", option, "--columns", "accuracy,to_target").stdout
    first = {"--markdown": "| strategy | accuracy, final |", "--latex": r"% \usepackage{booktabs}"}
    assert shown.startswith(first[option])
    assert "next:" not in shown and "─" not in shown and "2.00" in shown


def test_the_files(folder: Path) -> None:
    shown = compare("runs/x", "--csv", "out/all.csv", "--rows", "runs", "--x", "bytes").stdout
    assert shown.splitlines()[-2] == "numbers: out/all.csv"
    found = read("out/all.csv")
    assert [(row["name"], row["seed"], row["to_target"]) for row in found][:2] == [
        ("fedavg", "1", "12000.0"),
        ("fedavg", "2", "12000.0"),
    ]
    quiet = compare("runs/x", "--markdown", "--csv", "all.csv").stdout
    assert "all.csv" not in quiet and Path("all.csv").is_file()


def test_a_run_killed_in_the_middle_of_a_line(folder: Path) -> None:
    evaluated_run(folder / "killed" / "seed1", 1, FAST[:4], killed=True)
    evaluated_run(folder / "begun" / "seed1", 1, [], killed=True)
    shown = compare("runs/x", "--baseline", "killed", "--csv", "all.csv").stdout
    assert "killed" in shown and "unfinished" in shown
    rows = {row["name"]: row for row in read("all.csv")}
    assert rows["killed"]["accuracy_mean"] == "0.85"
    assert rows["begun"]["accuracy_mean"] == "" and rows["begun"]["verdict"] == "unfinished"
    assert rows["fedbuff"]["gain_pairs"] == "1"


def test_strict(folder: Path) -> None:
    assert compare("runs/x", "--strict").exit_code == 0
    evaluated_run(folder / "other" / "seed1", 1, SLOW, config={"links": {"up_mbit_s": 2.0}})
    with pytest.raises(UserError) as caught:
        compare("runs/x", "--strict")
    assert str(caught.value) == (
        "--strict: the runs differ in more than the strategy: other: links.up_mbit_s = 2 instead"
        " of 10, seeds = [1] instead of [1, 2, 3]; leave these runs out, or run them with the same"
        " config"
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--x", "byte"], "--x byte: there is no such x (nearest: 'bytes')"),
        (["--baseline", "fedbufff"], "--baseline fedbufff: there is no such run (nearest: 'fedbu"),
        (["--target", "90"], "--target 90: expected an accuracy up to 1, such as 0.9 for 90 %"),
        (["--markdown", "--latex"], "--markdown and --latex: expected one of them, since both"),
        (["--columns", "seeds"], "--columns: expected with --markdown or --latex"),
        (
            ["--latex", "--columns", "speedup"],
            "--columns speedup: there is no such column (nearest: 'speed_up')",
        ),
        (["--method", "bayes"], "Invalid value for '--method': expected one of auto, resampling"),
        (["--accuracy", "beste"], "Invalid value for '--accuracy': expected one of final, best, c"),
        (["--csv", "/dev/null/x.csv"], "/dev/null/x.csv: cannot be written ("),
        (["nowhere"], "nowhere: no such directory"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_bad_input_is_one_line(
    folder: Path,
    words: list[str],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["edgefl", "compare", "runs/x", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith(f"edgefl: {line}")


@pytest.mark.processes
def test_parquet_on_an_install_without_pyarrow(folder: Path) -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None; from edgefl.cli import main;"
        " sys.argv = ['edgefl', 'compare', 'runs/x', '--parquet', 'x.parquet']; main()"
    )
    done: Any = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and not Path("x.parquet").exists()
    assert done.stderr == (
        "edgefl: --parquet needs the package 'pyarrow', which is not installed: pip install"
        " 'edgefl[export]'\n"
    )
