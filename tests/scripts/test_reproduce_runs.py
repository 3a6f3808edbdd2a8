"""Entries are run: once, again after an interruption, from the result files alone, never mixed."""

from __future__ import annotations

import os
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from paths import CONFIGS
from reproduced import digits_entry, entry_of, part_of, reproduced
from reproduction import pages, registry
from reproduction.book import Book
from reproduction.confirm import Confirmation
from reproduction.entry import WALL, Entry, MethodPlan, Part, Scale, Tuning
from reproduction.plans import PartPlan
from reproduction.progress import EntryLines
from reproduction.runner import Budget, EntryRunner, Work, best_tried
from reproduction.tables import Tables, read_machines

from edgefl.errors import UserError
from edgefl.hosts.choices import Power
from edgefl.results.statistics import interval
from edgefl.sweep.sweep_runs import Did

RUNS = 8  # of the digits entry: 2 methods x (2 settings + 2 seeds)


def work_in(folder: Path, **options: object) -> Work:
    given = {"scale": Scale.small, "power": Power(1), "out": folder / "runs"}
    return Work(**{**given, "data": folder / "results" / "data", **options})  # type: ignore[arg-type]  # of a mapping


def times_aside(path: Path) -> list[str]:
    """Return the rows of a result file without CPU and wall time."""
    return [
        ",".join(cells[:-5] + cells[-3:])
        for line in path.read_text().splitlines()
        if (cells := line.split(","))
    ]


@pytest.mark.usefixtures("warm_python")
def test_an_entry_is_tuned_and_run_and_its_page_needs_the_files_alone(tmp_path: Path) -> None:
    entry = digits_entry()
    assert EntryRunner(entry, work_in(tmp_path, power=Power(2))).run() == Did()
    tables = Tables(tmp_path / "results" / "data", entry)
    rows = tables.rows
    assert len(rows) == RUNS and all(row.cpu_s and row.cpu_s > 0.01 for row in rows)
    assert {row.seed for row in rows if row.role == "tuning"} == {11}
    tuned = {row.method: row for row in rows if row.role == "result"}
    chosen = best_tried(tables, Scale.small, "main")
    assert {method: row.setting for method, row in tuned.items()} == chosen
    assert all(
        row.numbers["twice"] == 2.0 and row.numbers["emulated_s"] == 4.0
        for row in rows
        if row.role == "result"
    )
    assert all(row.numbers["emulated_s"] == 2.0 for row in rows if row.role == "tuning")
    assert set(read_machines(tmp_path / "results" / "data")) == {row.machine for row in rows}
    book = Book([entry], tmp_path / "results" / "data")
    (claim,) = entry.claims
    judged = book.judged(entry, claim)
    by_hand = [
        tuned_of(rows, "fedasync", seed) - tuned_of(rows, "fedbuff", seed) for seed in (1, 2)
    ]
    bounds = interval(by_hand, "t")
    assert bounds is not None and f"[{bounds.low:+.3g}, {bounds.high:+.3g}]" in judged.finding.ours
    shutil.rmtree(tmp_path / "runs")
    pages.write(tmp_path / "results", [entry])
    text = (tmp_path / "results" / "dissemination.md").read_text()
    assert "## digits" in text and "figures/digits-accuracy.svg" in text
    assert (tmp_path / "results" / "figures" / "digits-accuracy.svg").is_file()


def tuned_of(rows: list, method: str, seed: int) -> float:
    (row,) = [row for row in rows if (row.method, row.seed, row.role) == (method, seed, "result")]
    return row.numbers["final_accuracy"]


@pytest.mark.usefixtures("warm_python")
def test_two_studies_from_nothing_give_the_same_pages_times_aside(tmp_path: Path) -> None:
    texts, files = [], []
    for name, workers in (("one", 1), ("two", 2)):
        folder = tmp_path / name
        EntryRunner(digits_entry(), work_in(folder, power=Power(workers))).run()
        made = pages.write(folder / "results", [digits_entry()])
        texts.append([pages.without_times(path.read_text()) for path in made])
        files.append(times_aside(folder / "results" / "data" / "digits.csv"))
        figure = folder / "results" / "figures" / "digits-accuracy.svg"
        texts[-1].append(figure.read_text())
        again = [path.read_bytes() for path in made]
        pages.write(folder / "results", [digits_entry()])
        assert [path.read_bytes() for path in made] == again
    assert texts[0] == texts[1] and files[0] == files[1]
    assert any("CPU-hours" in text for text in (path.read_text() for path in made))


