"""Result files: what is written is read again, whatever the order of the runs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from reproduced import curve_rows, entry_of, part_of, reproduced, row_of
from reproduction import registry
from reproduction.entry import Entry, Scale
from reproduction.ledger import CpuClock, Ledger
from reproduction.results import NUMBERS
from reproduction.tables import (
    CURVE_POINTS,
    Tables,
    curve_of,
    key_of,
    numbers_of,
    put_machine,
    read_machines,
    setting_of,
    setting_text,
)

from edgefl.errors import UserError

ENTRY = entry_of(part_of(["b", "a"], measures={"share": lambda run: 1.0}))
ROWS = [
    row_of("a", 2, {"final_accuracy": 0.123456789, "share": None}, cpu_s=1.5, digest="s1-t2-c3"),
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
        numbers = dict.fromkeys((*NUMBERS, "share")) | dict(own.numbers)
        assert replace(row, numbers={}) == replace(own, numbers={}) and row.numbers == numbers


def test_the_files_do_not_depend_on_the_order_of_the_runs(tmp_path: Path) -> None:
    one = put_all(tmp_path / "one", ROWS)
    other = put_all(tmp_path / "other", ROWS[::-1])
    assert one.path.read_bytes() == other.path.read_bytes()
    assert one.curves_path.read_bytes() == other.curves_path.read_bytes()
    methods = [line.split(",")[:3] for line in one.path.read_text().splitlines()[1:]]
    assert methods[0] == ["small", "main", "b"], "the small scale first, methods as in the entry"
    again = put_all(tmp_path / "one", ROWS)
    assert again.path.read_bytes() == other.path.read_bytes() and len(again.rows) == len(ROWS)


def test_a_new_setting_replaces_a_table_run_and_is_another_tuning_run(tmp_path: Path) -> None:
    tables = put_all(tmp_path, ROWS)
    tables.put(replace(ROWS[0], setting={"mu": "9.0"}))
    assert len(tables.rows) == len(ROWS)
    tables.put(replace(ROWS[2], setting={"mu": "9.0"}))
    assert len(tables.rows) == len(ROWS) + 1
    tables.drop(Scale.paper)
    found = Tables(tmp_path, ENTRY)
    assert [row.method for row in found.rows] == ["b"] and len(found.curves) == 3


def test_settings_as_text() -> None:
    setting = {"mu": "3.0", "training.learning_rate": "0.1"}
    assert setting_text(setting) == "mu=3.0; training.learning_rate=0.1"
    assert setting_of(setting_text(setting)) == setting and setting_of("") == {}


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
    found = numbers_of(tmp_path, {"seven": lambda run: 7.0, "none": lambda run: None})
    assert found["final_accuracy"] == 0.0123456789, "nine digits"
    assert found["final_loss"] is None and found["none"] is None and found["seven"] == 7.0
    assert (found["updates_discarded"], found["staleness_mean"]) == (3.0, 1.5)
    # the last fifth: evaluations 80 to 99, with losses 1.20 to 1.01
    assert found["late_train_loss"] == pytest.approx(1.105)
    assert found["final_train_loss"] == pytest.approx(1.01)
    curve = curve_of(tmp_path, Scale.paper, "main", "a", 1)
    assert len(curve) == CURVE_POINTS and (curve[0].version, curve[-1].version) == (0, 99)
    assert curve[0].train_loss is None and curve[-1].loss == pytest.approx(2.01)


def test_machines_are_kept(tmp_path: Path) -> None:
    assert read_machines(tmp_path) == {}
    put_machine(tmp_path, "b1", {"cpu": "one", "cores": "2"})
    put_machine(tmp_path, "a1", {"cpu": "two", "torch": "2"})
    assert read_machines(tmp_path) == {
        "a1": {"cpu": "two", "cores": "", "torch": "2"},
        "b1": {"cpu": "one", "cores": "2", "torch": ""},
    }


def test_the_ledger_keeps_digests_and_time(tmp_path: Path) -> None:
    run = tmp_path / "main" / "a" / "seed1"
    ledger = Ledger(tmp_path)
    assert ledger.digest(run) is None and ledger.used_s(run) == 0.0
    ledger.begin({run: "s1"})
    ledger.note(run, 2.5)
    again = Ledger(tmp_path)
    assert (again.digest(run), again.used_s(run)) == ("s1", 2.5)
    again.path.write_text("{")
    with pytest.raises(UserError, match="is damaged"):
        Ledger(tmp_path)


def test_the_clock_measures_runs_of_this_process_one_after_another() -> None:
    clock = CpuClock(2)
    assert clock.used_s(0) is None and clock.used_s(1) is None
    clock.begin(0)
    assert sum(at * at for at in range(300_000)) > 0
    used_s = clock.used_s(0)
    assert used_s is not None and used_s >= 0.0
    clock.begin(1)
    assert clock.used_s(0) is None, "it has ended" and clock.used_s(1) is not None


# ------------------------------------------------------------------ the registry
WITHOUT_CACHE = registry.entries.__wrapped__


def registered(monkeypatch: pytest.MonkeyPatch, *entries: Entry) -> None:
    monkeypatch.setattr(registry, "_bound", lambda: iter(entries))
    monkeypatch.setattr(registry, "entries", WITHOUT_CACHE)


def test_entries_are_found_with_those_that_they_use(monkeypatch: pytest.MonkeyPatch) -> None:
    late, early = entry_of(name="late", paper="seed4"), entry_of(name="early", paper="seed1")
    user = entry_of(name="user", paper="seed0", uses=("late", "early"))
    registered(monkeypatch, late, early, user)
    assert list(registry.entries()) == ["user", "early", "late"], "paper by paper"
    names = [entry.name for entry in registry.with_used([user, early])]
    assert names == ["late", "early", "user"]
    with pytest.raises(UserError, match=r"--entry earlie: unknown entry \(nearest: 'early'"):
        registry.find("earlie")


@pytest.mark.usefixtures("warm_python")
def test_used_entries_can_be_left_out(tmp_path: Path) -> None:
    words = ["--entry", "seed1-readings", "--without-used", "--results", "results"]
    done = reproduced(words, tmp_path)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if ", scale small: " in line]
    assert [line.partition(",")[0] for line in told] == ["seed1-readings"]


def test_a_registry_that_is_wrong_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch, entry_of(), entry_of())
    with pytest.raises(UserError, match="two entries have the name 'study'"):
        registry.entries()
    registered(monkeypatch, entry_of(paper="seed9"))
    with pytest.raises(UserError, match="study: unknown paper 'seed9'"):
        registry.entries()
