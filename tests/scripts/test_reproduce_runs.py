"""Entries are run: once, again after an interruption, from the result files alone, never mixed."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean

import pytest
import reproduce
from reproduced import digits_entry, entry_of, part_of, reproduced, row_of
from reproduction import pages, registry
from reproduction.book import Book
from reproduction.entry import WALL, Entry, MethodPlan, Part, Scale
from reproduction.plans import DECAY, PartPlan, change
from reproduction.results import Key, Tables, read_machines, setting_of, setting_text
from reproduction.runner import Budget, EntryLines, EntryRunner, Work

from edgefl.clocks.choices import Power
from edgefl.clocks.setup.resumption import RunStage, git_commit
from edgefl.config.experiment import Stop
from edgefl.errors import UserError
from edgefl.plugins.sweep.sweep_runs import Did, SweepRun, locked
from edgefl.results.statistics import interval

pytestmark = [pytest.mark.rest, pytest.mark.usefixtures("warm_python")]
RUNS = 8  # of the digits entry: 2 methods x (2 settings + 2 seeds)


def work_in(folder: Path, **options: object) -> Work:
    given = {"scale": Scale.small, "power": Power(1), "out": folder / "runs"}
    return Work(**{**given, "data": folder / "results" / "data", **options})  # type: ignore[arg-type]  # of a mapping


def times_aside(path: Path) -> list[str]:
    """Return the rows of a result file without CPU and wall time."""
    return [
        ",".join(cells[:-6] + cells[-4:])
        for line in path.read_text().splitlines()
        if (cells := line.split(","))
    ]


def best_of(tables: Tables, role: str) -> dict[str, dict[str, str]]:
    """Return method -> its first setting with the highest mean score in the runs of a role."""
    scores = defaultdict[tuple[str, str], list[float]](list)
    for row in tables.rows:
        if row.role == role:
            score = row.numbers["final_accuracy"]
            assert score is not None
            scores[row.method, setting_text(row.setting)].append(score)
    found: dict[str, dict[str, str]] = {}
    for method, text in sorted(scores, key=lambda key: fmean(scores[key]), reverse=True):
        found.setdefault(method, setting_of(text))
    return found


def test_an_entry_is_tuned_and_run_and_its_page_needs_the_files_alone(tmp_path: Path) -> None:
    entry = digits_entry()
    assert EntryRunner(entry, work_in(tmp_path, power=Power(2))).run() == Did()
    data = tmp_path / "results" / "data"
    tables = Tables(data, entry)
    rows = tables.rows
    assert len(rows) == RUNS and all(row.cpu_s and row.cpu_s > 0.01 for row in rows)
    assert {row.seed for row in rows if row.role == "tuning"} == {101}
    tuned = {row.method: row for row in rows if row.role == "result"}
    chosen = best_of(tables, "tuning")
    assert {method: row.setting for method, row in tuned.items()} == chosen
    ends = {
        role: {row.numbers["emulated_s"] for row in rows if row.role == role}
        for role in (
            "result",
            "tuning",
        )
    }
    assert ends == {"result": {4.0}, "tuning": {2.0}}
    assert all(row.numbers["staleness_median"] is not None for row in rows)
    assert {row.digest.partition("-c")[0] for row in rows} == {git_commit()}
    assert set(read_machines(data)) == {row.machine for row in rows}
    (judged,) = Book([entry], data).judged(entry)
    values = {
        (row.method, row.seed): row.numbers["final_accuracy"]
        for row in rows
        if row.role == "result"
    }
    by_hand = [values["fedasync", seed] - values["fedbuff", seed] for seed in (1, 2)]
    bounds = interval(by_hand, "t")
    assert bounds is not None and f"[{bounds.low:+.3g}, {bounds.high:+.3g}]" in judged.finding.ours
    shutil.rmtree(tmp_path / "runs")
    pages.write(tmp_path / "results", [entry])
    text = (tmp_path / "results" / "dissemination.md").read_text()
    assert "## digits" in text and "figures/digits-accuracy.svg" in text
    assert (tmp_path / "results" / "figures" / "digits-accuracy.svg").is_file()


def test_looks_go_on_until_the_claims_are_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FedAsync is level with itself after two seeds; whether it reaches .5 is open then.

    The claim may be that of an entry that uses the runs. The part has a seed more than there are
    looks for, as one that chooses weights.
    """
    (part,) = digits_entry().parts
    methods = (MethodPlan(label="fedasync"), MethodPlan(label="fedasync", name="again"))
    short = part.model_copy(update={"methods": methods, "tuning": None, "seeds": (1, 2, 3, 4)})
    same = {"better": ["fedasync", "again", "final_accuracy"]}
    open_one = {"at_least": ["again", "final_accuracy"], "bound": 0.5}
    for judge, judge_of_user, seeds in (
        (same, same, {1, 2}),
        (open_one, same, {1, 2, 3, 4}),
        (same, open_one, {1, 2, 3, 4}),
    ):
        folder = tmp_path / f"{judge is open_one}-{judge_of_user is open_one}"
        claim = {"text": "It is", "published": "ours", "judge": judge}
        entry = digits_entry(parts=(short,), looks=(2, 3), claims=[claim])
        of_user = {**claim, "judge": {"of": entry.name, **judge_of_user}, "needs": [entry.name]}
        user = digits_entry(name="user", parts=(), uses=[entry.name], claims=[of_user])
        monkeypatch.setattr(
            registry, "entries", lambda given=(entry, user): {e.name: e for e in given}
        )
        assert EntryRunner(entry, work_in(folder, scale=Scale.paper)).run() == Did()
        rows = Tables(folder / "results" / "data", entry).rows
        assert {row.seed for row in rows} == seeds and {row.rule for row in rows} == {2}