def interrupted_after(runs: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Press Ctrl-C when so many runs have ended. Returns the list that gets their names."""
    ended: list[str] = []
    end = EntryLines.end

    def end_and_interrupt(lines: EntryLines, name: str, text: str) -> None:
        end(lines, name, text)
        ended.append(name)
        if len(ended) == runs:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(EntryLines, "end", end_and_interrupt)
    return ended


@pytest.mark.usefixtures("warm_python")
def test_a_part_is_done_before_the_next_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (part,) = digits_entry().parts
    entry = replace(digits_entry(), parts=(part, replace(part, name="second")))
    interrupted_after(RUNS, monkeypatch)
    assert EntryRunner(entry, work_in(tmp_path)).run().interrupted
    rows = Tables(tmp_path / "results" / "data", entry).rows
    assert [row.part for row in rows] == ["main"] * RUNS


@pytest.mark.usefixtures("warm_python")
def test_a_study_goes_on_after_an_interruption_and_from_the_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tmp_path / "whole"
    EntryRunner(digits_entry(), work_in(whole)).run()
    ends = interrupted_after(5, monkeypatch)  # after the first run of the table
    parts = tmp_path / "parts"
    assert EntryRunner(digits_entry(), work_in(parts)).run().interrupted
    data = parts / "results" / "data"
    assert len(Tables(data, digits_entry()).rows) == 5
    shutil.rmtree(parts / "runs")  # as on another machine, which has the files alone
    assert EntryRunner(digits_entry(), work_in(parts)).run() == Did()
    assert len(ends) == RUNS, "no finished run was repeated"
    one, other = (folder / "results" / "data" / "digits.csv" for folder in (whole, parts))
    assert times_aside(one) == times_aside(other)
    assert EntryRunner(digits_entry(), work_in(parts)).run() == Did() and len(ends) == RUNS


@pytest.mark.usefixtures("warm_python")
def test_a_finished_run_that_the_files_lack_is_read(tmp_path: Path) -> None:
    EntryRunner(digits_entry(), work_in(tmp_path)).run()
    csv = tmp_path / "results" / "data" / "digits.csv"
    before, lines = times_aside(csv), csv.read_text().splitlines()
    csv.write_text("\n".join(lines[:4]) + "\n")  # the program was killed before it wrote the rest
    runs = sorted((tmp_path / "runs").rglob("summary.json"))
    times = [path.stat().st_mtime_ns for path in runs]
    EntryRunner(digits_entry(), work_in(tmp_path)).run()
    assert times_aside(csv) == before and [path.stat().st_mtime_ns for path in runs] == times


@pytest.mark.usefixtures("warm_python")
def test_a_measure_that_is_new_is_read_from_the_runs_that_are_there(tmp_path: Path) -> None:
    EntryRunner(digits_entry(), work_in(tmp_path)).run()
    (part,) = digits_entry().parts
    more = replace(digits_entry(), parts=(replace(part, measures={"seven": lambda run: 7.0}),))
    EntryRunner(more, work_in(tmp_path)).run()
    rows = Tables(tmp_path / "results" / "data", more).rows
    assert {row.numbers["seven"] for row in rows} == {7.0} and len(rows) == RUNS


@pytest.mark.usefixtures("warm_python")
def test_no_more_runs_begin_when_the_budget_is_spent(tmp_path: Path) -> None:
    work = work_in(tmp_path, budget=Budget(limit_s=1e-6))
    assert EntryRunner(digits_entry(), work).run().interrupted and work.budget.is_spent
    data = tmp_path / "results" / "data"
    assert len(Tables(data, digits_entry()).rows) == 1
    assert EntryRunner(digits_entry(), work_in(tmp_path)).run() == Did()
    assert len(Tables(data, digits_entry()).rows) == RUNS


@pytest.mark.usefixtures("warm_python")
def test_results_of_other_code_are_refused_and_anew_runs_them(tmp_path: Path) -> None:
    EntryRunner(digits_entry(), work_in(tmp_path)).run()
    other = work_in(tmp_path, changes=("training.learning_rate=0.05",))
    with pytest.raises(UserError, match=r"another config|the config has changed.*--anew"):
        EntryRunner(digits_entry(), other).run()
    csv = tmp_path / "results" / "data" / "digits.csv"
    text = csv.read_text()
    (tmp_path / "runs").rename(tmp_path / "gone")
    with pytest.raises(UserError, match=r"made by other code: the config has changed: --conf"):
        EntryRunner(digits_entry(), other).run()
    assert csv.read_text() == text
    csv.write_text(re.sub(r",s[0-9a-f]{8}-", ",s00000000-", text))
    with pytest.raises(UserError, match="the strategy's code has changed"):
        EntryRunner(digits_entry(), work_in(tmp_path)).run()
    assert EntryRunner(digits_entry(), replace(other, anew=True)).run() == Did()
    rows = Tables(csv.parent, digits_entry()).rows
    assert len(rows) == RUNS and "s00000000" not in csv.read_text()


@pytest.mark.usefixtures("warm_python")
def test_results_are_confirmed_if_the_code_gives_the_same_numbers(tmp_path: Path) -> None:
    EntryRunner(digits_entry(), work_in(tmp_path)).run()
    data = tmp_path / "results" / "data"
    csv, curves = data / "digits.csv", data / "digits-curves.csv"
    text = csv.read_text()
    assert not Confirmation(EntryRunner(digits_entry(), work_in(tmp_path))).run()
    csv.write_text(re.sub(r"-t[0-9a-f]{8}-", "-t00000000-", text))
    old = Tables(data, digits_entry()).rows
    point = next(line for line in curves.read_text().splitlines() if ",fedbuff,2," in line)
    before = curves.read_text()
    first = next(line for line in before.splitlines() if ",fedasync,1," in line)
    curves.write_text(before.replace(first, first + "9"))
    with pytest.raises(UserError, match=r"fedasync .* gives other numbers at 0 emulated s: --anew"):
        Confirmation(EntryRunner(digits_entry(), work_in(tmp_path))).run()
    assert Tables(data, digits_entry()).rows == old and point in curves.read_text()
    curves.write_text(before)
    assert Confirmation(EntryRunner(digits_entry(), work_in(tmp_path))).run()
    rows = Tables(data, digits_entry()).rows
    assert [row.made_by for row in rows] == [row.digest for row in old]
    assert [row.digest for row in rows] == [line.split(",")[-3] for line in text.splitlines()[1:]]
    assert EntryRunner(digits_entry(), work_in(tmp_path)).run() == Did()
    other = work_in(tmp_path, changes=("training.learning_rate=0.05",))
    with pytest.raises(UserError, match="the config has changed, so its numbers cannot"):
        Confirmation(EntryRunner(digits_entry(), other)).run()


@pytest.mark.usefixtures("warm_python")
def test_runs_of_other_code_are_not_taken_from_their_directories(tmp_path: Path) -> None:
    EntryRunner(digits_entry(), work_in(tmp_path)).run()
    (tmp_path / "results" / "data" / "digits.csv").unlink()
    ledger = tmp_path / "runs" / "digits-small" / "runs.json"
    ledger.write_text(ledger.read_text().replace('"s', '"s0000'))
    with pytest.raises(UserError, match="was made by other code: the strategy's code has changed"):
        EntryRunner(digits_entry(), work_in(tmp_path)).run()


@pytest.mark.usefixtures("warm_python")
def test_a_run_on_the_wall_clock_has_its_verdict(tmp_path: Path) -> None:
    (main,) = digits_entry().parts
    wall = Part(
        "sockets",
        main.config,
        (MethodPlan("fedasync"),),
        overrides=main.overrides,
        small=("stop.emulated_s=2.0",),
        seeds=(1,),
        settings_of="main",
        clock=WALL,
    )
    entry = replace(digits_entry(), parts=(main, wall))
    assert EntryRunner(entry, work_in(tmp_path)).run() == Did()
    data = tmp_path / "results" / "data"
    (row,) = [row for row in Tables(data, entry).rows if row.part == "sockets"]
    assert row.fidelity in ("faithful", "strained") and row.cpu_s and row.setting["alpha"]
    csv = data / "digits.csv"
    csv.write_text(csv.read_text().replace(",faithful,", ",strained,"))
    pages.write(tmp_path / "results", [entry])
    page = (tmp_path / "results" / "dissemination.md").read_text()
    assert "fedasync (strained: 1 of 1)" in page and "Some of these runs are **strained**" in page
    assert "Clock: virtual and wall (real sockets)." in page


# ------------------------------------------------------------------ what is refused
QUICKSTART = CONFIGS / "quickstart.toml"
MIXED = ("fedavg", "fedasync")
TWO = {"alpha": (0.3, 0.6)}


def plan_of(part: Part, folder: Path) -> PartPlan:
    return PartPlan(entry_of(part), part, Scale.paper, folder)


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (
            part_of(MIXED, overrides=("stop={versions=5}",)),
            "stop: expected emulated_s alone, found versions: fedavg is synchronous and fedasync",
        ),
        (
            part_of(MIXED, overrides=("stop={updates=5, emulated_s=9.0}",)),
            "expected emulated_s alone, found updates, emulated_s",
        ),
        (part_of(["fedavk"]), "no strategy 'fedavk' (nearest: 'fedavg')"),
        (part_of(["fedavg"], overrides=("edges.cuont=3",)), "edges.cuont"),
        (part_of(["fedavg", "fedavg"]), "two methods have the name 'fedavg'"),
        (
            Part("main", QUICKSTART, (MethodPlan("fedasync", TWO),)),
            "its methods have axes: expected tuning",
        ),
        (
            Part(
                "main",
                QUICKSTART,
                (MethodPlan("fedasync", TWO), MethodPlan("fedavg")),
                tuning=Tuning(),
            ),
            "expected equal numbers of settings to tune: fedasync 2, fedavg 1",
        ),
        (
            Part("main", QUICKSTART, (MethodPlan("fedasync", TWO),), tuning=Tuning(share=0.05)),
            "tuning.share 0.05: expected at least 0.1",
        ),
        (
            Part("main", QUICKSTART, (MethodPlan("fedasync", TWO),), tuning=Tuning(seed=2)),
            "tuning.seed 2: is a seed of the table",
        ),
        (
            Part(
                "main",
                QUICKSTART,
                (MethodPlan("fedasync", TWO), MethodPlan("fedbuff", tuned_as="fedasinc")),
                tuning=Tuning(),
            ),
            "fedbuff: tuned_as 'fedasinc': expected a method of the part",
        ),
        (
            Part("main", QUICKSTART, (MethodPlan("fedasync", TWO),), tuning=Tuning(), clock=WALL),
            "is on the wall clock: expected settings_of, not tuning",
        ),
    ],
)
def test_a_part_that_is_no_fair_study_is_refused(part: Part, told: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        plan_of(part, tmp_path).check()
    assert told in str(error.value) and len(str(error.value).splitlines()) == 1
    assert str(error.value).startswith("study, part main: ")


def test_methods_of_one_kind_may_stop_by_versions(tmp_path: Path) -> None:
    plan_of(part_of(["fedasync", "fedbuff"], overrides=("stop={versions=5}",)), tmp_path).check()
    tuned = Part(
        "main",
        QUICKSTART,
        (MethodPlan("fedasync", TWO), MethodPlan("fedbuff", {"buffer_size": (2, 4)})),
        overrides=("stop={versions=55}",),
        tuning=Tuning(share=0.1),
    )
    sweep = plan_of(tuned, tmp_path).sweep(lambda key: None)
    stops = {run.experiment.stop.versions for run in sweep.runs()}
    assert stops == {6}, "a tenth, rounded up"


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (
            entry_of(part_of(["fedavg"], overrides=('data={name="mnist", dir="nowhere"}',))),
            "no file train-images-idx3-ubyte",
        ),
        (
            entry_of(part_of(["fedavg"], settings_of="digits/main")),
            "takes the settings of digits/main, which has no results at this scale: run --entry",
        ),
    ],
)
def test_what_is_missing_is_told(
    entry: Entry, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "find", lambda name: digits_entry())
    with pytest.raises(UserError) as error:
        EntryRunner(entry, work_in(tmp_path)).run()
    text = str(error.value)
    assert told in text and text.startswith("study") and len(text.splitlines()) == 1
    assert "edgefl data get mnist" in text or "EDGEFL_DATA" not in text


def test_an_entry_that_cannot_be_run_here_says_what_it_needs(tmp_path: Path) -> None:
    entry = entry_of(part_of(["fedavg"]), needs="a GPU and 300 hours")
    EntryRunner(entry, work_in(tmp_path))
    with pytest.raises(UserError, match="at the paper's scale: a GPU and 300 hours"):
        EntryRunner(entry, work_in(tmp_path, scale=Scale.paper))


@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--entry", "seed1-fug5"], "--entry seed1-fug5: unknown entry"),
        ([], "expected --entry NAME, --pages or --list; --list shows the names"),
    ],
)
def test_a_wrong_command_is_one_line(words: list[str], told: str, tmp_path: Path) -> None:
    done = reproduced([*words, "--results", "results"], tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.usefixtures("warm_python")
def test_the_list_and_the_pages_need_no_run(tmp_path: Path) -> None:
    listed = reproduced(["--list", "--results", "results"], tmp_path)
    assert listed.returncode == 0, listed.stderr
    assert all(name in listed.stdout for name in registry.entries())
    made = reproduced(["--pages", "--results", "results"], tmp_path)
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "results" / "index.md").is_file()
