"""Every program in scripts/benchmarks and scripts/studies runs in its smallest form.

It is started like a user does. No test asserts a speed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from paths import BENCHMARKS, STUDIES
from smallest import SMALLEST_BENCHMARKS, SOCKETS, assert_rows, ran
from typer.testing import CliRunner

from edgefl.cli import app

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
# run by test_reproduce_runs.py, test_flower_runs.py, and by tests below
ELSEWHERE = {"beside_flower.py", "make_tiny_models.py", "plan_tdma.py", "reproduce.py"}


def programs(folder: Path) -> set[str]:
    """Return the files that are programs, not helpers."""
    return {
        path.name for path in folder.glob("*.py") if 'if __name__ == "__main__"' in path.read_text()
    } - {"emulator_watch.py", "packet_watch.py"}  # child processes of others


def test_every_program_has_a_smallest_form() -> None:
    assert programs(BENCHMARKS) == SMALLEST_BENCHMARKS.keys()
    assert programs(STUDIES) == ELSEWHERE


@pytest.mark.parametrize("name", sorted(SMALLEST_BENCHMARKS.keys() - SOCKETS))
def test_a_benchmark_leaves_its_rows(name: str, tmp_path: Path) -> None:
    assert_rows(name, tmp_path)


def test_a_run_of_tdma_is_set_against_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tdma.toml").write_text(TDMA)
    said = CliRunner().invoke(app, ["run", "tdma.toml", "--clock", "virtual"])
    assert said.exit_code == 0, said.output
    planned = ran(STUDIES / "plan_tdma.py", ["runs/small"], tmp_path)
    assert planned.returncode == 0, planned.stderr
    assert "idfl-s2" in planned.stdout and "100.0%" in planned.stdout


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


def test_a_tiny_model_without_its_packages_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import make_tiny_models

    (tmp_path / "a.jsonl").write_text('{"text": "a cat sees a dog"}\n')
    words = ["bert", "--out", "tiny", "--texts", str(tmp_path / "a.jsonl"), "--column", "text"]
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    monkeypatch.setattr(sys, "argv", ["make_tiny_models.py", *words])
    with pytest.raises(SystemExit):
        make_tiny_models.main()
    assert "pip install 'edgefl[text]'" in capsys.readouterr().err.splitlines()[-1]


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
        (STUDIES / "beside_flower.py", ["--clients", "0"], "--clients 0: expected above 0"),
        (STUDIES / "plan_tdma.py", ["nowhere"], "nowhere"),
    ],
)
def test_wrong_input_is_one_line(
    script: Path, words: list[str], expected: str, tmp_path: Path
) -> None:
    done = ran(script, words, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 and expected in done.stderr
