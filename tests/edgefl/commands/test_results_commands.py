"""The commands about results: bad input, and runs of the first version."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from html_pages import HtmlPage
from paths import ROOT

from edgefl import cli

FIRST = ROOT / "tests" / "golden" / "first_version"
ALL = ("compare", "plot", "view", "report", "export --to perfetto")
HTML = "expected a file that ends in .html"
Edgefl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def edgefl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Edgefl:
    """Run a command in a folder that has runs; return its status, output and error line.

    The first text is split at spaces, others are one word each.
    """
    monkeypatch.chdir(tmp_path)
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

    def run(words: str, *more: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["edgefl", *words.split(), *more])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.mark.parametrize(
    ("words", "line"),
    [
        *((f"{each} run/first", "run/first: no such directory") for each in ALL),
        *((f"{each} runs/frist", "no such directory (nearest: 'first')") for each in ALL),
        *((f"{each} accuracyy", "accuracyy: no such directory\n") for each in ALL),
        *((f"{each} empty", "empty: no run in it: expected") for each in ALL),
        ("compare runs/first --baseline fedasinc", "there is no such run (nearest: 'fedasync')"),
        (
            "compare runs/first --baseline other",
            "no common target accuracy (fedasync 0.9, other 0.8)",
        ),
        ("compare runs/first --x minutes", "--x minutes"),
        ("plot runs/first --kind acuracy", "no such figure (nearest: 'accuracy')"),
        ("plot runs/first --kind refresh-points", "nothing to draw in fedasync, other; it is of"),
        (
            "plot runs/first --kind time-to-target",
            "no common target accuracy (fedasync: 0.9, other: 0.8)",
        ),
        ("plot runs/first --format svgg", "expected png, pdf, svg (nearest: 'svg')"),
        ("plot runs/first --out figure.gif", "expected a file that ends in .png, .pdf or .svg"),
        ("view runs/first --port 99999", "--port 99999: expected a port, 0 to 65535"),
        ("report runs/first --out report.pdf", f"--out report.pdf: {HTML}"),
        ("report runs/first --out .", f"--out .: {HTML}"),
        ("report runs/first --baseline fedasinc", "there is no such run (nearest: 'fedasync')"),
        (
            "report runs/first --baseline other",
            "no common target accuracy (fedasync 0.9, other 0.8)",
        ),
        ("report runs/first --target 90", "--target 90: expected an accuracy up to 1"),
        ("report", "Missing argument 'DIR...'"),
        ("export runs/first --to perfeto", "unknown format 'perfeto' (nearest: 'perfetto')"),
        (
            "export runs/first --to perfetto --out empty",
            "--out empty: expected a file that ends in .json",
        ),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    edgefl: Edgefl, tmp_path: Path, words: str, line: str
) -> None:
    status, out, err = edgefl(words)
    assert (status, out) == (2, "")
    assert line in err and err.startswith("edgefl: ") and err.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "empty", "accuracy.png"}, (
        "nothing is written"
    )


def test_a_damaged_run_is_named(edgefl: Edgefl) -> None:
    metrics = Path("runs/first/fedasync/metrics.csv")
    metrics.write_text(metrics.read_text() + "1,2\n9,9\n")
    for words in ("compare RUN --x version", "plot RUN", "report RUN"):
        status, _, err = edgefl(words.replace("RUN", "runs/first/fedasync"))
        assert (status, err.count("\n")) == (2, 1)
        assert "runs/first/fedasync/metrics.csv: row 6 has 2 fields, expected 8" in err


@pytest.mark.parametrize("finished", [True, False])
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
    assert ("unfinished" in shown.tables[0][1][-1]) is not finished
    assert json.loads(Path("trace.json").read_bytes())["traceEvents"]


def test_a_hint_can_be_copied_whatever_a_folder_is_called(edgefl: Edgefl) -> None:
    Path("runs/first").rename("my runs")
    for command, following in (("compare", "plot"), ("plot", "view"), ("report", "export")):
        _, out, _ = edgefl(command, "my runs/fedasync")
        words = shlex.split(out.splitlines()[-1].removeprefix("next: "))
        assert words[:3] == ["edgefl", following, "my runs/fedasync"]