def test_rows_of_an_earlier_rule_are_run_again_where_it_matters(tmp_path: Path) -> None:
    EntryRunner(digits_entry(), work_in(tmp_path)).run()
    csv = tmp_path / "results" / "data" / "digits.csv"
    before = csv.read_text()
    csv.write_text(before.replace(",2\n", ",\n"))
    assert {row.rule for row in Tables(csv.parent, digits_entry()).rows} == {1}
    summaries = list((tmp_path / "runs").rglob("summary.json"))
    for path in summaries:  # as they were when the rule was another one
        path.write_text(path.read_text().replace("convergence_window_s", "of_rule_1"))
    EntryRunner(digits_entry(), work_in(tmp_path)).run()  # its tuning has the convergence accuracy
    rows = Tables(csv.parent, digits_entry()).rows
    assert len(rows) == RUNS and {row.rule for row in rows} == {2}
    assert all("convergence_window_s" in path.read_text() for path in summaries), "run again"


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


def test_a_part_is_done_before_the_next_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (part,) = digits_entry().parts
    entry = digits_entry(parts=(part, part.model_copy(update={"name": "second"})))
    interrupted_after(RUNS, monkeypatch)
    assert EntryRunner(entry, work_in(tmp_path)).run().interrupted
    rows = Tables(tmp_path / "results" / "data", entry).rows
    assert [row.part for row in rows] == ["main"] * RUNS


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


