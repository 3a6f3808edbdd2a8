"""Every program in scripts/benchmarks and scripts/studies runs in its smallest form.

It is started like a user does. No test asserts a speed.
"""

from __future__ import annotations

import csv
from pathlib import Path

import orjson
import pytest
from paths import BENCHMARKS, STUDIES
from smallest import SMALLEST_BENCHMARKS, SOCKETS, assert_rows, ran

pytestmark = pytest.mark.usefixtures("warm_python")

TDMA = """
name = "small"
model = {name = "mlp", hidden = [4]}
training = {trainer = "none"}
edges = {count = 4}
devices = {samples_per_slot = 40.0}
stop = {emulated_s = 5.0}
evaluation = {every_versions = 0, every_s = 2.0, train_samples = 100}
strategies = [{strategy = "idfl", label = "idfl-s2", per_round = 2, local_steps = 5}]

[medium]
kind = "tdma"
slot_ms = 100.0
guard_ms = 10.0
rate_mbit_s = 4.0
slots_per_transfer = 1
"""
# A study's smallest form uses an installed data set, because the training does not matter.
STUDY = ["--quick", "--workers", "1", "--seeds", "1"]
SETTINGS = ["data.name=digits", "model.name=mlp", "edges.count=10", "stop.emulated_s=60"]
UNLABELLED = [
    "edges.count=20",
    "stop.emulated_s=60",
    "unlabelled.data=digits",
    "unlabelled.size=100",
]


def settings(*more: str) -> list[str]:
    """Return ``--set KEY=VALUE`` for each; the last value of a key is used."""
    kept = {each.partition("=")[0]: each for each in (*SETTINGS, *more)}
    return [word for each in kept.values() for word in ("--set", each)]


SMALLEST_STUDIES = {
    "map_dissemination.py": [*STUDY, *settings(), "--ratios", "5"],
    "scarce_links.py": [*STUDY, *settings(), "--slower", "50"],
    "study_tdma.py": ["--workers", "1", "--seeds", "1", "--config", "tdma.toml", "--slots", "50"],
    "table_fedasmu.py": [*STUDY, *settings(), "--methods", "fedavg,fedasmu"],
    "table_fedecho.py": [*STUDY, *settings(*UNLABELLED), "--methods", "fedbuff"],
    "table_tdma.py": ["--slots", "100"],
    "table_wkafl.py": [
        *STUDY,
        *settings("stop.versions=3"),
        *("--methods", "wkafl", "--rates", "0.02"),
    ],
    "tune_fedasmu.py": [*STUDY, *settings(), "--methods", "fedprox"],
}
AFTER_STUDY_TDMA = {"plan_tdma.py": ["study/small-50"]}  # needs runs and takes those of this study
NOT_IN_OUT = {"table_tdma.py"}  # has --json and no --out
# run by test_reproduce.py and test_a_tiny_model_is_made_of_texts
ELSEWHERE = {"make_tiny_models.py", "reproduce.py"}


def programs(folder: Path) -> set[str]:
    """Return the files that are programs, not helpers."""
    return {
        path.name for path in folder.glob("*.py") if 'if __name__ == "__main__"' in path.read_text()
    } - {"emulator_watch.py", "packet_watch.py"}  # child processes of others


def test_every_program_has_a_smallest_form() -> None:
    assert programs(BENCHMARKS) == SMALLEST_BENCHMARKS.keys()
    assert programs(STUDIES) == SMALLEST_STUDIES.keys() | AFTER_STUDY_TDMA.keys() | ELSEWHERE


@pytest.mark.parametrize("name", sorted(SMALLEST_BENCHMARKS.keys() - SOCKETS))
def test_a_benchmark_leaves_its_rows(name: str, tmp_path: Path) -> None:
    assert_rows(name, tmp_path)


