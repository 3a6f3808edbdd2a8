"""Result files and pages: what is written is read again; which scale is shown, what is marked."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from reproduced import curve_rows, entry_of, part_of, row_of
from reproduction import figures, pages
from reproduction.book import Book
from reproduction.drawings import DRAWINGS, lines_of
from reproduction.entry import Entry, Figure, Point, Scale
from reproduction.results import (
    CURVE_POINTS,
    NUMBERS,
    CurveRow,
    Results,
    Tables,
    curve_of,
    key_of,
    numbers_of,
    put_machine,
)

from edgefl.errors import UserError

ENTRY = entry_of(part_of(["b", "a"], measures=("f1",)))
ROWS = [
    row_of("a", 2, {"final_accuracy": 0.123456789, "f1": None}, cpu_s=1.5, digest="s1-t2-c3"),
    row_of("a", 1, {"time_to_target_s": 1234.5678}, fidelity="strained", machine="m"),
    row_of("b", 11, {}, role="tuning", setting={"mu": "3.0", "training.learning_rate": "[1, 2]"}),
    row_of("b", 1, {"versions": 5000.0, "bytes_up": 123456789.0}, scale=Scale.small),
]


def put_all(folder: Path, rows: list) -> Tables:
    tables = Tables(folder, ENTRY)
    for row in rows:
        curve = curve_rows(row.method, row.seed, row.scale) if row.role == "result" else []
        tables.put(row, curve)
    return tables


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    written = put_all(tmp_path, ROWS)
    found = Tables(tmp_path, ENTRY)
    assert found.curves == written.curves and len(found.curves) == 9
    given = {key_of(row): row for row in ROWS}
    assert {key_of(row) for row in found.rows} == given.keys()
    for row in found.rows:
        own = given[key_of(row)]
        numbers = dict.fromkeys((*NUMBERS, "f1")) | dict(own.numbers)
        assert replace(row, numbers={}) == replace(own, numbers={}) and row.numbers == numbers


def test_the_files_do_not_depend_on_the_order_of_the_runs(tmp_path: Path) -> None:
    one = put_all(tmp_path / "one", ROWS)
    other = put_all(tmp_path / "other", ROWS[::-1])
    assert one.path.read_bytes() == other.path.read_bytes()
    assert one.curves_path.read_bytes() == other.curves_path.read_bytes()
    methods = [line.split(",")[:3] for line in one.path.read_text().splitlines()[1:]]
    assert methods[0] == ["small", "main", "b"], "the small scale first, methods as in the entry"


def test_a_new_setting_replaces_a_table_run_and_is_another_tuning_run(tmp_path: Path) -> None:
    tables = put_all(tmp_path, ROWS)
    tables.put(replace(ROWS[0], setting={"mu": "9.0"}))
    assert len(tables.rows) == len(ROWS)
    tables.put(replace(ROWS[2], setting={"mu": "9.0"}))
    assert len(tables.rows) == len(ROWS) + 1
    tables.drop(Scale.paper)
    found = Tables(tmp_path, ENTRY)
    assert [row.method for row in found.rows] == ["b"] and len(found.curves) == 3


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    put_all(tmp_path, ROWS)
    (tmp_path / "study.csv").write_text("scale,part\nhuge,main\n")
    with pytest.raises(UserError, match=r"study.csv: is damaged"):
        Tables(tmp_path, ENTRY)


def test_numbers_and_curve_of_a_run(tmp_path: Path) -> None:
    evaluations = [
        f"{at},{at},0.{at:03d},{3 - at / 100},{2 - at / 100 if at else math.nan}"
        for at in range(100)
    ]
    head = "emulated_s,version,accuracy,test_loss,train_loss"
    (tmp_path / "metrics.csv").write_text("\n".join([head, *evaluations]) + "\n")
    (tmp_path / "summary.json").write_text(
        '{"emulated_s": 99.0, "final_accuracy": 0.0123456789123, "final_loss": null,'
        ' "updates_discarded": {"late": 2, "broken": 1}, "staleness": {"0": 1, "2": 3}}'
    )
    found = numbers_of(tmp_path, ("staleness_median", "waiting_mean_s"))
    assert found["final_accuracy"] == 0.0123456789, "nine digits"
    assert found["final_loss"] is None and found["waiting_mean_s"] is None
    assert found["staleness_median"] == 2.0
    assert (found["updates_discarded"], found["staleness_mean"]) == (3.0, 1.5)
    # the last fifth: evaluations 80 to 99, with losses 1.20 to 1.01
    assert found["late_train_loss"] == pytest.approx(1.105)
    assert found["final_train_loss"] == pytest.approx(1.01)
    curve = curve_of(tmp_path, Scale.paper, "main", "a", 1)
    assert len(curve) == CURVE_POINTS and (curve[0].version, curve[-1].version) == (0, 99)
    assert curve[0].train_loss is None and curve[-1].loss == pytest.approx(2.01)


# ------------------------------------------------------------------ pages
GOOD, BAD = {1: 0.9, 2: 0.91, 3: 0.92}, {1: 0.5, 2: 0.5, 3: 0.5}
CLAIM = {
    "text": "A beats B | by far",
    "published": "table 1: .9",
    "judge": {"better": ["a", "b", "final_accuracy"]},
    "cause": "another part",
}


def study(**options: object) -> Entry:
    part = part_of(["a", "b"], columns=("final_accuracy", "stability"))
    given = {"claims": [CLAIM], "figures": [{"name": "curve", "title": "The curves"}]}
    return entry_of(part, **{**given, "front": ["A beats"], "hours": {"paper": 3.0}, **options})


def filled(folder: Path, entry: Entry, scale: Scale, a: dict, b: dict, digest: str = "") -> Path:
    """Put invented runs of both methods into the result files."""
    tables = Tables(folder / "data", entry)
    for method, values in (("a", a), ("b", b)):
        for seed, value in values.items():
            numbers = {"final_accuracy": value}
            row = row_of(method, seed, numbers, scale=scale, cpu_s=1800.0, digest=digest)
            tables.put(row, curve_rows(method, seed, scale))
    put_machine(folder / "data", "m", {"cpu": "a processor"})
    return folder


def read(folder: Path, entry: Entry) -> tuple[str, str]:
    pages.write(folder, [entry])
    return (folder / "index.md").read_text(), (folder / "dissemination.md").read_text()


def test_an_entry_without_runs_says_so(tmp_path: Path) -> None:
    (tmp_path / "rule.md").write_text("# The rule\n")
    front, page = read(tmp_path, study(needs="a GPU"))
    assert "Claims: 1. Of these, 1 have no runs yet." in front
    told = "Not run at the paper's scale: expected 3 CPU-hours. It needs a GPU."
    assert told in page and "**not run**" in page
    assert "--entry study --scale small" in page, "the command that can be run here"
    assert front.partition("```{toctree}")[2].split()[1:3] == ["rule", "dissemination"]


def test_small_runs_are_marked_and_counted_apart(tmp_path: Path) -> None:
    front, page = read(filled(tmp_path, study(), Scale.small, GOOD, BAD), study())
    assert "1 were judged at the small scale (holds: 1)." in front
    assert "**holds** (small scale)" in page and "**main** (small scale)" in page
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
    _, page = read(filled(tmp_path, study(), Scale.paper, GOOD, {1: 0.5, 2: 0.5}), study())
    assert "budget** (so far) |" in page and "| 2 of 3 |" in page


def test_a_page_leads_to_what_made_its_numbers(tmp_path: Path) -> None:
    _, page = read(filled(tmp_path, study(), Scale.paper, GOOD, BAD, "003c77aa12ab-c2"), study())
    link = re.search(r"\[Every run\]\((.*?)\)", page)
    assert link and "003c77aa12ab-c2" in (tmp_path / link[1]).read_text()


def test_the_front_page_has_the_chosen_claims_alone(tmp_path: Path) -> None:
    others = [{**CLAIM, "text": f"B is worse in {it}"} for it in ("time", "memory")]
    entry = study(claims=[CLAIM, *others])
    front, page = read(tmp_path, entry)
    assert "B is worse in time" in page and "B is worse" not in front
    with pytest.raises(UserError, match="study: front: 2 claims begin with 'B is worse'"):
        pages.write(tmp_path, [study(claims=[CLAIM, *others], front=["B is worse"])])


@pytest.mark.slow
def test_the_front_page_begins_with_the_main_claims_in_one_picture(tmp_path: Path) -> None:
    entry = study(claims=[{**CLAIM, "theirs": 5.0}])
    front, _ = read(filled(tmp_path, entry, Scale.paper, GOOD, BAD), entry)
    assert "(figures/forest.svg)" in front and "1 main claim: holds: 1." in front
    picture = tmp_path / "figures" / "forest.svg"
    before = picture.read_bytes()
    read(tmp_path, entry)
    assert picture.read_bytes() == before
    effects = Book([entry], tmp_path / "data").judged(entry)[0].finding.effects
    assert effects[0] == pytest.approx(41) and effects[1] > 1, ".41 is 41 points"
    assert figures.write_forest({}, tmp_path / "none") is None


@pytest.mark.slow
def test_rows_of_an_earlier_rule_are_named(tmp_path: Path) -> None:
    part = part_of(["a", "b"], columns=("convergence_accuracy",))
    entry = study().model_copy(update={"parts": (part,)})
    filled(tmp_path, entry, Scale.paper, GOOD, BAD)
    csv = tmp_path / "data" / "study.csv"
    _, page = read(tmp_path, entry)
    assert "rule 1" not in page
    csv.write_text(csv.read_text().replace(",2\n", ",1\n", 3))
    assert pages.MIXED in read(tmp_path, entry)[1]
    csv.write_text(csv.read_text().replace(",2\n", ",\n"))
    assert pages.OLD_RULE in read(tmp_path, entry)[1]


@pytest.mark.slow
def test_a_study_that_a_look_has_ended_is_whole(tmp_path: Path) -> None:
    entry = study(looks=(3, 6))
    six = entry.parts[0].model_copy(update={"seeds": (1, 2, 3, 4, 5, 6)})
    entry = entry.model_copy(update={"parts": (six,)})
    _, page = read(filled(tmp_path, entry, Scale.paper, GOOD, BAD), entry)
    assert "(so far)" not in page and "| a | 0.91 ± 0.01 | 3 |" in page
    one_more = row_of("a", 4, {"final_accuracy": 0.9})
    Tables(tmp_path / "data", entry).put(one_more)
    assert "| 4 of 6 |" in read(tmp_path, entry)[1]


@pytest.mark.parametrize("log", ["", "xy"])
@pytest.mark.slow
def test_figures_are_the_same_bytes_each_time(
    log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = study()
    tables = Tables(filled(tmp_path, entry, Scale.paper, GOOD, BAD) / "data", entry)
    results = Results(entry, Scale.paper, tables.rows, tables.curves)
    points = [Point(1, 2.0, 1.9, 2.1), Point(10, 2.3), Point(100, 2.2)]
    monkeypatch.setitem(DRAWINGS, "points", lambda results, *given: {"": {"one": list(given)}})
    texts = {"title": "Lines", "x": "S", "y": "loss", "log": log}
    lines = Figure(name="lines", lines={"points": points}, zero=not log, **texts)
    curves = Figure(name="curve", title="Curves", log=log.replace("x", ""))
    for figure in (lines, curves):
        path = figures.write(figure, results, tmp_path)
        assert path is not None
        before = path.read_bytes()
        figures.write(figure, results, tmp_path)
        assert path.read_bytes() == before
    nothing = Figure(name="none", title="None", lines={"points": []})
    assert figures.write(nothing, results, tmp_path) is None
    assert figures.write(curves, Results(entry, Scale.paper), tmp_path) is None


def test_a_mean_loss_ends_where_a_seed_has_none_any_more() -> None:
    """The second seed diverges after version 1: the first alone would be too good."""
    losses = {1: (2.0, 1.0, 0.5), 2: (2.0, 3.0, None)}
    curves = [
        CurveRow(Scale.paper, "main", "a", seed, 10.0 * at, at, 0.1, 1.0, loss)
        for seed, of_seed in losses.items()
        for at, loss in enumerate(of_seed)
    ]
    rows = [row_of("a", seed) for seed in losses]
    results = Results(entry_of(part_of(["a"])), Scale.paper, rows, curves)
    (points,) = lines_of({"losses": [{"line": "a", "which": "a"}]}, results)[""].values()
    assert points == [Point(0.0, 2.0, 2.0, 2.0), Point(10.0, 2.0, 1.0, 3.0)]


def test_of_two_models_at_one_moment_the_later_one_counts() -> None:
    rows = [row_of("a", 1)]
    at_once = [
        CurveRow(Scale.paper, "main", "a", 1, 5.0, version, accuracy, 1.0, None)
        for version, accuracy in ((1, 0.9), (2, 0.4))
    ]
    results = Results(entry_of(part_of(["a"])), Scale.paper, rows, at_once[::-1])
    assert results.curve("a") == {1: [(5.0, 0.9), (5.0, 0.4)]}
