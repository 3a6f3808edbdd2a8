"""Pages from result files: which scale is shown, what is marked, and what is counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from reproduced import curve_rows, entry_of, part_of, row_of
from reproduction import figures, pages, registry
from reproduction.chosen import CHOSEN
from reproduction.entry import (
    Claim,
    CurveFigure,
    Entry,
    LineFigure,
    Point,
    Scale,
    Verdict,
)
from reproduction.results import Results
from reproduction.rules import better
from reproduction.tables import Tables, put_machine

GOOD, BAD = {1: 0.9, 2: 0.91, 3: 0.92}, {1: 0.5, 2: 0.5, 3: 0.5}


def judge(results: Results) -> object:
    return better(results, "a", "b", "final_accuracy")


def study(**options: object) -> Entry:
    part = part_of(["a", "b"], columns=("final_accuracy", "stability"))
    claim = Claim("A beats B | by far", "table 1: .9", judge, cause="another part")  # type: ignore[arg-type]  # it returns a Finding
    given = {"claims": (claim,), "figures": (CurveFigure("curve", "The curves"),)}
    return entry_of(part, **{**given, "hours": {Scale.paper: 3.0}, **options})


def filled(folder: Path, entry: Entry, scale: Scale, a: dict, b: dict) -> Path:
    """Put invented runs of both methods into the result files."""
    tables = Tables(folder / "data", entry)
    for method, values in (("a", a), ("b", b)):
        for seed, value in values.items():
            row = row_of(method, seed, {"final_accuracy": value}, scale=scale, cpu_s=1800.0)
            tables.put(row, curve_rows(method, seed, scale))
    put_machine(folder / "data", "m", {"cpu": "a processor"})
    return folder


def read(folder: Path, entry: Entry) -> tuple[str, str]:
    pages.write(folder, [entry], [(entry.name, "A beats")])
    return (folder / "index.md").read_text(), (folder / "dissemination.md").read_text()


def test_an_entry_without_runs_says_so(tmp_path: Path) -> None:
    front, page = read(tmp_path, study(needs="a GPU"))
    assert "Claims: 1. Of these, 1 have no runs yet." in front
    told = "Not run at the paper's scale: expected 3 CPU-hours. It needs a GPU."
    assert told in page and "**not run**" in front
    assert "--entry study --scale small" in page, "the command that can be run here"


def test_small_runs_are_marked_and_counted_apart(tmp_path: Path) -> None:
    front, page = read(filled(tmp_path, study(), Scale.small, GOOD, BAD), study())
    assert "1 were judged at the small scale (holds: 1)." in front
    assert "**holds** (small scale)" in front and "### main (small scale)" in page
    assert "*The curves (small scale)*" in page and "A beats B \\| by far" in page


def test_runs_at_the_papers_scale_come_first(tmp_path: Path) -> None:
    filled(tmp_path, study(), Scale.small, GOOD, BAD)
    front, page = read(filled(tmp_path, study(), Scale.paper, BAD, GOOD), study())
    assert "1 were judged at the paper's scale (does not hold: 1)." in front
    assert "small scale)" not in page and "*Cause.* another part" in page
    assert "| a | 0.5 ± 0 | 3 |" in page, "no column without numbers"
    assert "| [study](dissemination.md#study) |  | 3.00 | 6 | 3 | 3.00 | 6 |" in front
    times = pages.without_times(front)
    assert "3.00" not in times and "a processor" in front and "a processor" not in times


def test_a_study_that_is_not_done_is_marked(tmp_path: Path) -> None:
    front, page = read(filled(tmp_path, study(), Scale.paper, GOOD, {1: 0.5, 2: 0.5}), study())
    assert "(so far: not all runs are done)" in front and "| 2 of 3 |" in page


def test_a_front_page_of_pages_by_hand(tmp_path: Path) -> None:
    (tmp_path / "rule.md").write_text("# The rule\n")
    front, _ = read(tmp_path, study())
    assert front.partition("```{toctree}")[2].split()[1:3] == ["rule", "dissemination"]
    assert str(Verdict.unknown) == "cannot be told at this budget"


def test_the_front_page_has_the_chosen_claims_alone(tmp_path: Path) -> None:
    others = [replace(study().claims[0], text=f"B is worse in {it}") for it in ("time", "memory")]
    entry = study(claims=(*study().claims, *others))
    front, page = read(tmp_path, entry)
    assert "B is worse in time" in page and "B is worse" not in front
    assert "and 2 further claims](dissemination.md)" in front
    with pytest.raises(KeyError, match="study: 2 claims begin with 'B is worse'"):
        pages.write(tmp_path, [entry], [("study", "B is worse")])


def test_about_thirty_claims_are_chosen_and_all_are_there(tmp_path: Path) -> None:
    pages.write(tmp_path, registry.entries().values(), CHOSEN)
    front = (tmp_path / "index.md").read_text()
    assert 25 <= len(CHOSEN) == front.count("| **not run** |") <= 35


def test_the_best_corners_of_two_studies_are_one_figure(tmp_path: Path) -> None:
    chosen = [registry.find("seed0-corners"), registry.find("seed1-corners")]
    drawn = tmp_path / "figures" / "best-corners.svg"
    for entry, methods in zip(chosen, (("with", "without"), ("tdma-s1", "idfl-s1"))):
        pages.write(tmp_path, chosen)
        assert not drawn.exists(), "one of the two has no runs"
        tables = Tables(tmp_path / "data", entry)
        for method in methods:
            row = row_of(method, 1, {"final_accuracy": 0.5}, scale=Scale.paper, part="best")
            tables.put(row, curve_rows(method, 1, Scale.paper, part="best"))
    pages.write(tmp_path, chosen)
    assert "](figures/best-corners.svg)" in (tmp_path / "index.md").read_text() and drawn.exists()


@pytest.mark.parametrize("log", ["", "x", "y", "xy"])
def test_figures_are_the_same_bytes_each_time(log: str, tmp_path: Path) -> None:
    entry = study()
    tables = Tables(filled(tmp_path, entry, Scale.paper, GOOD, BAD) / "data", entry)
    results = Results(entry, Scale.paper, tables.rows, tables.curves)
    points = [Point(1, 2.0, 1.9, 2.1), Point(10, 2.3), Point(100, 2.2)]
    lines = LineFigure(
        "lines", "Lines", "S", "loss", lambda _: {"": {"one": points}}, log, zero=not log
    )
    for figure in (lines, CurveFigure("curve", "Curves", log=log.replace("x", ""))):
        path = figures.write(figure, results, tmp_path)
        assert path is not None
        before = path.read_bytes()
        figures.write(figure, results, tmp_path)
        assert path.read_bytes() == before
    nothing = LineFigure("none", "None", lines=lambda _: {"": {"one": []}})
    assert figures.write(nothing, results, tmp_path) is None
    assert figures.write(CurveFigure("none", "None"), Results(entry, Scale.paper), tmp_path) is None