def test_a_finished_run_or_measure_that_the_files_lack_is_read(tmp_path: Path) -> None:
    EntryRunner(digits_entry(), work_in(tmp_path)).run()
    csv = tmp_path / "results" / "data" / "digits.csv"
    before, lines = times_aside(csv), csv.read_text().splitlines()
    csv.write_text("\n".join(lines[:4]) + "\n")  # the program was killed before it wrote the rest
    late = EntryRunner(digits_entry(), work_in(tmp_path))
    runs = sorted((tmp_path / "runs").rglob("summary.json"))
    times = [path.stat().st_mtime_ns for path in runs]
    EntryRunner(digits_entry(), work_in(tmp_path)).run()
    assert times_aside(csv) == before and [path.stat().st_mtime_ns for path in runs] == times
    (part,) = digits_entry().parts
    more = digits_entry(parts=(part.model_copy(update={"measures": ("down_MB",)}),))
    EntryRunner(more, work_in(tmp_path)).run()
    rows = Tables(csv.parent, more).rows
    assert len(rows) == RUNS and all(row.numbers["down_MB"] for row in rows)
    tables = Tables(csv.parent, more)  # the column is there, for a part that was run since
    tables.put(replace(rows[0], numbers={**rows[0].numbers, "down_MB": None}, machine="other"))
    EntryRunner(more, work_in(tmp_path)).run()
    (again,) = [row for row in Tables(csv.parent, more).rows if row.machine == "other"]
    assert again.numbers == rows[0].numbers
    csv.write_text("\n".join(lines[:4]) + "\n")
    Tables(csv.parent, digits_entry()).put(replace(rows[0], scale=Scale.paper))
    late.run()  # it was made before
    scales = [row.scale for row in Tables(csv.parent, digits_entry()).rows]
    assert scales == [Scale.small] * RUNS + [Scale.paper]
    with (
        locked(csv.parent / ".locks" / "digits"),
        pytest.raises(UserError, match="digits: another run writes to it"),
    ):
        EntryRunner(digits_entry(), work_in(tmp_path, scale=Scale.paper)).run()


def test_only_the_named_parts_are_run(tmp_path: Path) -> None:
    (part,) = digits_entry().parts
    entry = digits_entry(parts=(part, part.model_copy(update={"name": "second"})))
    assert EntryRunner(entry, work_in(tmp_path, parts=("second",))).run() == Did()
    rows = Tables(tmp_path / "results" / "data", entry).rows
    assert [row.part for row in rows] == ["second"] * RUNS
    with pytest.raises(UserError, match=r"digits: --part secnd: not there \(nearest: 'second'\)"):
        EntryRunner(entry, work_in(tmp_path, parts=("secnd",)))


def test_no_more_runs_begin_when_the_budget_is_spent(tmp_path: Path) -> None:
    work = work_in(tmp_path, budget=Budget(limit_s=1e-6))
    assert EntryRunner(digits_entry(), work).run().interrupted and work.budget.is_spent
    data = tmp_path / "results" / "data"
    assert len(Tables(data, digits_entry()).rows) == 1
    assert EntryRunner(digits_entry(), work_in(tmp_path)).run() == Did()
    assert len(Tables(data, digits_entry()).rows) == RUNS


def test_results_of_another_config_are_refused_and_anew_runs_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    EntryRunner(digits_entry(), work_in(tmp_path)).run()
    other = work_in(tmp_path, changes=("training.learning_rate=0.05",))
    with pytest.raises(UserError, match=r"another config.*--anew"):
        EntryRunner(digits_entry(), other).run()
    csv = tmp_path / "results" / "data" / "digits.csv"
    text = csv.read_text()
    (tmp_path / "runs").rename(tmp_path / "gone")
    with pytest.raises(UserError, match=r"was made with another config: --anew runs digits again"):
        EntryRunner(digits_entry(), other).run()
    wrong = work_in(tmp_path, changes=("no.such_key=1",), anew=True)
    with pytest.raises(UserError, match="no"):
        EntryRunner(digits_entry(), wrong).run()
    assert csv.read_text() == text
    # rows of an earlier version, with digests of its code, and of another commit, are kept
    csv.write_text(re.sub(r",[0-9a-f]{12}\+?-c", ",s00000000-t00000000-c", text))
    capsys.readouterr()
    assert EntryRunner(digits_entry(), work_in(tmp_path)).run() == Did()
    assert f"8 of 8 runs were made by other code than {git_commit()}" in capsys.readouterr().err
    assert "s00000000" in csv.read_text()
    assert EntryRunner(digits_entry(), replace(other, anew=True)).run() == Did()
    assert len(Tables(csv.parent, digits_entry()).rows) == RUNS
    assert "s00000000" not in csv.read_text()


