"""``edgefl plot``: its listing, its files and formats, and one line for each error."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded import killed, record

from edgefl import cli

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Run `edgefl plot WORDS` in a folder with a run in runs/x; return (status, stdout, stderr)."""
    record(tmp_path / "runs" / "x" / "fedbuff")
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["edgefl", "plot", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, *capsys.readouterr()

    return run


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def test_the_listing_says_what_a_run_has_and_why_not_the_rest(plot: Command) -> None:
    status, out, err = plot("runs/x", "--list")
    assert (status, err) == (0, "")
    there, missing = out.split("\nnot of these runs:\n")
    assert [line.split()[0] for line in there.splitlines()] == [
        *("accuracy", "devices", "link-use", "loss", "staleness", "staleness-histogram"),
        *("time-to-target", "timeline"),
    ]
    *rows, hint = missing.splitlines()
    reasons = dict(row.split(maxsplit=1) for row in rows)
    assert reasons["controls"] == "of fedasmu, fedssmu and their ablations"
    assert reasons["labels"].startswith("of runs with evaluation.by_label = true; of a config: ")
    assert hint.startswith("next: edgefl plot runs/x --kind ")


def test_the_listing_without_runs_has_all_kinds(plot: Command) -> None:
    status, out, _ = plot("--list")
    kinds = [line.split()[0] for line in out.splitlines()[:-1]]
    assert status == 0 and {"accuracy", "timeline", "controls", "runtimes"} < set(kinds)


@pytest.mark.parametrize(
    ("words", "files"),
    [
        ([], ["accuracy.pdf", "accuracy.png"]),
        (["--kind", "loss"], ["loss.pdf", "loss.png"]),
        (["--out", "a.png"], ["a.pdf", "a.png"]),
        (["--out", "a.svg"], ["a.svg"]),
        (["--out", "a.pdf", "--width", "column"], ["a.pdf"]),
        (["--format", "svg", "--format", "png"], ["accuracy.png", "accuracy.svg"]),
        (["--format", "svg,pdf", "--out", "v1.2"], ["v1.2.pdf", "v1.2.svg"]),
        (["--kind", "timeline", "--out", "t.svg", "--data", "t.csv"], ["t.csv", "t.svg"]),
    ],
)
def test_files_and_formats(
    plot: Command, words: list[str], files: list[str], tmp_path: Path
) -> None:
    status, out, err = plot("runs/x", *words)
    assert (status, err) == (0, "") and left(tmp_path) == files
    assert sorted(out.splitlines()[:-1]) == files


def test_the_numbers_of_a_figure(plot: Command, tmp_path: Path) -> None:
    words = ("--kind", "time-to-target", "--x", "bytes", "--target", "0.9", "--out", "t.svg")
    assert plot("runs/x", *words, "--data", "t.csv")[0] == 0
    with (tmp_path / "t.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["name"], row["target"], row["x"]) == ("fedbuff", "0.9", "bytes")
    assert (row["seed"], row["at"], row["mean"], row["low"]) == ("1", "4500.0", "4500.0", "")


def test_options_reach_the_figure(plot: Command, tmp_path: Path) -> None:
    words = ("--kind", "loss", "--xlim", "1,", "--ylim", "0.1,3", "--log", "y", "--title", "Ours")
    assert plot("runs/x", *words, "--label", "fedbuff=Ours, with a buffer")[0] == 0
    assert left(tmp_path) == ["loss.pdf", "loss.png"]


def test_a_killed_run_plots_as_far_as_it_got(plot: Command, tmp_path: Path) -> None:
    killed(tmp_path / "runs" / "x" / "fedbuff")
    assert plot("runs/x", "--list")[1].startswith("accuracy ")
    assert plot("runs/x", "--out", "a.svg")[0] == 0 and left(tmp_path) == ["a.svg"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "plot: expected DIR, the directory of an experiment or of a run"),
        (["nowhere"], "nowhere: no such directory"),
        (["runs"], "runs: no run in it: expected the directory of an experiment, such as runs/"),
        (["runs/x", "--kind", "timelin"], "--kind timelin: no such figure (nearest: 'timeline')"),
        (
            ["runs/x", "--kind", "aggregation"],
            (
                "--kind aggregation: nothing to draw in fedbuff; it is of wkafl and the"
                " methods it is compared with"
            ),
        ),
        (["runs/x", "--format", "svgz"], "--format svgz: expected png, pdf, svg (nearest: 'svg')"),
        (["runs/x", "--out", "a.jpg"], "--out a.jpg: expected a file that ends in .png, .pdf or"),
        (["runs/x", "--out", "."], "--out .: expected a file that ends in .png, .pdf or .svg"),
        (["runs/x", "--width", "colum"], "--width colum: expected column or page (nearest: 'col"),
        (["runs/x", "--xlim", "5"], "--xlim 5: expected LOW,HIGH such as 0,10"),
        (["runs/x", "--xlim", "5,1"], "--xlim 5,1: expected LOW,HIGH such as 0,10, the lower one"),
        (["runs/x", "--ylim", ","], "--ylim ,: expected LOW,HIGH such as 0,10"),
        (["runs/x", "--ylim", "a,b"], "--ylim a,b: expected LOW,HIGH such as 0,10"),
        (["runs/x", "--ylim", "nan,1"], "--ylim nan,1: expected LOW,HIGH such as 0,10"),
        (["runs/x", "--log", "z"], "--log z: expected x, y or xy"),
        (["runs/x", "--label", "fedbuff"], "--label fedbuff: expected NAME=TEXT"),
        (["runs/x", "--label", "fedbuf=Ours"], "--label fedbuf: not in this figure (nearest: 'f"),
        (["runs/x", "--x", "tim"], "--x tim: expected one of emulated_s, wall_s, version, bytes"),
        (["runs/x", "--target", "2"], "Invalid value for '--target': "),
    ],
)
def test_bad_input_is_one_line_and_no_file(
    plot: Command, words: list[str], line: str, tmp_path: Path
) -> None:
    status, out, err = plot(*words)
    assert (status, out) == (2, "") and left(tmp_path) == []
    assert err.startswith(f"edgefl: {line}") and err.count("\n") == 1


def test_letters_that_no_font_has_are_a_warning(plot: Command, tmp_path: Path) -> None:
    status, _, err = plot("runs/x", "--title", "\U0001faa9", "--out", "a.png")
    assert status == 0 and left(tmp_path) == ["a.pdf", "a.png"]
    assert err.startswith("edgefl: warning: Glyph 129705 ") and err.count("\n") == 1


def test_a_folder_that_cannot_be_written_is_one_line(plot: Command, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    status, _, err = plot("runs/x", "--out", "file/a.svg")
    assert status == 2 and err == "edgefl: file/a.svg: cannot be written (File exists)\n"
