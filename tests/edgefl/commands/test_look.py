"""``edgefl compare``, ``plot``, ``report``, ``export``: what they say; bad input is one line."""

from __future__ import annotations

import csv
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from builders import small_run
from compared_runs import evaluated_run
from html_pages import HtmlPage
from paths import ROOT
from recorded import record

from edgefl import cli
from edgefl.commands.options import kept_aside
from edgefl_testbed import install_command

FIRST = ROOT / "tests" / "golden" / "first_version"
ALL = ("compare", "plot", "view", "report", "export --to perfetto")
HTML = "expected a file that ends in .html"
LIMITS = "expected LOW,HIGH such as 0,10"
FIGURE = "expected a file that ends in .png, .pdf or .svg"
SLOW, FAST = [0.1, 0.3, 0.5, 0.7, 0.8], [0.1, 0.5, 0.8, 0.85, 0.9]
ASSIGN = {"do": "assign", "edges": ["a"], "tasks": [0]}
Edgefl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def edgefl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Edgefl:
    """Run a command in the test's folder; return its status, output and error line.

    The first text is split at spaces, others are one word each.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(words: str, *more: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["edgefl", *words.split(), *more])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture
def first(tmp_path: Path) -> None:
    """In runs/first: a run of the first version, and another one with another target."""
    shutil.copytree(FIRST, tmp_path / "runs" / "first")
    other = Path(shutil.copytree(FIRST / "fedasync", tmp_path / "runs" / "first" / "other"))
    for name, key in (
        ("config.toml", "target_accuracy = "),
        ("summary.json", '"target_accuracy": '),
    ):
        text = (other / name).read_text()
        assert f"{key}0.9" in text
        (other / name).write_text(text.replace(f"{key}0.9", f"{key}0.8"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "accuracy.png").touch()  # a file is never the directory that was meant


@pytest.fixture
def seeds(tmp_path: Path) -> Path:
    """In runs/x: three seeds of two strategies."""
    folder = tmp_path / "runs" / "x"
    for seed in (1, 2, 3):
        evaluated_run(folder / "fedavg" / f"seed{seed}", seed, SLOW, step_s=seed)
        evaluated_run(folder / "fedbuff" / f"seed{seed}", seed, FAST, step_s=seed)
    return folder


@pytest.fixture
def fedbuff(tmp_path: Path) -> Path:
    """In runs/x: a run with every record."""
    run = tmp_path / "runs" / "x" / "fedbuff"
    record(run)
    return run


def read(path: str) -> list[dict[str, str]]:
    return list(csv.DictReader(Path(path).read_text().splitlines()))


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


@pytest.mark.parametrize(
    ("words", "line"),
    [
        *((f"{each} run/first", "run/first: no such directory") for each in ALL),
        *((f"{each} runs/frist", "no such directory (nearest: 'first')") for each in ALL),
        *((f"{each} empty", "empty: no run in it: expected") for each in ALL),
        ("replay FIRST", ": is no run itself: name one of its runs: "),
        ("replay run/first", "run/first: no such directory"),
        ("compare FIRST --baseline other", "no common target accuracy (fedasync 0.9, other 0.8)"),
        ("compare FIRST --x byte", "--x byte: there is no such x (nearest: 'bytes')"),
        ("compare FIRST --target 90", "--target 90: expected an accuracy up to 1, such as 0.9"),
        ("compare FIRST --markdown --latex", "--markdown and --latex: expected one of them"),
        (
            "compare FIRST --latex --columns speedup",
            "--columns speedup: there is no such column (nearest: 'speed_up')",
        ),
        ("compare FIRST --method bayes", "'--method': expected one of auto, resampling"),
        ("plot", "plot: expected DIR, the directory of an experiment or of a run"),
        ("plot FIRST --kind acuracy", "no such figure (nearest: 'accuracy')"),
        ("plot FIRST --kind refresh-points", "nothing to draw in fedasync, other; it is of"),
        ("plot FIRST --target 90", "--target 90: expected an accuracy up to 1, such as 0.9"),
        ("plot FIRST --kind time-to-target", "no common target accuracy (fedasync: 0.9, other"),
        ("plot FIRST --format svgg", "expected png, pdf, svg (nearest: 'svg')"),
        ("plot FIRST --out figure.gif", FIGURE),
        ("plot FIRST --xlim 5,1", f"--xlim 5,1: {LIMITS}, the lower one"),
        ("plot FIRST --log z", "--log z: expected x, y or xy"),
        ("plot FIRST --label fedasinc=A", "--label fedasinc: not in this figure (nearest: 'f"),
        ("view FIRST --port 99999", "--port 99999: expected a port, 0 to 65535"),
        ("report FIRST --out report.pdf", f"--out report.pdf: {HTML}"),
        ("report FIRST --baseline fedasinc", "there is no such run (nearest: 'fedasync')"),
        ("report", "Missing argument 'DIR...'"),
        ("export FIRST --to perfeto", "unknown format 'perfeto' (nearest: 'perfetto')"),
    ],
)
@pytest.mark.usefixtures("first")
def test_bad_input_is_one_line_and_status_2(
    edgefl: Edgefl, tmp_path: Path, words: str, line: str
) -> None:
    status, out, err = edgefl(words.replace("FIRST", "runs/first"))
    assert (status, out) == (2, "")
    assert line in err and err.startswith("edgefl: ") and err.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "empty", "accuracy.png"}, (
        "nothing is written"
    )


def test_a_place_that_cannot_be_written_is_one_line(edgefl: Edgefl, seeds: Path) -> None:
    Path("file").touch()
    for words in ("compare runs/x --csv file/a.svg", "plot runs/x --out file/a.svg"):
        status, _, err = edgefl(words)
        assert status == 2 and err.startswith("edgefl: file/a.svg: cannot be written (")


@pytest.mark.usefixtures("first")
def test_a_damaged_run_is_named(edgefl: Edgefl) -> None:
    metrics = Path("runs/first/fedasync/metrics.csv")
    metrics.write_text(metrics.read_text() + "1,2\n9,9\n")
    for words in ("compare RUN --x version", "plot RUN", "report RUN"):
        status, _, err = edgefl(words.replace("RUN", "runs/first/fedasync"))
        assert (status, err.count("\n")) == (2, 1)
        assert "runs/first/fedasync/metrics.csv: row 6 has 2 fields, expected 8" in err


def test_a_summary_that_cannot_be_read_is_not_taken_for_a_run_without_one(
    edgefl: Edgefl, tmp_path: Path
) -> None:
    record(tmp_path / "slow")
    (tmp_path / "slow" / "summary.json").unlink(missing_ok=True)
    (tmp_path / "slow" / "summary.json").mkdir()
    line = "edgefl: slow/summary.json: cannot be read (Is a directory)\n"
    assert edgefl("compare slow") == (2, "", line)


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.usefixtures("first")
@pytest.mark.slow
def test_a_run_of_the_first_version(edgefl: Edgefl, finished: bool) -> None:
    if not finished:
        Path("runs/first/fedasync/summary.json").unlink()
    run = "runs/first/fedasync"
    for words in (
        f"compare {run}",
        f"plot {run}",
        f"plot {run} --kind timeline",
        f"report {run}",
        f"export {run} --to perfetto",
    ):
        status, out, err = edgefl(words)
        assert (status, err) == (0, ""), words
        assert "next: " in out
    assert Path("timeline.png").stat().st_size > 10_000
    shown = HtmlPage(Path("report.html").read_text())
    assert shown.wrong == []
    assert ("unfinished" in shown.tables[0][1]) is not finished
    assert json.loads(Path("trace.json").read_bytes())["traceEvents"]


@pytest.mark.usefixtures("first")
@pytest.mark.slow
def test_a_hint_can_be_copied_whatever_a_folder_is_called(edgefl: Edgefl) -> None:
    Path("runs/first").rename("my runs")
    for command, following in (("compare", "plot"), ("plot", "view"), ("report", "export")):
        _, out, _ = edgefl(command, "my runs/fedasync")
        words = shlex.split(out.splitlines()[-1].removeprefix("next: "))
        assert words[:3] == ["edgefl", following, "my runs/fedasync"]


# ---------------------------------------------------------------------- compare
@pytest.mark.parametrize("option", ["--markdown", "--latex"])
def test_a_table_for_a_paper_is_all_that_is_printed(
    edgefl: Edgefl, seeds: Path, option: str
) -> None:
    words = "--columns accuracy,to_target --csv all.csv"
    shown = edgefl(f"compare runs/x {option} {words}")[1]
    first = {"--markdown": "| strategy | accuracy, final |", "--latex": r"% \usepackage{booktabs}"}
    assert shown.startswith(first[option])
    assert "next:" not in shown and "─" not in shown and "2.00" in shown
    assert "numbers: " not in shown and Path("all.csv").is_file()


def test_columns_by_the_words_of_the_table(edgefl: Edgefl, seeds: Path) -> None:
    """The same ones on the terminal and for a paper, in the order in which they are asked for."""
    words = "compare runs/x --columns up,final,target"
    told = edgefl(words)[1].splitlines()
    assert told[0].split() == ["strategy", "up", "(kB)", "final", "accuracy", "to", "0.8", "(s)"]
    heads = [line for line in edgefl(f"{words} --latex")[1].splitlines() if "strategy" in line]
    assert heads[0].startswith("strategy & up (") and heads[0].count("&") == 3
    assert "nearest: 'staleness'" in edgefl("compare runs/x --columns stalenes")[2]


def test_strict(edgefl: Edgefl, seeds: Path) -> None:
    assert edgefl("compare runs/x --strict")[0] == 0
    evaluated_run(seeds / "other" / "seed1", 1, SLOW, config={"links": {"up_mbit_s": 2.0}})
    assert edgefl("compare runs/x --strict")[2] == (
        "edgefl: --strict: the runs differ in more than the strategy: other: links.up_mbit_s = 2"
        " instead of 10, seeds = [1] instead of [1, 2, 3]; leave these runs out, or run them with"
        " the same config\n"
    )


@pytest.mark.processes
def test_parquet_on_an_install_without_pyarrow(edgefl: Edgefl, seeds: Path) -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None; from edgefl.cli import main;"
        " sys.argv = ['edgefl', 'compare', 'runs/x', '--parquet', 'x.parquet']; main()"
    )
    done: Any = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and not Path("x.parquet").exists()
    assert done.stderr == (
        "edgefl: --parquet needs the package 'pyarrow', which is not installed:"
        f" {install_command('export')}\n"
    )


# ---------------------------------------------------------------------- plot
@pytest.mark.usefixtures("fedbuff")
def test_the_listing_says_what_a_run_has_and_why_not_the_rest(edgefl: Edgefl) -> None:
    status, out, err = edgefl("plot runs/x --list")
    assert (status, err) == (0, "")
    there, missing = out.split("\nnot of these runs:\n")
    assert [line.split()[0] for line in there.splitlines()] == [
        *("accuracy", "age", "devices", "link-use", "loss", "staleness", "staleness-histogram"),
        *("time-to-target", "timeline", "update-age"),
    ]
    *rows, hint = missing.splitlines()
    reasons = dict(row.split(maxsplit=1) for row in rows)
    assert reasons["controls"] == "of fedasmu, fedssmu and their ablations"
    assert reasons["labels"].startswith("of runs with evaluation.by_label = true; of a config: ")
    assert hint.startswith("next: edgefl plot runs/x --kind ")
    kinds = [line.split()[0] for line in edgefl("plot --list")[1].splitlines()[:-1]]
    assert {"accuracy", "timeline", "controls", "runtimes"} < set(kinds)


@pytest.mark.parametrize(
    ("words", "files"),
    [
        ("", ["accuracy.pdf", "accuracy.png"]),
        ("--out a.pdf --width column", ["a.pdf"]),
        ("--format svg,pdf --out v1.2", ["v1.2.pdf", "v1.2.svg"]),
        ("--kind timeline --out t.svg --data t.csv", ["t.csv", "t.svg"]),
        ("--kind loss --xlim 1, --ylim 0.1,3 --log y --label fedbuff=A", ["loss.pdf", "loss.png"]),
    ],
)
@pytest.mark.usefixtures("fedbuff")
@pytest.mark.slow
def test_files_and_formats(edgefl: Edgefl, words: str, files: list[str], tmp_path: Path) -> None:
    status, out, err = edgefl(f"plot runs/x {words}")
    assert (status, err) == (0, "") and left(tmp_path) == files
    assert sorted(out.splitlines()[:-1]) == files


@pytest.mark.usefixtures("fedbuff")
@pytest.mark.slow
def test_letters_that_no_font_has_are_a_warning(edgefl: Edgefl, tmp_path: Path) -> None:
    status, _, err = edgefl("plot runs/x --out a.png --title", "\U0001faa9")
    assert status == 0 and left(tmp_path) == ["a.pdf", "a.png"]
    assert err.startswith("edgefl: warning: Glyph 129705 ") and err.count("\n") == 1


# ---------------------------------------------------------------------- export
@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    _, directory = small_run(tmp_path_factory.mktemp("runs"), stop={"versions": 2})
    return directory


def test_export_says_what_it_wrote_and_how_to_see_it(edgefl: Edgefl, run: Path) -> None:
    status, out, err = edgefl(f"export {run} --to perfetto")
    assert (status, err) == (0, "") and Path("trace.json").is_file()
    lines = out.splitlines()
    assert lines[0] == "trace.json"
    assert lines[1].startswith("next: open trace.json at https://ui.perfetto.dev")
    _, out, err = edgefl(f"export {run}")
    listed = [line.split()[0] for line in out.splitlines()]
    assert listed == ["mlflow", "parquet", "perfetto", "tensorboard"] and "--to: missing" in err


def test_a_format_of_one_s_own_is_a_file(edgefl: Edgefl, run: Path) -> None:
    own = ROOT / "tests" / "examples" / "package" / "edgefl_example" / "lines.py"
    shutil.copy(own, "mine.py")
    status, _, err = edgefl(f"export {run} --to mine.py:FORMAT --out own.txt")
    assert (status, err) == (0, "") and Path("own.txt").read_text() == f"fedavg\t{run}\n"
    err = edgefl(f"export {run} --to mine.py:FORM")[2]
    assert err.startswith("edgefl: 'mine.py:FORM': mine.py has no 'FORM' (nearest: 'FORMAT'")


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("parquet", "pyarrow", "export"),
        ("tensorboard", "torch.utils.tensorboard.writer", "export"),
        ("mlflow", "mlflow.exceptions", "mlflow"),
    ],
)
def test_a_format_whose_package_is_missing(
    edgefl: Edgefl, run: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    line = edgefl(f"export {run} --to {name} --out out")[2]
    assert line.endswith(f"which is not installed: {install_command(extra)}\n"), line


@pytest.mark.parametrize("to", ["perfetto", "parquet", "tensorboard"])
def test_a_run_of_an_older_version(edgefl: Edgefl, tmp_path: Path, to: str) -> None:
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
    out = "out.json" if to == "perfetto" else "out"
    assert edgefl(f"export old --to {to} --out {out}")[0] == 0
    if to == "parquet":
        decisions = pytest.importorskip("pyarrow.parquet").read_table("out/decisions.parquet")
        assert decisions.column("numbers.refresh_point").to_pylist() == [2.0]
        assert decisions.column("edge").to_pylist() == ["a"]


@pytest.mark.parametrize("to", ["perfetto", "parquet", "tensorboard"])
def test_rows_that_make_no_sense_are_one_line(edgefl: Edgefl, tmp_path: Path, to: str) -> None:
    row = {"t": 0.0, "event": "run_started", "version": 0, "decisions": [{"do": "assign"}]}
    (tmp_path / "events.jsonl").write_bytes(orjson.dumps(row) + b"\n")
    out = "out.json" if to == "perfetto" else "out"
    line = edgefl(f"export {tmp_path} --to {to} --out {out}")[2]
    assert line.startswith(f"edgefl: {tmp_path}: is damaged (KeyError: "), line


# ---------------------------------------------------------------------- files kept aside
@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("trace.json.gz", "trace.1.json.gz", "trace.2.json.gz"),
    ],
)
def test_a_file_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, first: str, second: str
) -> None:
    path = tmp_path / name
    for text in ("one", "two", "three"):
        with kept_aside([path], overwrite=False):
            path.write_text(text)
    found = {each.name: each.read_text() for each in tmp_path.iterdir()}
    assert found == {name: "three", first: "one", second: "two"}
    said = "".join(capsys.readouterr().out.split())
    assert said == "".join(
        f"{path}:theearlieroneisnow{tmp_path / each}" for each in (first, second)
    ).replace(" ", "")
    with kept_aside([path], overwrite=True):
        path.write_text("four")
    assert len(list(tmp_path.iterdir())) == 3 and capsys.readouterr().out == ""


def test_a_folder_is_kept_whole(tmp_path: Path) -> None:
    folder = tmp_path / "parquet"
    folder.mkdir()
    with kept_aside([folder], overwrite=False):
        (folder / "events.parquet").write_text("one")
    assert [each.name for each in tmp_path.iterdir()] == ["parquet"], "it was empty"
    with kept_aside([folder], overwrite=False):
        folder.mkdir()
    assert not any(folder.iterdir())
    assert (tmp_path / "parquet.1" / "events.parquet").read_text() == "one"


def test_of_two_files_the_first_is_as_it_was_if_the_second_fails(tmp_path: Path) -> None:
    first, second = tmp_path / "x.png", tmp_path / "x.pdf"
    for path in (first, second):
        path.write_text("old")

    def write_both() -> None:
        first.write_text("new")
        raise OSError

    with pytest.raises(OSError), kept_aside([first, second], overwrite=False):
        write_both()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "x.png": "old",
        "x.pdf": "old",
    }


@pytest.mark.parametrize("folder", [False, True])
def test_what_fails_leaves_all_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: bool
) -> None:
    path = tmp_path / "out"
    if folder:
        path.mkdir()
    inner = path / "file" if folder else path
    inner.write_text("one")
    with pytest.raises(ValueError), kept_aside([path], overwrite=False):
        raise ValueError
    assert inner.read_text() == "one" and [each.name for each in tmp_path.iterdir()] == ["out"]
    assert capsys.readouterr().out == ""