@pytest.mark.parametrize("name", sorted(SMALLEST_STUDIES.keys() - {"study_tdma.py"} - NOT_IN_OUT))
def test_a_study_leaves_its_tables(name: str, tmp_path: Path) -> None:
    done = ran(STUDIES / name, [*SMALLEST_STUDIES[name], "--out", "study"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "everything works" in done.stderr
    assert_tables(tmp_path / "study-quick")


def test_tdma_is_studied_and_its_runs_are_set_against_the_plan(tmp_path: Path) -> None:
    (tmp_path / "tdma.toml").write_text(TDMA)
    done = ran(
        STUDIES / "study_tdma.py", [*SMALLEST_STUDIES["study_tdma.py"], "--out", "study"], tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert_tables(tmp_path / "study")
    (plan,) = AFTER_STUDY_TDMA
    planned = ran(STUDIES / plan, AFTER_STUDY_TDMA[plan], tmp_path)
    assert planned.returncode == 0, planned.stderr
    assert "idfl-s2" in planned.stdout and "100.0%" in planned.stdout


def test_the_table_of_the_tdma_paper_holds_what_is_planned(tmp_path: Path) -> None:
    words = [*SMALLEST_STUDIES["table_tdma.py"], "--json", "rows.json"]
    done = ran(STUDIES / "table_tdma.py", words, tmp_path)
    assert done.returncode == 0, done.stderr
    rows = orjson.loads((tmp_path / "rows.json").read_bytes())
    models = [row for row in rows if row["name"].startswith("models, ")]
    assert len({row["name"] for row in models}) == 10 and all(
        row["pass"] and row["value"] > 1 for row in models
    )
    assert all(list(row) == ["name", "value", "unit", "goal", "pass"] for row in rows)
    assert all((row["goal"] is None) == (row["pass"] is None) for row in rows)


def test_a_tiny_model_is_made_of_texts(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="needs the extra text")
    (tmp_path / "a.jsonl").write_text('{"text": "a cat sees a dog"}\n')
    words = ["bert", "--out", "tiny", "--texts", "a.jsonl", "--column", "text", "--hidden", "8"]
    done = ran(STUDIES / "make_tiny_models.py", words, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "MB of weights" in done.stdout and (tmp_path / "tiny" / "tokenizer.json").exists()
    words[-3] = "texts"
    refused = ran(STUDIES / "make_tiny_models.py", words, tmp_path)
    assert refused.returncode == 2 and "no column 'texts'" in refused.stderr.splitlines()[-1]


def assert_tables(folder: Path) -> None:
    """Check that each table has a row."""
    tables = list(folder.glob("*.csv"))
    assert tables
    for table in tables:
        with table.open(newline="") as file:
            assert list(csv.DictReader(file)), table.name


@pytest.mark.parametrize(
    ("script", "words", "expected"),
    [
        (BENCHMARKS / "edge.py", ["--turns", "0"], "--versions and --turns: expected 1 or more"),
        (BENCHMARKS / "fleet.py", ["--edges", "0"], "--edges 0: expected 1 or more"),
        (BENCHMARKS / "arm64.py", ["--check", "--seconds", "0"], "--seconds 0.0: expected more"),
        (BENCHMARKS / "scale.py", ["--most", "9"], "--most 9: expected 10 or more"),
        (BENCHMARKS / "startup.py", ["--turns", "0"], "--turns 0: expected 1 or more"),
        (BENCHMARKS / "startup.py", ["--against", "none"], "none: expected a checkout"),
        (BENCHMARKS / "strategies.py", ["--size", "0"], "--size 0"),
        (
            BENCHMARKS / "over_machines.py",
            ["--judge", "--out", "no"],
            "no: no runs of this benchmark",
        ),
        (BENCHMARKS / "agreement.py", ["--config", "none.toml"], "none.toml"),
        (STUDIES / "table_fedasmu.py", ["--methods", "fedavk"], "no strategy 'fedavk'"),
        (STUDIES / "plan_tdma.py", ["nowhere"], "nowhere"),
        (STUDIES / "table_tdma.py", ["--slots", "1"], "--slots 1: expected 100 or more"),
    ],
)
def test_wrong_input_is_one_line(
    script: Path, words: list[str], expected: str, tmp_path: Path
) -> None:
    done = ran(script, words, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 and expected in done.stderr