@pytest.mark.processes
def test_a_run_on_the_wall_clock_has_its_verdict(tmp_path: Path) -> None:
    (main,) = digits_entry().parts
    wall = part_of(
        ["fedasync"],
        name="sockets",
        overrides=main.overrides,
        small=("stop.emulated_s=2.0",),
        seeds=(1,),
        settings_of="main",
        clock=WALL,
    )
    entry = digits_entry(parts=(main, wall))
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

    # a run of another config is not taken for this one
    for changes, stage in (((), RunStage.finished), (("training.epochs=7",), None)):
        plan = EntryRunner(entry, work_in(tmp_path, changes=changes)).plans[1]
        (run,) = plan.table({"fedasync": row.setting})
        assert run.stage is stage


# ------------------------------------------------------------------ what is refused
MIXED = ("fedavg", "fedasync")
TUNED = MethodPlan(label="fedasync", axes={"alpha": (0.3, 0.6)})


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
        (part_of([TUNED]), "its methods have axes: expected tuning"),
        (
            part_of([TUNED, "fedavg"], tuning={}),
            "fedavg: has nothing to tune: expected tuning.knobs",
        ),
        (part_of([TUNED], tuning={"share": 0.05}), "tuning.share 0.05: expected at least 0.1"),
        (part_of([TUNED], tuning={"seeds": (11, 2)}), "tuning.seeds 2: is a seed of the table"),
        (
            part_of([TUNED], tuning={"seeds": (101,), "confirm": (102, 101)}),
            "tuning.confirm 101: is a seed of tuning.seeds",
        ),
        (
            part_of([TUNED, MethodPlan(label="fedbuff", tuned_as="fedasinc")], tuning={}),
            "fedbuff: tuned_as 'fedasinc': expected a method of the part",
        ),
        (
            part_of([TUNED], tuning={}, clock=WALL),
            "is on the wall clock: expected settings_of, not tuning",
        ),
        (
            part_of([MethodPlan(label="fedasync", changes=("stop.versions=9",))]),
            "fedasync: stop.versions=9: expected an equal stop",
        ),
        (
            part_of([MethodPlan(label="fedasync", changes=("speed=1",))], tuning={}),
            "fedasync: expected no changes in a tuned part",
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
    other = MethodPlan(label="fedbuff", axes={"buffer_size": (2, 4)})
    tuned = part_of([TUNED, other], overrides=("stop={versions=55}",), tuning={"share": 0.1})
    sweep = plan_of(tuned, tmp_path).sweep(lambda key: None)
    stops = {run.experiment.stop.versions for run in sweep.runs()}
    assert stops == {6}, "a tenth, rounded up"


KNOBBED = part_of(
    [
        MethodPlan(label="fedasync", axes={"alpha": (0.6, 0.3), "a": (0.5, 0.1)}),
        MethodPlan(label="fedbuff", axes={"server_learning_rate": (1.0, 2.0)}),
        MethodPlan(
            label="fedasync",
            name="flat",
            options={"staleness": "constant"},
            axes={"alpha": (0.6, 0.3)},
            within={"fedasync": {"a": 0.01}},
        ),
    ],
    tuning={"knobs": {"training.learning_rate": (0.1, 0.2), DECAY: (1.0, 0.1)}, "extend": 1},
    overrides=("stop={emulated_s=60.0}",),
)


def test_the_grid_is_derived_from_the_knobs_and_moves_one_at_a_time(tmp_path: Path) -> None:
    """The score falls with each value's distance from .2, .3, .5 and a learning rate that falls."""
    best = {"training.learning_rate": 0.2, "alpha": 0.3, "a": 0.5, DECAY: 0.1}
    tried: dict[str, list[dict[str, float]]] = {}

    def score(key: Key) -> float | None:
        given = {name: float(value) for name, value in setting_of(key[5]).items()}
        return -sum(abs(given[name] - value) for name, value in best.items() if name in given)

    def do(runs: Sequence[SweepRun]) -> Did:
        for run in sweep.planned(runs):
            given = {name: float(value) for name, value in run.setting.items()}
            tried.setdefault(run.method.shown, []).append(given)
            decay = run.run.experiment.training.decay
            assert decay is not None and run.run.experiment.stop.emulated_s == 6.0
            assert decay.at(0, 6 * 10**9) == pytest.approx(given[DECAY])
        return Did()

    sweep = plan_of(KNOBBED, tmp_path).sweep(score)
    sweep.do(do)
    for name, own in (("fedasync", ["alpha", "a"]), ("fedbuff", ["server_learning_rate"])):
        assert list(tried[name][0]) == ["training.learning_rate", *own, DECAY]
    first = tried["fedasync"][:4]
    assert [(each["training.learning_rate"], each["alpha"]) for each in first] == [
        (0.1, 0.6), (0.1, 0.3), (0.2, 0.6), (0.2, 0.3),
    ]  # fmt: skip
    assert {(each["a"], each[DECAY]) for each in first} == {(0.5, 1.0)}
    assert tried["fedasync"][4] == {**best, "a": 0.1, DECAY: 1.0}, "then one knob"
    assert tried["fedasync"][5] == best, "and the next one, at the best so far"
    assert {**best, "a": 0.01} in tried["fedasync"], "the best setting of the nested method"
    settings = sweep.best_settings()
    assert {name: float(value) for name, value in settings["fedasync"].items()} == best
    for runs in tried.values():
        assert len(runs) == len({str(each) for each in runs}), "none twice"


def test_the_best_settings_are_confirmed_over_the_whole_time(tmp_path: Path) -> None:
    """The short runs favour a learning rate of .2, with which one whole run fails."""
    assert KNOBBED.tuning is not None
    tuning = KNOBBED.tuning.model_copy(update={"confirm": (102, 103), "extend": 0})

    def score(key: Key) -> float | None:
        _, _, _, role, seed, text = key
        rate = float(setting_of(text)["training.learning_rate"])
        return None if (role, rate, seed) == ("confirming", 0.2, 103) else rate

    sweep = plan_of(KNOBBED.model_copy(update={"tuning": tuning}), tmp_path).sweep(score)
    sweep.do(lambda runs: Did())
    runs = sweep.confirming()
    assert {run.run.experiment.stop.emulated_s for run in runs} == {60.0}
    tried = {(run.method.shown, run.setting["training.learning_rate"], run.seed) for run in runs}
    names = ("fedasync", "fedbuff", "flat")
    assert tried == {*product(names, ("0.1", "0.2"), (102, 103))} and len(runs) == 16
    of_outer = {run.setting["a"] for run in runs if run.method.shown == "fedasync"}
    assert of_outer == {"0.5", "0.01"}, "those of the nested method, too"
    for method in sweep.methods:
        top = sweep.best(method)
        assert top is not None and top.setting["training.learning_rate"] == 0.2
        assert sweep.best_settings()[method.name]["training.learning_rate"] == "0.1"


def test_confirmed_settings_are_those_of_the_table_and_no_other_is_mixed_with_them(
    tmp_path: Path,
) -> None:
    entry = digits_entry()
    (part,) = entry.parts
    assert part.tuning is not None
    tuning = part.tuning.model_copy(update={"confirm": (102, 103)})
    entry = entry.model_copy(update={"parts": (part.model_copy(update={"tuning": tuning}),)})
    assert EntryRunner(entry, work_in(tmp_path)).run() == Did()
    data = tmp_path / "results" / "data"
    tables = Tables(data, entry)
    confirming = [row for row in tables.rows if row.role == "confirming"]
    assert {row.numbers["emulated_s"] for row in confirming} == {4.0}
    assert {row.seed for row in confirming} == {102, 103} and len(confirming) == 8
    of_table = {row.method: row.setting for row in tables.rows if row.role == "result"}
    assert of_table == best_of(tables, "confirming")
    page = "".join(each.read_text() for each in pages.write(tmp_path / "results", [entry]))
    assert "were run over the whole time, too, with seeds 102, 103" in page
    for row in [row for row in tables.rows if row.role == "result"]:
        other = "0.3" if row.setting.get("alpha") == "0.6" else "0.6"
        if row.method == "fedasync":  # of an earlier choice; one with a seed of a later look
            tables.put(replace(row, seed=row.seed + 1, setting={"alpha": other}))
    assert EntryRunner(entry, work_in(tmp_path)).run() == Did()
    after = [row for row in Tables(data, entry).rows if row.role == "result"]
    assert {row.method: row.setting for row in after} == of_table
    assert sorted((row.method, row.seed) for row in after) == [
        ("fedasync", 1), ("fedasync", 2), ("fedbuff", 1), ("fedbuff", 2),
    ]  # fmt: skip


def test_what_is_left_of_the_learning_rate_is_a_share_of_the_run(tmp_path: Path) -> None:
    best = {"fedbuff": {DECAY: "0.1"}, "fedasync": {DECAY: "1.0"}}
    runs = {run.method.shown: run for run in plan_of(KNOBBED, tmp_path).table(best)}
    decays = {name: run.run.experiment.training.decay for name, run in runs.items()}
    assert decays["fedbuff"].at(0, 30 * 10**9) == pytest.approx(0.55)
    assert decays["fedasync"].at(0, 30 * 10**9) == 1.0 and decays["flat"] is None
    for left in ("0.0", "1.5"):
        with pytest.raises(UserError, match=f"training.decay: expected above 0 .* found {left}"):
            change(DECAY, left, Stop(emulated_s=1.0))
    assert "over_versions=7" in change(DECAY, "0.5", Stop(versions=7))


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


def test_a_method_without_the_settings_that_its_part_takes_is_not_run(tmp_path: Path) -> None:
    """The source was interrupted: FedBuff would have its defaults against a tuned FedAsync."""
    (part,) = digits_entry().parts
    second = part_of(["fedasync", "fedbuff"], "second", settings_of="main")
    entry = digits_entry(parts=(part, second))
    tables = Tables(tmp_path / "results" / "data", entry)
    tables.put(row_of("fedasync", 1, scale=Scale.small, setting={"alpha": "0.3"}))
    tables.put(row_of("fedbuff", 1, part="second", scale=Scale.small, setting={"a": "1"}))
    with pytest.raises(UserError, match="part second: part main has no best setting of fedbuff"):
        EntryRunner(entry, work_in(tmp_path, parts=("second",))).run()
    assert len(Tables(tables.path.parent, entry).rows) == 2


def test_anew_forgets_the_named_entries_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = []

    def run(runner: EntryRunner) -> Did:
        done.append((runner.entry.name, runner.work.anew))
        return Did(interrupted=runner.work.anew)

    monkeypatch.setattr(EntryRunner, "run", run)
    words = ["--entry", "seed1-fig3", "--anew", "--results", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["reproduce.py", *words])
    with pytest.raises(SystemExit):
        reproduce.main()
    used = ("seed1-mnist-a", "seed1-mnist-b", "seed1-mnist-b-unit")
    assert done == [*((name, False) for name in used), ("seed1-fig3", True)]
    assert "the same command without --anew goes on" in capsys.readouterr().err


def test_an_entry_that_cannot_be_run_here_says_what_it_needs(tmp_path: Path) -> None:
    entry = entry_of(part_of(["fedavg"]), needs="a GPU and 300 hours")
    EntryRunner(entry, work_in(tmp_path))
    with pytest.raises(UserError, match="at the paper's scale: a GPU and 300 hours"):
        EntryRunner(entry, work_in(tmp_path, scale=Scale.paper))


@pytest.mark.rest
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


@pytest.mark.rest
def test_the_list_and_the_pages_need_no_run(tmp_path: Path) -> None:
    listed = reproduced(["--list", "--results", "results"], tmp_path)
    assert listed.returncode == 0, listed.stderr
    assert all(name in listed.stdout for name in registry.entries())
    words = ["--entry", "seed1-readings", "--without-used", "--results", "results"]
    made = reproduced(words, tmp_path)
    assert made.returncode == 0, made.stderr
    told = [line for line in made.stderr.splitlines() if ", scale small: " in line]
    assert [line.partition(",")[0] for line in told] == ["seed1-readings"]
    assert (tmp_path / "results" / "index.md").is_file()
